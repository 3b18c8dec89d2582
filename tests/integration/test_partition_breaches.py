"""From a partition that changed unseen to gates that pass again: a diff begun later, and a repair (I8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID

import psycopg2
import pytest

from schemaless_core import CellKey
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.jobs.jobs import JobState
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.legacy import moving_layout
from tests.legacy import refused as refused_by_capture
from tests.mirrors import missing
from tests.repairs import foreign
from tests.stores import Stores
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.capture.names import EVENT_TRIGGER
from tripstore.backends.postgres.capture.partitions.guarding import guard_new_partitions
from tripstore.backends.postgres.sqlstates import TRUNCATE_REFUSED
from tripstore.backends.postgres.wire.connections import rows
from tripstore.cli.legacy.doctor import examine
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.handover import switch
from tripstore.handover.authority import Backend
from tripstore.handover.steps import Step
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.cutover import evidence_gates, gates
from tripstore.migration.cutover.facts import Facts
from tripstore.migration.cutover.look import DIFF, Looker, find_job_facts
from tripstore.migration.cutover.perform import HandoverOrder as HandOver
from tripstore.migration.cutover.perform import perform
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import of_job, targets_of
from tripstore.phase import Phase

ORDER = Order(indexes=False, decoded=0)
DETACH = "ALTER TABLE notes DETACH PARTITION notes_0"
ATTACH = "ALTER TABLE notes ATTACH PARTITION notes_0 FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
MAKE = "CREATE TABLE notes_0 PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
ROWS = """
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 8);
INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'a' FROM trips
"""
#: The parent's own rows may go with a partition.
REGIONS = """
CREATE TABLE trips (
    id bigint NOT NULL, trip_uuid uuid NOT NULL UNIQUE, status text
) PARTITION BY HASH (trip_uuid);
CREATE TABLE trips_1 PARTITION OF trips FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE trips_2 PARTITION OF trips FOR VALUES WITH (MODULUS 2, REMAINDER 1)
"""


@pytest.fixture(params=["postgres", "postgres18"])
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as made:
        made.phase(Phase.SHADOW)
        made.legacy.sql(ROWS)
        made.carry()
        yield made


def looker(made: Migration) -> Looker:
    config = made.facade.config
    assert config.legacy is not None
    control, flags = made.duo.ports.control, made.facade.flags
    return Looker(
        config.legacy, made.duo.legacy, made.facade.store, control, flags, config.cutover, lambda: datetime.now(UTC)
    )


def facts(made: Migration) -> Facts:
    return looker(made).facts()


def refused(made: Migration) -> str | None:
    """What the gates of capture and diff say against a switch."""
    found, settings = facts(made), made.facade.config.cutover
    verdicts = [*gates.capture(found, settings), *evidence_gates.diff(found, settings)]
    return next((verdict.said for verdict in verdicts if not verdict.is_passed), None)


def doctor(made: Migration) -> list[str]:
    """The errors that `tripstore doctor` names."""
    config = made.facade.config.legacy
    assert config is not None
    found = examine(config, (), lambda: find_job_facts(made.facade.store.control, DIFF))
    return [str(complaint) for complaint in found.complaints if complaint.is_error]


def compared(made: Migration) -> str:
    diffing = Diffing(made.facade)
    job = diffing.begin(diffing.plan(ORDER))
    assert diffing.runner(job, "test").run() is JobState.DONE
    return job.id


def repaired(made: Migration, diff: str) -> dict[str, int]:
    """Steps that were taken, by their names; all is equal afterwards."""
    repairs = Repairs(made.facade)
    targets = targets_of(of_job(repairs.jobs, diff))
    job = begin(repairs.jobs, targets, authority=Backend.LEGACY, source=diff)
    runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job))
    assert runner.run(threading.Event()) is JobState.DONE
    counts = repairs.jobs.progress(job.id).counts
    assert counts["equal"] == counts["rows"] == len(targets), counts
    return {action.value: count for action, count in runner.actions.items()}


def test_i8_rows_that_changed_while_their_partition_was_away_are_found_and_mended(moving: Migration) -> None:
    compared(moving)
    assert refused(moving) is None
    moving.legacy.sql(f"{DETACH}; UPDATE notes_0 SET text = 'unseen'; {ATTACH}")
    ((changed,),) = moving.legacy.sql("SELECT count(*) FROM notes WHERE text = 'unseen'")
    assert changed
    assert moving.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]  # the control: capture saw none of it

    said = refused(moving)
    assert said is not None
    assert "public.notes_0 was " in said
    assert "no diff of everything began later" in said
    diff = compared(moving)
    assert "and left nothing" in (refused(moving) or "")
    assert any("public.notes_0 was " in each for each in doctor(moving))
    assert repaired(moving, diff)["lift"] == changed

    assert refused(moving) is None
    assert doctor(moving) == []


def test_what_a_later_diff_finds_is_not_said_of_a_breach_that_was_answered(moving: Migration) -> None:
    moving.legacy.sql(f"{DETACH}; {ATTACH}")
    compared(moving)
    (key, *_) = moving.legacy.sql("SELECT trip_uuid::text FROM trips")[0]
    foreign(moving, UUID(key), 9)  # a cell of the mirror that is of no row
    compared(moving)

    verdicts = gates.capture(facts(moving), moving.facade.config.cutover)
    assert [verdict.said for verdict in verdicts if not verdict.is_passed] == []
    assert doctor(moving) == []
    assert "1 open" in (refused(moving) or "")  # of the gate diff
    moving.legacy.sql(f"{DETACH}; {ATTACH}")  # the control: a newer breach is said
    assert "public.notes_0 was " in (refused(moving) or "")


def test_i8_i12_a_diff_of_a_part_or_one_begun_before_answers_for_nothing(moving: Migration) -> None:
    diffing = Diffing(moving.facade)
    before = diffing.begin(diffing.plan(ORDER))
    moving.legacy.sql(f"{DETACH}; {ATTACH}")
    assert diffing.runner(before, "test").run() is JobState.DONE
    part = diffing.begin(diffing.plan(Order(indexes=False, decoded=0, columns=["BASE"])))
    assert diffing.runner(part, "test").run() is JobState.DONE

    assert "no diff of everything began later" in (refused(moving) or "")
    compared(moving)
    assert refused(moving) is None


def test_i8_a_breach_of_a_lower_number_that_is_committed_later_is_not_answered_for(moving: Migration) -> None:
    """Its transaction was still open when the diff noted what it answers for."""
    write = "INSERT INTO tripstore.breach (what) VALUES (%s)"
    with moving.legacy.connect() as earlier:
        rows(earlier, write, ("the earlier",))
        moving.legacy.sql(write, "the later")
        compared(moving)
        assert refused(moving) is None  # the control: nothing else is open
        earlier.commit()

    assert "no diff of everything began later" in (refused(moving) or "")
    compared(moving)
    assert refused(moving) is None


@pytest.mark.parametrize("looks", [False, True], ids=["control", "looks"])
def test_i8_no_hand_over_is_decided_on_gates_that_a_partition_has_changed_behind(
    moving: Migration, *, looks: bool
) -> None:
    """It was changed when the gates had been looked at."""
    look, settings = looker(moving), moving.facade.config.cutover
    planned = plan(Direction.FORWARD, look.facts(), settings)

    def change(step: Step) -> None:
        if step is switch.SHUT:
            moving.legacy.sql(f"{DETACH}; {ATTACH}")

    done = perform(
        moving.duo.ports,
        HandOver(Direction.FORWARD, "a test"),
        flags=moving.facade.flags,
        audit=AuditLog(moving.facade.store.control),
        max_pause_seconds=5.0,
        missed=(lambda: look.missed_since(planned.breaches)) if looks else str,
        hear=change,
    )

    assert done.is_decided is not looks
    assert ("public.notes_0 was " in done.reason) is looks


@pytest.mark.parametrize("looks", [False, True], ids=["control", "looks"])
def test_i8_no_hand_over_back_is_decided_on_gates_that_a_partition_has_changed_behind(
    moving: Migration, *, looks: bool
) -> None:
    """Postgres would be the authority with rows that no diff has compared since."""
    moving.phase(Phase.LIVE)
    moving.carry()
    look, settings = looker(moving), moving.facade.config.cutover
    planned = plan(Direction.BACK, look.facts(), settings)

    def change(step: Step) -> None:
        if step is switch.BACK_SHUT:
            moving.legacy.sql(f"{DETACH}; {ATTACH}")

    done = perform(
        moving.duo.ports,
        HandOver(Direction.BACK, "a test"),
        flags=moving.facade.flags,
        audit=AuditLog(moving.facade.store.control),
        max_pause_seconds=5.0,
        missed=(lambda: look.missed_since(planned.breaches)) if looks else str,
        hear=once(change),
    )

    assert done.is_decided is not looks
    assert ("public.notes_0 was " in done.reason) is looks
    assert moving.duo.ports.control.authority().backend is (Backend.STORE if looks else Backend.LEGACY)


def once(change: Callable[[Step], None]) -> Callable[[Step], None]:
    """Heard at the first step of each kind; servers are closed one by one."""
    heard = set[Step]()

    def hear(step: Step) -> None:
        if step not in heard:
            heard.add(step)
            change(step)

    return hear


def test_i8_rows_of_a_partition_that_was_dropped_get_tombstones(moving: Migration) -> None:
    gone = [UUID(key) for (key,) in moving.legacy.sql("SELECT trip_uuid::text FROM notes_0")]
    assert gone
    compared(moving)
    moving.legacy.sql("DROP TABLE notes_0")

    assert "notes_0 was detached or dropped" in (refused(moving) or "")
    assert repaired(moving, compared(moving))["bury"] == len(gone)

    assert refused(moving) is None
    for key in gone:
        cell = moving.facade.store.get_cell_latest(key, "NOTES")
        assert cell is not None
        assert (cell.ref_key, cell.body) == ((1 << 20) + 1, None)
        assert cell == moving.duo.legacy.get_cell_latest(key, "NOTES")
    moving.carry()
    # What comes back stands above it, as after any deletion.
    moving.legacy.sql(
        f"{MAKE}; INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'again' FROM trips WHERE trip_uuid = %s",
        str(gone[0]),
    )
    moving.carry()
    found = moving.facade.store.get_cell_latest(gone[0], "NOTES")
    assert found is not None
    assert (found.ref_key, found.body) == ((1 << 20) + 2, {"text": "again"})


def test_i12_rows_that_come_back_below_their_tombstones_are_not_compared(moving: Migration) -> None:
    """A partition that was detached, buried by a repair and attached again has its rows at their old versions."""
    compared(moving)
    moving.legacy.sql(DETACH)
    ((gone,),) = moving.legacy.sql("SELECT count(*) FROM notes_0")
    assert repaired(moving, compared(moving))["bury"] == gone
    moving.legacy.sql(ATTACH)

    counts = Diffing(moving.facade).jobs.progress(compared(moving)).counts

    assert counts["table_not_compared"] == gone
    assert counts.get("open", 0) == 0  # the control: cell by cell both stores agree that they are deleted
    assert refused(moving) is not None
    moving.legacy.sql(
        "CREATE TABLE back AS SELECT trip_id, n, text FROM notes_0; DELETE FROM notes_0;"
        " INSERT INTO notes (trip_id, n, text) SELECT * FROM back"
    )
    moving.carry()
    compared(moving)
    assert refused(moving) is None
    for (key,) in moving.legacy.sql("SELECT trip_uuid::text FROM notes_0"):
        cell = moving.facade.store.get_cell_latest(UUID(key), "NOTES")
        assert cell is not None
        assert cell.body == {"text": "a"}


def test_i8_rows_of_the_parent_are_buried_with_their_ids_though_their_log_is_gone(
    servers: LocalServers, stores: Stores
) -> None:
    with migration(servers, stores, wanted=moving_layout(), tables=REGIONS) as made:
        made.phase(Phase.SHADOW)
        made.legacy.sql("INSERT INTO trips SELECT g, gen_random_uuid(), 'a' FROM generate_series(1, 12) g")
        made.carry()
        gone = [(number, UUID(key)) for number, key in made.legacy.sql("SELECT id, trip_uuid::text FROM trips_1")]
        made.legacy.sql("DELETE FROM tripstore.log; DROP TABLE trips_1")

        assert repaired(made, compared(made))["bury"] == 2 * len(gone)

        # What the gate says of such a parent's id, that no index can hold it, is not what this is about.
        assert "public.trips_1 was " not in (refused(made) or "")
        for number, key in gone:
            assert made.facade.store.get_cell_latest(key, "BASE") == made.duo.legacy.get_cell_latest(key, "BASE")
            assert made.duo.legacy.get_cell(key, "BASE", 2) is not None
            assert made.duo.legacy.resolve_id(number) == key == made.store.resolve_id(number)


def test_i8_what_truncate_took_before_the_worker_came_is_found_and_buried(moving: Migration) -> None:
    """Without an event trigger a partition that is made later has none against TRUNCATE; the worker gives it one."""
    moving.legacy.sql(f"DROP EVENT TRIGGER {EVENT_TRIGGER}; DELETE FROM notes; DROP TABLE notes_0; {MAKE}")
    moving.legacy.sql("INSERT INTO notes (trip_id, n, text) SELECT id, 2, 'b' FROM trips")
    moving.carry()
    ((gone,),) = moving.legacy.sql("SELECT count(*) FROM notes_0")
    compared(moving)
    assert refused(moving) is None
    moving.legacy.sql("TRUNCATE notes_0")  # the control: it is accepted

    assert "notes_0 was truncated or rewritten" in (refused(moving) or "")
    assert repaired(moving, compared(moving))["bury"] == gone
    assert refused(moving) is None


MADE_BY = {
    "created": MAKE,
    "attached": f"CREATE TABLE notes_0 (LIKE notes INCLUDING ALL); {ATTACH}",
    "with partitions": f"{MAKE.removesuffix(';')} PARTITION BY HASH (trip_id);"
    " CREATE TABLE notes_00 PARTITION OF notes_0 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
}


@pytest.mark.parametrize("way", MADE_BY)
def test_i8_truncate_in_the_transaction_that_made_the_partition_is_refused_where_an_event_trigger_stands(
    moving: Migration, way: str
) -> None:
    """Its file is emptied in place, so no look would find it. Control: without the event trigger it is accepted."""
    moving.legacy.sql("DELETE FROM notes; DROP TABLE notes_0")
    moving.carry()
    insert = "INSERT INTO notes (trip_id, n, text) SELECT id, 2, 'b' FROM trips"
    with moving.legacy.connect() as company:
        rows(company, f"{MADE_BY[way]}; {insert}")
        with pytest.raises(psycopg2.Error) as refusal:
            rows(company, "TRUNCATE notes_0")
        assert refusal.value.pgcode == TRUNCATE_REFUSED
        company.rollback()

        rows(company, f"{MADE_BY[way]}; {insert}")
        company.commit()
    with moving.legacy.ours() as connection:
        assert [str(each) for each in verify(connection, moving.duo.legacy.layout)] == []
        assert guard_new_partitions(connection, moving.duo.legacy.layout) == 0
    moving.carry()
    assert missing(moving) == []

    moving.legacy.sql(f"DELETE FROM notes; DROP TABLE notes_0; DROP EVENT TRIGGER {EVENT_TRIGGER}")
    moving.carry()
    moving.legacy.sql(f"BEGIN; {MADE_BY[way]}; {insert}; TRUNCATE notes_0; COMMIT")
    moving.carry()
    assert repaired(moving, compared(moving))["bury"] > 0


#: What the event trigger's function asked, when it went by a setting.
BY_SETTING = "BEGIN\n  IF current_setting('tripstore.guarding', true) = 'on' THEN\n    RETURN;\n  END IF;"


@pytest.mark.parametrize("way", MADE_BY)
@pytest.mark.parametrize("by_setting", [True, False], ids=["control", "by the catalogue"])
def test_i8_no_setting_of_a_session_keeps_a_new_partition_from_its_triggers(
    moving: Migration, way: str, *, by_setting: bool
) -> None:
    """The function's own ALTER TABLE calls it once more; any session may say that this is such a call."""
    if by_setting:
        function = "SELECT pg_get_functiondef('tripstore.partitions_changed'::regproc)"
        ((text,),) = moving.legacy.sql(function)
        moving.legacy.sql(text.replace("BEGIN", BY_SETTING, 1))
    moving.legacy.sql("DELETE FROM notes; DROP TABLE notes_0")
    looks = "SELECT count(*) FROM tripstore.partition WHERE name = 'public.notes_0'"
    with moving.legacy.connect() as company:
        rows(company, "SET tripstore.guarding = 'on'")
        rows(company, MADE_BY[way])
        company.commit()

    guarded = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'notes_0'::regclass AND tgtype & 32 <> 0"
    assert moving.legacy.sql(guarded) == [(0 if by_setting else 2,)]
    assert moving.legacy.sql(looks) == [(0 if by_setting else 1,)]
    if not by_setting:
        enabled = (
            "SELECT DISTINCT tgenabled::text FROM pg_trigger WHERE tgrelid = 'notes_0'::regclass AND NOT tgisinternal"
        )
        assert moving.legacy.sql(enabled) == [("A",)]


def test_i8_a_worker_gives_a_new_partition_its_triggers_within_seconds(moving: Migration) -> None:
    moving.legacy.sql(f"DROP EVENT TRIGGER {EVENT_TRIGGER}; DROP TABLE notes_0; {MAKE}")
    with Mirror(moving.facade).partition_keeper():
        query = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'notes_0'::regclass AND tgtype & 32 <> 0"
        wait_until("its triggers stand", lambda: moving.legacy.sql(query) == [(2,)], 20)

    with refused_by_capture(TRUNCATE_REFUSED):
        moving.legacy.sql("TRUNCATE notes_0")


def test_a_row_that_is_there_is_not_buried(moving: Migration) -> None:
    """Whatever a look said before: the burial itself looks under its lock."""
    epoch = moving.duo.ports.control.authority().epoch
    keys = [CellKey(UUID(key), "NOTES", 1 << 20) for (key,) in moving.legacy.sql("SELECT trip_uuid::text FROM notes")]

    assert moving.duo.legacy.as_owner(epoch).bury("NOTES", keys) == set()
    assert moving.legacy.sql("SELECT count(*) FROM tripstore.tomb") == [(0,)]


def test_i8_facts_that_are_gone_while_their_parent_is_there_are_left_to_a_person(moving: Migration) -> None:
    epoch = moving.duo.ports.control.authority().epoch
    ((key,),) = moving.legacy.sql("SELECT trip_uuid::text FROM trips LIMIT 1")

    assert moving.duo.legacy.as_owner(epoch).bury("STATUS", [CellKey(UUID(key), "STATUS", 3)]) == set()


def test_a_backfill_does_not_begin_where_capture_was_swapped_away(moving: Migration) -> None:
    """No `doctor` has run since: the backfill asks what `doctor` asks."""
    backfill = Backfill(moving.facade)
    backfill.plan(Wanted())
    moving.legacy.sql(
        "CREATE TABLE fresh (LIKE attempts INCLUDING ALL); ALTER TABLE attempts RENAME TO gone;"
        "ALTER TABLE fresh RENAME TO attempts"
    )

    with pytest.raises(CannotCopy, match="attempts: "):
        backfill.plan(Wanted())
    assert moving.legacy.sql("SELECT since FROM tripstore.capture") == [(None,)]
