"""A diff compares every row of the company's: each child of a parent, not the highest of them (I12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from schemaless_core import Cell
from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.control.ledgers.ledgers import Ledgers
from tests.damage import lose, spoil
from tests.diffs import Outcome, walked
from tests.facades import Migration, migration
from tests.integration.test_layout_in_force import process, schema_apply
from tests.legacy import attempts, base, layout, notes
from tests.stores import Stores
from tripstore.backends.postgres.cells.sums import sums
from tripstore.engines.validation.diff import runner as diff_runner
from tripstore.engines.validation.diff.buckets import ShardedDigests
from tripstore.engines.validation.diff.diff import CellDiff
from tripstore.engines.validation.diff.differences import REF_KEY, CellClass, Difference, from_finding
from tripstore.engines.validation.diff.portions import bounds_of
from tripstore.engines.validation.diff.suspects import Judge, NothingInFlight, Roles
from tripstore.engines.validation.diff.table_rows import tables_of
from tripstore.errors import StaleLayout
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import JobFacts
from tripstore.migration.cutover.job_facts import job_facts
from tripstore.migration.diff import diff as diffing_module
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.unit import FormerLayout, FormerUnit
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import of_job, targets_of
from tripstore.phase import Phase

SHARDS = 4
CHILDREN = 20
BITS = 20
ORDER = Order(indexes=False, decoded=0)
BACK = Order("schemaless", "postgres", indexes=False, decoded=0)
_PAIRS = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]
RENAMED = layout(base(), attempts(), replace(notes(), name="REMARKS"))

#: Column, child, class, path, and the ref keys of source and target.
Told = tuple[str, int | None, CellClass, str, int | None, int | None]


@pytest.fixture(params=_PAIRS, ids=" ".join)
def company(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, shards=SHARDS) as made:
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def embedded(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """For what does not depend on the engine."""
    with migration(servers, stores, shards=SHARDS) as made:
        made.phase(Phase.DUALWRITE)
        yield made


def family(company: Migration) -> UUID:
    """A trip with twenty notes, of which every third was changed, and twenty facts; all of it is carried."""
    id_, row_key = company.legacy.trip()
    for table, more in (("notes", "n, text"), ("attempts", "attempt_no, result")):
        company.legacy.sql(
            f"INSERT INTO {table} (trip_id, trip_uuid, {more}) SELECT %s, %s, n, 'a' FROM generate_series(1, %s) n",
            id_,
            str(row_key),
            CHILDREN,
        )
    company.legacy.sql("UPDATE notes SET text = 'b' WHERE trip_id = %s AND n %% 3 = 0", id_)
    company.carry()
    return row_key


def compared(company: Migration, order: Order = ORDER) -> tuple[Job, dict[str, int], list[Difference]]:
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    found = [each for finding in diffing.jobs.findings(job.id) if (each := from_finding(finding)) is not None]
    return job, dict(diffing.jobs.progress(job.id).counts), found


def told(found: list[Difference]) -> set[Told]:
    assert len(found) == len(set(found))
    return {
        (each.column_name, each.child, CellClass(each.kind), each.path, each.from_ref_key, each.to_ref_key)
        for each in found
    }


def of_highest(company: Migration) -> Outcome:
    """The diff as it was: of a parent's children it takes the highest for all of them."""
    legacy, store = company.duo.legacy, company.facade.store.as_copier()
    judge = Judge(lambda: Roles(legacy, store, True), NothingInFlight())
    return walked(CellDiff(legacy.sums.by({}), ShardedDigests(store, 20.0), judge), bounds_of(range(SHARDS)))


def note(company: Migration, row_key: UUID, number: int) -> Cell:
    """A note as Schemaless has it."""
    store = company.facade.store.as_copier()
    (cell,) = store.get_history(row_key, "NOTES", before=(number + 1) << BITS, limit=1)
    assert cell.ref_key >> BITS == number
    return cell


def fact(company: Migration, row_key: UUID, number: int) -> Cell:
    cell = company.facade.store.as_copier().get_cell(row_key, "STATUS", number)
    assert cell is not None
    return cell


def test_whatever_differs_in_any_child_is_found_where_it_is_and_repaired(company: Migration) -> None:
    """I12, with its control: the highest of the children are equal, and a diff of these alone calls all equal."""
    family(company)
    row_key, store = family(company), company.facade.store.as_copier()
    _job, counts, found = compared(company)
    # Each trip is two cells, of BASE and of its legacy id, beside its children.
    assert (counts["rows"], counts["equal"], found) == (2 * (2 + 2 * CHILDREN),) * 2 + ([],)
    assert counts["table_rows"] == counts["table_rows_compared"] == 2 * (1 + 2 * CHILDREN)
    expected: set[Told] = set()
    for number in (1, 5, 6, CHILDREN - 1):
        cell = note(company, row_key, number)
        spoil(store, cell, b'{"text":"not mine"}')
        expected.add(("NOTES", number, CellClass.DIFFERS, "text", cell.ref_key, cell.ref_key))
    for number in (1, 7, CHILDREN - 1):
        spoil(store, fact(company, row_key, number), b'{"result":"not mine"}')
        expected.add(("STATUS", number, CellClass.DIFFERS, "result", number, number))
    gone, behind = note(company, row_key, 2), note(company, row_key, 3)
    lose(store, gone)
    lose(store, behind)
    lose(store, fact(company, row_key, 4))
    store.put_cell(row_key, "NOTES", 0, {"text": "foreign"})
    expected |= {
        ("NOTES", 2, CellClass.MISSING, "", gone.ref_key, None),
        ("NOTES", 3, CellClass.DIFFERS, REF_KEY, behind.ref_key, behind.ref_key - 1),
        ("STATUS", 4, CellClass.MISSING, "", 4, None),
        ("NOTES", 0, CellClass.EXTRA, "", None, 0),
    }

    control = of_highest(company)
    job, counts, found = compared(company)
    _back, counts_back, found_back = compared(company, BACK)

    assert (control.found, control.counts["equal"]) == ([], control.counts["rows"])
    assert control.counts["rows"] == 2 * 4
    assert told(found) == expected
    assert {each.row_key for each in found} == {row_key}
    assert counts["open"] == counts_back["open"] == len(expected)
    assert counts["equal"] == counts_back["equal"] == counts["rows"] - len(expected)
    turned = {CellClass.MISSING: CellClass.EXTRA, CellClass.EXTRA: CellClass.MISSING}
    assert told(found_back) == {
        (name, child, turned.get(kind, kind), path, theirs, ours) for name, child, kind, path, ours, theirs in expected
    }

    diffing, repairs = Diffing(company.facade), Repairs(company.facade)
    before = diffing.rechecking(ORDER).of_job(diffing.jobs, job)
    outcomes = repairs.repairing(Backend.LEGACY).repair(targets_of(of_job(diffing.jobs, job.id)))
    company.carry()
    after = diffing.rechecking(ORDER).of_job(diffing.jobs, job)

    assert (before.solved, len(before.remaining)) == (0, len(expected))
    assert [each for each in outcomes if not each.is_equal] == []
    assert (after.solved, after.remaining) == (len(expected), [])
    assert compared(company)[2] == []


def test_a_child_that_was_deleted_is_compared_as_deleted(embedded: Migration) -> None:
    """Its tombstone is its latest cell. What the mirror lacks of that is one difference, and its siblings are none."""
    row_key, store = family(embedded), embedded.facade.store.as_copier()
    embedded.legacy.sql("DELETE FROM notes WHERE trip_uuid = %s AND n IN (4, 5)", str(row_key))
    embedded.carry()
    _job, counts, found = compared(embedded)
    assert (counts["equal"], found) == (2 + 2 * CHILDREN, [])

    lose(store, note(embedded, row_key, 4))
    _job, _counts, found = compared(embedded)

    child = 4 << BITS
    assert told(found) == {("NOTES", 4, CellClass.DIFFERS, REF_KEY, child + 1, child)}
    assert of_highest(embedded).found == []


@pytest.mark.parametrize("order", [ORDER, BACK], ids=["forward", "back"])
def test_facts_end_with_the_tombstone_of_their_parent(embedded: Migration, order: Order) -> None:
    """One tombstone is the latest cell of all of them; a mirror without it has as many rows too many."""
    row_key, store = family(embedded), embedded.facade.store.as_copier()
    embedded.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))
    embedded.carry()
    _job, counts, found = compared(embedded, order)
    assert (counts["equal"], found) == (2 + CHILDREN + 1, [])
    embedded.legacy.sql("DELETE FROM tripstore.log")  # that the facts ever were, Postgres knows no more

    lose(store, fact(embedded, row_key, CHILDREN + 1))
    job, counts, found = compared(embedded, order)

    assert {each.child for each in found} == set(range(1, CHILDREN + 2))
    assert counts["open"] == CHILDREN + 1
    outcomes = (
        Repairs(embedded.facade)
        .repairing(Backend.LEGACY)
        .repair(targets_of(of_job(Diffing(embedded.facade).jobs, job.id)))
    )
    assert [each for each in outcomes if not each.is_equal] == []
    assert compared(embedded, order)[2] == []


def test_older_are_the_versions_of_the_same_child_and_nothing_else(embedded: Migration) -> None:
    row_key, store = family(embedded), embedded.facade.store.as_copier()
    changed = len(range(3, CHILDREN + 1, 3))
    order = Order(older=1.0, indexes=False, decoded=0)
    assert compared(embedded, order)[1]["older_equal"] == changed

    older = store.get_cell(row_key, "NOTES", 3 << BITS)
    assert older is not None
    spoil(store, older, b'{"text":"not mine"}')
    _job, counts, found = compared(embedded, order)

    assert [(each.is_older, each.ref_key, each.path) for each in found] == [(True, 3 << BITS, "text")]
    assert counts["older_equal"] == changed - 1


def test_a_row_that_no_cell_can_be_made_of_hides_no_sibling(embedded: Migration) -> None:
    row_key, store = family(embedded), embedded.facade.store.as_copier()
    spoil(store, note(embedded, row_key, 7), b'{"text":')
    spoil(store, note(embedded, row_key, 8), b'{"text":"other"}')

    _job, counts, found = compared(embedded)

    assert {(each.child, each.path) for each in found} == {(7, "bytes"), (8, "text")}
    assert counts["equal"] == counts["rows"] - 2


def test_rows_that_are_in_no_cell_are_counted_by_postgres_and_refuse_the_gate(embedded: Migration) -> None:
    """I12: a row without a row key is on no side of the comparison, so nothing differs."""
    row_key = family(embedded)
    embedded.legacy.sql("ALTER TABLE attempts DISABLE TRIGGER USER; ALTER TABLE attempts ALTER trip_uuid DROP NOT NULL")
    insert = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no) SELECT trip_id, NULL, 99 FROM attempts LIMIT 1"
    embedded.legacy.sql(insert)

    order = Order(indexes=False, decoded=0, processes=2)
    _job, counts, found = compared(embedded, order)
    facts = facts_of(embedded)

    assert (found, counts.get("open", 0)) == ([], 0)
    assert (counts["table_rows:STATUS"], counts["table_rows_compared:STATUS"]) == (CHILDREN + 1, CHILDREN)
    assert (counts["table_rows:NOTES"], counts["table_rows_compared:NOTES"]) == (CHILDREN, CHILDREN)
    assert (facts.table_rows, facts.table_rows_compared) == (2 + 2 * CHILDREN, 1 + 2 * CHILDREN)
    assert facts.not_compared == 1

    embedded.legacy.sql("DELETE FROM attempts WHERE trip_uuid IS NULL")
    assert compared(embedded, order)[1].get("table_not_compared", 0) == 0
    assert (facts_of(embedded).not_compared, row_key.version) == (0, 4)


def facts_of(company: Migration) -> JobFacts:
    found = job_facts([each.body for each in Ledgers(company.facade.store.control).notes("diff")])
    assert found is not None
    return found


def test_a_diff_of_an_earlier_version_is_not_gone_on_with_and_speaks_for_nothing(embedded: Migration) -> None:
    """I12: its parts are of another kind, so that neither version serves the other's."""
    family(embedded)
    diffing = Diffing(embedded.facade)
    plan = diffing.plan(ORDER)
    note = {key: value for key, value in dict(plan.spec["note"]).items() if key != "unit"}  # type: ignore[arg-type]  # we made it
    spec = {name: value for name, value in plan.spec.items() if name not in ("unit", "tables")} | {"note": note}
    former = diffing.jobs.create("diff", spec, [])

    with pytest.raises(FormerUnit) as refused:
        diffing.runner(former, "test")
    with pytest.raises(FormerUnit):
        diffing.check_resumable(former)

    assert f"tripstore diff cancel {former.id}" in str(refused.value.hint)
    assert not facts_of(embedded).compares_rows
    assert all("cells" not in part and "older" not in part for part in plan.parts if isinstance(part, dict))
    compared(embedded)
    assert facts_of(embedded).compares_rows


def test_i12_a_diff_that_was_begun_under_another_layout_is_not_gone_on_with(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes are a column of another name meanwhile; control: gone on with, it counts none of their rows."""
    schema_apply(embedded, layout())
    family(embedded)
    diffing = Diffing(embedded.facade)
    former = diffing.begin(diffing.plan(ORDER))
    schema_apply(embedded, RENAMED)
    with process(embedded, RENAMED) as now:
        diffing = Diffing(now.facade)
        with pytest.raises(FormerLayout) as refused:
            diffing.runner(former, "test")
        with pytest.raises(FormerLayout):
            diffing.check_resumable(former)
        whole = compared(now)[1]
        monkeypatch.setattr(diffing_module, "check_unit", lambda *_job: None)
        assert diffing.runner(former, "test").run() is JobState.DONE
        told = tables_of(diffing.jobs.progress(former.id).counts, former.spec["tables"])  # type: ignore[arg-type]  # we made it

    assert f"tripstore diff cancel {former.id}" in str(refused.value.hint)
    assert sum(each.rows for each in told.values()) == whole["table_rows"] - CHILDREN


def test_i12_a_process_of_the_layout_before_compares_no_more(
    embedded: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was at it when the layout changed; control: without the look at the layout it compares the old columns."""
    schema_apply(embedded, layout())
    family(embedded)
    diffing = Diffing(embedded.facade)
    job = diffing.begin(diffing.plan(ORDER))
    runner = diffing.runner(job, "test")
    schema_apply(embedded, RENAMED)
    monkeypatch.setattr(diff_runner, "PAUSE_SECONDS", 0.0)
    with pytest.raises(StaleLayout):
        runner.run()
    assert diffing.jobs.progress(job.id).counts.get("rows", 0) == 0

    monkeypatch.setattr(sums, "_IN_FORCE", "SELECT NULL")
    assert runner.run() is JobState.DONE
