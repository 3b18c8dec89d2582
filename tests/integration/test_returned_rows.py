"""Rows that came back below their tombstones, unseen by capture: a diff counts them, a repair lifts them (I8, I12)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

import pytest

from schemaless_core.control.jobs.jobs import JobState
from tests.facades import Migration, migration
from tests.repairs import doing_at, done, plan, repair
from tests.stores import Stores
from tripstore.backends.postgres.cells.mend import returned
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.sides import GaveWay
from tripstore.migration.repair.targets import Target, of_job, targets_of
from tripstore.phase import Phase

ROWS = """
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 8);
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) SELECT id, trip_uuid, 1, 'paid' FROM trips;
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, 'a' FROM trips
"""
DETACH = "ALTER TABLE notes DETACH PARTITION notes_0"
ATTACH = "ALTER TABLE notes ATTACH PARTITION notes_0 FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
INSERT_ANEW = """
CREATE TABLE aside AS SELECT * FROM trips WHERE id <= 4;
CREATE TABLE facts AS SELECT trip_id, trip_uuid, result FROM attempts WHERE trip_id <= 4;
CREATE TABLE children AS SELECT trip_id, trip_uuid, n, text FROM notes WHERE trip_id <= 4;
DELETE FROM trips WHERE id <= 4;
INSERT INTO trips (id, trip_uuid, status) SELECT id, trip_uuid, status FROM aside;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)
    SELECT trip_id, trip_uuid, ref_key + 1, result FROM facts JOIN tripstore.tomb ON row_key = trip_uuid
    WHERE column_name = 'STATUS';
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT * FROM children
"""
TABLES = ("trips", "attempts", "notes_0", "notes_1")


@pytest.fixture(params=["postgres", "postgres18"])
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as found:
        found.phase(Phase.SHADOW)
        found.legacy.sql(ROWS)
        found.carry()
        yield found


def compared(made: Migration) -> tuple[str, Counter[str]]:
    diffing = Diffing(made.facade)
    job = diffing.begin(diffing.plan(Order(indexes=False, decoded=0)))
    assert diffing.runner(job, "test").run() is JobState.DONE
    return job.id, Counter(diffing.jobs.progress(job.id).counts)


def repaired(made: Migration, diff: str, *, returned: bool = True) -> tuple[Counter[str], Counter[Action]]:
    """As the command does it; the control knows the diff's findings alone."""
    repairs = Repairs(made.facade)
    targets = [*targets_of(of_job(repairs.jobs, diff)), *(repairs.returned() if returned else ())]
    job = begin(repairs.jobs, targets, authority=Backend.LEGACY, source=diff)
    runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job))
    assert runner.run(threading.Event()) is JobState.DONE
    made.carry()
    return Counter(repairs.jobs.progress(job.id).counts), Counter(runner.actions)


def buried_and_attached(made: Migration) -> int:
    """How many rows of a partition stand below the tombstones that a repair has written for them."""
    made.legacy.sql(DETACH)
    counts, actions = repaired(made, compared(made)[0])
    assert counts["equal"] == counts["rows"] == actions[Action.BURY]
    made.legacy.sql(ATTACH)
    ((gone,),) = made.legacy.sql("SELECT count(*) FROM notes_0")
    assert gone == actions[Action.BURY] > 0
    return int(gone)


def mirrored(made: Migration, column: str, key: UUID) -> object:
    cell = made.facade.store.get_cell_latest(key, column)
    return None if cell is None else cell.body


def test_i8_rows_that_were_attached_again_are_lifted_above_their_tombstones(made: Migration) -> None:
    gone = buried_and_attached(made)
    diff, counts = compared(made)
    assert counts["table_not_compared"] == gone
    with pytest.MonkeyPatch.context() as patch:  # every page ends at another row
        patch.setattr(returned, "PAGE_END", returned.PAGE_END.replace(f"{returned.PAGE - 1}", "0"))
        assert len(Repairs(made.facade).returned()) == gone
    keys = [UUID(key) for (key,) in made.legacy.sql("SELECT trip_uuid::text FROM notes_0")]
    assert {mirrored(made, "NOTES", key) for key in keys} == {None}

    _counts, actions = repaired(made, diff, returned=False)  # the control: by its findings a diff leaves nothing to do
    assert not actions
    assert compared(made)[1]["table_not_compared"] == gone

    counts, actions = repaired(made, diff)
    assert counts["equal"] == counts["rows"] == gone
    assert actions[Action.LIFT] == gone
    diff, counts = compared(made)
    assert counts["table_not_compared"] == counts["open"] == 0
    assert counts["table_rows"] == counts["table_rows_compared"]
    for key in keys:
        assert mirrored(made, "NOTES", key) == {"text": "a"}
        assert made.duo.legacy.get_cell_latest(key, "NOTES") == made.facade.store.get_cell_latest(key, "NOTES")
    assert Repairs(made.facade).returned() == []
    made.legacy.sql("UPDATE notes SET text = 'b'")  # and they go on as others do
    made.carry()
    assert compared(made)[1]["differs"] == 0
    assert all(mirrored(made, "NOTES", key) == {"text": "b"} for key in keys)


def test_i8_deleted_rows_that_are_restored_with_triggers_disabled_are_lifted_and_facts_are_left(
    made: Migration,
) -> None:
    """As `pg_restore --disable-triggers` writes them. What has no version a person has to insert anew."""
    made.legacy.sql("; ".join(f"CREATE TABLE old_{name} AS SELECT * FROM {name}" for name in TABLES))
    made.legacy.sql("DELETE FROM trips WHERE id <= 4")
    made.carry()
    keys = [UUID(key) for (key,) in made.legacy.sql("SELECT trip_uuid::text FROM old_trips WHERE id <= 4")]
    for name in TABLES:
        column = "id" if name == "trips" else "trip_id"
        made.legacy.sql(
            f"BEGIN; ALTER TABLE {name} DISABLE TRIGGER ALL;"
            f" INSERT INTO {name} SELECT * FROM old_{name} WHERE {column} <= 4;"
            f" ALTER TABLE {name} ENABLE TRIGGER ALL; COMMIT"
        )
    assert made.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]
    made.legacy.install(made.duo.legacy.layout)  # as `schema apply` does
    diff, counts = compared(made)
    # Nothing of what came back is told as equal: parents, facts, children.
    assert counts["table_not_compared"] == 12

    counts, actions = repaired(made, diff)

    assert actions[Action.LIFT] == 8
    assert (counts["rows"], counts["equal"], counts["left"]) == (12, 8, 4)
    for key in keys:
        assert mirrored(made, "BASE", key) == made.duo.legacy.get_row(key)["BASE"].body
        assert mirrored(made, "NOTES", key) == {"text": "a"}
        assert mirrored(made, "STATUS", key) is None
    assert plan(made, Target(keys[0], "STATUS", None, 1)) == [Action.LEAVE]
    assert compared(made)[1]["table_not_compared"] == 4  # the gate stays shut for those
    made.legacy.sql(INSERT_ANEW)  # what the repair says of them
    made.carry()
    counts = compared(made)[1]
    assert counts["table_not_compared"] == counts["open"] == 0
    assert {str(mirrored(made, "STATUS", key)) for key in keys} == {"{'result': 'paid'}"}


def test_i2_a_row_that_goes_while_it_is_to_be_lifted_gets_no_tombstone_of_the_repair(made: Migration) -> None:
    """Its own deletion has the key of the tombstone that stands there."""
    buried_and_attached(made)
    ((text,), *_) = made.legacy.sql("SELECT trip_uuid::text FROM notes_0 ORDER BY trip_id")
    key, (target, *_) = UUID(text), [each for each in Repairs(made.facade).returned() if str(each.row_key) == text]
    before = made.duo.legacy.get_cell_latest(key, "NOTES")

    with doing_at("repair.before_lift", lambda: made.legacy.sql("DELETE FROM notes WHERE trip_uuid = %s", text)):
        (outcome,) = repair(made, target)

    assert outcome.is_equal
    made.carry()
    assert made.duo.legacy.get_cell_latest(key, "NOTES") == made.facade.store.get_cell_latest(key, "NOTES") == before


def test_i8_a_row_that_a_service_holds_is_lifted_by_the_next_repair(made: Migration) -> None:
    buried_and_attached(made)
    target, *others = Repairs(made.facade).returned()
    with closing(made.legacy.connect()) as service:
        service.cursor().execute("SELECT 1 FROM notes WHERE trip_uuid = %s FOR UPDATE", (str(target.row_key),))
        outcome, *rest = repair(made, target, *others)

    assert isinstance(outcome.refusal, GaveWay)
    assert all(each.is_equal for each in rest)
    assert done(repair(made, target)) == [(Action.LIFT, Action.PUT)]
