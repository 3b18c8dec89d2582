"""The janitor: outlives its owner by seconds, and leaves nothing of what the owner started.

It reads a pipe (stdin) whose other end only the owner holds. End of file means that the owner is gone,
however it went; then every process with the owner's mark dies, mounts below the root folder are taken off,
and the folder is removed.

    python -m tripstore.local.janitor TOKEN FOLDER
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tripstore.local.processes import TOKEN_VARIABLE, Mark

REMOVAL_SECONDS = 30.0
SEGMENT_LINE = 7


def main(token: str, folder: Path) -> None:
    """Wait for the owner's end, then sweep."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_end_of_file(sys.stdin.fileno())
    Mark(TOKEN_VARIABLE, token, folder).kill()
    _remove_shared_memory(folder)
    unmount_below(folder)
    _remove(folder)


def unmount_below(folder: Path) -> None:
    """Take off every mount below the folder, the deepest first; lazily if something still looks into it."""
    for mount in sorted(_mounts_below(folder), key=len, reverse=True):
        if subprocess.run(["umount", mount], check=False, stderr=subprocess.DEVNULL).returncode:
            subprocess.run(["umount", "--lazy", mount], check=False)


def _remove_shared_memory(folder: Path) -> None:
    """Remove the System V segment a killed Postgres leaves; its id ends a line of its pid file."""
    for file in folder.glob("*/disk/data/postmaster.pid"):
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) >= SEGMENT_LINE and lines[SEGMENT_LINE - 1].split():
            segment = lines[SEGMENT_LINE - 1].split()[-1]
            subprocess.run(["ipcrm", "-m", segment], check=False, stderr=subprocess.DEVNULL)


def _wait_for_end_of_file(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass


def _mounts_below(folder: Path) -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file]
    return [point for point in points if Path(point).is_relative_to(folder)]


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + REMOVAL_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
