"""Sessions that a call gave up while their server was still busy with them.

Closing the socket ends no session: a server that waits in COMMIT (for a replica, for room on a disk) looks at its
client only when it answers. Each such session keeps its place in the pool until the server has ended it. Without that,
one process could leave behind as many as the server has room for, and no client could connect any more.

The server is asked on a connection beside the pool. No session is killed: a commit that is killed while it waits for
a replica is committed without one, which is what the operator of that server has ruled out.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.session_list import sessions_on

UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"

LOOK_SECONDS = 1.0
#: Between two looks; doubled up to the second of them.
PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 0.25
#: While the server does not answer: each look may leave a session there, too.
UNHEARD_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class AbandonedSession:
    """A session, by the number that its server gave it, and since when we do not listen to it."""

    #: Which server that is: after a failover behind one address, another one counts anew.
    server: str
    number: int
    is_write: bool
    since: float


class Abandoned:
    """The abandoned sessions of one pool. `ended` hears of each that has ended, `counted` how many are left."""

    def __init__(
        self,
        connect: Callable[[Deadline], DeadlineConnection],
        ended: Callable[[AbandonedSession], None],
        counted: Callable[[int], None],
    ) -> None:
        self._connect = connect
        self._ended = ended
        self._counted = counted
        self._lock = threading.Lock()
        #: What the server has not ended yet.
        self.sessions: list[AbandonedSession] = []
        self._is_watched = False
        #: Whether the server said nothing at the last look.
        self.is_unheard = False
        self._connection: DeadlineConnection | None = None
        self._stop = threading.Event()

    @property
    def count(self) -> int:
        return len(self.sessions)

    @property
    def writes(self) -> int:
        return sum(session.is_write for session in self.sessions)

    def add(self, session: AbandonedSession) -> None:
        """Remember a session until the server has ended it."""
        with self._lock:
            self.sessions.append(session)
        self._counted(self.count)
        self.watch()

    def watch(self) -> None:
        """See to it that a thread looks after them; it ends with the last one, or with this object."""
        with self._lock:
            if self._is_watched or not self.sessions or self._stop.is_set():
                return
            watcher = partial(_watch, weakref.ref(self), self._stop)
            with suppress(RuntimeError):  # no more threads: the next call tries again
                threading.Thread(target=watcher, name="schemaless-abandoned", daemon=True).start()
                self._is_watched = True

    def look(self) -> bool:
        """Ask the server which of them it has ended; False when there is nothing left to ask for."""
        asked = list(self.sessions)
        try:
            ended = self._ended_of(asked)
        except Exception:  # noqa: BLE001  # whatever it is: without this thread the places would stay taken
            self._hang_up()
            self.is_unheard = True
            return True  # the server cannot say now, so they all count
        self.is_unheard = False
        with self._lock:  # from here on another thread may look after those that come
            gone = [session for session in self.sessions if session in ended]
            self.sessions = [session for session in self.sessions if session not in ended]
            self._is_watched = is_left = bool(self.sessions)
            if not is_left:
                self._hang_up()
        self._counted(self.count)
        for session in gone:
            self._ended(session)
        return is_left

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _ended_of(self, asked: Collection[AbandonedSession]) -> set[AbandonedSession]:
        connection = self._connected()
        connection.deadline = Deadline(LOOK_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute(UPTIME)
            ((_, uptime),) = cursor.fetchall()
        there = {session.number for session in sessions_on(connection)}
        connection.last_used = time.monotonic()
        began = time.monotonic() - int(uptime) - 1  # a server that was restarted gives the same numbers again
        return {
            session
            for session in asked
            if session.number not in there or session.since < began or session.server != connection.server
        }

    def _connected(self) -> DeadlineConnection:
        """One connection for as long as there is something to ask: the server may let no other in."""
        if self._connection is None or self._connection.is_stale:
            self._hang_up()
            self._connection = self._connect(Deadline(LOOK_SECONDS))
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.forget()
            self._connection = None


def _watch(reference: weakref.ref[Abandoned], stop: threading.Event) -> None:
    pause_seconds = PAUSE_SECONDS
    while not stop.wait(pause_seconds):
        abandoned = reference()
        if abandoned is None or not abandoned.look():
            return
        longest = UNHEARD_SECONDS_MAX if abandoned.is_unheard else PAUSE_SECONDS_MAX
        del abandoned
        pause_seconds = min(2 * pause_seconds, longest)
