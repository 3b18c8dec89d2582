"""Walks by blocks on a real Postgres while its tables are changed in any way between any two chunks (I11, I12).

What was there when a walk began and is there when it ends is in Schemaless, by the walk alone: nothing is carried. The
controls take one thing away that the walk rests on, and the example that then loses rows is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.block_walks import MOVE_BACK, ROOM, lacking, left_in_postgres, walked
from tests.facades import Migration, migration
from tests.scale import scaled
from tests.stores import Stores
from tripstore.backends.postgres.cells.past import reader as copying
from tripstore.backends.postgres.walk import moves
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill
from tripstore.migration.backfill.walk import BlockWalk
from tripstore.phase import Phase

TRIPS = 250
PAST = """
DELETE FROM trips; DELETE FROM tripstore.tomb; DELETE FROM tripstore.kept; DELETE FROM tripstore.cell;
INSERT INTO trips (trip_uuid, status, memo)
    SELECT gen_random_uuid(), 'old', repeat('m', 150) FROM generate_series(1, {trips});
INSERT INTO notes (trip_id, trip_uuid, n, text, memo)
    SELECT id, trip_uuid, k, 'note', repeat('m', 100) FROM trips, generate_series(1, 2) AS k ORDER BY trip_uuid;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result, memo)
    SELECT id, trip_uuid, 1, 'tried', repeat('m', 100) FROM trips ORDER BY trip_uuid DESC;
"""
#: Of the first blocks of each table, so that others find room there.
HOLES = "DELETE FROM trips WHERE id IN (SELECT id FROM trips ORDER BY ctid LIMIT 25); DELETE FROM tripstore.queue"
#: By what is done; `{table}` is one of the leaves. None of it changes a mapped field of a row that stays.
DEEDS = {
    "moves": MOVE_BACK.replace("{rows}", "12"),
    "grows": "UPDATE {table} SET memo = memo || repeat('g', 40) WHERE (ctid::text::point)[0]::int % 2 = 1",
    "vacuum": "VACUUM {table}",
    "vacuum full": "VACUUM FULL {table}",
    "alter": "ALTER TABLE {root} ALTER COLUMN memo TYPE varchar(4000) USING memo::varchar(4000)",
    "deletes": "DELETE FROM trips WHERE id IN (SELECT id FROM trips ORDER BY ctid LIMIT 5)",
    "inserts": "INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'new' FROM generate_series(1, 9)",
}
TABLES = {"trips": "trips", "notes_0": "notes", "notes_1": "notes", "attempts": "attempts"}

Deed = tuple[int, str, str]
MEDDLING = st.lists(
    st.tuples(st.integers(0, 28), st.sampled_from(sorted(DEEDS)), st.sampled_from(sorted(TABLES))), max_size=6
)
#: In a new database: when the first blocks of the table have been read and the last ones have not.
MOVED_BACK: list[Deed] = [(21, "moves", "trips")]
COMPACTED: list[Deed] = [(21, "vacuum full", "trips")]


@pytest.fixture
def made(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    options = {"parts": 4, "patience_seconds": 20.0}
    with migration(servers, stores, backfill=options) as opened:
        opened.phase(Phase.DUALWRITE)
        yield opened


@given(deeds=MEDDLING)
@example(deeds=MOVED_BACK)
@example(deeds=COMPACTED)
@settings(
    max_examples=scaled(60, least=4), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_i12_whatever_is_done_meanwhile_what_stays_is_copied(made: Migration, deeds: list[Deed]) -> None:
    assert missed_by_walk(made, deeds) == set()
    assert left_in_postgres(made) == []


def _blind(*_: object) -> bool:
    return True


def _satisfied(*_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize(
    ("deeds", "taken"),
    [
        (MOVED_BACK, [(moves, "_OTHER_BLOCK", "false")]),
        (COMPACTED, [(copying, "stands", _blind), (BlockWalk, "_unwalked", _satisfied)]),
        (COMPACTED, [(BlockWalk, "_unwalked", _satisfied)]),
    ],
    ids=["moves are not noted", "files are not looked at", "the end does not look"],
)
def test_i12_control_what_a_walk_rests_on_is_needed(
    made: Migration, monkeypatch: pytest.MonkeyPatch, deeds: list[Deed], taken: Sequence[tuple[object, str, object]]
) -> None:
    for target, name, value in taken:
        monkeypatch.setattr(target, name, value)

    assert missed_by_walk(made, deeds)


def missed_by_walk(made: Migration, deeds: Sequence[Deed]) -> set[UUID]:
    """Rows that were there before and after, and are not in Schemaless, whole."""
    sql = made.legacy.sql
    sql(PAST.format(trips=TRIPS))
    sql(HOLES)
    sql(ROOM)
    before = {UUID(key) for (key,) in sql("SELECT trip_uuid::text FROM trips")}
    with pytest.MonkeyPatch.context() as patch:
        walked(Backfill(made.facade), patch, _doing(made, deeds), chunk_rows=1)
    return {key for key, _, _ in lacking(made)} & before


def _doing(made: Migration, deeds: Sequence[Deed]) -> Callable[[int], None]:
    def do(chunk: int) -> None:
        for _, deed, table in (each for each in deeds if each[0] == chunk):
            made.legacy.sql(DEEDS[deed].format(table=table, root=TABLES[table]))

    return do
