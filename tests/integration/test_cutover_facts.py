"""The facts of the gates, on real databases: what direct writers did at a shut gate, what the rehearsal compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.facades import Migration, as_other_role, facts_of, migration
from tests.shadow_traffic import ALL
from tests.stores import Stores
from tripstore.backends.postgres.capture.install import GateFunctions
from tripstore.backends.postgres.handover.examination import examine_handover
from tripstore.backends.postgres.handover.sessions import grant_to_see
from tripstore.backends.postgres.wire.connections import connected
from tripstore.handover.authority import HandOverFacts
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import JobFacts, ReverseFacts, Unknown
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import GROUP, register_reverse
from tripstore.phase import Phase
from tripstore.store import TripStore


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    # Only what a test reads is compared, and all of it, however long it takes on two cores.
    with migration(servers, stores, shadow=ALL) as made:
        made.phase(Phase.SHADOW)
        yield made


def test_i12_child_rows_under_another_key_than_their_parents_shut_a_gate(moving: Migration) -> None:
    """Both stores have them under the wrong key, and no diff tells."""
    legacy = moving.legacy
    id_, _key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a'), (%s, 2, 'b')", id_, id_)

    def shut() -> list[str]:
        gates = plan(Direction.FORWARD, facts_of(moving), moving.facade.config.cutover).refusals
        return [gate.said for gate in gates if gate.name == "row keys"]

    assert shut() == []

    # As a restore does it, which fires no trigger.
    legacy.sql("; ".join(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in ("notes", "notes_0", "notes_1")))
    legacy.sql("UPDATE notes SET trip_uuid = gen_random_uuid() WHERE n = 2")

    assert shut() == ["1 rows of notes do not"]


def test_i12_a_writer_whose_age_the_role_may_not_see_shuts_the_gate(moving: Migration) -> None:
    """Control: with the right the same transaction is seen, and how old it is."""

    def said(store: TripStore) -> list[str]:
        facts = facts_of(replace(moving, store=store), timedelta())
        refusals = plan(Direction.FORWARD, facts, moving.facade.config.cutover).refusals
        return [gate.said for gate in refusals if gate.name == "writers"]

    def noted(store: TripStore, role: str) -> list[str]:
        """By `doctor`, before anybody meets the gate."""
        assert store.facade.config.legacy is not None
        with connected(store.facade.config.legacy.postgres.text, "doctor") as connection:
            return [
                each.hint for each in examine_handover(connection, "trips") if each.hint == f"{grant_to_see(role)}."
            ]

    with as_other_role(moving) as (store, role), closing(moving.legacy.connect()) as service:
        assert len(noted(store, role)) == 1
        assert said(store) == []
        service.cursor().execute("INSERT INTO trips (status) VALUES ('open'); SELECT pg_sleep(1.2)")
        (hidden,) = said(store)
        assert (
            hidden == f'not known: {role} may not see since when 1 of them write: GRANT pg_read_all_stats TO "{role}"'
        )
        moving.legacy.sql(hidden.rpartition(": ")[2])
        (seen,) = said(store)
        assert seen.startswith("pid "), seen
        assert noted(store, role) == []
        service.rollback()
        assert said(store) == []


def test_a_trigger_that_an_earlier_layout_made_shuts_a_gate_in_both_directions(moving: Migration) -> None:
    """It acts still: facts that became versions may not be deleted, and neither `apply` nor `doctor` is asked here."""
    legacy, settings = moving.legacy, moving.facade.config.cutover

    def shut(way: Direction) -> list[str]:
        return [gate.said for gate in plan(way, facts_of(moving), settings).refusals if gate.name == "capture"]

    assert shut(Direction.FORWARD) == shut(Direction.BACK) == []

    legacy.sql("CREATE FUNCTION tripstore.former() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    legacy.sql(
        'CREATE TRIGGER "~tripstore_former_delete" AFTER DELETE ON attempts'
        " FOR EACH STATEMENT EXECUTE FUNCTION tripstore.former()"
    )

    for way in Direction:
        (said,) = shut(way)
        assert said.endswith("attempts: trigger ~tripstore_former_delete is of an earlier layout and acts still")
    legacy.sql('DROP TRIGGER "~tripstore_former_delete" ON attempts')
    assert shut(Direction.FORWARD) == []


def refuses(made: Migration) -> bool:
    settings = made.facade.config.cutover
    return "direct writers" in {gate.name for gate in plan(Direction.BACK, facts_of(made), settings).refusals}


def test_i1_what_direct_writers_did_behind_the_shut_gate_closes_the_way_back(moving: Migration) -> None:
    """Postgres alone has it: the way back would give it out, and the next switch lose it."""
    legacy, control = moving.legacy, moving.duo.ports.control
    id_, _key = legacy.trip()
    with legacy.ours() as connection:
        GateFunctions(moving.duo.legacy.layout, warns=True).apply(connection, lambda _done, _total: None)
    moving.phase(Phase.LIVE)
    moving.store.put_cell(uuid4(), "BASE", 1, {"status": "through the facade"})
    moving.carry()
    assert facts_of(moving).direct_changes == 0, "neither what was carried before, nor what is mirrored"
    assert not refuses(moving)

    legacy.sql("UPDATE trips SET status = 'warned' WHERE id = %s", id_)
    legacy.sql("UPDATE trips SET status = 'twice' WHERE id = %s", id_)

    assert facts_of(moving).direct_changes == 2
    assert refuses(moving)
    found = control.authority()
    closing = found.closing("a way back that is undone")
    assert control.close(found, closing)
    assert control.undo(closing, closing.undone())
    assert facts_of(moving).direct_changes == 2, "an epoch later they are still there"
    moving.phase(Phase.SHADOW)
    assert facts_of(moving).direct_changes == 0, "they are the authority's now"
    assert run(switch(moving.duo.ports, "again")).is_decided
    assert facts_of(moving).direct_changes == 0


def test_i12_evidence_is_held_against_the_last_change_of_the_authority(moving: Migration) -> None:
    """One that was undone is none; a diff says at which epoch it began."""
    control, diffing = moving.duo.ports.control, Diffing(moving.facade)

    def undone() -> None:
        found = control.authority()
        closing = found.closing("undone")
        assert control.close(found, closing)
        assert control.undo(closing, closing.undone())

    undone()
    assert facts_of(moving).handed_over is None
    moving.phase(Phase.LIVE)
    moving.phase(Phase.SHADOW)
    moved = control.authority()
    undone()
    found = facts_of(moving)
    assert isinstance(found.handed_over, HandOverFacts)
    assert (found.handed_over.epoch, found.handed_over.at) == (moved.epoch, moved.since)

    job = diffing.begin(diffing.plan(Order()))
    diffing.jobs.cancel("diff", job.id)
    found = facts_of(moving)
    assert isinstance(found.diff, JobFacts)
    assert found.diff.epoch == control.authority().epoch == moved.epoch + 2


def test_i12_what_was_compared_before_the_last_hand_over_is_no_evidence(moving: Migration) -> None:
    """Not even in the same hour; and what was compared then is still wanted, and so is not passed over."""
    _id, key = moving.legacy.trip()
    moving.carry()

    def compare(read: Callable[[], object], times: int) -> None:
        for _ in range(times):
            read()
        assert moving.duo.shadow.drain(60)
        for flushing in moving.duo.flushing:
            flushing._flush()

    def compared() -> dict[str, int]:
        found = facts_of(moving).operations
        assert not isinstance(found, Unknown)
        return {each.operation: each.compared for each in found}

    def rate(operation: str) -> float:
        found = facts_of(moving).operations
        assert not isinstance(found, Unknown)
        return next(each.per_second for each in found if each.operation == operation)

    compare(lambda: moving.store.get_row(key), 3)
    compare(lambda: moving.store.get_cell_latest(key, "BASE"), 2)
    assert compared() == {"get_row": 3, "get_cell_latest": 2}

    moving.phase(Phase.LIVE)
    moving.phase(Phase.SHADOW)
    moved = moving.duo.ports.control.authority()
    assert compared() == {"get_row": 0, "get_cell_latest": 0}
    assert rate("get_cell_latest") == 0.0
    compare(lambda: moving.store.get_row(key), 4)
    assert rate("get_cell_latest") == 0.0, "it is not compared at this rate any more"
    assert 4 / 60 < rate("get_row") <= 4, "of the time since then"
    assert compared() == {"get_row": 4, "get_cell_latest": 0}

    found = moving.duo.ports.control.authority().closing("undone")
    assert moving.duo.ports.control.close(moved, found)
    assert moving.duo.ports.control.undo(found, found.undone())
    moving.duo.watch.look()
    compare(lambda: moving.store.get_row(key), 1)
    assert compared() == {"get_row": 5, "get_cell_latest": 0}, "one that was undone takes nothing away"
    assert "comparisons of get_cell_latest" in {
        gate.name for gate in plan(Direction.FORWARD, facts_of(moving), moving.facade.config.cutover).refusals
    }


def rehearsed(made: Migration, later: timedelta = timedelta()) -> tuple[int, int, int]:
    found = facts_of(made, later).reverse
    assert isinstance(found, ReverseFacts)
    return found.equal, found.different, found.not_compared


def test_i12_the_rehearsal_counts_what_it_compared_and_nothing_that_it_passed(moving: Migration) -> None:
    keys = [moving.legacy.trip()[1] for _ in range(5)]
    moving.carry()
    store = moving.facade.store
    store.triggers.remove(GROUP)
    register_reverse(store)
    foreign = uuid4()
    store.as_copier().put_cell(foreign, "BASE", 1, {"status": "foreign"})
    assert rehearsed(moving) == (0, 0, 0), "its offsets are behind five rows that no rehearsal compared"

    moving.legacy.sql("UPDATE trips SET status = 'completed' WHERE trip_uuid = %s", str(keys[0]))
    moving.carry()
    moving.legacy.sql("DELETE FROM tripstore.log WHERE row_key = %s", str(keys[0]))
    group = Mirror(moving.facade).reverse()
    for key in [*keys, foreign]:
        cell = store.get_cell(key, "BASE", 1)
        assert cell is not None
        group.deliver({store.shard_of(key): [cell]})
    group.rehearsal.flush()

    assert rehearsed(moving) == (4, 1, 1)
    hours = moving.facade.config.cutover.evidence_hours
    assert rehearsed(moving, timedelta(hours=hours - 1)) == (4, 1, 1)
    assert rehearsed(moving, timedelta(hours=hours + 1)) == (0, 0, 0), "too long ago to say anything"


def test_what_cannot_be_written_down_is_kept_and_keeps_no_call_waiting(moving: Migration) -> None:
    """I10: the control database is away."""
    store = moving.facade.store
    _id, key = moving.legacy.trip()
    moving.carry()
    cell = store.get_cell(key, "BASE", 1)
    assert cell is not None
    group = Mirror(moving.facade).reverse()
    path = store.control._path
    away = path.rename(path.with_suffix(".away"))

    assert group.deliver({store.shard_of(key): [cell]})[store.shard_of(key)].error is None
    group.rehearsal._flush_or_keep()
    away.rename(path)
    assert rehearsed(moving) == (0, 0, 0)
    group.rehearsal._flush_or_keep()

    assert rehearsed(moving) == (1, 0, 0)


def test_i12_what_is_called_and_was_never_compared_has_no_evidence(servers: LocalServers, stores: Stores) -> None:
    """In whichever phase it was called. What cannot be compared, or is called too rarely for it, is not asked for."""
    with migration(servers, stores, cutover={"comparisons_min": 3}) as made:
        made.phase(Phase.DUALWRITE)
        _id, key = made.legacy.trip()
        made.carry()
        for _ in range(3):
            made.store.get_history(key, "BASE")
        for _ in range(2):
            made.store.get_row(key)
        made.store.put_cell(uuid4(), "BASE", 1, {"status": "requested"})
        for flushing in made.duo.flushing:
            flushing._flush()
        made.phase(Phase.SHADOW)

        found = facts_of(made)

        assert not isinstance(found.operations, Unknown)
        assert [(each.operation, each.compared) for each in found.operations] == [("get_history", 0)]
        refusals = {gate.name for gate in plan(Direction.FORWARD, found, made.facade.config.cutover).refusals}
        assert "comparisons of get_history" in refusals
