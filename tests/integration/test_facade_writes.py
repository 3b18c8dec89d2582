"""Writes through the facade when an answer is lost and authority moves at the same time; and what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core.errors import ControlUnavailable, InvalidCell
from tests.facades import Migration, migration
from tests.legacy_backends import status
from tests.stores import Stores
from tripstore.backends.postgres.wire.translation import ConnectionLost
from tripstore.facade.flags import FlagBook, Flags
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.mirror.reverse import register_reverse
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
    assert moved.duo.lag.pending() == {}
    assert moved.duo.lag.allows((row_key,))


def test_a_cohorts_read_takes_no_longer_than_a_cohorts_may(moved: Migration) -> None:
    seconds = moved.facade.config.mirror.cohort_seconds
    patient, hasty = (moved.store.using(deadline=given)._using.within(seconds) for given in (7.0, 0.01))
    copier = moved.facade.store.as_copier()
    assert patient(copier)._habits.deadline == seconds  # type: ignore[attr-defined]  # of a datastore
    assert hasty(copier)._habits.deadline == 0.01  # type: ignore[attr-defined]  # the same


def test_while_the_phase_is_not_known_nobody_guesses_whose_log_is_read(
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
