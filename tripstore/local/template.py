"""A data folder initialised once per engine and version, kept in the user's cache, copied per server."""

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tripstore.local.errors import LocalServerError

DATA = "data"
PASSWORD = "password"


def cache_folder() -> Path:
    """Return this project's folder in the user's cache, made if needed and closed to others."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tripstore"
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        give_to_owner_of(base.parent, folder)
    return folder


def give_to_owner_of(neighbour: Path, folder: Path) -> None:
    """Make a folder that root made in a user's home (under sudo) that user's. Otherwise nothing changes."""
    owner = neighbour.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        run(["chown", "--recursive", f"{owner.st_uid}:{owner.st_gid}", str(folder)])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file; a holder that is killed lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def template(key: str, build: Callable[[Path], None], scratch: Path) -> Path:
    """Return the template called `key`: a folder with `data/` and `password`; build it first if it is not there.

    `build` fills a folder below `scratch`. What is in the cache is whole: it got there by a rename.
    """
    folder = cache_folder() / "templates" / key
    if not folder.exists():
        with locked(folder.with_name(f"{key}.lock")):
            if not folder.exists():
                _build(folder, build, scratch)
    return folder


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with owners and modes, sharing blocks where the file system can."""
    run(["cp", "-a", "--reflink=auto", "--sparse=never", str(source), str(target)])


def run(command: list[str], *, text: str | None = None, account: pwd.struct_passwd | None = None) -> str:
    """Run a command to its end, as another user if asked; return its output, or raise with its end."""
    done = subprocess.run(
        command,
        check=False,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd="/",
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=account and [],
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise LocalServerError(f"{command[0]} failed with exit code {done.returncode}:\n{tail}\n")
    return done.stdout


def _build(folder: Path, build: Callable[[Path], None], scratch: Path) -> None:
    # A builder that was killed leaves its staging folder; under the lock no other builder's can be there.
    staging = folder.with_name(f"{folder.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="template-", dir=scratch) as temporary:
        Path(temporary).chmod(0o711)
        build(Path(temporary))
        copy_folder(Path(temporary), staging)
    staging.chmod(0o700)
    staging.rename(folder)
