"""Which process has which of this machine's cores: what is measured has half of them to itself.

What has a machine of its own in a company has cores of its own here. The mirror does where it is measured what callers
feel; callers do where it is measured how late the mirror is. To let the rest come last on the same cores does not do,
be it as nice as can be and the others of real time: in a virtual machine a core that computes may hear milliseconds
late that another core woke a thread there, or that the disk has answered. One core is everybody's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tripstore.local.server import Server

#: The cores of what is measured, those of what would be elsewhere, or all.
Part = Literal["measured", "elsewhere", "all"]


def stay(part: Part) -> None:
    """This process, and what it is going to start."""
    _keep(os.getpid(), part)


def let_stay(server: Server, part: Part) -> None:
    """A server that runs, and what it is going to start."""
    for _look in range(2):  # who was started by one that had not been told yet is seen now
        for pid in server.pids:
            _keep(pid, part)


def _keep(pid: int, part: Part) -> None:
    with suppress(FileNotFoundError):  # it ended meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), _cores(part))


def _siblings(core: int) -> str:
    """Of the same core of the hardware, with one text for all of them."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return path.read_text() if path.exists() else ""


#: Those that this process may have, siblings beside each other. It never binds itself before it knows them.
_ALL = sorted(os.sched_getaffinity(0), key=lambda core: (_siblings(core), core))


def _cores(part: Part) -> list[int]:
    middle = len(_ALL) // 2
    return {"measured": _ALL[: max(middle, 1)], "elsewhere": _ALL[middle:], "all": _ALL}[part]
