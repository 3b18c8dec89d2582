"""What has a machine of its own in a company, and shares the services' cores here, gives way to them.

Else a benchmark of what callers feel would measure how a scheduler shares two cores between a service and somebody
else's server: whoever wakes up waits for the end of the other's time slice, however nice that one is. Who is idle is
interrupted at once.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tripstore.local.server import Server

#: Of sessions; the most there is.
NICENESS = 19


def give_way() -> None:
    """This process, and the threads that it is going to start."""
    _idle(0)


def let_give_way(server: Server) -> None:
    """A server that runs, and its session: where sessions share the cores evenly its own priority says nothing."""
    for pid in server.pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            _idle(int(thread.name))
        with suppress(FileNotFoundError):  # a kernel without such groups
            Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))


def _idle(thread: int) -> None:
    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
