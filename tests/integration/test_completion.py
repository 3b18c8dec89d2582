"""The end of a migration and the way back, both at once: at most one of them is done (I9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest

from schemaless_core.control.audit import AuditLog
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.handover import switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.steps import Step
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.complete import Completion
from tripstore.migration.cutover.errors import CompletionOvertaken
from tripstore.migration.cutover.evidence import Evidence
from tripstore.migration.cutover.perform import HandoverOrder, Performed, perform
from tripstore.migration.cutover.plan import Direction
from tripstore.migration.mirror.reverse import GROUP
from tripstore.phase import Phase


@pytest.fixture
def live(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores) as made:
        made.phase(Phase.LIVE)
        yield made


class Ending:
    """A completion whose gates were looked at just now."""

    def __init__(self, live: Migration, folder: Path, authority: Callable[[], Authority] | None = None) -> None:
        control, facade, legacy = live.duo.ports.control, live.facade, live.facade.config.legacy
        assert legacy is not None
        self.completion = Completion(
            legacy,
            facade.store,
            facade.flags,
            "a test",
            lambda: cast(Evidence, {}),
            folder / f"{uuid4()}.json",
            control.authority(),
            authority or control.authority,
        )

    def end(self) -> bool:
        """Whether it was not overtaken."""
        try:
            return len(list(self.completion.perform())) == 6
        except CompletionOvertaken:
            return False


def way_back(live: Migration, hear: Callable[[Step], None] = lambda step: None) -> Performed:
    live.carry()
    return perform(
        live.duo.ports,
        HandoverOrder(Direction.BACK, "a test"),
        flags=live.facade.flags,
        audit=AuditLog(live.facade.store.control),
        max_pause_seconds=3.0,
        hear=hear,
    )


def put(live: Migration) -> UUID:
    row_key = uuid4()
    live.store.put_cell(row_key, "BASE", 1, {"status": "requested"})
    return row_key


def assert_back(live: Migration) -> None:
    """Postgres is the authority, and whole: the company writes it, and the mirror is there."""
    live.duo.watch.look()
    assert live.duo.ports.control.authority().is_open_for(Backend.LEGACY)
    assert live.facade.flags.find().store_phase is Phase.LIVE
    live.legacy.trip()
    put(live)
    assert live.facade.store.triggers.coordinator.find_group(GROUP) is not None


def test_a_colleague_who_went_back_while_the_name_was_typed(live: Migration, tmp_path: Path) -> None:
    ending = Ending(live, tmp_path)
    assert way_back(live).is_decided

    assert ending.end() is False

    assert_back(live)


def test_a_completion_that_believes_the_row_it_planned_with_would_end_what_is_the_authority(
    live: Migration, tmp_path: Path
) -> None:
    """The control of the one above."""
    planned = live.duo.ports.control.authority()
    ending = Ending(live, tmp_path, lambda: planned)
    assert way_back(live).is_decided

    assert ending.end() is True

    assert live.duo.ports.control.authority().is_open_for(Backend.LEGACY)
    assert live.facade.flags.find().store_phase is Phase.COMPLETE


@pytest.mark.parametrize("at", switch.BACK, ids=lambda step: step.name)
def test_i9_of_an_end_at_any_step_of_the_way_back_at_most_one_is_done(
    live: Migration, tmp_path: Path, at: Step
) -> None:
    row_key, ended = put(live), list[bool]()

    def hear(step: Step) -> None:
        if step is at and not ended:
            ended.append(Ending(live, tmp_path).end())

    done = way_back(live, hear)

    assert ended != []
    assert (ended[0], done.is_decided) != (True, True)
    if done.is_decided:
        assert_back(live)
        assert live.store.get_cell_latest(row_key, "BASE") is not None
    else:
        assert ended == [True]
        assert live.duo.ports.control.authority().is_open_for(Backend.STORE)
        assert live.facade.flags.find().store_phase is Phase.COMPLETE


def test_i9_a_way_back_between_the_flag_and_the_look_at_the_row(live: Migration, tmp_path: Path) -> None:
    """Each sees the other, and both give up: neither happened, and either may be tried again."""
    done: list[Performed] = []

    def authority() -> Authority:
        if not done:
            done.append(way_back(live))
        return live.duo.ports.control.authority()

    assert Ending(live, tmp_path, authority).end() is False

    assert not done[0].is_decided
    assert "being completed" in done[0].reason
    assert live.facade.flags.find().store_phase is Phase.LIVE
    assert way_back(live).is_decided
    assert_back(live)


@pytest.mark.parametrize("done", [2, 3, 4])
def test_i9_each_later_step_looks_at_the_row_again(live: Migration, tmp_path: Path, done: int) -> None:
    steps = Ending(live, tmp_path).completion.perform()
    for _ in range(done):
        next(steps)
    control = live.duo.ports.control
    found = control.authority()
    assert control.close(found, found.closing("a switcher that knows no flags"))

    with pytest.raises(CompletionOvertaken, match="closing"):
        next(steps)
