"""Whose turn it is where more wants the cores than there are: what is measured goes first, what it waits for with it.

What has a machine of its own in a company comes last. The mirror does where it is measured what callers feel; callers
do where it is measured how late the mirror is. Else a benchmark would measure how a scheduler shares two cores between
a service and somebody else's server. An idle group is interrupted for whoever wakes up, but not always at once: who
used more than a share before waits for as long, a slice or two. Threads of real time do not wait for any other; only
root may have them. Where no group can be made single threads are idle and their session is the nicest there is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tripstore.local.server import Server

Turn = Literal["first", "any", "last"]

#: Of the first version of Linux' groups, where one is about cores and nothing else.
GROUP = Path("/sys/fs/cgroup/cpu/tripstore-benchmarks")
#: Of sessions; the most there is.
NICENESS = 19
#: Of real time; whatever has one goes before whatever has none.
PRIORITY = 1


def take(turn: Turn) -> None:
    """This process, which is nobody's leader, and the threads that it is going to start."""
    if turn == "first":
        _be_first(os.getpid())
    if turn == "last":
        if not _is_grouped():
            os.setsid()  # sessions share the cores alike, and servers have their own
        _be_last(os.getpid())


def let_take(server: Server, turn: Turn) -> None:
    """A server that runs, and what it is going to start."""
    for pid in server.pids:
        if turn == "first":
            _be_first(pid)
        if turn == "last":
            _be_last(pid)


def way() -> str:
    """How it is done on this machine."""
    first = "threads of real time" if os.geteuid() == 0 else "as everybody"
    last = "an idle group" if _is_grouped() else "idle threads"
    return f"first {first}, last {last}"


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


def _be_first(pid: int) -> None:
    if os.geteuid() == 0:
        for thread in _threads(pid):
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(PRIORITY))


def _be_last(pid: int) -> None:
    if _is_grouped():
        (GROUP / "cgroup.procs").write_text(str(pid))
        return
    for thread in _threads(pid):
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # a kernel without groups of sessions
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))


def _threads(pid: int) -> list[int]:
    return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
