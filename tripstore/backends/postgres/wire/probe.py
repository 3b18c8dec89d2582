"""`ServiceProbe`: a statement of an operator's choice, run as a service would run it, and how long it took.

On a connection of its own that only reads, in a transaction that is taken back, and as one statement whatever its text
is. Postgres itself ends it at its deadline, so no session stays behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg2

from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidRequest, SchemalessError, Unavailable
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.single import rows_of_one
from tripstore.backends.postgres.wire.translation import Again
from tripstore.backends.postgres.wire.wire import DeadlinePassed, LegacyConnection, Row

#: In `pg_stat_activity`. A probe is no load of services.
APPLICATION = "tripstore probe"
#: Beyond its deadline Postgres has so long to say that it is over.
GRACE_SECONDS = 0.5

#: Two clocks measure a deadline. A statement that was cancelled sooner was cancelled by an operator.
NEARLY = 0.9

#: Postgres ended a statement at its deadline, or was asked to.
_OVER = "57014"
#: Postgres counts it as unavailable, and it is the statement that wants to write.
_WRITES = "25006"
_HINT = "Write one statement that reads and answers rows, like: SELECT 1 FROM trips WHERE id = 7"


class ServiceProbe:
    """For one thread at a time."""

    def __init__(
        self,
        database: LegacyDatabase,
        statement: str,
        deadline_seconds: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._database = database
        self._statement = statement
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._connection: LegacyConnection | None = None

    def check(self, *, may_be_slow: bool = False) -> None:
        """Raise `InvalidRequest` when it is no statement that reads, is not allowed, or has no answer in its time.

        `may_be_slow`: the job that is to spare services may be at work already, and services in trouble.
        """
        try:
            seconds = self.measure()
        finally:
            self.close()
        if seconds >= self._deadline_seconds and not may_be_slow:
            hint = "Wait until services are well, take a quicker statement, or raise throttle.probe_deadline_seconds."
            found = f"it had no answer within {self._deadline_seconds:g} s, and nothing was copied or compared yet"
            raise InvalidRequest(f"The probe (throttle.probe) is refused: {found}.", hint=hint)

    def measure(self) -> float:
        """How long it took. One without an answer in its time: for how long it was waited for.

        `Unavailable`: it could not be run now. `InvalidRequest`: Postgres refuses it as it is.
        """
        if self._connection is None:
            self._connection = self._opened()
        begun = self._clock()
        try:
            return self._run(self._connection)
        except DeadlinePassed:
            self.close()
            return self._clock() - begun
        except (SchemalessError, Again) as error:
            seconds = self._clock() - begun
            cause = error.__cause__
            code = cause.pgcode if isinstance(cause, psycopg2.Error) else None
            if self._connection.is_broken:
                self.close()
            if code == _OVER and seconds >= NEARLY * self._deadline_seconds:
                return max(seconds, self._deadline_seconds)
            if isinstance(error, Unavailable) and code != _WRITES:
                raise
            if isinstance(error, Again) or not isinstance(cause, psycopg2.Error):
                raise LegacyUnavailable(f"Postgres did not run the probe ({error}).", hint="Repeat it.") from error
            reason = cause.diag.message_primary or str(error)
            raise InvalidRequest(f"The probe (throttle.probe) is refused: {reason}.", hint=_HINT) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._database.part_with(connection)

    def _run(self, connection: LegacyConnection) -> float:
        connection.deadline = Deadline(self._deadline_seconds + GRACE_SECONDS)
        taken: list[float] = []

        def rows_of(statement: str, values: Sequence[Any]) -> list[Row]:
            begun = self._clock()
            found = connection.rows(statement, values)
            taken.append(self._clock() - begun)
            return found

        connection.rows("BEGIN READ ONLY")
        try:
            rows_of_one(rows_of, self._statement, connection.search_path)
        finally:
            if not connection.is_idle and not connection.is_broken and not connection.deadline.is_over:
                connection.rows("ROLLBACK")
        return taken[0]

    def _opened(self) -> LegacyConnection:
        return self._database.connect_apart(
            APPLICATION,
            default_transaction_read_only="on",
            statement_timeout=str(max(round(self._deadline_seconds * 1000), 1)),
            lock_timeout="0",  # a lock that it waits for is what services wait for
        )
