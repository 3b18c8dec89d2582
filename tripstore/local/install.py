"""Install what the tests with real servers need: `python -m tripstore.local.install [--check]`.

Safe to repeat; quick when all is there. Starts no service, and says what to run when we may not install.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

import click

from tripstore.local.browser import find_chromium
from tripstore.local.distribution import find_mysql, install_mysql
from tripstore.local.errors import LocalServerError
from tripstore.local.mariadb import find_mariadb
from tripstore.local.pgbouncer import find_pgbouncer
from tripstore.local.postgres_programs import find_machine_postgres
from tripstore.local.promtool import find_promtool, install_promtool
from tripstore.local.template import run
from tripstore.local.zookeeper import find_zookeeper

POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = "#!/bin/sh\n# Written by tripstore.local.install for the moment of an installation.\nexit 101\n"


@dataclass(frozen=True)
class Need:
    """One thing the tests need: what it is for, how to look for it, and its Debian packages or how to unpack it."""

    name: str
    purpose: str
    find: Callable[[], object]
    packages: tuple[str, ...] = ()
    unpack: Callable[[], object] | None = None

    @property
    def is_met(self) -> bool:
        """Return whether it is on this machine."""
        return self.find() is not None


# The -core packages have the programs and no service; they are all that mariadb-server would give us.
NEEDS = (
    Need("MariaDB", "clusters", find_mariadb, ("mariadb-server-core", "mariadb-client-core")),
    Need("Postgres", "the legacy store", find_machine_postgres, ("postgresql",)),
    Need("PgBouncer", "poolers before the legacy store", find_pgbouncer, ("pgbouncer",)),
    # The library has the server's classes. What the package `zookeeper` adds is a user and scripts.
    Need("ZooKeeper", "leases kept in it", find_zookeeper, ("libzookeeper-java", "default-jre-headless")),
    Need("debootstrap", "installing MySQL", lambda: shutil.which("debootstrap"), ("debootstrap",)),
    Need("MySQL", "clusters", find_mysql, unpack=install_mysql),
    Need("Chromium", "the report's tests", find_chromium, ("chromium",)),
    Need("libatomic", "what drives Chromium", lambda: find_library("atomic"), ("libatomic1",)),
    Need("systemd-analyze", "the units", lambda: shutil.which("systemd-analyze"), ("systemd",)),
    Need("promtool", "rules and dashboards", find_promtool, unpack=install_promtool),
)


@click.command()
@click.option("--check", is_flag=True, help="Only say what is there and what is missing; exit 1 if anything is.")
def install(check: bool) -> None:
    """Install databases, a pooler, a ZooKeeper, a browser and promtool for what runs here. Needs root on Debian."""
    missing = [need for need in NEEDS if not need.is_met]
    for need in NEEDS:
        click.echo(f"{'missing' if need in missing else 'there':8} {need.name} ({need.purpose})")
    if not missing:
        return
    if check:
        sys.exit(1)
    try:
        _install(missing)
    except LocalServerError as error:
        click.echo(f"{error.message}\n{error.hint}", err=True)
        sys.exit(1)


def _install(missing: list[Need]) -> None:
    _refuse_without_rights()
    packages = [package for need in missing for package in need.packages]
    # The lists of a fresh machine are empty; what is unpacked comes by them, too.
    run(["apt-get", "--quiet", "update"])
    if packages:
        click.echo(f"Installing {', '.join(packages)} …")
        _install_packages(packages)
    for need in missing:
        if need.unpack is not None:
            click.echo(f"Unpacking {need.name} (half a minute at most) …")
            need.unpack()


def _refuse_without_rights() -> None:
    if shutil.which("apt-get") is None:
        raise LocalServerError(
            "This machine has no apt-get.",
            "Install MariaDB and Postgres yourself, or use a Debian container.",
        )
    if os.geteuid() != 0:
        raise LocalServerError("Only root can install packages.", _how_root_does_it())


def _how_root_does_it() -> str:
    """The command for this user's cache folder. A minimal machine has no sudo."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    command = f"env XDG_CACHE_HOME={cache} {sys.executable} -m tripstore.local.install"
    return f"Run: sudo {command}" if shutil.which("sudo") else f"Run as root (`su -`): {command}"


def _install_packages(packages: list[str]) -> None:
    with _no_service_starts():
        options = ["--quiet", "--yes", "--no-install-recommends"]
        run(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", *options, *packages])


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid packages to start services while the block runs; a policy that was there stays untouched."""
    if POLICY.exists() and POLICY.read_text(encoding="utf-8") != NO_SERVICES:
        yield
        return
    POLICY.write_text(NO_SERVICES, encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    install()
