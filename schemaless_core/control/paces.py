"""`SharedPace`: workers that share a rate take turns, in one row of the control database and by its clock.

A worker that takes so many pays for them at once: until that time is over no other may take any. So all of them
together are never ahead of the rate by more than what one took, however many there are, and whichever joins or dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import ceil, floor
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.control.changes import make_change
from schemaless_core.control.clock import now_ms
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.tables import document as table


class Turn(NamedTuple):
    """From when on the next one may take, in milliseconds of the control database; before the first one took: 0."""

    free_at_ms: int = 0
    #: When it was taken. A clock that has gone back behind it says nothing: the turn is free.
    taken_at_ms: int = 0

    def seconds_left(self, at_ms: int) -> float:
        return 0.0 if at_ms < self.taken_at_ms else max(0, self.free_at_ms - at_ms) / 1000

    def taken(self, at_ms: int, count: int, per_second: float) -> Turn:
        """After so many were taken at a time when it was free."""
        return Turn(at_ms + ceil(1000 * count / per_second), at_ms)

    def without(self, count: int, per_second: float) -> Turn:
        """After so many fewer than were taken were needed."""
        return self._replace(free_at_ms=self.free_at_ms - floor(1000 * count / per_second))


class SharedPace:
    """One worker's view of a rate that several share. One per thread."""

    def __init__(self, control: ControlDatabase, name: str, clock: Callable[[sa.Connection], int] = now_ms) -> None:
        self._control = control
        self._name = f"pace:{name}"
        self._clock = clock
        #: As this one left it.
        self._turn: Turn | None = None

    def take(self, count: int, per_second: float) -> float:
        """Take so many: 0.0; else how long it is another process' turn, and nothing is taken.

        After a `ControlUnavailable` they may have been taken: then some time of the rate is lost.
        """

        def work(connection: sa.Connection) -> float:
            turn, self._turn = _held(connection, self._name), None
            at_ms = self._clock(connection)
            if seconds := turn.seconds_left(at_ms):
                return seconds
            self._turn = turn.taken(at_ms, count, per_second)
            _keep(connection, self._name, self._turn)
            return 0.0

        try:
            return make_change(self._control, work)
        except sa.exc.IntegrityError:  # another one was the first at the same moment
            return make_change(self._control, work)

    def give_back(self, count: int, per_second: float) -> None:
        """So many of those that were taken were not needed. Nothing, when another process has taken since."""
        mine = self._turn
        if mine is None or count <= 0:
            return

        def work(connection: sa.Connection) -> None:
            if _held(connection, self._name) == mine:
                _keep(connection, self._name, mine.without(count, per_second))

        make_change(self._control, work)
        self._turn = None


def _held(connection: sa.Connection, name: str) -> Turn:
    wanted = sa.select(table.c.body).where(table.c.name == name).with_for_update()
    body = connection.execute(wanted).scalar()
    if body is None:
        _insert(connection, name)
        return Turn()
    return Turn(**json.loads(body))


def _insert(connection: sa.Connection, name: str) -> None:
    connection.execute(sa.insert(table).values(name=name, version=1, body=_text(Turn())))


def _keep(connection: sa.Connection, name: str, turn: Turn) -> None:
    connection.execute(sa.update(table).where(table.c.name == name).values(body=_text(turn)))


def _text(turn: Turn) -> str:
    return json.dumps(turn._asdict())
