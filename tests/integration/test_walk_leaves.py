"""Which leaves the end of a walk by blocks reads again: those that are new or were changed, and no others (I12)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.block_walks import MOVE_BACK, lacking, left_in_postgres, walkable, walked
from tests.facades import Migration
from tests.legacy_databases import FLAVOURS
from tests.stores import Stores
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.handover.ports import Chunk, Past
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill

#: By what is done while the walk goes on: the leaves that are read again.
DEEDS = {
    "a table is written anew": (["VACUUM FULL trips"], {"trips"}),
    "a partition is written anew": (["VACUUM FULL notes_0"], {"notes_0"}),
    "a partition goes": (["ALTER TABLE notes DETACH PARTITION notes_1", "DROP TABLE notes_1"], set()),
    "a partition goes and others come": (
        [
            "ALTER TABLE notes DETACH PARTITION notes_1",
            "CREATE TABLE notes_2 PARTITION OF notes FOR VALUES WITH (MODULUS 4, REMAINDER 1)",
            "CREATE TABLE notes_3 PARTITION OF notes FOR VALUES WITH (MODULUS 4, REMAINDER 3)",
            "INSERT INTO notes SELECT * FROM notes_1",
        ],
        {"notes_2", "notes_3"},
    ),
    "a partition was away": (
        [
            "ALTER TABLE notes DETACH PARTITION notes_1",
            MOVE_BACK.format(table="notes_1", rows=20),
            "ALTER TABLE notes ATTACH PARTITION notes_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        ],
        {"notes_1"},
    ),
    "nothing is done": ([], set()),
}


@pytest.fixture(params=sorted(FLAVOURS))
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with walkable(servers, stores, request.param) as opened:
        yield opened


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, UUID | None]]:
    """The leaves that are read by row keys, and up to where."""
    found: list[tuple[str, UUID | None]] = []
    read = PastReader.read

    def noted(reader: PastReader, chunk: Chunk) -> Past:
        if chunk.leaf is not None:
            found.append((chunk.leaf.name.split(".")[1].strip('"'), chunk.upto))
        return read(reader, chunk)

    monkeypatch.setattr(PastReader, "read", noted)
    return found


@pytest.mark.parametrize(("statements", "expected"), DEEDS.values(), ids=DEEDS.keys())
def test_i12_what_changed_is_read_again_leaf_by_leaf(
    made: Migration,
    monkeypatch: pytest.MonkeyPatch,
    read_again: list[tuple[str, UUID | None]],
    statements: list[str],
    expected: set[str],
) -> None:
    def do(chunk: int) -> None:
        for statement in statements if chunk == 5 else ():
            made.legacy.sql(statement)

    walked(Backfill(made.facade), monkeypatch, do)

    assert {leaf for leaf, _ in read_again} == expected
    assert lacking(made) == set()
    assert left_in_postgres(made) == []


def test_i12_a_leaf_that_goes_while_it_is_read_again_is_passed(
    made: Migration, monkeypatch: pytest.MonkeyPatch, read_again: list[tuple[str, UUID | None]]
) -> None:
    def do(chunk: int) -> None:
        if chunk == 5:
            made.legacy.sql("VACUUM FULL notes_1")
            made.legacy.sql("VACUUM FULL attempts")
        if len(read_again) == 1 and made.legacy.sql("SELECT to_regclass('notes_1') IS NOT NULL") == [(True,)]:
            made.legacy.sql("ALTER TABLE notes DETACH PARTITION notes_1")
            made.legacy.sql("DROP TABLE notes_1")

    walked(Backfill(made.facade), monkeypatch, do)

    assert {leaf for leaf, _ in read_again} == {"attempts", "notes_1"}
    assert lacking(made) == set()


def test_what_is_read_again_is_shared_by_parts(
    made: Migration, monkeypatch: pytest.MonkeyPatch, read_again: list[tuple[str, UUID | None]]
) -> None:
    """One worker would read a table of hours while all others have nothing to do."""
    walked(
        Backfill(made.facade), monkeypatch, lambda chunk: made.legacy.sql("VACUUM FULL trips") if chunk == 5 else None
    )

    assert len({upto for _, upto in read_again}) == 6
