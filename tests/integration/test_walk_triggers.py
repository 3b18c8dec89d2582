"""The trigger of a walk by blocks is no breach beside those of capture, and may not be off for a while (I8, I12)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.block_walks import MOVE_BACK, lacking, left_in_postgres, walkable, walked
from tests.facades import Migration
from tests.legacy_databases import FLAVOURS
from tests.stores import Stores
from tripstore.backends.postgres.capture.names import LOGGED
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.capture.remove import drop_table_capture
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.walk import leaves, moves
from tripstore.backends.postgres.wire.connections import connected
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill import walk
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.walk import WalkKind

#: An operator keeps triggers from a bulk UPDATE that no mapped column knows of.
OFF = 'ALTER TABLE {table} DISABLE TRIGGER "{trigger}"'
ON = 'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{trigger}"'


@pytest.fixture(params=sorted(FLAVOURS))
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with walkable(servers, stores, request.param) as opened:
        yield opened


@pytest.fixture
def backfill(made: Migration) -> Backfill:
    return Backfill(made.facade)


def breaches(made: Migration) -> int:
    """How many there are once partitions were looked at."""
    with connected(made.legacy.url, "test") as connection:
        look_at_partitions(connection)
    return int(made.legacy.sql("SELECT count(*) FROM tripstore.breach")[0][0])


def test_i8_a_walk_over_partitions_is_no_breach(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = breaches(made)
    seen: list[int] = []

    walked(backfill, monkeypatch, lambda _: seen.append(breaches(made)))

    assert {*seen, breaches(made)} == {before}


def test_i8_control_a_trigger_with_a_name_of_captures_is_taken_for_breaches(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "WALKING", f"{LOGGED}walk_")
    before = breaches(made)

    walked(backfill, monkeypatch, lambda _: None)

    assert breaches(made) > before


def test_capture_that_is_taken_off_takes_the_trigger_of_a_walk_along(made: Migration, backfill: Backfill) -> None:
    backfill.begin(backfill.plan(Wanted(walk=WalkKind.BLOCKS)))
    layout = backfill._layout

    with connected(made.legacy.url, "test") as connection:
        for table in layout.tables:
            drop_table_capture(connection, Shape.read(connection, table))

    assert [name for name in left_in_postgres(made) if name.startswith("S_")] == []


def published(made: Migration, backfill: Backfill) -> list[str]:
    """Tables of a walk that subscribers of all tables are sent."""
    backfill.begin(backfill.plan(Wanted(walk=WalkKind.BLOCKS)))
    made.legacy.sql("CREATE PUBLICATION everything FOR ALL TABLES")
    found = made.legacy.sql("SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'everything'")
    assert ("trips",) in found
    return [name for (name,) in found if name.startswith("walk_")]


def test_no_publication_has_the_notes_of_a_walk(made: Migration, backfill: Backfill) -> None:
    """A native subscriber would stop at their first row: it has no such table."""
    assert published(made, backfill) == []


def test_control_notes_that_are_logged_are_published(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_TABLE", moves._TABLE.replace("UNLOGGED ", ""))

    assert len(published(made, backfill)) == 1


def unseen(made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows move back while the trigger is off; then it is on again, as it was."""
    tables = {3: "attempts", 8: "notes_0", 12: "notes_1", 17: "trips"}

    def meddle(chunk: int) -> None:
        if (table := tables.get(chunk)) is None:
            return
        record = walk.record_of(backfill.jobs.find("backfill", "last").spec)
        assert record is not None
        trigger = moves.MoveNotes(record.notes).trigger
        made.legacy.sql(OFF.format(table=table, trigger=trigger))
        assert made.legacy.sql(MOVE_BACK.format(table=table, rows=6))
        made.legacy.sql(ON.format(table=table, trigger=trigger))

    walked(backfill, monkeypatch, meddle)


def test_i12_what_moves_while_the_trigger_is_off_for_a_while_is_copied(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    unseen(made, backfill, monkeypatch)

    assert lacking(made) == set()
    assert left_in_postgres(made) == []


def test_i12_control_by_its_oid_alone_a_trigger_that_was_off_is_not_known(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_oid = leaves._LEAVES.replace("t.xmin::text::bigint", "0")
    assert by_oid != leaves._LEAVES
    monkeypatch.setattr(leaves, "_LEAVES", by_oid)

    unseen(made, backfill, monkeypatch)

    assert lacking(made)
