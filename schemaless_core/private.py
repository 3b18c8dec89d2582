"""Files that hold what cells hold: their owner alone reads them, whatever the umask of the process is."""

from __future__ import annotations

import os
from pathlib import Path

OWNER_ONLY = 0o600


def private(path: str, flags: int) -> int:
    """The `opener` of such a file."""
    return os.open(path, flags, OWNER_ONLY)


def make_private(path: Path) -> None:
    """Make an empty file unless there is one; SQLite gives its rights to the files that it makes beside."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, OWNER_ONLY))
