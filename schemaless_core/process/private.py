"""Files that hold what cells hold: their owner alone reads them, whatever the umask of the process is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600
#: Of a folder of such files: another user could put a file of its own in the place of one.
FOLDER_OWNER_ONLY = 0o700


def private(path: str, flags: int) -> int:
    """The `opener` of such a file."""
    return os.open(path, flags, OWNER_ONLY)


def others_rights(path: Path) -> str:
    """What others than its owner may do with a file and those that SQLite keeps beside it; "" where that is nothing."""
    modes = ((each, _mode(each)) for each in sorted(path.parent.glob(f"{path.name}*")))
    return ", ".join(f"{each} has {mode:o}" for each, mode in modes if mode & 0o077)


def _mode(path: Path) -> int:
    """0 of what is no file, or none any more: SQLite takes the journal away with each commit of another process."""
    with suppress(FileNotFoundError):
        found = path.stat().st_mode
        return stat.S_IMODE(found) if stat.S_ISREG(found) else 0
    return 0


def make_private(path: Path) -> None:
    """Make an empty file unless there is one; SQLite gives its rights to the files that it makes beside.

    One that is there is not opened: to close it would end the locks that this process holds on it through SQLite, and
    the process that closes the file last then would take its log away from under us.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
