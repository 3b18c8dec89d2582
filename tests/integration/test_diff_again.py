"""What a diff found, looked at again: by a recheck, and by the next diff that takes samples (I12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Json, canonical_bytes
from schemaless_core.control.jobs.jobs import Job, JobState
from tests.damage import spoil
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.diff.keylist import read_key_list, write_key_list
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import JobFacts
from tripstore.migration.cutover.look import find_job_facts
from tripstore.migration.diff.again import seen_by_samples
from tripstore.migration.diff.diff import DECODER, Diffing, DiffPlan
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.rechecking import Rechecked
from tripstore.migration.report.jobs import counting_jobs
from tripstore.phase import Phase

CELLS_ONLY = Order(indexes=False, decoded=0)


@pytest.fixture
def company(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Forty trips, carried over."""
    with migration(servers, stores, engine=getattr(request, "param", "sqlite"), shards=4) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.sql("INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 40)")
        made.carry()
        yield made


def a_cell(company: Migration, status: str = "completed") -> Cell:
    """Of two versions, and the latest."""
    _id, key = company.legacy.trip()
    company.carry()
    company.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s", status, str(key))
    company.carry()
    found = company.facade.store.get_cell_latest(key, "BASE")
    assert found is not None
    return found


def ran(company: Migration, order: Order) -> str:
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    diffing.finish(job)
    return job.id


def rechecked(company: Migration, job: str) -> Rechecked:
    diffing = Diffing(company.facade)
    return diffing.rechecking(CELLS_ONLY).of_job(diffing.jobs, diffing.jobs.find("diff", job))


def opened(company: Migration, job: str) -> int:
    return Diffing(company.facade).jobs.progress(job).counts.get("open", 0)


@pytest.mark.parametrize("company", ["sqlite", "mariadb", "mysql"], indirect=True)
def test_i12_what_is_read_alike_and_stored_otherwise_stays_open(company: Migration, tmp_path: Path) -> None:
    """A put of the same body would meet other bytes under its key. Control: it is closed once it is mended."""
    store, cell, keys = company.facade.store.as_copier(), a_cell(company), tmp_path / "keys.jsonl"
    spoil(store, cell, canonical_bytes(cell.body) + b" ")
    job = ran(company, Order(indexes=False, decoded=0, keys=str(keys)))
    assert store.get_cell(*cell.key) == cell

    again = rechecked(company, job)
    _order, rechecking = Diffing(company.facade).rechecking_list(keys)
    of_list = rechecking.of_list(read_key_list(keys))

    for each in (again, of_list):
        assert (each.looked_at, each.solved, [found.path for found in each.remaining]) == (1, 0, [BYTES])
    assert opened(company, job) == 1

    spoil(store, cell, canonical_bytes(cell.body))
    assert rechecked(company, job).solved == 1
    assert opened(company, job) == 0


def test_i12_an_older_version_is_closed_by_its_bytes_too(company: Migration, tmp_path: Path) -> None:
    store, latest, keys = company.facade.store.as_copier(), a_cell(company), tmp_path / "keys.jsonl"
    older = store.get_cell(latest.row_key, "BASE", latest.ref_key - 1)
    assert older is not None
    ref_key = older.ref_key
    found = Difference(CellClass.DIFFERS, older.row_key, "BASE", ref_key, ref_key, "status", is_older=True)
    write_key_list(keys, [found], "postgres")
    rechecking = Diffing(company.facade).rechecking(CELLS_ONLY)
    assert rechecking.of_list(read_key_list(keys)).solved == 1

    spoil(store, older, canonical_bytes(older.body) + b" ")

    again = rechecking.of_list(read_key_list(keys))
    assert (again.solved, [(each.path, each.is_older) for each in again.remaining]) == (0, [(BYTES, True)])


def test_i12_what_another_decoder_saw_it_is_asked_again(company: Migration, tmp_path: Path) -> None:
    """Control: that two equal cells do not close it is shown where a codec is wrong on both sides (`test_diff.py`)."""
    cell, keys, store = a_cell(company), tmp_path / "keys.jsonl", company.facade.store.as_copier()
    seen = Difference(CellClass.DIFFERS, *cell.key[:2], cell.ref_key, cell.ref_key, "status", seen_by="decoder")
    write_key_list(keys, [seen], "postgres")
    rechecking = Diffing(company.facade).rechecking(CELLS_ONLY)
    spoil(store, cell, canonical_bytes({"status": "foreign"}))

    still = rechecking.of_list(read_key_list(keys))
    spoil(store, cell, canonical_bytes(cell.body))
    mended = rechecking.of_list(read_key_list(keys))
    company.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(cell.row_key))
    gone = rechecking.of_list(read_key_list(keys))

    assert (still.solved, still.remaining, still.not_compared) == (0, [seen], 0)
    assert (mended.solved, mended.remaining, mended.not_compared) == (1, [], 0)
    assert (gone.solved, gone.remaining, gone.not_compared) == (0, [], 1)


def test_a_key_list_is_rechecked_in_the_direction_in_which_it_was_written(company: Migration, tmp_path: Path) -> None:
    more, keys = Cell(uuid4(), "OTHER", 1, {"n": 1}), tmp_path / "keys.jsonl"
    company.facade.store.as_copier().put_cells([more])
    for source, target, kind in (
        ("postgres", "schemaless", CellClass.EXTRA),
        ("schemaless", "postgres", CellClass.MISSING),
    ):
        ran(company, Order(source, target, indexes=False, decoded=0, keys=str(keys)))

        order, rechecking = Diffing(company.facade).rechecking_list(keys)

        assert (order.source, order.target) == (source, target)
        assert [each.kind for each in rechecking.of_list(read_key_list(keys)).remaining] == [kind]


def test_i12_a_sample_that_looks_elsewhere_does_not_say_that_what_an_earlier_one_found_is_right(
    company: Migration,
) -> None:
    """One row of many is wrong in both stores alike, as far as sums can tell: two decoders read it otherwise."""
    store, cell = company.facade.store.as_copier(), a_cell(company, "Requested")
    spoil(store, cell, canonical_bytes({"status": "REQUESTED"}))
    everything = ran(company, Order(indexes=False, decoded=1_000))
    assert decoded_wrong(company, everything) == [cell.row_key]
    assert seen_by_samples(Diffing(company.facade).jobs).rows == {"BASE": [str(cell.row_key)]}

    for _ in range(5):
        assert decoded_wrong(company, ran(company, Order(indexes=False, decoded=1))) == [cell.row_key]

    part = Diffing(company.facade).plan(Order(shards=[0, 2], decoded=1)).parts
    assert {DECODER: {}} in part
    spoil(store, cell, canonical_bytes(cell.body))
    assert decoded_wrong(company, ran(company, Order(indexes=False, decoded=1))) == []


@pytest.mark.parametrize("first_begins", ["before the second is planned", "after it is planned"])
def test_i12_a_diff_answers_for_no_sample_of_one_that_ended_after_it_was_planned(
    company: Migration, first_begins: str
) -> None:
    """It began after that one had ended, but knows nothing of its sample, and takes its own elsewhere."""
    diffing, cell = Diffing(company.facade), spoiled(company)
    first, second = only_decoded(diffing, sample=1_000), only_decoded(diffing, sample=0)
    if first_begins == "before the second is planned":
        begun = diffing.begin(first)
        second = only_decoded(diffing, sample=0)
        found = run_to_its_end(diffing, begun)
    else:
        found = run_to_its_end(diffing, diffing.begin(first))
    last = run_to_its_end(diffing, diffing.begin(second))

    assert (decoded_wrong(company, found), decoded_wrong(company, last)) == ([cell.row_key], [])
    facts = find_job_facts(company.facade.store.control, "diff")
    assert isinstance(facts, JobFacts)
    assert (facts.job, facts.open, [each.job for each in facts.left]) == (last, 1, [found])
    assert found in {job.id for job in counting_jobs(diffing.jobs, facts)}


def test_i12_control_a_diff_that_was_planned_later_looks_again_and_answers_for_it(company: Migration) -> None:
    diffing, cell = Diffing(company.facade), spoiled(company)
    found = run_to_its_end(diffing, diffing.begin(only_decoded(diffing, sample=1_000)))
    last = run_to_its_end(diffing, diffing.begin(only_decoded(diffing, sample=0)))

    assert decoded_wrong(company, last) == [cell.row_key]
    facts = find_job_facts(company.facade.store.control, "diff")
    assert isinstance(facts, JobFacts)
    assert (facts.job, facts.open, [each.job for each in facts.left]) == (last, 1, [last])
    assert found not in {job.id for job in counting_jobs(diffing.jobs, facts)}


def spoiled(company: Migration) -> Cell:
    cell = a_cell(company, "Requested")
    spoil(company.facade.store.as_copier(), cell, canonical_bytes({"status": "REQUESTED"}))
    return cell


def run_to_its_end(diffing: Diffing, job: Job) -> str:
    assert diffing.runner(job, "test").run() is JobState.DONE
    return job.id


def only_decoded(diffing: Diffing, sample: int) -> DiffPlan:
    """Of a diff that looks as closely as any, and takes so few rows by chance: sums would find them all."""
    plan = diffing.plan(Order(indexes=False, decoded=1_000))
    parts: list[Json] = [part for part in plan.parts if isinstance(part, dict) and DECODER in part]
    return DiffPlan({**plan.spec, "decoded": sample}, parts, plan.estimate)


def decoded_wrong(company: Migration, job: str) -> list[UUID | None]:
    found = Diffing(company.facade).jobs.findings(job)
    return [each.row_key for each in found if each.body.get("seen_by") == "decoder"]
