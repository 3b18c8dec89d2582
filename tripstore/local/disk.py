"""Where a server's data lies: the machine's disk, or a small one of its own that a test may fill up."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Protocol

from tripstore.local.errors import LocalServerError

BALLAST = "ballast"


class Disk(Protocol):
    """A folder for data. Filling what is full and freeing what is free do nothing."""

    folder: Path

    def fill(self) -> None:
        """Leave no byte free, or raise LocalServerError where that would hurt others."""

    def free(self) -> None:
        """Give back what fill took."""


class SharedDisk:
    """An ordinary folder on the machine's disk, which no test may fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def fill(self) -> None:
        """Refuse."""
        raise LocalServerError(
            f"{self.folder} has no disk of its own.", "Create the server with disk_megabytes=… (as root)."
        )

    def free(self) -> None:
        """Do nothing: it was never filled."""


class SmallDisk:
    """A tmpfs of a few hundred megabytes; the janitor unmounts it."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        if os.geteuid() != 0:
            raise LocalServerError(
                f"Only root can mount a disk of {megabytes} MB at {folder}.",
                "Run as root, or leave out disk_megabytes.",
            )
        self.folder = folder
        folder.mkdir(parents=True)
        _mount(folder, megabytes)

    def fill(self) -> None:
        """Write ballast until the disk says that it is full."""
        descriptor = os.open(self.folder / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (1 << 20, 4096, 1):
                _write_until_full(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Remove the ballast."""
        (self.folder / BALLAST).unlink(missing_ok=True)


def _mount(folder: Path, megabytes: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tripstore-local", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LocalServerError(
            f"Could not mount a disk at {folder}: {done.stderr.strip()}.",
            "A container needs the right to mount; without it leave out disk_megabytes.",
        )


def _write_until_full(descriptor: int, chunk: bytes) -> None:
    try:
        while True:
            os.write(descriptor, chunk)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
