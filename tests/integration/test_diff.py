"""Diffs of a company's tables against Schemaless, on real servers."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, ColumnKey, Json, canonical_bytes
from schemaless_core.control.jobs.jobs import JobState
from schemaless_core.errors import InvalidRequest
from tests.damage import lose, spoil
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.mirrors import relaying, reversing, wait_until_delivered, wait_until_mirrored_back
from tests.scale import scaled
from tests.sparing import FewRows
from tests.stores import Stores
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.buckets import Digests, PlainDigests, ShardedDigests
from tripstore.engines.validation.diff.differences import REF_KEY, CellClass, Difference, NotCompared, from_finding
from tripstore.engines.validation.diff.keylist import read_key_list
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing, order_of
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.rechecking import Rechecked
from tripstore.migration.diff.unit import UNIT
from tripstore.phase import Phase

FIELDS: list[Json] = [{"field": "driver_uuid", "type": "uuid"}, {"field": "status", "type": "string"}]
INDEXES: list[Json] = [{"table": "driver_index", "column_defs": [{"column_key": "BASE", "fields": FIELDS}]}]
SHARDS = 8
EACH = scaled(1_000, least=25)
#: Between two statements of a writer.
WRITER_PAUSE_SECONDS = 0.02
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
    """One pass over the tables, at one go and by turns, statements on the servers, and the cell store's own calls."""
    legacy, store = company.duo.legacy, company.facade.store.as_copier()
    children = legacy.layout.child_bits
    turns = FewRows()
    digests: list[Digests] = [legacy.sums, legacy.sums.by_turns(turns), ShardedDigests(store, 20.0, children)]
    digests += [PlainDigests(each, children) for each in (legacy, store)]
    for shards, columns in ((range(SHARDS), None), (range(2, 4), None), (range(SHARDS), ["STATUS", "FREE 3"])):
        every = [each.checksums(shards, columns).buckets for each in digests]
        assert all(sums == every[0] for sums in every)
        places = [place for place, bucket in every[0].items() if bucket.count][::2]
        listed = [set(each.digests(places, columns)) for each in digests]
        assert listed[0]
        assert all(each == listed[0] for each in listed)
    for shards in (range(SHARDS), range(2, 4)):
        assert legacy.sums.checksums(shards, None).tables == legacy.sums.by_turns(turns).checksums(shards, None).tables
    assert max(turns.turns) == 3


def test_damage_of_every_class_is_found_where_it_is(company: Migration) -> None:
    """No cell is taken away: a reader of the log would stop at the hole."""
    store, legacy = company.facade.store.as_copier(), company.legacy
    behind, other, unsorted, broken = _latest(company, "BASE")[:4]
    _, gone = legacy.trip()
    _, older = legacy.trip()
    for row_key in (older, behind.row_key):
        legacy.sql("UPDATE trips SET status = 'changed' WHERE trip_uuid = %s", str(row_key))
    legacy.deliver()  # as far as Postgres knows
    store.put_cells(list(company.duo.legacy.get_row(older).values()))
    more = Cell(uuid4(), "BASE", 7, {"status": "foreign"})
    store.put_cells([more])
    spoil(store, other, canonical_bytes({**_object(other), "fare": "0.00"}))
    spoil(store, unsorted, canonical_bytes(unsorted.body) + b" ")
    spoil(store, broken, b'{"status":')

    counts, found = compared(company, Order(older=1.0, indexes=False, decoded=100_000))

    told = {_told(each) for each in found}
    assert told == {
        (gone, "BASE", CellClass.MISSING, "", 1, None),
        (gone, "_LEGACY_ID", CellClass.MISSING, "", 0, None),
        (older, "BASE", CellClass.MISSING, "", 1, None),  # an older version
        (more.row_key, "BASE", CellClass.EXTRA, "", None, 7),
        (behind.row_key, "BASE", CellClass.DIFFERS, REF_KEY, behind.ref_key + 1, behind.ref_key),
        (other.row_key, "BASE", CellClass.DIFFERS, "fare", other.ref_key, other.ref_key),
        (unsorted.row_key, "BASE", CellClass.DIFFERS, BYTES, unsorted.ref_key, unsorted.ref_key),
        (broken.row_key, "BASE", CellClass.DIFFERS, BYTES, broken.ref_key, broken.ref_key),
    }
    assert {each.row_key for each in found if each.is_older} == {older}
    assert {each.row_key for each in found if each.seen_by} == {other.row_key, broken.row_key}
    assert (counts["missing"], counts["extra"], counts["differs"], counts["older_missing"]) == (2, 1, 4, 1)
    assert counts.get("older_not_compared", 0) == 0

    for cell in (other, unsorted, broken):
        spoil(store, cell, canonical_bytes(cell.body))
    company.duo.legacy.put_cell(*more.key, more.body)
    store.put_cells([cell for key in (gone, behind.row_key) for cell in company.duo.legacy.get_row(key).values()])
    store.put_cells(company.duo.legacy.get_history(older, "BASE"))
    company.carry()
    assert compared(company, Order(older=1.0, indexes=False))[1] == []


def test_the_other_direction_tells_the_same_the_other_way_round(company: Migration) -> None:
    more = Cell(uuid4(), "OTHER", 1, {"n": 1})
    company.facade.store.as_copier().put_cells([more])
    order = Order(source="schemaless", target="postgres", indexes=False, decoded=0)

    (there,), (back,) = compared(company)[1], compared(company, order)[1]

    assert _told(there) == (more.row_key, "OTHER", CellClass.EXTRA, "", None, 1)
    assert _told(back) == (more.row_key, "OTHER", CellClass.MISSING, "", 1, None)

    company.duo.legacy.put_cell(*more.key, more.body)
    company.carry()
    assert compared(company)[1] == []


def test_parts_and_columns_are_compared_alone(embedded: Migration) -> None:
    whole = compared(embedded)[0]
    of_shards = [compared(embedded, Order(shards=[n, n + 4], indexes=False, decoded=0))[0] for n in (0, 4)]
    of_columns = [
        compared(embedded, Order(columns=[name], indexes=False, decoded=0))[0]
        for name in ("BASE", "STATUS", "NOTES", "_LEGACY_ID")
    ]

    assert sum(counts["rows"] for counts in of_shards) == whole["rows"]
    assert sum(counts["rows"] for counts in of_columns) == whole["rows"]


def test_a_part_has_no_indexes_and_says_so(embedded: Migration) -> None:
    plan = Diffing(embedded.facade).plan(Order(shards=[0, 2]))

    assert not any("index" in part for part in plan.parts if isinstance(part, dict))
    assert (plan.spec["indexes"], plan.spec["note"]) == (False, _note(indexes=0))
    note = dict(Diffing(embedded.facade).plan(Order()).spec["note"])  # type: ignore[arg-type]  # a diff makes a dict
    assert {"at", "running"} == set(note.pop("looked_back"))  # type: ignore[arg-type]  # and a dict of this
    assert note == _note(indexes=1)


def test_a_column_that_neither_store_has_is_refused_and_a_free_one_of_either_is_compared(company: Migration) -> None:
    """I12: nothing was compared, and nothing differed."""
    with pytest.raises(InvalidRequest, match="There is no column BASF to compare") as raised:
        Diffing(company.facade).plan(Order(columns=["BASE", "BASF"]))
    assert "BASE" in (raised.value.hint or "")

    ours, theirs = Cell(uuid4(), "ONLY OURS", 1, {}), Cell(uuid4(), "ONLY THEIRS", 1, {})
    company.duo.legacy.put_cells([ours])
    company.legacy.sql("DELETE FROM tripstore.queue")  # it is not on its way
    company.facade.store.as_copier().put_cells([theirs])
    columns = [ours.column_name, theirs.column_name]

    found = compared(company, Order(columns=columns, indexes=False, decoded=0))[1]

    assert {(each.column_name, each.kind) for each in found} == {
        ("ONLY OURS", CellClass.MISSING),
        ("ONLY THEIRS", CellClass.EXTRA),
    }
    company.duo.legacy.put_cells([theirs])
    company.facade.store.as_copier().put_cells([ours])
    company.carry()


def test_a_thousand_differences_of_every_class_are_counted_exactly(embedded: Migration, tmp_path: Path) -> None:
    """Findings are a sample; the key list has all of them."""
    legacy, store = embedded.legacy, embedded.facade.store.as_copier()
    kept = legacy.sql("SELECT max(id) FROM trips")[0][0]
    legacy.sql("INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, %s)", 3 * EACH)
    keys = [UUID(key) for (key,) in legacy.sql("SELECT trip_uuid FROM trips WHERE id > %s ORDER BY id", kept)]
    missing, behind, other = keys[:EACH], keys[EACH : 2 * EACH], keys[2 * EACH :]
    extra = [uuid4() for _ in range(EACH)]
    ids = {
        cell.row_key: cell
        for cell in embedded.duo.legacy.get_cells_latest([ColumnKey(key, "_LEGACY_ID") for key in keys])
        if cell
    }
    store.put_cells([ids[key] for key in (*behind, *other)])
    store.put_cells([Cell(key, "BASE", 1, {"status": "requested"}) for key in behind])
    store.put_cells([Cell(key, "BASE", 1, {"status": "another"}) for key in other])
    store.put_cells([Cell(key, "BASE", 1, {}) for key in extra])
    legacy.sql("UPDATE trips SET status = 'changed' WHERE trip_uuid = ANY (%s::uuid[])", list(map(str, behind)))
    legacy.deliver()
    diffing, file = Diffing(embedded.facade), tmp_path / "keys.jsonl"
    job = diffing.begin(diffing.plan(Order(indexes=False, decoded=0, sample=5, keys=str(file), processes=3)))

    diffing.runner(job, "test").run()
    diffing.finish(job)

    counts = diffing.jobs.progress(job.id).counts
    assert (counts["missing"], counts["extra"], counts["differs"]) == (2 * EACH, EACH, 2 * EACH)
    assert counts["open"] == 5 * EACH
    listed = list(read_key_list(file))
    assert len(listed) == 5 * EACH
    assert Counter((each.kind, each.column_name, each.path) for each in listed) == {
        (CellClass.MISSING, "BASE", ""): EACH,
        (CellClass.MISSING, "_LEGACY_ID", ""): EACH,
        (CellClass.EXTRA, "BASE", ""): EACH,
        (CellClass.DIFFERS, "BASE", REF_KEY): EACH,
        (CellClass.DIFFERS, "BASE", "status"): EACH,
    }
    assert {each.row_key for each in listed} == {*missing, *behind, *other, *extra}
    findings = diffing.jobs.findings(job.id, limit=100_000)
    assert len(findings) == 5 * EACH - counts["findings_left_out"] <= 3 * 3 * 5

    # Most of it is put right; the recheck closes what a job keeps, and says of a list what remains.
    legacy.sql("DELETE FROM trips WHERE trip_uuid = ANY (%s::uuid[])", list(map(str, other)))
    embedded.carry()
    store.put_cells([cell for key in missing for cell in embedded.duo.legacy.get_row(key).values()])
    store.put_cells([Cell(key, "BASE", 2, {"status": "changed"}) for key in behind])
    again = diffing.rechecking(Order()).of_list(read_key_list(file))
    assert (again.looked_at, again.solved, len(again.remaining)) == (5 * EACH, 4 * EACH, EACH)
    assert {each.row_key for each in again.remaining} == set(extra)
    of_job = diffing.rechecking(Order()).of_job(diffing.jobs, job)
    assert of_job.solved == sum(found.row_key not in extra for found in findings)
    assert diffing.jobs.progress(job.id).counts["open"] == 5 * EACH - of_job.solved
    assert diffing.rechecking(Order()).of_job(diffing.jobs, job).solved == 0

    for key in extra:
        embedded.duo.legacy.put_cell(key, "BASE", 1, {})
    embedded.carry()
    assert compared(embedded)[1] == []


def test_live_writers_are_no_differences(company: Migration) -> None:
    """I12: what is on its way is waited for; what never rests is not compared, and said to be."""
    ended = threading.Event()
    writers = [threading.Thread(target=_write, args=(company, number, ended)) for number in range(2)]
    with relaying(company):
        for writer in writers:
            writer.start()
        try:
            # All of history comes row by row, and becomes more all the time.
            runs: list[tuple[dict[str, int], list[Difference]]] = []
            suspects = 0
            while len(runs) < scaled(40, least=3) or not suspects:
                assert len(runs) < 100, "nothing was ever on its way"
                share = 0.0 if len(runs) % 8 else 0.2
                runs.append(compared(company, Order(older=share, indexes=False)))
                suspects += runs[-1][0].get("suspects", 0)
        finally:
            ended.set()
            for writer in writers:
                writer.join()
        wait_until_delivered(company)

    for counts, found in runs:
        assert [each for each in found if each.is_difference] == []
        assert counts.get("open", 0) == 0
        latest = [each for each in found if not each.is_older]
        assert counts.get("not_compared", 0) == len(latest)
        assert {each.kind for each in latest} <= {NotCompared.BUSY}
    assert compared(company)[1] == []


def test_a_change_that_is_not_delivered_is_busy_and_no_difference(embedded: Migration) -> None:
    """I12: no relay runs; the control is the row that Postgres believes to be delivered."""
    _, waiting = embedded.legacy.trip()

    counts, found = compared(embedded)

    assert {_told(each)[:3] for each in found} == {
        (waiting, "BASE", NotCompared.BUSY),
        (waiting, "_LEGACY_ID", NotCompared.BUSY),
    }
    assert (counts.get("open", 0), counts["not_compared"]) == (0, 2)

    embedded.legacy.deliver()
    assert {each.kind for each in compared(embedded)[1]} == {CellClass.MISSING}
    store = embedded.facade.store.as_copier()
    store.put_cells(list(embedded.duo.legacy.get_row(waiting).values()))


def test_schemaless_as_the_authority_is_compared_with_what_mirrors_it_back(
    servers: LocalServers, stores: Stores
) -> None:
    order = Order(source="schemaless", target="postgres", indexes=False)
    with migration(servers, stores, shards=SHARDS, indexes=INDEXES) as company:
        company.legacy.sql(ROWS)
        company.carry()
        company.phase(Phase.LIVE)
        company.store.put_cell(uuid4(), "BASE", 1, {"status": "requested"})

        before = compared(company, order)
        with reversing(company):
            wait_until_mirrored_back(company)
            after = compared(company, order)

    assert {each.kind for each in before[1]} == {NotCompared.BUSY}
    assert after[1] == []
    assert after[0]["decoder_equal"] > 50


def test_a_codec_that_is_wrong_on_both_sides_is_seen_by_the_decoder(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the second decoder: copy and sums agree, and both are wrong."""
    row_key = uuid4()
    embedded.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'Requested')", str(row_key))
    embedded.legacy.deliver()
    store = embedded.facade.store.as_copier()
    store.put_cells([cell for cell in embedded.duo.legacy.get_row(row_key).values() if cell.column_name != "BASE"])
    store.put_cells([Cell(row_key, "BASE", 1, {"status": "REQUESTED"})])
    known = ColumnarCodec.canonical

    def shouting(codec: ColumnarCodec, *asked: Any) -> list[Any]:
        return [body.replace(b"Requested", b"REQUESTED") for body in known(codec, *asked) if isinstance(body, bytes)]

    monkeypatch.setattr(ColumnarCodec, "canonical", shouting)
    with migration_of(embedded) as wrong:
        counts, found = compared(wrong, Order(indexes=False, decoded=10_000))
        still = _rechecked(wrong)

    assert [_told(each) for each in found] == [(row_key, "BASE", CellClass.DIFFERS, "status", 1, 1)]
    assert [each.seen_by for each in found] == ["decoder"]
    assert counts["decoder_differs"] == counts["open"] == 1
    assert (still.remaining, still.solved) == (found, 0)  # the control: it is asked of the decoder, not of the stores
    spoil(store, Cell(row_key, "BASE", 1, None), canonical_bytes({"status": "Requested"}))
    mended = _rechecked(embedded)
    assert (mended.solved, mended.remaining, mended.not_compared) == (1, [], 0)


def _rechecked(company: Migration) -> Rechecked:
    """What became of the last diff's findings."""
    diffing = Diffing(company.facade)
    job = diffing.jobs.find("diff", "last")
    return diffing.rechecking(order_of(job)).of_job(diffing.jobs, job)


@contextmanager
def migration_of(company: Migration) -> Iterator[Migration]:
    """The same company behind a facade of its own."""
    with company.connect() as store:
        store.facade.begin()
        yield replace(company, store=store)


def _note(**more: Json) -> dict[str, Json]:
    scope = {"older": 0.0, "decoded": 200, "indexes": 1, **more}
    return {"epoch": 0, "scope": scope, "breach": 0, "unit": UNIT}


def _told(each: Difference) -> tuple[UUID, str, object, str, int | None, int | None]:
    return each.row_key, each.column_name, each.kind, each.path, each.from_ref_key, each.to_ref_key


def _write(company: Migration, seed: int, ended: threading.Event) -> None:
    """A service: inserts, updates and deletes, until it is told to end; at a pace, or each run had more to compare."""
    chance, legacy = random.Random(seed), company.legacy
    connection = legacy.connect(autocommit=True)
    mine: list[str] = []
    with connection.cursor() as cursor:
        while not ended.wait(WRITER_PAUSE_SECONDS):
            act = chance.random()
            if act < 0.3 or not mine:
                mine.append(str(uuid4()))
                cursor.execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'new')", (mine[-1],))
            elif act < 0.9:
                values = (f"status {chance.random()}", chance.choice(mine[-5:]))
                cursor.execute("UPDATE trips SET status = %s WHERE trip_uuid = %s", values)
            else:
                cursor.execute("DELETE FROM trips WHERE trip_uuid = %s", (mine.pop(0),))
    connection.close()


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
