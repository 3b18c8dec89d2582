"""Finding and signalling the processes of a server, by marks that children inherit.

The environment alone is not enough: Postgres' children write their title over theirs. They keep their
standard error, though, and that is the server's log. Knows `/proc` only: the janitor imports this file.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOKEN_VARIABLE = "TRIPSTORE_LOCAL_TOKEN"
SERVER_VARIABLE = "TRIPSTORE_LOCAL_SERVER"
GONE = ("Z", "X")
BIRTH_FIELD = 18  # starttime is field 22 of /proc/pid/stat; we count behind the state, which is field 3


@dataclass(frozen=True)
class Mark:
    """What tells processes apart: a variable in their environment, or standard error into the folder."""

    variable: str
    value: str
    folder: Path

    def pids(self) -> list[int]:
        """Return the living processes with this mark, never this one. Zombies do not count."""
        return [pid for pid in _all_pids() if self._is_on(pid)]

    def signal(self, *numbers: signal.Signals) -> list[int]:
        """Send the signals, in order, to every process with this mark; return the pids that were meant."""
        pids = self.pids()
        for pid in pids:
            for number in numbers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return pids

    def kill(self, *, poll_seconds: float = 0.01) -> None:
        """SIGKILL every such process, again until a look finds none: a dying parent may still fork."""
        while self.signal(signal.SIGKILL, signal.SIGCONT):
            time.sleep(poll_seconds)

    def freeze(self, *, poll_seconds: float = 0.001) -> None:
        """SIGSTOP every such process and return when all stand still, those forked meanwhile too."""
        while not all(_is_stopped(pid) for pid in self.signal(signal.SIGSTOP)):
            time.sleep(poll_seconds)

    def _is_on(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{self.variable}={self.value}".encode() in file.read().split(b"\0"):
                    return True
            return Path(os.readlink(f"/proc/{pid}/fd/2")).is_relative_to(self.folder)
        except OSError:  # gone meanwhile, or another user's
            return False


def birth(pid: int) -> int | None:
    """Return when the process started, which tells it from a later one; None if it is gone."""
    state, *fields = _stat(pid)
    return None if state in GONE else int(fields[BIRTH_FIELD])


def _is_stopped(pid: int) -> bool:
    return _stat(pid)[0] in (*GONE, "T")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/pid/stat from the state on: what stands before may contain spaces."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return ["X"]


def _all_pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
