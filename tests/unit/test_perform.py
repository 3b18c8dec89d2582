"""A hand-over as it is performed: timed, bounded, undone whatever goes wrong, and written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from schemaless_core import ControlUnavailable
from schemaless_core.config import parse_config
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from tests.unit.clock import FakeClock
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.facade.flags import FlagBook, Flags
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import ControlPort, LegacyPort, Ports, StorePort
from tripstore.migration.cutover.errors import CutoverUnsettled
from tripstore.migration.cutover.perform import HandoverOrder, Performed, perform
from tripstore.migration.cutover.plan import Direction
from tripstore.phase import Phase

FIRST = Authority(4, Backend.LEGACY)


class Stores:
    """Both stores and the row, as far as one switcher sees them. `accidents` happen in the call of that name."""

    servers = ("a", "b")

    def __init__(self, row: Authority = FIRST) -> None:
        self.row = row
        self.accidents: dict[str, Callable[[], object]] = {}
        self.opened: list[tuple[str, int]] = []

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            accident = self.accidents.get(verb)
            if accident is not None:
                accident()
            return getattr(self, f"do_{verb}")(*arguments)

        return call

    def do_authority(self) -> Authority:
        return self.row

    do_obey = do_authority

    def do_close(self, found: Authority | str, closing: Authority | int) -> bool:
        if isinstance(found, str):
            return True  # a server of Schemaless
        return self._set(found, cast(Authority, closing))

    def do_decide(self, found: Authority, decided: Authority) -> bool:
        return self._set(found, decided)

    def do_undo(self, found: Authority, undone: Authority) -> bool:
        return self._set(found, undone)

    def do_shut_gate(self, closing: Authority) -> bool:
        return self.row == closing

    def do_take_barrier(self) -> bool:
        return True

    def do_queued(self) -> int:
        return 0

    def do_buffered(self, server: str) -> int:
        return 0

    def do_unmirrored(self, server: str) -> int:
        return 0

    def do_open(self, server: str, epoch: int, _layout: str | None) -> bool:
        self.opened.append((server, epoch))
        return True

    def _set(self, found: Authority, wanted: Authority) -> bool:
        if self.row != found:
            return False
        self.row = wanted
        return True


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlDatabase]:
    document = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}"}}}
    config = parse_config(document, tmp_path)
    with closing(ControlDatabase(config.control, config.datastore, config.tls, 1.0)) as opened:
        opened.migrate()
        yield opened


class Performance:
    """Hands over on a clock of its own."""

    def __init__(self, control: ControlDatabase) -> None:
        self.control = control
        self.clock = FakeClock()
        self.flags = FlagBook(control)

    def __call__(self, stores: Stores, direction: Direction = Direction.FORWARD, *forced: str) -> Performed:
        ports = Ports(cast(LegacyPort, stores), cast(StorePort, stores), cast(ControlPort, stores))
        return perform(
            ports,
            HandoverOrder(direction, "a test", forced),
            flags=self.flags,
            audit=AuditLog(self.control),
            max_pause_seconds=2.0,
            clock=self.clock,
            sleep=self.pass_time,
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def takes(self, seconds: float) -> Callable[[], None]:
        return lambda: self.pass_time(seconds)

    @property
    def audited(self) -> list[tuple[str, dict[str, Any]]]:
        entries = reversed(AuditLog(self.control).newest(50))
        return [
            (entry.action, json.loads(entry.detail)) for entry in entries if entry.action.endswith((".begin", ".end"))
        ]


@pytest.fixture
def performance(control: ControlDatabase) -> Performance:
    return Performance(control)


def test_callers_wait_from_the_closing_to_the_last_server_that_is_open(performance: Performance) -> None:
    stores = Stores()
    stores.accidents = {
        "authority": performance.takes(5),
        "close": performance.takes(0.1),
        "open": performance.takes(1),
    }

    done = performance(stores)

    assert done.is_decided
    assert done.authority.is_open_for(Backend.STORE)
    assert done.pause_seconds == pytest.approx(2.1)
    assert stores.opened == [("a", 6), ("b", 6)]
    times = {each.step.name: (each.times, round(each.seconds, 3)) for each in done.steps}
    assert times["switch.look"] == (1, 5.0)
    assert times["settle.open"] == (2, 2.0)


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [
        ("close", "set the gate of Postgres and the row to closing"),
        ("take_barrier", "wait for the writers inside, let no writer in"),
        ("shut_gate", "close the gate of Postgres"),
        ("queued", "count the queue; no claim or lock hides a change"),
    ],
)
def test_before_the_decision_a_pause_that_is_over_is_undone(performance: Performance, slow: str, sentence: str) -> None:
    stores = Stores()
    stores.accidents[slow] = performance.takes(2.01)

    done = performance(stores)

    assert not done.is_decided
    assert stores.row == FIRST.closing(done.switch_id).undone()
    assert done.reason == f"It took longer than 2 s, 2.0 s of it to {sentence}."
    assert done.pause_seconds == pytest.approx(2.01)


@pytest.mark.parametrize("slow", ["decide", "obey", "open"])
def test_after_the_decision_nothing_ends_it(performance: Performance, slow: str) -> None:
    stores = Stores()
    stores.accidents[slow] = performance.takes(30)

    assert performance(stores).is_decided
    assert len(stores.opened) == 2


@pytest.mark.parametrize("verb", ["close", "take_barrier", "shut_gate", "queued", "decide"])
def test_a_store_that_fails_before_the_decision_undoes_it(performance: Performance, verb: str) -> None:
    stores = Stores()
    stores.accidents[verb] = raising(LegacyUnavailable("Postgres went away."))

    done = performance(stores)

    assert not done.is_decided
    assert stores.row.is_open_for(Backend.LEGACY)
    assert "went away" in done.reason


def test_a_decision_whose_answer_was_lost_is_finished(performance: Performance) -> None:
    stores = Stores()

    def decide_and_fail() -> None:
        stores.row = stores.row.decided()
        raise LegacyUnavailable("The answer was lost.")

    stores.accidents["decide"] = decide_and_fail

    done = performance(stores)

    assert done.is_decided
    assert stores.opened == [("a", 6), ("b", 6)]


def test_a_decision_that_is_run_after_its_answer_is_finished(performance: Performance) -> None:
    """The connection broke: the switcher did not find it decided at first."""
    stores = Stores()

    def decide_unheard() -> None:
        stores.row = stores.row.decided()

    stores.accidents["decide"] = decide_unheard

    done = performance(stores)

    assert (done.is_decided, done.reason) == (True, "")
    assert stores.opened == [("a", 6), ("b", 6)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_switcher_leaves_no_writer_waiting(performance: Performance, error: type[BaseException]) -> None:
    stores = Stores()
    stores.accidents["queued"] = raising(error())

    with pytest.raises(error) as raised:
        performance(stores)

    assert stores.row.is_open_for(Backend.LEGACY)
    assert raised.value.__notes__ == ["The hand-over was undone: postgres is the authority at epoch 6."]
    assert performance.audited[-1][1]["outcome"] == f"undone: {error.__name__}"


def test_a_switcher_interrupted_after_the_decision_hears_of_it(performance: Performance) -> None:
    stores = Stores()

    def interrupt_once() -> None:
        del stores.accidents["obey"]
        raise KeyboardInterrupt

    stores.accidents["obey"] = interrupt_once

    with pytest.raises(KeyboardInterrupt) as raised:
        performance(stores)

    assert raised.value.__notes__ == ["The hand-over is decided: schemaless is the authority at epoch 6."]
    assert stores.opened == [("a", 6), ("b", 6)]


def test_a_switcher_interrupted_while_another_one_goes_on_is_told_no_outcome(
    performance: Performance,
) -> None:
    stores = Stores()

    def interrupt() -> None:
        stores.row = stores.row.undone().closing("theirs")
        raise KeyboardInterrupt

    stores.accidents["queued"] = interrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        performance(stores)

    (note,) = raised.value.__notes__
    assert note.startswith("What became of the hand-over is not known here")


def test_stores_that_do_not_answer_are_left_to_the_other_processes(performance: Performance) -> None:
    stores = Stores()

    def go_away() -> None:
        stores.accidents["authority"] = raising(LegacyUnavailable("Postgres is gone."))
        raise LegacyUnavailable("Postgres went away.")

    stores.accidents["shut_gate"] = go_away

    with pytest.raises(CutoverUnsettled, match="cutover status"):
        performance(stores)

    assert performance.audited[-1][1]["outcome"] == "unknown"


def test_a_hand_over_of_another_switcher_is_not_undone(performance: Performance) -> None:
    theirs = FIRST.closing("theirs")
    stores = Stores()

    def overtake() -> None:
        stores.row = theirs

    stores.accidents["close"] = overtake

    done = performance(stores)

    assert not done.is_decided
    assert stores.row == theirs


@pytest.mark.parametrize("direction", Direction)
def test_the_way_back_is_timed_and_bounded_alike(performance: Performance, direction: Direction) -> None:
    stores = Stores(Authority(4, direction.target.other))
    assert performance(stores, direction).is_decided

    stores = Stores(Authority(4, direction.target.other))
    stores.accidents["close"] = performance.takes(2.01)
    done = performance(stores, direction)

    assert not done.is_decided
    assert stores.row.is_open_for(direction.target.other)
    assert len(stores.opened) == (2 if direction is Direction.BACK else 0), "what was closed is open again"


def test_begin_and_end_are_written_down_with_why_and_what_was_forced(performance: Performance) -> None:
    done = performance(Stores(), Direction.FORWARD, "backfill", "diff")

    (begin, first), (end, last) = performance.audited
    assert (begin, end) == ("cutover.switch.begin", "cutover.switch.end")
    assert first == {"switch_id": done.switch_id, "why": "a test", "forced": ["backfill", "diff"]}
    assert last == {**first, "outcome": "decided", "pause_seconds": 0.0}


def test_who_cannot_write_down_that_he_begins_does_not_begin(
    performance: Performance, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores()
    monkeypatch.setattr(AuditLog, "add", raising(ControlUnavailable("It is down.")))

    with pytest.raises(ControlUnavailable):
        performance(stores)

    assert stores.row == FIRST


def test_what_cannot_be_written_down_at_the_end_is_done_all_the_same(
    performance: Performance, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores()

    def go_down() -> None:
        monkeypatch.setattr(AuditLog, "add", raising(ControlUnavailable("It is down.")))

    stores.accidents["decide"] = go_down

    assert performance(stores).is_decided


def test_the_phase_after_a_switch_is_live_whatever_it_was_before(performance: Performance) -> None:
    performance.flags.change(lambda flags: flags.with_phase(Phase.RAMPDOWN), "phase.set")

    performance(Stores())

    assert performance.flags.find().store_phase is Phase.LIVE


def test_after_the_way_back_a_relay_carries(performance: Performance) -> None:
    """A switch that was forced in phase off must not lead back to a phase without a mirror (I8)."""
    assert performance.flags.find() == Flags()

    performance(Stores(Authority(4, Backend.STORE)), Direction.BACK)

    assert performance.flags.find().legacy_phase is Phase.DUALWRITE


def test_i9_a_way_back_that_finds_the_migration_being_completed_is_undone(performance: Performance) -> None:
    stores = Stores(Authority(4, Backend.STORE))
    stores.accidents["unmirrored"] = lambda: performance.flags.change(
        lambda flags: flags.with_phase(Phase.COMPLETE), "cutover.phase"
    )

    done = performance(stores, Direction.BACK)

    assert not done.is_decided
    assert "being completed" in done.reason
    assert stores.row == Authority(6, Backend.STORE, switch_id=done.switch_id)
    assert stores.opened == [("a", 6), ("b", 6)]


def test_i9_a_way_back_that_cannot_read_the_flags_any_more_is_undone(
    performance: Performance, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores(Authority(4, Backend.STORE))
    stores.accidents["unmirrored"] = lambda: monkeypatch.setattr(
        FlagBook, "find", raising(ControlUnavailable("It is down."))
    )

    done = performance(stores, Direction.BACK)

    assert not done.is_decided
    assert stores.row.is_open_for(Backend.STORE)


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_arguments: object) -> None:
        raise error

    return fail
