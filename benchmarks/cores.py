"""Who has which of this machine's cores: what is measured has half of them, and nobody else is there.

What has a machine of its own in a company has cores of its own here. The mirror does where it is measured what callers
feel; callers do where it is measured how late the mirror is. To let the rest come last on the same cores does not do,
be it as nice as can be and the others of real time: in a virtual machine a core that computes may hear milliseconds
late that another one woke somebody up there, or that the disk has answered.
"""

from __future__ import annotations

import os
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
    for pid in server.pids:
        _keep(pid, part)


def _keep(pid: int, part: Part) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), _cores(part))


def _cores(part: Part) -> range:
    """The first half, the rest, or all; there is one at least, and one core is everybody's."""
    number = os.cpu_count() or 1
    middle = number // 2
    return {"measured": range(max(middle, 1)), "elsewhere": range(middle, number), "all": range(number)}[part]
