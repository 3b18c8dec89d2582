"""Writes through the facade when an answer is lost and authority moves at the same time; and what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core.errors import ControlUnavailable, InvalidCell
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.legacy_backends import status
from tests.mirrors import QUICK, reversing, wait_until_mirrored_back
from tests.stores import Stores
from tripstore.backends.postgres.wire.translation import ConnectionLost
from tripstore.facade import lag
from tripstore.facade.flags import FlagBook, Flags
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase


@pytest.fixture
def moved(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores) as made:
        made.phase(Phase.SHADOW)
        yield made


def trip(moved: Migration) -> UUID:
    row_key = uuid4()
    moved.store.put_cell(row_key, "BASE", 1, status("a"))
    return row_key


def lose_the_answer(moved: Migration, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Of the next put that Postgres commits; before it is asked again, something happens."""
    database = moved.duo.legacy.database
    once = database._once

    def lost(verb: Any, deadline: Any) -> Any:
        answer = once(verb, deadline)
        if getattr(answer, "is_created", False):
            monkeypatch.setattr(database, "_once", once)
            meanwhile()
            raise ConnectionLost("the server ended the connection")
        return answer

    monkeypatch.setattr(database, "_once", lost)


def test_i2_an_append_whose_answer_is_lost_in_a_switch_is_stored_once(
    moved: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = trip(moved)

    def move() -> None:
        moved.carry()
        assert run(switch(moved.duo.ports, "meanwhile")).is_decided

    lose_the_answer(moved, monkeypatch, move)
    result = moved.store.append_cell(row_key, "STATUS", {"result": "charged, event 17"})

    assert [cell.ref_key for cell in moved.store.get_history(row_key, "STATUS")] == [result.ref_key]
    assert moved.duo.known.sight is not None
    assert moved.duo.known.sight.phase is Phase.LIVE


def test_an_append_whose_answer_is_lost_in_a_switch_that_is_undone_is_stored_once(
    moved: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = trip(moved)

    def begin_and_undo() -> None:
        control = moved.duo.ports.control
        found = control.authority()
        closing = found.closing("meanwhile")
        assert control.close(found, closing)
        assert control.undo(closing, closing.undone())
        control.obey()

    lose_the_answer(moved, monkeypatch, begin_and_undo)
    moved.store.append_cell(row_key, "STATUS", {"result": "charged, event 17"})

    assert len(moved.store.get_history(row_key, "STATUS")) == 1


def test_a_call_that_is_refused_is_not_remembered_as_written(moved: Migration) -> None:
    """Else a cohort would never read from the mirror again."""
    moved.phase(Phase.SHADOW, 100)
    row_key = trip(moved)
    with pytest.raises(InvalidCell):
        moved.store.put_cell("no uuid", "BASE", 1, {})  # type: ignore[arg-type]  # that is the point
    moved.carry()
    moved.duo.watch.look()
    moved.duo.watch.look()
    epoch = moved.duo.ports.control.authority().epoch
    assert moved.duo.lag.pending(epoch).rows == {}
    assert moved.duo.lag.allows((row_key,), epoch)


@pytest.fixture
def patient(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """No lag keeps a cohort from the mirror: only what this process wrote does."""
    with migration(servers, stores, mirror={"max_lag_seconds": 600.0}, triggers=QUICK) as made:
        made.phase(Phase.SHADOW)
        yield made


def comes_of_mirror(moved: Migration, row_key: UUID) -> bool:
    return moved.duo.lag.allows((row_key,), moved.duo.ports.control.authority().epoch)


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.LIVE])
def test_a_cohort_that_begins_reads_what_was_written_before_it_began(patient: Migration, phase: Phase) -> None:
    """Until then no process remembered what was written."""
    patient.phase(phase)
    row_key, other = uuid4(), uuid4()
    patient.store.put_cell(other, "FREE", 1, "carried")
    patient.carry()
    patient.store.put_cell(row_key, "FREE", 1, "mine")

    patient.phase(phase, 100)

    assert patient.store.get_cell_latest(row_key, "FREE") is not None
    patient.store.put_cell(row_key, "FREE", 2, "mine")
    patient.carry()
    patient.duo.watch.look()
    assert comes_of_mirror(patient, row_key)


def test_more_rows_than_are_remembered_are_read_as_they_were_written(
    patient: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "ROWS_MAX", 1)
    patient.phase(Phase.SHADOW, 100)
    row_key, last = trip(patient), uuid4()
    relay = Mirror(patient.facade).carrier()
    patient.store.put_cell(last, "FREE", 1, "not remembered")
    relay.carry(1)
    patient.duo.watch.look()

    assert patient.duo.lag.pending(0).rows == {}, "the one that is remembered has arrived"
    assert patient.store.get_cell_latest(last, "FREE") is not None
    patient.carry()
    patient.duo.watch.look()
    assert comes_of_mirror(patient, row_key)
    assert comes_of_mirror(patient, last)


def test_what_the_reverse_mirror_has_parked_is_read_as_it_was_written(patient: Migration) -> None:
    """Its offsets have passed it."""
    patient.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    patient.phase(Phase.LIVE, 100)
    row_key = uuid4()
    patient.store.put_cell(row_key, "BASE", 1, {"status": "much too long"})
    with reversing(patient):
        wait_until("it is parked", lambda: len(Mirror(patient.facade).parked(is_reverse=True).listed(2)) == 1)
        wait_until_mirrored_back(patient)

    patient.duo.watch.look()

    assert patient.store.get_cell_latest(row_key, "BASE") is not None


def test_what_was_parked_before_a_cohort_began_keeps_its_own_row_from_the_mirror_and_no_other(
    patient: Migration,
) -> None:
    patient.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    patient.phase(Phase.LIVE)
    row_key, other = uuid4(), uuid4()
    patient.store.put_cell(row_key, "BASE", 1, {"status": "much too long"})
    patient.store.put_cell(other, "BASE", 1, {"status": "short"})
    with reversing(patient):
        wait_until("it is parked", lambda: len(Mirror(patient.facade).parked(is_reverse=True).listed(2)) == 1)
        wait_until_mirrored_back(patient)

    patient.phase(Phase.LIVE, 100)
    patient.duo.watch.look()

    assert comes_of_mirror(patient, other)
    kept = cohort_reads("missing")
    assert patient.store.get_cell_latest(row_key, "BASE") is not None
    assert cohort_reads("missing") == kept + 1


def cohort_reads(reason: str) -> float:
    labels = {"operation": "get_cell_latest", "reason": reason}
    return REGISTRY.get_sample_value("tripstore_cohort_reads_total", labels) or 0.0


def test_a_mirror_that_has_not_come_to_a_place_is_not_asked_what_it_has_parked_nor_at_every_look(
    patient: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The questions go to the authority's own servers."""
    patient.phase(Phase.LIVE)
    patient.store.put_cell(uuid4(), "BASE", 1, {"status": "on its way"})
    watch, asked = patient.duo.watch, list[str]()
    watch.close()  # its turns are taken here
    arrivals, parking = watch._arrivals, patient.facade.store.triggers.parking
    left_behind, rows_of = arrivals.left_behind, parking.rows_of

    def heard_place(*arguments: Any) -> Any:
        asked.append("place")
        return left_behind(*arguments)

    def heard_parked(group: str, shards: list[int], upto: Mapping[int, int] | None = None) -> dict[int, set[bytes]]:
        asked.extend(["parked"] if shards else [])
        return rows_of(group, shards, upto)

    monkeypatch.setattr(arrivals, "left_behind", heard_place)
    monkeypatch.setattr(parking, "rows_of", heard_parked)
    patient.phase(Phase.LIVE, 100)
    patient.store.put_cell(uuid4(), "BASE", 1, {"status": "behind it"})

    assert asked == ["place"]
    for _ in range(4):
        watch._look_at_lag(is_between=True)
    assert asked == ["place"]
    watch.look()
    assert asked == ["place"] * 2
    patient.carry()
    watch.look()
    assert asked == ["place", "place", "parked", "place", "parked"]


def test_a_cohorts_read_takes_no_longer_than_a_cohorts_may(moved: Migration) -> None:
    seconds = moved.facade.config.mirror.cohort_seconds
    patient, hasty = (moved.store.using(deadline=given)._using.within(seconds) for given in (7.0, 0.01))
    copier = moved.facade.store.as_copier()
    assert patient(copier)._habits.deadline == seconds  # type: ignore[attr-defined]  # of a datastore
    assert hasty(copier)._habits.deadline == 0.01  # type: ignore[attr-defined]  # the same


def test_while_the_phase_is_not_known_no_log_is_read_on_a_guess(
    moved: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = trip(moved)
    moved.carry()

    def down(_book: FlagBook) -> Flags:
        raise ControlUnavailable("The control database cannot be reached.")

    monkeypatch.setattr(FlagBook, "find", down)
    with moved.connect() as blind:
        assert blind.get_cell_latest(row_key, "BASE") is not None
        with pytest.raises(ControlUnavailable):
            blind.get_cells_for_shard(blind.shard_of(row_key), 0, 10)


def test_i1_a_reverse_mirror_that_comes_late_begins_at_the_beginning(moved: Migration) -> None:
    """What was acknowledged before it was there must not be missing after the way back."""
    store = moved.facade.store
    moved.carry()
    store.triggers.remove("mirror:reverse")
    moved.phase(Phase.LIVE)
    row_key = uuid4()
    moved.store.put_cell(row_key, "FREE", 1, {"acknowledged": True})

    register_reverse(store)
    moved.reverse()

    assert moved.store.get_cell_latest(row_key, "FREE") is not None
