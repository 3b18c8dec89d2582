"""What has a machine of its own in a company, and shares the services' cores here, gives way to them.

Else a benchmark of what callers feel would measure how a scheduler shares two cores between a service and somebody
else's server: whoever wakes up waits for the end of the other's time slice, however nice that one is. A group that is
idle as a whole is interrupted at once; where no group can be made, single threads are idle, which is nearly as good.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tripstore.local.server import Server

#: Of the first version of Linux' groups, where one is about cores and nothing else.
GROUP = Path("/sys/fs/cgroup/cpu/tripstore-benchmarks")


def give_way() -> None:
    """This process, and the threads that it is going to start."""
    _be_idle(os.getpid())


def let_give_way(server: Server) -> None:
    """A server that runs."""
    for pid in server.pids:
        _be_idle(pid)


def forget() -> None:
    """Take the group away once nobody is in it any more."""
    with suppress(OSError):
        GROUP.rmdir()


def _be_idle(pid: int) -> None:
    try:
        GROUP.mkdir(exist_ok=True)
        (GROUP / "cpu.idle").write_text("1")
        (GROUP / "cgroup.procs").write_text(str(pid))
    except OSError:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
