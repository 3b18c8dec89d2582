"""`RealControlPort`: the authority row in Postgres, and the gate that follows it. Threads share it."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.handover.authority import AuthorityRow
from tripstore.backends.postgres.handover.barrier import barrier_of
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import StatedAuthority

T = TypeVar("T")

MAX_PAUSE_SECONDS = 2.0
#: A standby that is no further behind than this has the guard before a hand-over begins.
GUARD_SECONDS = 2.0
GUARD_PAUSE_SECONDS = 0.05
#: Hand-overs that this process remembers the beginning of.
_REMEMBERED = 8


class RealControlPort:
    """A `ControlPort` on the database of the legacy store."""

    def __init__(
        self,
        database: LegacyDatabase,
        datastore: str,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
        *,
        who: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._row = AuthorityRow(datastore, database.settings.synchronous_commit)
        self._barrier = barrier_of(database, datastore)
        self._barrier.max_pause_seconds = max_pause_seconds
        self._max_pause_seconds = max_pause_seconds
        self._who = who
        self._clock = clock
        self._first_seen: dict[int, float] = {}

    def authority(self) -> Authority:
        row = self._run(self._row.find)
        if not row.is_open:
            self.pause_of(row)
        return row

    def stated_authority(self) -> StatedAuthority:
        return self._run(self._row.stated_authority)

    def reserve(self, found: StatedAuthority, reserving: StatedAuthority) -> bool:
        """An answer that is lost says False as well: the next look finds what was reserved."""
        return self._run(lambda connection: self._row.reserve(connection, found, reserving))

    def accept(self, found: StatedAuthority, accepted: Authority) -> bool:
        def packet(connection: LegacyConnection, _row: Authority, wanted: Authority) -> bool:
            return self._row.accept(connection, found, wanted)

        return self._change(packet, found.row, accepted)

    def renew(self, found: Authority, renewed: Authority) -> bool:
        """Begin a generation of a Postgres that was never compared with another one."""
        return self._change(self._row.renew, found, renewed)

    def guard(self) -> list[str]:
        """Have a Postgres that is promoted from now on shut its gate, and say so, until it is accepted.

        Waits, not for long, until the standbys that are connected have that, too; returns the names of the others.
        """
        self._run(self._row.guard)
        here = self._run(self._row.written)
        until = self._clock() + GUARD_SECONDS
        while (late := self._run(lambda connection: self._row.late(connection, here))) and self._clock() < until:
            time.sleep(GUARD_PAUSE_SECONDS)  # no standby tells us: all there is to do is to look again
        return late

    def distrust(self, found: Authority) -> bool:
        """Shut this Postgres until it is accepted: it has lost what made another row of this one."""
        return self._run(lambda connection: self._row.distrust(connection, found))

    def history(self, limit: int) -> list[Authority]:
        """What the row was at each epoch, the latest first."""
        return self._run(lambda connection: self._row.history(connection, limit))

    def close(self, found: Authority, closing: Authority) -> bool:
        """Forward, this thread is connected for the barrier before any caller has to wait.

        One that puts another layout in force takes the barrier on its way back as well, and connects for it then.
        """
        if found.backend is Backend.LEGACY:
            self._barrier.prepare()
        is_closed = False
        try:
            is_closed = self._change(self._row.close, found, closing)
        finally:
            if not is_closed:
                self._barrier.give_up()
        return is_closed

    def shut_gate(self, closing: Authority) -> bool:
        return self._run(lambda connection: self._row.shut_gate(connection, closing))

    def decide(self, closing: Authority, decided: Authority) -> bool:
        """Forward only where this thread holds the barrier: one that was lost has lost the hand-over.

        Where another layout is put in force as well, whichever side is the authority: the reverse mirror is behind it.
        """
        if closing.backend is Backend.LEGACY or decided.layout != closing.layout:
            return self._barrier.decide(closing, self._signed(decided))
        return self._change(self._row.decide_alone, closing, decided)

    def undo(self, closing: Authority, undone: Authority) -> bool:
        self._barrier.give_up()
        return self._change(self._row.change, closing, undone)

    def begin_layout(self, layout: str) -> bool:
        """Name the first layout in force, where nothing was captured by another one; whether that is done."""
        return self._run(lambda connection: self._row.begin_layout(connection, layout))

    def obey(self) -> Authority:
        return self._run(self._row.obey)

    def is_overdue(self, closing: Authority) -> bool:
        return self.pause_of(closing) > self._max_pause_seconds

    def pause_of(self, closing: Authority) -> float:
        """For how many seconds this process has known of a hand-over."""
        now = self._clock()
        # No lock: a fork would inherit it. Each of these is one step for all threads.
        since = self._first_seen.setdefault(closing.epoch, now)
        if len(self._first_seen) > _REMEMBERED:
            self._first_seen.pop(min(list(self._first_seen)), None)
        return now - since

    def _change(
        self, packet: Callable[[LegacyConnection, Authority, Authority], bool], found: Authority, wanted: Authority
    ) -> bool:
        """A packet whose answer was lost is sent again, and finds what it did."""
        wanted, is_again = self._signed(wanted), False

        def change(connection: LegacyConnection) -> bool:
            nonlocal is_again
            was_sent, is_again = is_again, True
            return packet(connection, found, wanted) or (was_sent and self._row.was(connection, wanted))

        return self._run(change)

    def _signed(self, row: Authority) -> Authority:
        return row if row.who else replace(row, who=self._who or _process())

    def _run(self, verb: Callable[[LegacyConnection], T]) -> T:
        return self._database.run(verb, Deadline(self._database.settings.deadlines.put_seconds))


def _process() -> str:
    """The process that changes the row, for the row's history."""
    return f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
