"""Which rows a chunk is made of: found with as little work for Postgres as their choice allows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import pytest

from tests.legacy import FLAVOURS, layout, legacy_server
from tests.legacy_backends import Company, company
from tests.past import chunks, heard
from tripstore.backends.postgres.cells.past import chunk_reading
from tripstore.backends.postgres.cells.past import chunk_rows as reach
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.chunk_rows import ChunkRows
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.handover.ports import Chunk, Selection
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TRIPS = 500
KEYS = 5_000


@pytest.fixture(params=FLAVOURS, scope="module")
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """No test changes them."""
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        made.legacy.sql(
            f"INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'old' FROM generate_series(1, {TRIPS})"
        )
        made.legacy.sql("ANALYZE trips")  # the planner weighs by what it knows
        yield made


@pytest.mark.parametrize(
    ("where", "steps", "is_found"),
    [
        ("t.status = 'old'", [20], True),
        ("t.status = 'unknown'", [20, 40, 80, 60], False),  # twenty times as many as are wanted
    ],
)
def test_it_looks_at_no_more_rows_than_a_predicate_needs(
    trips: Company, monkeypatch: pytest.MonkeyPatch, where: str, steps: list[int], *, is_found: bool
) -> None:
    assert reach.LOOKED_AT_PER_ROW == 20
    asked: list[str] = []
    monkeypatch.setattr(ChunkReading, "rows_of", heard(ChunkReading.rows_of, asked))
    keys = [key for (key,) in trips.legacy.sql("SELECT trip_uuid FROM trips ORDER BY 1 LIMIT 200")]

    with closing(PastReader(trips.legacy.url, layout())) as reader:
        found = reader.read(Chunk(rows=10, selection=Selection(where=where)))

    assert [int(skipped) + 1 for each in asked for skipped in re.findall(r"OFFSET (\d+) LIMIT 1\)", each)] == steps
    assert found.rows == (10 if is_found else 0)
    assert str(found.after) == str(keys[9 if is_found else 199])


def test_a_predicate_is_met_across_steps_and_chunks_without_a_gap(trips: Company) -> None:
    """One row in seven, so that a chunk of three takes two steps and ends within the second; bounds are chosen rows."""
    keys = [key for (key,) in trips.legacy.sql("SELECT trip_uuid FROM trips ORDER BY 1")]
    chosen = keys[3::7]
    trips.legacy.sql("CREATE TABLE IF NOT EXISTS chosen (k uuid PRIMARY KEY)")
    trips.legacy.sql("INSERT INTO chosen SELECT unnest(%s::uuid[]) ON CONFLICT DO NOTHING", list(map(str, chosen)))
    selection = Selection(where="EXISTS (SELECT FROM public.chosen AS c WHERE c.k = t.trip_uuid)")
    after, upto = UUID(str(chosen[1])), UUID(str(chosen[-2]))

    with closing(PastReader(trips.legacy.url, layout())) as reader:
        found = chunks(reader, Chunk(after=after, upto=upto, rows=3, selection=selection))

    read = [UUID(bytes=key) for past in found for key, name, _, _ in past.cells if name == b"BASE"]
    assert len(read) == len(set(read))
    assert sorted(read) == [UUID(str(key)) for key in chosen[2:-1]]
    assert all(past.rows == 3 for past in found[:-1])


def test_listed_keys_are_looked_up_and_compared_with_no_row(trips: Company) -> None:
    """Thousands of keys and a small table: a scan would compare each row with each key. Control: it does."""
    keys = tuple(uuid4() for _ in range(KEYS))
    condition = ChunkRows(None, keys[0], keys).within("trip_uuid")

    ours, control = (
        "".join(line for (line,) in trips.legacy.sql(f"{before}EXPLAIN SELECT * FROM trips WHERE {condition}"))
        for before in (f"{chunk_reading.BY_INDEX}; ", "")
    )

    assert "Index Scan" in ours
    assert "Bitmap" not in ours
    assert "Index Scan using" not in control


def test_listed_keys_are_not_weighed_one_by_one(trips: Company) -> None:
    """The planner takes no rest. Control: it weighs each of an array that it sees."""
    keys = tuple(uuid4() for _ in range(KEYS))

    ours = planning(trips, ChunkRows(None, keys[0], keys).within("trip_uuid"))
    control = planning(trips, f"trip_uuid = ANY ('{{{','.join(map(str, keys))}}}'::uuid[])")

    assert ours < control / 2


def planning(trips: Company, condition: str) -> float:
    """Milliseconds, the least of several times."""
    explain = f"EXPLAIN (SUMMARY) SELECT * FROM trips WHERE {condition}"
    return min(
        float(line.removeprefix("Planning Time: ").removesuffix(" ms"))
        for _ in range(20)
        for (line,) in trips.legacy.sql(explain)
        if line.startswith("Planning Time")
    )
