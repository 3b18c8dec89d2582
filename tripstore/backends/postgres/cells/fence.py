"""`LegacyStanding`: the role the store is used in, and what that asks of every call.

No role: outside of hand-overs. An owner: only while Postgres is the authority at the owner's epoch, and its gate
says so. The reverse mirror: past a shut gate, and nothing that it writes is mirrored again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from schemaless_core.errors import SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.gate import (
    READ_GATE,
    STANDBY,
    admission,
    counts,
    mirror_admission,
    mirror_look,
)
from tripstore.backends.postgres.errors import HistoryTruncated, StandbyRefused
from tripstore.backends.postgres.wire.translation import SERVER, not_the_authority
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared, Row

T = TypeVar("T")

_LOOK = Prepared("", f"SELECT {READ_GATE}")
_LOOK_OF_MIRROR = Prepared("bigint", mirror_look())


class ChangeSink(NamedTuple):
    """Where changes are written that capture does not see: table, and what is said of them beside the cell."""

    table: str
    columns: str
    values: str


#: They are to be mirrored.
QUEUED = ChangeSink("tripstore.queue", "origin", "'facade'")
#: They come from the mirror.
LOGGED = ChangeSink(
    "tripstore.log",
    "origin, id, delivered_at",
    "'reverse', pg_catalog.nextval('tripstore.queue_id_seq'), pg_catalog.clock_timestamp()",
)


class LegacyStanding:
    """A caller in no role. The gate's triggers keep it out like all others, and whatever it reads counts."""

    epoch = 0
    origin = "facade"
    changes = QUEUED
    #: Whether what is read counts only while a gate is open.
    is_fenced = False
    #: Whether a row must be what was put even after all triggers have run.
    is_exact = False
    #: Whether a version that another one has replaced is kept even if no row can hold it.
    keeps_replaced = False

    def enter(self, connection: LegacyConnection) -> list[str]:
        """What a put's transaction begins with."""
        return []

    def execute(self, connection: LegacyConnection, statement: Prepared, arguments: str) -> list[Row]:
        """A read of one prepared statement, whose first column is never NULL."""
        return connection.execute(statement, arguments)

    def rows(self, connection: LegacyConnection, sql: str, parameters: Sequence[Any] | None = None) -> list[Row]:
        """The same of a SELECT that is not prepared."""
        return connection.rows(sql, parameters)

    def look(self, connection: LegacyConnection) -> None:
        """After the last snapshot of a read: raise `StaleEpoch` unless it counts."""

    def fenced(self, look: Callable[[], None], part: Callable[[], T]) -> T:
        """A part of a read, and the look after it."""
        return part()


class Owner(LegacyStanding):
    """A caller that knows that Postgres is the authority at this epoch.

    A put is inside from its first statement on: the gate is not shut before it ends, and what it answers counts.
    """

    is_fenced = True

    def __init__(self, datastore: str, epoch: int) -> None:
        self.epoch = epoch
        self._admission = Prepared("bigint", admission(datastore))

    def enter(self, connection: LegacyConnection) -> list[str]:
        return [connection.call(self._admission, f"'{self.epoch}'")]

    def execute(self, connection: LegacyConnection, statement: Prepared, arguments: str) -> list[Row]:
        """The gate is read by the same statement: so after its snapshot."""
        return self._counting(connection.execute(_prepared_with_gate(statement), arguments))

    def rows(self, connection: LegacyConnection, sql: str, parameters: Sequence[Any] | None = None) -> list[Row]:
        return self._counting(connection.rows(_with_gate(sql), parameters))

    def look(self, connection: LegacyConnection) -> None:
        reach("read.before_gate")
        self._check(connection.execute(_LOOK, "")[0][0])

    def fenced(self, look: Callable[[], None], part: Callable[[], T]) -> T:
        """A refusal is an answer, too; that Postgres did not answer is none."""
        try:
            answer = part()
        except SchemalessError as error:
            if isinstance(error, HistoryTruncated) or not isinstance(error, StaleEpoch | Unavailable):
                look()
            raise
        look()
        return answer

    def _counting(self, found: list[Row]) -> list[Row]:
        self._check(found[0][0])
        return [row[1:] for row in found if row[1] is not None]

    def _check(self, value: int | None) -> None:
        if value == STANDBY:
            raise StandbyRefused
        if not counts(value, self.epoch):
            raise not_the_authority(f"{SERVER} is not the authority at epoch {self.epoch}")


class MirrorRole(LegacyStanding):
    """The reverse mirror: forward only, like every put; capture queues none of what it writes.

    It writes what Schemaless took at one epoch, and by the layout of that epoch: at another one the gate refuses it.
    """

    origin = "reverse"
    changes = LOGGED
    is_exact = True
    keeps_replaced = True  #: It was acknowledged elsewhere.

    def __init__(self, datastore: str, epoch: int | None) -> None:
        self._admission = Prepared("", mirror_admission(datastore))
        self._opened_at = epoch

    def enter(self, connection: LegacyConnection) -> list[str]:
        admission = connection.call(self._admission)
        return (
            [admission]
            if self._opened_at is None
            else [admission, connection.call(_LOOK_OF_MIRROR, f"'{self._opened_at}'")]
        )


NO_ROLE = LegacyStanding()


def _with_gate(sql: str) -> str:
    """The same rows in whatever order, with what the gate says in front; one of nothing else when there are none."""
    return f"SELECT gate.value, found.* FROM (SELECT {READ_GATE} AS value) AS gate LEFT JOIN ({sql}) AS found ON true"


@lru_cache(maxsize=1024)
def _prepared_with_gate(statement: Prepared) -> Prepared:
    return Prepared(statement.types, _with_gate(statement.text))
