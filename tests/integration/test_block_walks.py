"""Backfills that walk Postgres by blocks: the same is copied as by row keys, whatever moves meanwhile (I11, I12).

Each way in which a row may go unseen has a control, in which it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from schemaless_core.control.jobs.jobs import Job
from tests.block_walks import MOVE_BACK, Between, lacking, left_in_postgres, walkable, walked
from tests.facades import Migration, as_other_role
from tests.legacy_databases import FLAVOURS
from tests.stores import Stores
from tripstore.backends.postgres.capture.unwanted import find_left
from tripstore.backends.postgres.cells.past import reader as copying
from tripstore.backends.postgres.cells.past.block_sizes import BlockSizes
from tripstore.backends.postgres.ddl.ddl import Patience
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.walk import leaves as walked_leaves
from tripstore.backends.postgres.walk import moves
from tripstore.backends.postgres.wire.connections import connected
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.runner import Ending
from tripstore.handover.ports import Chunk
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill import walk
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill, Wanted
from tripstore.migration.backfill.walk import BlockWalk, WalkKind

BY_KEYS, BY_BLOCKS = Wanted(walk=WalkKind.KEYS), Wanted(walk=WalkKind.BLOCKS)


@pytest.fixture(params=sorted(FLAVOURS))
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with walkable(servers, stores, request.param) as opened:
        yield opened


@pytest.fixture
def backfill(made: Migration) -> Backfill:
    return Backfill(made.facade)


def counts(backfill: Backfill, job: Job) -> dict[str, int]:
    return dict(backfill.jobs.progress(job.id).counts)


def copied(backfill: Backfill, wanted: Wanted) -> Job:
    job = backfill.begin(backfill.plan(wanted))
    assert backfill.runner(job, "w").run() is Ending.DONE
    return job


def test_i11_by_blocks_the_same_is_copied_and_counted_as_by_row_keys(made: Migration, backfill: Backfill) -> None:
    """Rows that were deleted and came back, with tombstones and ids of before, among them."""
    made.legacy.sql("DELETE FROM trips WHERE id % 10 = 0")
    gone = "SELECT row_key FROM tripstore.tomb WHERE column_name = 'BASE' ORDER BY 1 LIMIT 5"
    made.legacy.sql(f"INSERT INTO trips (trip_uuid, status) SELECT row_key, 'again' FROM ({gone}) AS gone")
    made.legacy.sql("DELETE FROM tripstore.queue")
    by_blocks = copied(backfill, BY_BLOCKS)
    assert by_blocks.spec["walk"] == "blocks"
    assert lacking(made) == set()

    by_keys = copied(backfill, Wanted(walk=WalkKind.KEYS, verify=1.0))

    found, expected = counts(backfill, by_blocks), counts(backfill, by_keys)
    assert expected["verified"] == expected["equal"]
    assert {name: found[name] for name in ("rows", "equal")} == {name: expected[name] for name in ("rows", "equal")}
    assert left_in_postgres(made) == []


def test_i12_a_row_that_moves_to_a_block_that_was_read_is_copied(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each table, before its last block is read."""
    moved = MovingBack(made)

    job = walked(backfill, monkeypatch, moved)

    assert moved.rows, "no row was moved"
    assert lacking(made) == set()
    assert left_in_postgres(made) == []
    assert backfill.jobs.findings(job.id) == []


def test_i12_control_without_notes_a_row_that_moves_back_is_missed(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_OTHER_BLOCK", "false")
    moved = MovingBack(made)

    walked(backfill, monkeypatch, moved)

    assert lacking(made), "it goes on without them as if nothing had moved"
    assert {key for key, _, _ in lacking(made)} <= moved.rows


class MovingBack:
    """Moves rows of the last blocks when the first ones of their table have been read; and knows which."""

    def __init__(self, made: Migration) -> None:
        self._made = made
        self._tables = {3: "attempts", 8: "notes_0", 12: "notes_1", 17: "trips"}
        self.rows: set[UUID] = set()

    def __call__(self, chunk: int) -> None:
        if table := self._tables.get(chunk):
            self.rows |= {UUID(key) for (key,) in self._made.legacy.sql(MOVE_BACK.format(table=table, rows=6))}


REWRITES = {
    "vacuum full": "VACUUM FULL trips",
    "cluster": "CLUSTER trips USING trips_pkey",
    "of a partition": "VACUUM FULL notes_0",
    "alter table": "ALTER TABLE attempts ALTER COLUMN memo TYPE varchar(2000) USING reverse(memo)::varchar(2000)",
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES.keys())
def test_i12_a_table_that_is_written_anew_meanwhile_is_read_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch, rewrite: str
) -> None:
    job = walked(backfill, monkeypatch, lambda chunk: made.legacy.sql(rewrite) if chunk == 5 else None)

    assert lacking(made) == set()
    assert left_in_postgres(made) == []
    assert backfill.jobs.findings(job.id) == []


def test_i12_control_a_walk_that_goes_on_in_a_new_file_misses_rows(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the last blocks stand in front, where it was already."""
    made.legacy.sql("DELETE FROM trips WHERE (ctid::text::point)[0] < 4")
    made.legacy.sql("DELETE FROM tripstore.queue")
    monkeypatch.setattr(copying, "stands", lambda *_: True)
    monkeypatch.setattr(BlockWalk, "_unwalked", lambda *_: ())

    walked(backfill, monkeypatch, lambda chunk: made.legacy.sql("VACUUM FULL trips") if chunk == 22 else None)

    assert lacking(made)


def test_i12_a_partition_that_was_away_is_read_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detached, its rows moved within it unseen, and attached again: it has another trigger, and all else as before."""

    def away(chunk: int) -> None:
        if chunk == 5:
            made.legacy.sql("ALTER TABLE notes DETACH PARTITION notes_1")
            made.legacy.sql(MOVE_BACK.format(table="notes_1", rows=20))
            made.legacy.sql("ALTER TABLE notes ATTACH PARTITION notes_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)")

    walked(backfill, monkeypatch, away)

    assert lacking(made) == set()


def test_i12_a_leaf_that_was_dropped_ends_its_parts(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(chunk: int) -> None:
        if chunk == 3:
            made.legacy.sql("ALTER TABLE notes DETACH PARTITION notes_1")
            made.legacy.sql("DROP TABLE notes_1")

    walked(backfill, monkeypatch, away)

    assert lacking(made) == set()


def test_i12_with_no_room_for_more_notes_all_is_read_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "NOTES_MAX", 3)
    moved = MovingBack(made)

    walked(backfill, monkeypatch, moved)

    assert moved.rows
    assert lacking(made) == set()


def test_i12_an_id_of_a_row_that_goes_between_its_block_and_the_end_is_copied(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted before its block is read, when tables have been read that know it no more."""
    gone: list[str] = []

    def delete(chunk: int) -> None:
        if chunk == 2:
            deleted = "DELETE FROM trips WHERE id IN (SELECT id FROM trips ORDER BY ctid DESC LIMIT 3)"
            gone.extend(key for (key,) in made.legacy.sql(f"{deleted} RETURNING trip_uuid::text"))

    walked(backfill, monkeypatch, delete)

    assert len(gone) == 3
    assert None not in [made.facade.store.get_cell(UUID(key), "_LEGACY_ID", 0) for key in gone]


def test_moves_within_a_block_are_not_noted(made: Migration, backfill: Backfill) -> None:
    job = backfill.begin(backfill.plan(BY_BLOCKS))
    record = walk.record_of(job.spec)
    assert record is not None
    noted = f'SELECT count(*) FROM tripstore."{record.notes}" WHERE id > 0'
    made.legacy.sql("UPDATE trips SET memo = memo WHERE id IN (SELECT id FROM trips ORDER BY ctid LIMIT 3)")
    assert made.legacy.sql(noted) == [(0,)]

    made.legacy.sql("UPDATE trips SET memo = repeat('n', 900)")

    assert made.legacy.sql(noted)[0][0] > 0


def test_small_tables_and_parts_are_read_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backfill.plan(EVERYTHING).spec["walk"] == "keys"
    monkeypatch.setattr(walk, "BLOCKS_LEAST", 1)
    assert backfill.plan(EVERYTHING).spec["walk"] == "blocks"
    assert backfill.plan(Wanted(where="t.id % 2 = 0")).spec["walk"] == "keys"
    assert backfill.plan(BY_KEYS).spec["walk"] == "keys"
    with pytest.raises(CannotCopy, match="a part of the rows"):
        backfill.plan(Wanted(columns=["BASE"], walk=WalkKind.BLOCKS))


def test_a_role_that_may_make_no_trigger_reads_by_row_keys(made: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "BLOCKS_LEAST", 1)
    with as_other_role(made) as (store, role):
        backfill = Backfill(store.facade)
        plan = backfill.plan(EVERYTHING)
        assert plan.spec["walk"] == "keys"
        assert f"is not owned by {role}" in plan.why_walk
        with pytest.raises(CannotCopy, match="is not owned by"):
            backfill.plan(BY_BLOCKS)


def test_an_older_postgres_reads_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "BLOCKS_LEAST", 1)
    monkeypatch.setattr(walked_leaves, "OLDEST_VERSION", 990_000)
    assert "ranges of blocks" in backfill.plan(EVERYTHING).why_walk


def test_a_table_that_is_never_free_is_read_by_row_keys(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left of the attempt. Where blocks were asked for it is refused."""
    monkeypatch.setattr(walk, "BLOCKS_LEAST", 1)
    impatient = Patience(lock_timeout_seconds=0.05, pause_seconds=0.05, give_up_seconds=0.2)
    monkeypatch.setattr(moves.MoveNotes.make, "__defaults__", (impatient,))
    with connected(made.legacy.url, "test") as writer:
        writer.autocommit = False
        with writer.cursor() as cursor:
            cursor.execute("UPDATE public.trips SET memo = memo WHERE id = 9")
        job = backfill.begin(backfill.plan(EVERYTHING))
        with pytest.raises(Exception, match="No lock on trips"):
            backfill.begin(backfill.plan(BY_BLOCKS))
        writer.rollback()

    assert job.spec["walk"] == "keys"
    assert left_in_postgres(made) == []
    assert backfill.runner(job, "w").run() is Ending.DONE
    assert lacking(made) == set()


def test_a_trigger_that_cannot_be_dropped_does_nothing_and_is_told_of(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = backfill.begin(backfill.plan(BY_BLOCKS))
    monkeypatch.setattr(moves, "under_lock", _refused)
    assert backfill.runner(job, "w").run() is Ending.DONE
    record = walk.record_of(job.spec)
    assert record is not None

    made.legacy.sql("UPDATE trips SET memo = repeat('n', 900)")

    assert made.legacy.sql(f'SELECT count(*) FROM tripstore."{record.notes}" WHERE id > 0') == [(0,)]
    layout = made.facade.config.legacy.layout  # type: ignore[union-attr]  # there is one
    with connected(made.legacy.url, "test") as connection:
        assert find_left(connection, layout).triggers
    monkeypatch.undo()
    made.legacy.install(layout)
    assert [name for name in left_in_postgres(made) if "S_" in name] == []


def _refused(*_: object, **__: object) -> None:
    raise LegacyUnavailable("No lock.", hint="")


def cuts(made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a chunk was read up to where there was no more room, and again."""
    found: list[float] = []
    smaller = copying._smaller

    def cut(chunk: Chunk, room: float) -> Chunk:
        found.append(room)
        return smaller(chunk, room)

    monkeypatch.setattr(copying, "BYTES_PER_CHUNK", 4_000)
    monkeypatch.setattr(copying, "_smaller", cut)
    copied(backfill, Wanted(walk=WalkKind.BLOCKS, chunk_rows=10_000))
    assert lacking(made) == set()
    return len(found)


def test_a_chunk_of_blocks_has_as_much_as_there_is_room_for(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each of four leaves the first one is cut, and hardly any other."""
    learned = cuts(made, backfill, monkeypatch)
    monkeypatch.setattr(BlockSizes, "fitting", lambda _self, blocks, _bytes_max: blocks)

    assert learned < cuts(made, backfill, monkeypatch)


def test_i11_a_rate_counts_rows_of_every_table(made: Migration, backfill: Backfill) -> None:
    """Else children would be read as fast as they can be."""
    job = backfill.begin(backfill.plan(Wanted(walk=WalkKind.BLOCKS, rate=100_000)))
    seen: list[int] = []

    class Heard(Between):
        def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
            seen.append(rows)

    runner = backfill.runner(job, "w")
    runner._throttle = Heard(lambda _: None)
    assert runner.run() is Ending.DONE
    tables = made.legacy.sql(
        "SELECT (SELECT count(*) FROM trips) + (SELECT count(*) FROM notes) + (SELECT count(*) FROM attempts)"
    )
    assert sum(seen) >= tables[0][0]
