"""What has a machine of its own in a company, and shares the cores here, gives way to what is measured.

The mirror does where it is measured what callers feel; callers do where it is measured how late the mirror is. Else a
benchmark would measure how a scheduler shares two cores between a service and somebody else's server: whoever wakes up
waits for the end of the other's time slice, however nice that one is. A group that is idle as a whole is interrupted
at once. Where no group can be made single threads are idle and their session is the nicest there is; then a wake-up
waits now and then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tripstore.local.server import Server

#: Of the first version of Linux' groups, where one is about cores and nothing else.
GROUP = Path("/sys/fs/cgroup/cpu/tripstore-benchmarks")
#: Of sessions; the most there is.
NICENESS = 19


def give_way() -> None:
    """This process, which is nobody's leader, and the threads that it is going to start."""
    if not _is_grouped():
        os.setsid()  # sessions share the cores alike, and servers have their own
    _be_idle(os.getpid())


def let_give_way(server: Server) -> None:
    """A server that runs."""
    for pid in server.pids:
        _be_idle(pid)


def way() -> str:
    """How it is done on this machine."""
    return "an idle group" if _is_grouped() else "idle threads"


def clean_up() -> None:
    """Take the group away once nobody is in it any more."""
    with suppress(OSError):
        GROUP.rmdir()


def _is_grouped() -> bool:
    if not (GROUP.parent / "tasks").exists():
        return False
    try:
        GROUP.mkdir(exist_ok=True)
        (GROUP / "cpu.idle").write_text("1")
    except OSError:
        return False
    return True


def _be_idle(pid: int) -> None:
    if _is_grouped():
        (GROUP / "cgroup.procs").write_text(str(pid))
        return
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # a kernel without groups of sessions
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))
