"""Plans of prepared puts find rows by their indexes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from uuid import uuid4

import pytest

from schemaless_core import Json
from schemaless_core.deadline import Deadline
from tests.integration.prepared_puts.ways import CHILD
from tests.legacy_backends import Company, company
from tripstore.backends.postgres.cells.put.locked import begin_sql
from tripstore.backends.postgres.cells.put.row_statements import RowStatements
from tripstore.backends.postgres.cells.rows import ColumnRows
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.local.postgres import PostgresServer


@pytest.fixture
def empty(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


FILL = """
INSERT INTO trips (status) SELECT 'filled' FROM generate_series(1, 3000);
INSERT INTO attempts (trip_id, trip_uuid, attempt_no) SELECT id, trip_uuid, 1 FROM trips WHERE status = 'filled';
INSERT INTO notes (trip_id, trip_uuid, n) SELECT id, trip_uuid, 1 FROM trips WHERE status = 'filled';
INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
    SELECT gen_random_uuid(), name, 1, 'x' FROM generate_series(1, 1000), unnest('{BASE,NOTES,STATUS}'::text[]) AS name;
INSERT INTO tripstore.tomb SELECT row_key, column_name, 1, 1 FROM tripstore.cell;
INSERT INTO tripstore.kept SELECT row_key, column_name, 1, 1 FROM tripstore.cell
"""


def put_one_of_each(trips: Company) -> None:
    row_key = trips.base(1, 2)
    puts: list[tuple[str, int, Json]] = [
        ("STATUS", 1, {"result": "x"}),
        ("NOTES", CHILD, {"text": "x"}),
        ("NOTES", CHILD + 1, {"text": "y"}),
    ]
    for column, ref_key, body in puts:
        trips.store.put_cell(row_key, column, ref_key, body)


def scanned(trips: Company) -> set[str]:
    """The tables that a prepared write reads from end to end, by the plans that puts use: within one, that is."""

    def explain(connection: LegacyConnection) -> set[str]:
        plans = list[str]()
        connection.rows(begin_sql(connection))
        for column in trips.store.layout.columns.values():
            statements = RowStatements(trips.store.layout, ColumnRows(column))
            place = [f"'{uuid4()}'", "0", "0", "0", "NULL"]
            arguments = ", ".join([*place, *["NULL"] * len(statements.written)])
            calls = [(statements.insert_first, arguments), (statements.look, ", ".join(place[:2]))]
            if column.ref_key.version is not None:
                calls.append((statements.update, arguments))
            plans += [line for each in calls for (line,) in connection.rows(f"EXPLAIN {connection.call(*each)}")]
        connection.rows("ROLLBACK")
        return {line.split(" on ")[1].split()[0] for line in plans if "Seq Scan" in line}

    return trips.store.database.run(explain, Deadline(20))


def test_plans_find_rows_by_their_indexes(empty: Company) -> None:
    empty.legacy.sql(FILL)
    empty.legacy.sql("ANALYZE")

    put_one_of_each(empty)

    assert scanned(empty) == set()


def test_plans_made_for_empty_tables_do_not_stay(empty: Company) -> None:
    """A table may never be analysed; that its plans read it from end to end is the control."""
    empty.legacy.sql("VACUUM ANALYZE")
    put_one_of_each(empty)
    (connection,) = empty.store.database._idle
    connection._replan_at = math.inf
    empty.legacy.sql(FILL)
    put_one_of_each(empty)
    assert scanned(empty) >= {"trips", "cell", "tomb", "kept"}

    connection._replan_at = 0.0
    put_one_of_each(empty)

    assert scanned(empty) == set()


def test_stores_with_other_habits_share_what_is_prepared(empty: Company) -> None:
    def prepared(connection: LegacyConnection) -> int:
        return int(connection.rows("SELECT count(*) FROM pg_catalog.pg_prepared_statements")[0][0])

    put_one_of_each(empty)
    once = empty.store.database.run(prepared, Deadline(20))
    for _ in range(3):
        put_one_of_each(Company(empty.legacy, empty.store.using(deadline=20)))

    assert empty.store.database.run(prepared, Deadline(20)) == once
    assert once <= 4 * len(empty.store.layout.columns)
