"""Where a run has its files: in memory if there is room, else on the disk.

Nothing here needs a disk that survives a power cut: tests kill processes, and what those wrote the machine still has.
A test of a full disk mounts one of its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
#: For files and processes of four testers. One with a quarter of the tests had 2.3 GB of files and 2.4 of servers.
ENOUGH_GIGABYTES = 18
GIGABYTE = 1 << 30


def choose_place() -> str:
    """Have everything that makes a temporary file make it there, commands included; return a sentence that says so.

    TMPDIR, which the processes of a run inherit from its first one, decides if it is set.
    """
    if "TMPDIR" in os.environ:
        return f"Files of tests are in {os.environ['TMPDIR']} (TMPDIR)."
    room = _room_gigabytes()
    if room < ENOUGH_GIGABYTES:
        return (
            f"Files of tests are on the disk, which is slower:"
            f" {MEMORY} has room for {room:.0f} GB, not for {ENOUGH_GIGABYTES}."
        )
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    return f"Files of tests are in memory ({MEMORY}, room for {room:.0f} GB)."


def are_in_memory() -> bool:
    """Return whether they are."""
    return Path(tempfile.gettempdir()).is_relative_to(MEMORY)


def _room_gigabytes() -> float:
    """What the file system, the machine and the container all have left."""
    if not os.access(MEMORY, os.W_OK):
        return 0.0
    disk = os.statvfs(MEMORY)
    return min(disk.f_bavail * disk.f_frsize, _available_bytes(), _container_bytes()) / GIGABYTE


def _available_bytes() -> float:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return 0.0


def _container_bytes() -> float:
    """Left of the limit of a control group, of either version; infinity without one."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            found = [Path("/sys/fs/cgroup", name).read_text(encoding="utf-8").strip() for name in (limit, used)]
        except OSError:
            continue
        return float("inf") if found[0] == "max" else float(found[0]) - float(found[1])
    return float("inf")
