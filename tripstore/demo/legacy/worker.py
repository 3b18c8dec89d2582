"""`CompanyWorker`: performs actions one after the other, on connections of its own, and tries again where a
service would.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from random import Random
from types import TracebackType
from typing import Self

import psycopg2
from psycopg2 import errorcodes
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from tripstore.demo.legacy.actions.action import LegacyAction
from tripstore.demo.legacy.connections import Connections
from tripstore.demo.legacy.fictions import Fiction
from tripstore.demo.legacy.people import People, find_people
from tripstore.demo.legacy.services import READER
from tripstore.demo.legacy.turns import NothingToDo, ServiceHabits, WorkTurn
from tripstore.errors import TripstoreError

#: Another worker was faster, or both at once: the same work is done again from its beginning.
CONFLICTS = frozenset(
    {
        errorcodes.SERIALIZATION_FAILURE,
        errorcodes.DEADLOCK_DETECTED,
        errorcodes.LOCK_NOT_AVAILABLE,
        errorcodes.UNIQUE_VIOLATION,
        errorcodes.FOREIGN_KEY_VIOLATION,
    }
)


class WorkOutcome(StrEnum):
    """How a unit of work ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"  #: After all its statements: the service changed its mind.
    IDLE = "idle"  #: There was no row to change.
    GAVE_UP = "gave up"  #: Conflicts, again and again.


@dataclass(frozen=True)
class Done:
    """What one unit of work did."""

    action: str
    outcome: WorkOutcome
    trips: tuple[int, ...] = ()  #: The ids that it was about.
    retries: int = 0


class CompanyWorker:
    """One pair of hands of the company. Not for threads; a context manager."""

    def __init__(self, url: str, habits: ServiceHabits) -> None:
        self._connections = Connections(url)
        self._habits = habits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do(self, action: LegacyAction, random: Random) -> Done:
        """Perform an action, again after conflicts; other errors of Postgres are the caller's."""
        gives_up = random.random() < self._habits.rollback_ratio
        fiction = Fiction(random, self._people.riders, self._people.drivers, self._people.cities)
        for retries in range(self._habits.retries + 1):
            turn = WorkTurn(self._connections, random, fiction, self._habits, gives_up=gives_up)
            try:
                action.work(turn)
            except NothingToDo:
                return Done(action.name, WorkOutcome.IDLE, tuple(turn.trips), retries)
            except (psycopg2.Error, DBAPIError, StaleDataError, ObjectDeletedError) as error:
                if not _is_conflict(error):
                    raise
            else:
                outcome = WorkOutcome.ROLLED_BACK if gives_up else WorkOutcome.COMMITTED
                return Done(action.name, outcome, tuple(turn.trips), retries)
        return Done(action.name, WorkOutcome.GAVE_UP, tuple(turn.trips), retries)

    def close(self) -> None:
        self._connections.close()

    @cached_property
    def _people(self) -> People:
        connection = self._connections.raw(READER)
        connection.autocommit = True
        with connection.cursor() as cursor:
            people = find_people(cursor)
        if not (people.riders and people.drivers and people.cities):
            raise TripstoreError("The company has no users or no cities.", hint="Seed it first.")
        return people


def sqlstate(error: Exception) -> str | None:
    """What Postgres calls the error; None when it did not come from there."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return getattr(original, "pgcode", None)


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, StaleDataError | ObjectDeletedError) or sqlstate(error) in CONFLICTS
