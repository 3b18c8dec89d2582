"""Postgres rests while it reads a chunk: in proportion to its work, told from it, and with the same cells as ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.legacy import FLAVOURS, layout, legacy_server
from tests.legacy_backends import Company, company
from tests.past import heard, lived_in
from tripstore.backends.postgres.cells.past import pauses as rests
from tripstore.backends.postgres.cells.past import reader as copying
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.pauses import work_within
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.handover.ports import Chunk, Selection
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ALL_ROWS = 100_000
#: Of a predicate that is work, and so much of it that nothing else of a chunk counts.
SLOW_ROWS, SLOW_SECONDS = 12, 0.03


@pytest.fixture(params=FLAVOURS, scope="module")
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """So many that Postgres is at work for a while. No test changes them."""
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        lived_in(made)
        made.legacy.sql(
            "INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'old' FROM generate_series(1, 4000)"
        )
        yield made


@pytest.fixture
def reader(trips: Company, monkeypatch: pytest.MonkeyPatch) -> Iterator[PastReader]:
    monkeypatch.setattr(rests, "CHUNK_SECONDS_MAX", 60.0)  # on however slow a machine all of a chunk has rests
    with closing(PastReader(trips.legacy.url, layout())) as made:
        yield made


@pytest.mark.parametrize("where", [None, "t.status <> 'new'"])
def test_a_chunk_that_is_read_with_rests_has_the_same_cells_and_takes_its_time(
    trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ChunkReading, "rows_of", heard(ChunkReading.rows_of, asked))
    whole = Chunk(rows=ALL_ROWS, selection=Selection(where=where))
    begun = time.monotonic()
    found = reader.read(whole._replace(source_share=0.04))
    seconds = time.monotonic() - begun
    finding = [each for each in asked if '"trips"' in each and '"trip_uuid" IS NULL' not in each]
    hardly = reader.read(whole._replace(source_share=0.9))
    unrested = reader.read(whole)

    assert found[:5] == hardly[:5] == unrested[:5]
    assert found.rows >= 4_000
    assert finding, "what finds the rows rests, too"
    for each in finding:
        assert each.count("pg_sleep") == max(each.count(" OFFSET "), 1), "for each table that it looks into"
    assert unrested.rested_seconds == 0
    assert hardly.rested_seconds < hardly.source_seconds
    assert found.rested_seconds > 5 * found.source_seconds, "it should be 24 times, and the start of a chunk has none"
    assert 0 < found.source_seconds <= seconds - found.rested_seconds


def test_a_chunk_that_takes_long_is_read_to_its_end_without_rests(
    trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One snapshot is held meanwhile. Control: with more time it rests for seconds."""
    resting = Chunk(rows=ALL_ROWS, source_share=0.03)
    control = reader.read(resting)
    monkeypatch.setattr(rests, "CHUNK_SECONDS_MAX", 0.25)
    found = reader.read(resting)

    assert found[:5] == control[:5]
    assert 0 < found.rested_seconds < control.rested_seconds / 2


def test_rests_are_ours_under_whatever_operators_the_company_has(trips: Company, reader: PastReader) -> None:
    sql = trips.legacy.sql
    database = f"ALTER DATABASE {quoted(sql('SELECT current_database()')[0][0])}"
    sql("CREATE SCHEMA strange")
    try:
        for left, right in (("float8", "float8"), ("float8", "numeric")):
            sql(f"CREATE FUNCTION strange.nothing({left}, {right}) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'")
            for operator in "+-*<>":
                sql(f"CREATE OPERATOR strange.{operator} (LEFTARG={left}, RIGHTARG={right}, FUNCTION=strange.nothing)")
        sql(f"{database} SET search_path = strange, public, pg_catalog")
        found = reader.read(Chunk(rows=200, selection=Selection(where="t.status <> 'new'"), source_share=0.1))
    finally:
        sql(f"{database} RESET search_path")
        sql("DROP SCHEMA strange CASCADE")

    assert found.rows >= 200
    assert found.rested_seconds > 0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_rests_are_in_proportion_to_the_work_before_them(reader: PastReader, share: float) -> None:
    """A row that took long is followed by a long rest. One of fixed length would leave nearly all of the time."""
    slow = Selection(where=f"pg_catalog.pg_sleep({SLOW_SECONDS}) IS NOT NULL")
    past = reader.read(Chunk(rows=SLOW_ROWS, selection=slow, source_share=share))

    assert past.rows == SLOW_ROWS
    assert past.source_seconds >= SLOW_ROWS * SLOW_SECONDS
    worked = past.source_seconds / (past.source_seconds + past.rested_seconds)
    assert worked == pytest.approx(share, abs=0.12)


@pytest.mark.parametrize(("told", "is_all_work"), [(-1_000, True), (1_000, False)])
def test_a_clock_that_was_set_makes_no_time_negative(reader: PastReader, told: int, *, is_all_work: bool) -> None:
    """Postgres' clock says how long it rested; a rest longer than the statement is not believed."""
    said = Selection(where=f"pg_catalog.set_config('tripstore.rested', '{told}', true) IS NOT NULL")

    past = reader.read(Chunk(rows=50, selection=said, source_share=0.5))

    assert past.rows == 50
    if is_all_work:
        assert past.rested_seconds == 0
        assert past.source_seconds > 0
    else:
        assert past.rested_seconds > 0
        assert past.source_seconds == 0


def test_a_chunk_that_was_cut_counts_the_work_before_and_not_the_rests(
    reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large, it is read again with fewer rows; what was read in vain was work all the same."""
    slow = Selection(where=f"t.status = 'old' AND pg_catalog.pg_sleep({SLOW_SECONDS}) IS NOT NULL")
    whole = Chunk(rows=SLOW_ROWS, selection=slow, source_share=0.5)
    uncut = reader.read(whole)
    monkeypatch.setattr(copying, "BYTES_PER_CHUNK", 100)
    begun = time.monotonic()
    cut = reader.read(whole)
    seconds = time.monotonic() - begun

    assert cut.rows < uncut.rows == SLOW_ROWS
    assert cut.source_seconds >= (cut.rows + SLOW_ROWS) * SLOW_SECONDS
    assert cut.source_seconds <= 0.7 * seconds, "half of it was rest"


def test_of_a_time_without_known_rests_so_much_was_work_at_most() -> None:
    assert work_within(0.5, 1.0) == 0.5
    assert work_within(0.5, 0.1) == pytest.approx(0.05)
    assert work_within(rests.CHUNK_SECONDS_MAX + 3, 0.1) == pytest.approx(0.1 * rests.CHUNK_SECONDS_MAX + 3)
