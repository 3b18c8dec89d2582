"""Diffs of a company's tables against Schemaless, on real servers."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, ColumnKey, Json, canonical_bytes
from schemaless_core.control.jobs import Finding, JobState
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import wait_until
from tests.damage import lose, spoil
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.integration.creation import FORK_SERVER
from tests.mirrors import relaying, reversing, wait_until_delivered, wait_until_mirrored_back
from tests.scale import scaled
from tests.stores import Stores
from tripstore.backends.postgres.codec import columnar
from tripstore.diffing.diffing import Diffing
from tripstore.diffing.order import Order
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.wiring import connect
from validation.buckets import PlainDigests, ShardedDigests
from validation.differences import BYTES, REF_KEY, CellClass, Difference, NotCompared, from_finding
from validation.keylist import read_key_list

FIELDS: list[Json] = [{"field": "driver_uuid", "type": "uuid"}, {"field": "status", "type": "string"}]
INDEXES: list[Json] = [{"table": "driver_index", "column_defs": [{"column_key": "BASE", "fields": FIELDS}]}]
SHARDS = 8
EACH = scaled(1_000, least=25)
ROWS = r"""
INSERT INTO trips (driver_id, status, fare, distance, request_at)
SELECT 1 + n % 2, 'requested', n * 1.10, n / 3.0, '2014-08-01 12:00:00+00'::timestamptz + n * interval '1 second'
FROM generate_series(1, 60) n;
UPDATE trips SET status = 'completed' WHERE id % 3 = 0;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)
SELECT id, trip_uuid, n, 'captured' FROM trips, generate_series(1, 2) n WHERE id % 2 = 0;
INSERT INTO notes (trip_id, trip_uuid, n, text)
SELECT id, trip_uuid, n, E'a "note"\n\t\\' || n FROM trips, generate_series(1, 2) n WHERE id % 5 = 0;
UPDATE notes SET text = 'another' WHERE n = 1;
DELETE FROM notes WHERE n = 2 AND trip_id % 2 = 0;
DELETE FROM trips WHERE id % 10 = 7;
"""
CELLS_ONLY = Order(indexes=False, decoded=0)
_PAIRS = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]


@pytest.fixture(scope="module", params=_PAIRS, ids=" ".join)
def company(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Carried over whole, in phase dualwrite. Every test leaves it equal."""
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, shards=SHARDS, indexes=INDEXES) as made:
        made.legacy.sql(ROWS)
        made.facade.store.as_copier().put_cells([Cell(uuid4(), "_FREE", 1, "…")])  # of columns that no table holds
        made.phase(Phase.DUALWRITE)
        made.store.put_cells([Cell(uuid4(), f"FREE {n}", n, {"n": n}) for n in range(1, 9)])
        made.carry()
        catch_up(made.facade.store)
        _forget(made, "_FREE")
        yield made


@pytest.fixture(scope="module")
def embedded(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """The same on files, for what does not depend on the engine."""
    with migration(servers, stores, shards=SHARDS, indexes=INDEXES) as made:
        made.legacy.sql(ROWS)
        made.phase(Phase.DUALWRITE)
        made.carry()
        catch_up(made.facade.store)
        yield made


def test_a_company_that_was_carried_is_equal(company: Migration) -> None:
    counts, found = compared(company, Order(older=1.0))

    assert found == []
    assert counts["rows"] == counts["equal"] > 150
    assert counts.get("open", 0) == counts.get("not_compared", 0) == 0
    assert counts["older_equal"] > 20
    assert counts["index_entries"] > 20
    assert counts["index_answers"] >= 2
    assert counts["decoder_equal"] > 100


def test_both_stores_hash_alike_wherever_it_is_done(company: Migration) -> None:
    """One pass over the tables, statements on the servers, and the cell store's own calls."""
    legacy, store = company.duo.legacy, company.facade.store.as_copier()
    for shards, columns in ((range(SHARDS), None), (range(2, 4), None), (range(SHARDS), ["STATUS", "FREE 3"])):
        every = [digests.checksums(shards, columns) for digests in (legacy.sums, ShardedDigests(store, 20.0))]
        every += [PlainDigests(each).checksums(shards, columns) for each in (legacy, store)]
        assert all(sums == every[0] for sums in every)
        places = [place for place, bucket in every[0].buckets.items() if bucket.count][::2]
        listed = [set(digests.digests(places, columns)) for digests in (legacy.sums, ShardedDigests(store, 20.0))]
        listed += [set(PlainDigests(each).digests(places, columns)) for each in (legacy, store)]
        assert listed[0] and all(each == listed[0] for each in listed)


def test_damage_of_every_class_is_found_where_it_is(company: Migration) -> None:
    store = company.facade.store.as_copier()
    latest = _latest(company, "BASE")
    gone, behind, other, unsorted, broken = latest[:5]
    older = next(cell for cell in latest[5:] if cell.ref_key == 2)
    more = Cell(uuid4(), "BASE", 7, {"status": "nobody's"})
    kept = [store.get_cell(*behind.key), store.get_cell(*gone.key), store.get_cell(older.row_key, "BASE", 1)]
    store.put_cells([more])
    lose(store, gone)
    company.legacy.sql("UPDATE trips SET status = 'changed' WHERE trip_uuid = %s", str(behind.row_key))
    company.legacy.deliver()  # as far as Postgres knows
    spoil(store, other, canonical_bytes({**_object(other), "fare": "0.00"}))
    spoil(store, unsorted, canonical_bytes(unsorted.body) + b" ")
    spoil(store, broken, b'{"status":')
    lose(store, Cell(older.row_key, "BASE", 1, None))

    counts, found = compared(company, Order(older=1.0))

    told = {(each.row_key, each.is_older): (each.kind, each.path, each.from_ref_key, each.to_ref_key) for each in found}
    version, changed = behind.ref_key, behind.ref_key + 1
    assert told.pop((more.row_key, False)) == (CellClass.EXTRA, "", None, 7)
    assert told.pop((behind.row_key, False)) == (CellClass.DIFFERS, REF_KEY, changed, version)
    assert told.pop((other.row_key, False)) == (CellClass.DIFFERS, "fare", other.ref_key, other.ref_key)
    assert told.pop((unsorted.row_key, False)) == (CellClass.DIFFERS, BYTES, unsorted.ref_key, unsorted.ref_key)
    assert told.pop((broken.row_key, False)) == (CellClass.DIFFERS, BYTES, broken.ref_key, broken.ref_key)
    assert told.pop((older.row_key, True)) == (CellClass.MISSING, "", 1, None)
    kind, path, ours, theirs = told.pop((gone.row_key, False))
    assert (kind, path, ours) == (
        (CellClass.MISSING, "", gone.ref_key) if theirs is None else (CellClass.DIFFERS, REF_KEY, gone.ref_key)
    )
    assert told == {}
    assert counts["open"] >= 7

    for cell in (other, unsorted, broken):
        spoil(store, cell, canonical_bytes(cell.body))
    lose(store, more)
    store.put_cells([cell for cell in kept if cell is not None] + [gone])
    store.put_cells([cell for cell in company.duo.legacy.get_cells_latest([ColumnKey(behind.row_key, "BASE")]) if cell])
    assert compared(company, CELLS_ONLY)[1] == []


def _object(cell: Cell) -> dict[str, Json]:
    assert isinstance(cell.body, dict)
    return cell.body


def compared(company: Migration, order: Order = CELLS_ONLY) -> tuple[dict[str, int], list[Difference]]:
    """Run a diff to its end: its counts, and its findings."""
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    return dict(diffing.jobs.progress(job.id).counts), differences(diffing, job.id)


def differences(diffing: Diffing, job: str) -> list[Difference]:
    found = [from_finding(each) for each in diffing.jobs.findings(job, limit=100_000)]
    return [each for each in found if each is not None]


def _latest(company: Migration, column: str) -> list[Cell]:
    """The latest cells of a column that are no tombstones, in one order."""
    store = company.facade.store.as_copier()
    rows = [row for shard in range(SHARDS) for row in store.scan_rows(shard, None, 1_000, [column]).rows]
    return sorted(
        (cell for row in rows for cell in row.cells.values() if cell.body is not None), key=lambda cell: cell.row_key
    )


def _forget(company: Migration, column: str) -> None:
    store = company.facade.store.as_copier()
    for cell in _latest(company, column):
        lose(store, cell)
