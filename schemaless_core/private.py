"""Files that hold what cells hold: their owner alone reads them, whatever the umask of the process is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600


def private(path: str, flags: int) -> int:
    """The `opener` of such a file."""
    return os.open(path, flags, OWNER_ONLY)


def make_private(path: Path) -> None:
    """Make an empty file unless there is one; SQLite gives its rights to the files that it makes beside.

    One that is there is not opened: to close it would end the locks that this process holds on it through SQLite, and
    the process that closes the file last then would take its log away from under us.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
