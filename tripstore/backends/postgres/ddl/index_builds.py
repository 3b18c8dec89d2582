"""Indexes built or dropped CONCURRENTLY: no session is blocked, so it may wait; a second session watches for what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from typing import Any

import psycopg2
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience
from tripstore.backends.postgres.ddl.holders import holders, in_the_way, sessions
from tripstore.backends.postgres.ddl.relations import Relation
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.ddl.watched import POLL_SECONDS, run_watched
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.wire.connections import CONNECT_SECONDS, rows

logger = getLogger(__name__)

_STATE = "SELECT blocks_done, blocks_total, phase FROM pg_stat_progress_create_index WHERE pid = %s"
_BLOCKING = "SELECT unnest(pg_blocking_pids(%s))"
# When a process is killed while it builds an index, its server process goes on to the end.
_BUILDERS = (
    "SELECT pid FROM pg_stat_progress_create_index WHERE datname = current_database() AND index_relid = %s::int8::oid"
)
_INDEX = """\
SELECT c.oid::int8, i.indisvalid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 JOIN pg_index i ON i.indexrelid = c.oid WHERE n.nspname = %s AND c.relname = %s"""


def build_unique(
    connection: Connection,
    relation: Relation,
    name: str,
    columns: str,
    progress: Progress,
    patience: Patience = PATIENT,
) -> None:
    """Build a unique index; one that is there and valid is kept, what a killed run left is dropped first."""
    if _is_there(connection, relation, name, patience):
        return
    statement = f"CREATE UNIQUE INDEX CONCURRENTLY {quoted(name)} ON {relation.name.sql} ({columns})"
    try:
        _concurrently(connection, relation.name, statement, progress, patience)
    except postgres.UniqueViolation as error:
        # Left as it is, it would refuse rows that the company's own code inserts.
        _drop(connection, relation.name, name, patience)
        raise InvalidLayout(
            f"{relation.name} cannot have a unique index on ({columns}): {(error.diag.message_detail or '').strip()}",
            hint="Mend these rows, or map other columns.",
        ) from error


def drop_index(connection: Connection, table: TableName, name: str, patience: Patience = PATIENT) -> None:
    _drop(connection, table, name, patience)


def _is_there(connection: Connection, relation: Relation, name: str, patience: Patience) -> bool:
    since = patience.clock()
    while found := rows(connection, _INDEX, (relation.name.schema, name)):
        [(oid, is_valid)] = found
        if is_valid:
            return True
        builders = rows(connection, _BUILDERS, (oid,))
        if not builders:
            _drop(connection, relation.name, name, patience)
            return False
        if patience.clock() - since > patience.build_give_up_seconds:
            blockers = holders(connection, relation.name, "SHARE UPDATE EXCLUSIVE")
            raise in_the_way(relation.name, blockers, patience.clock() - since)
        patience.sleep(POLL_SECONDS)
    return False


def _drop(connection: Connection, table: TableName, name: str, patience: Patience) -> None:
    statement = f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(table.schema)}.{quoted(name)}"
    _concurrently(connection, table, statement, lambda _done, _total: None, patience)


def _concurrently(
    connection: Connection, table: TableName, statement: str, progress: Progress, patience: Patience
) -> None:
    """Run a statement without a limit, and look from beside at how far it is and which session it waits for."""
    rows(connection, "SET lock_timeout = 0; SET statement_timeout = 0")
    try:
        with _beside(connection) as watcher:
            watch = _Watch(watcher, rows(connection, "SELECT pg_catalog.pg_backend_pid()")[0][0], table, patience)

            def look() -> None:
                watch.look(progress)
                reach("ids.index_building")

            run_watched(connection, statement, look)
    finally:
        if not connection.closed:
            rows(connection, "RESET lock_timeout; RESET statement_timeout")


class _Watch:
    """Follows a build of another connection."""

    def __init__(self, watcher: Connection, pid: int, table: TableName, patience: Patience) -> None:
        self._watcher = watcher
        self._pid = pid
        self._table = table
        self._patience = patience
        self._blockers: frozenset[int] = frozenset()
        self._since = patience.clock()

    def look(self, progress: Progress) -> None:
        for done, total, _phase in rows(self._watcher, _STATE, (self._pid,)):
            progress(done or 0, total or None)
        blockers = frozenset(pid for (pid,) in rows(self._watcher, _BLOCKING, (self._pid,)))
        if not blockers or not blockers & self._blockers:
            self._since = self._patience.clock()
        if blockers - self._blockers:
            logger.warning(
                "The build of an index on %s waits for pid %s",
                self._table,
                ", ".join(map(str, sorted(blockers))),
                extra={"event": "legacy.index_waited", "pids": sorted(blockers)},
            )
        self._blockers = blockers
        waited = self._patience.clock() - self._since
        if waited > self._patience.build_give_up_seconds:
            raise in_the_way(self._table, sessions(self._watcher, blockers), waited)


@contextmanager
def _beside(connection: Connection) -> Iterator[Connection]:
    """Another connection of the same kind."""
    info = connection.info
    parameters: dict[str, Any] = info.dsn_parameters | {
        "password": info.password,
        "connect_timeout": str(CONNECT_SECONDS),
    }
    other = psycopg2.connect(**parameters)
    try:
        other.autocommit = True
        yield other
    finally:
        other.close()
