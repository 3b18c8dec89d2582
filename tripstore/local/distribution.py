"""Real MySQL on a machine that has none: Debian sid's package with its libraries, in a folder.

No chroot: mysqld runs by the folder's own dynamic loader, beside whatever the machine has. The folder is
whole or absent, because it is built aside and renamed.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tripstore.local.errors import LocalServerError
from tripstore.local.template import cache_folder, give_to_owner_of, locked, run

SUITE = "sid"
PACKAGE = "mysql-server-core"
# Of all that comes along, only the server, its messages and plugins, and the libraries are kept.
UNPACKED = ("lib*.deb", "zlib1g*.deb", f"{PACKAGE}*.deb")
KEPT = ("sbin/mysqld", "share/mysql", "lib/mysql", "lib/*-linux-gnu*", "lib*/ld-linux*")


@dataclass(frozen=True)
class MySQLDistribution:
    """An unpacked MySQL: knows how to run it, not what for."""

    folder: Path

    def command(self, *options: str) -> list[str]:
        """Return the command that runs mysqld; `options` come first, as --defaults-file has to."""
        loader = self._only("lib*/ld-linux*")
        libraries = self._only("lib/*-linux-gnu*")
        server = [str(loader), "--library-path", str(libraries), str(self.folder / "usr/sbin/mysqld")]
        return [*server, *options, *self._own_options()]

    @property
    def version(self) -> str:
        """Return the version mysqld says it has, such as 9.7.4-2."""
        return _version(self)

    def _own_options(self) -> list[str]:
        usr = self.folder / "usr"
        return [
            f"--basedir={usr}",
            f"--plugin-dir={usr / 'lib/mysql/plugin'}",
            f"--lc-messages-dir={usr / 'share/mysql'}",
            f"--character-sets-dir={usr / 'share/mysql/charsets'}",
            "--secure-file-priv=NULL",  # Debian's default is a folder that only its package makes
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]

    def _only(self, pattern: str) -> Path:
        return sorted((self.folder / "usr").glob(pattern))[0]


def find_mysql() -> MySQLDistribution | None:
    """Return the installed MySQL, or None."""
    folder = _folder()
    return MySQLDistribution(folder) if folder.exists() else None


def get_mysql() -> MySQLDistribution:
    """Return the installed MySQL, or raise and say how to install it."""
    found = find_mysql()
    if found is None:
        raise LocalServerError(
            "MySQL is not installed for local servers.", "Run `python -m tripstore.local.install` as root."
        )
    return found


def install_mysql() -> MySQLDistribution:
    """Download and unpack MySQL, unless it is there. Two at once: the second waits and finds it."""
    folder = _folder()
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            _install(folder)
    return MySQLDistribution(folder)


def _folder() -> Path:
    return cache_folder() / f"mysql-{SUITE}"


def _install(folder: Path) -> None:
    # Under the lock, so what lies there is from a process that was killed.
    staging = folder.with_name(f"{folder.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    with tempfile.TemporaryDirectory(prefix="debootstrap-", dir=staging) as download:
        archives = _download(Path(download))
        everything = Path(download) / "unpacked"
        for pattern in UNPACKED:
            for archive in sorted(archives.glob(pattern)):
                run(["dpkg-deb", "--extract", str(archive), str(everything)])
        _keep(everything / "usr", staging / "usr")
    MySQLDistribution(staging).version  # noqa: B018 - it runs, or this raises before anybody finds it
    give_to_owner_of(folder.parent, staging)
    staging.rename(folder)


def _download(folder: Path) -> Path:
    """Have debootstrap work out and check what the package needs; it uses its default mirror."""
    target = folder / "root"
    options = ["--download-only", "--variant=minbase", f"--include={PACKAGE}"]
    run(["debootstrap", *options, SUITE, str(target)])
    return target / "var/cache/apt/archives"


def _keep(source: Path, target: Path) -> None:
    for pattern in KEPT:
        for found in source.glob(pattern):
            place = target / found.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            found.rename(place)


@cache
def _version(distribution: MySQLDistribution) -> str:
    words = run(distribution.command("--no-defaults", "--version")).split()
    return words[words.index("Ver") + 1]
