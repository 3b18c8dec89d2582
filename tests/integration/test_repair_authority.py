"""Repair while Schemaless is the authority, and while the authority moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from schemaless_core.control.jobs.jobs import JobState
from tests.damage import lose, spoil
from tests.facades import Migration
from tests.repairs import base, doing_at, foreign, in_shadow, mended, plan, repair, stored, trip
from tests.stores import Stores
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.repair import AuthorityMoved, counted
from tripstore.phase import Phase


@pytest.fixture
def apart(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """For one test alone, which may leave it in another phase."""
    with in_shadow(servers, stores) as made:
        yield made


def test_postgres_as_the_mirror_is_repaired_without_touching_a_row_of_the_company_in_place(apart: Migration) -> None:
    key, lost, extra = trip(apart), trip(apart), trip(apart)
    apart.phase(Phase.LIVE)
    with _capture_off(apart):
        apart.legacy.sql("UPDATE trips SET status = 'foreign' WHERE trip_uuid = %s", str(key))
        apart.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(lost))
    lose(apart.facade.store, stored(apart, extra))
    targets = base(key), base(lost), base(extra)
    assert plan(apart, *targets) == [Action.LIFT, Action.PUT, Action.LEAVE]

    outcomes = repair(apart, *targets, wanted=Backend.STORE)

    assert [each.is_equal for each in outcomes] == [True, True, False]
    assert "use SQL" in outcomes[2].last.why
    assert counted(outcomes) == {"rows": 3, "equal": 2, "left": 1}
    assert apart.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(key)) == [("requested",)]
    assert apart.store.get_cell_latest(key, "BASE").ref_key == 2  # type: ignore[union-attr]  # it is there
    assert apart.legacy.sql("SELECT count(*) FROM trips WHERE trip_uuid = %s", str(extra)) == [(1,)]
    assert mended(apart) == []


def test_the_authoritys_own_bytes_are_mended_only_when_that_is_meant(apart: Migration) -> None:
    key = trip(apart)
    cell = stored(apart, key)
    apart.phase(Phase.LIVE)
    spoil(apart.facade.store, cell, b"torn")
    repairs = Repairs(apart.facade)

    (left,) = repairs.repairing(Backend.STORE).repair([base(key)])
    assert (left.is_equal, left.last.action) == (False, Action.LEAVE)
    assert mended(apart) == []

    (outcome,) = repairs.repairing(Backend.STORE, may_mend_authority=True).repair([base(key)])
    assert outcome.done == (Action.MEND,)
    assert outcome.is_equal
    assert apart.store.get_cell_latest(key, "BASE") == cell


def test_i9_a_repair_of_a_mirror_that_is_the_authority_by_now_is_refused(apart: Migration) -> None:
    cell, key = foreign(apart, uuid4(), 1), trip(apart)
    foreign(apart, key, 5)
    repairing = Repairs(apart.facade).repairing(Backend.LEGACY)
    apart.phase(Phase.LIVE)
    changes = apart.legacy.changes()

    with pytest.raises(AuthorityMoved):
        repairing.repair([base(cell.row_key), base(key)])

    assert apart.facade.store.get_cell(*cell.key) == cell
    assert apart.legacy.changes() == changes


@pytest.mark.parametrize("point", ["repair.looked", "mends.before_purge", "repair.before_lift"])
def test_i9_a_switch_in_the_middle_of_a_repair_stops_it(apart: Migration, point: str) -> None:
    """The look is over and the change is about to be made: the stores themselves refuse it."""
    cell, key = foreign(apart, uuid4(), 1), trip(apart)
    foreign(apart, key, 5)
    repairs = Repairs(apart.facade)
    # Rows are lifted after all else.
    order = [base(key)] if point == "repair.before_lift" else [base(cell.row_key), base(key)]

    with doing_at(point, lambda: apart.phase(Phase.LIVE)), pytest.raises(AuthorityMoved):
        repairs.repairing(Backend.LEGACY).repair(order)

    assert mended(apart) == []
    assert apart.facade.store.get_cell(*cell.key) == cell
    assert apart.facade.store.get_cell_latest(key, "BASE").ref_key == 5  # type: ignore[union-attr]  # it is there


def test_a_repair_whose_cells_are_right_ends_at_either_authority(apart: Migration) -> None:
    """Entries are held against cells, and a diff's findings against both stores."""
    lost = trip(apart)
    lose(apart.facade.store, stored(apart, lost))
    repairs = Repairs(apart.facade)
    job = begin(repairs.jobs, [base(lost)], authority=Backend.LEGACY, source="/differences.jsonl")
    runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job))
    assert runner.serve_part()
    apart.phase(Phase.LIVE)

    assert runner.serve_part()

    assert repairs.jobs.state(job.id) is JobState.DONE


def test_i9_a_repair_that_goes_on_at_another_authority_names_what_helps(apart: Migration) -> None:
    repairs = Repairs(apart.facade)
    job = begin(repairs.jobs, [base(trip(apart))], authority=Backend.LEGACY, source="/differences.jsonl")
    apart.phase(Phase.LIVE)

    with pytest.raises(AuthorityMoved) as caught:
        RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job)).serve_part()

    assert f"`tripstore repair --cancel {job.id}`" in str(caught.value.hint)
    assert "Or resume it when postgres is the authority again." in str(caught.value.hint)
    assert repairs.jobs.progress(job.id).parts_claimed == 0
    apart.phase(Phase.SHADOW)
    assert RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job)).serve_part()


def test_a_switch_that_was_given_up_does_not_stop_it(apart: Migration) -> None:
    key = trip(apart)
    foreign(apart, key, 5)

    def close_and_undo() -> None:
        control = apart.duo.ports.control
        row = control.authority()
        closing = row.closing("given up", "test")
        assert control.close(row, closing)
        assert control.undo(closing, closing.undone("test"))
        control.obey()

    with doing_at("repair.looked", close_and_undo):
        outcomes = repair(apart, base(key))

    assert [each.is_equal for each in outcomes] == [True]


@contextmanager
def _capture_off(moving: Migration) -> Iterator[None]:
    """The company's tables as they are without us: neither gate nor capture."""
    moving.legacy.sql("ALTER TABLE trips DISABLE TRIGGER ALL")
    yield
    moving.legacy.sql("ALTER TABLE trips ENABLE TRIGGER ALL")
    ours = "NOT tgisinternal AND tgname LIKE '%%tripstore%%'"
    for (name,) in moving.legacy.sql(f"SELECT tgname FROM pg_trigger WHERE tgrelid = 'trips'::regclass AND {ours}"):
        moving.legacy.sql(f'ALTER TABLE trips ENABLE ALWAYS TRIGGER "{name}"')
