"""Shadow reads: sampled, asked of the other store, rechecked, judged; never in the caller's way (I10, I12)."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from prometheus_client import REGISTRY

from schemaless_core import Cell, MemoryStore
from schemaless_core.errors import Unavailable
from tests.chaos.actors import wait_until
from tripstore.engines.validation.compare import compare
from tripstore.engines.validation.ignores import Ignore
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.recheck import FIRST_PAUSE_SECONDS, TRIES, Recheck
from tripstore.engines.validation.shadow.sampling import SamplingSettings
from tripstore.engines.validation.shadow.shadow import (
    CLOSE_SECONDS,
    GATHER_SECONDS,
    JUDGE_SECONDS,
    WORTH_A_ROUND,
    Shadow,
    ShadowSettings,
)
from tripstore.engines.validation.verdicts import Outcome, Reason, Tally, Verdict
from tripstore.engines.validation.waiting import Waiting

ROW = UUID(int=7)
#: Of one that never rests; and so many of them are late beyond doubt when each waits for the one before.
PAUSES_SECONDS = sum(FIRST_PAUSE_SECONDS * 2**n for n in range(1, TRIES))
SUSPECTS = 4
ALL = SamplingSettings(share=1, per_second=float("inf"))


class Arrived:
    """A mirror that has everything."""

    def arriving(self, read: Read) -> Waiting[bool]:
        yield from ()
        return True


class Incomplete(Exception):
    """A store that knows that it cannot know."""


class Odd(MemoryStore):
    """A store whose latest cell comes out of a function."""

    def __init__(self, answer: Callable[[], Cell | None]) -> None:
        super().__init__()
        self.answer = answer

    def using(self, **_habits: Any) -> Odd:
        return self

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return self.answer()


def latest(row_key: UUID = ROW) -> Read:
    return Read("get_cell_latest", {"row_key": row_key, "column_name": "BASE"}, (row_key,))


def cell(ref_key: int = 1, body: Any = None) -> Cell:
    return Cell(ROW, "BASE", ref_key, body or {"fare": 1})


def raising(error: Exception) -> Cell | None:
    raise error


@pytest.fixture
def made() -> Iterator[Callable[..., tuple[Shadow, Tally]]]:
    shadows: list[Shadow] = []

    def make(pending: Any = None, **settings: Any) -> tuple[Shadow, Tally]:
        tally = Tally()
        wanted = ShadowSettings(sampling=ALL, **settings)
        shadows.append(Shadow(wanted, pending or Arrived(), tally, (Incomplete,)))
        return shadows[-1], tally

    yield make
    for shadow in shadows:
        shadow.close()


def outcomes(tally: Tally) -> dict[tuple[str, str], int]:
    return {(str(outcome), label): count for (_name, outcome, label), count in tally.counts().items()}


CASES: list[tuple[str, Callable[[], Cell | None], Callable[[], Cell | None], tuple[str, str]]] = [
    ("equal", cell, cell, ("equal", "")),
    ("missing", cell, lambda: None, ("mismatch", "missing")),
    ("extra", lambda: None, cell, ("mismatch", "extra")),
    ("corrupted", cell, lambda: cell(body={"fare": 2}), ("mismatch", "field")),
    ("unavailable", cell, lambda: raising(Unavailable("gone")), ("mismatch", "error")),
    ("torn", cell, lambda: raising(msgspec.DecodeError("cut off")), ("mismatch", "field")),
    ("torn, and nothing there", lambda: None, lambda: raising(msgspec.DecodeError("cut off")), ("mismatch", "field")),
    ("cut history", cell, lambda: raising(Incomplete()), ("not_compared", "incomparable")),
]


@pytest.mark.parametrize(("name", "authority", "other", "expected"), CASES, ids=[case[0] for case in CASES])
def test_every_read_has_one_verdict(
    made: Callable[..., tuple[Shadow, Tally]],
    caplog: pytest.LogCaptureFixture,
    name: str,
    authority: Callable[[], Cell | None],
    other: Callable[[], Cell | None],
    expected: tuple[str, str],
) -> None:
    shadow, tally = made()
    first, second = Odd(authority), Odd(other)
    shadow.offer(latest(), authority(), first, second)
    assert shadow.drain(10)

    assert outcomes(tally) == {expected: 1}
    assert [m.verdict.read for m in tally.mismatches()] == ([latest()] if expected[0] == "mismatch" else [])
    said = "a shadow read failed" if expected[1] == "error" else "a shadow read differs"
    assert [record.message for record in caplog.records] == ([said] if expected[0] == "mismatch" else [])


def asked_of(asked: list[tuple[str, float]]) -> Odd:
    """A store that notes who asks it, and when."""

    def answer() -> Cell | None:
        asked.append((threading.current_thread().name, time.monotonic()))
        return cell()

    return Odd(answer)


def test_few_reads_wait_for_each_other_and_are_compared_in_one_round(
    made: Callable[..., tuple[Shadow, Tally]],
) -> None:
    asked: list[tuple[str, float]] = []
    shadow, _tally = made()
    begun = time.monotonic()

    for _ in range(3):
        shadow.offer(latest(), cell(), Odd(cell), asked_of(asked))

    wait_until("all are compared", lambda: len(asked) == 3)
    assert asked[0][1] - begun >= GATHER_SECONDS
    assert len({name for name, _at in asked}) == 1


def test_as_many_as_are_worth_a_round_wait_for_nothing(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.GATHER_SECONDS", 3600.0)
    asked: list[tuple[str, float]] = []
    shadow, _tally = made(age_seconds_max=86_400.0)

    for _ in range(2 * WORTH_A_ROUND):
        shadow.offer(latest(), cell(), Odd(cell), asked_of(asked))

    wait_until("a round is compared", lambda: len(asked) >= WORTH_A_ROUND)


@pytest.mark.parametrize("settings", [{"queue_max": 2, "age_seconds_max": 86_400.0}, {"age_seconds_max": 0.2}])
def test_whatever_may_be_configured_is_compared(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A short queue is not waited at until it is full, nor are samples until they are too old."""
    monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.GATHER_SECONDS", 3600.0)
    shadow, tally = made(**settings)

    for _ in range(2):
        shadow.offer(latest(), cell(), Odd(cell), Odd(cell))

    wait_until("both are compared", lambda: outcomes(tally) == {("equal", ""): 2})


def test_a_waiting_caller_is_told_until_none_waits(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    shadow, _tally = made()
    shadow.offer(latest(), cell(), Odd(cell), Odd(lambda: None))
    assert shadow.drain(10)

    wait_until("nothing waits", lambda: REGISTRY.get_sample_value("tripstore_shadow_waiting") == 0)


def test_what_is_slower_than_the_deadline_is_a_timeout(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    shadow, tally = made(deadline_seconds=0.05)

    def slow() -> Cell | None:
        time.sleep(0.06)  # the very thing that is tested
        raise Unavailable("no answer in time")

    shadow.offer(latest(), cell(), Odd(cell), Odd(slow))
    assert shadow.drain(10)
    assert outcomes(tally) == {("mismatch", "timeout"): 1}


def test_a_write_between_the_two_reads_is_no_mismatch(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    """The authority went on after it had answered; the mirror has it already."""
    shadow, tally = made()
    shadow.offer(latest(), cell(1), Odd(lambda: cell(2)), Odd(lambda: cell(2)))
    assert shadow.drain(10)
    assert outcomes(tally) == {("in_flight", ""): 1}


def test_control_without_a_recheck_healthy_traffic_has_mismatches(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(_self: Recheck, read: Read, *_asked: Any) -> Waiting[Verdict]:
        yield from ()
        return Verdict(read, Outcome.MISMATCH, compare(read.operation, cell(1), cell(2)))

    monkeypatch.setattr(Recheck, "hear", hasty)
    shadow, tally = made()
    shadow.offer(latest(), cell(1), Odd(lambda: cell(2)), Odd(lambda: cell(2)))
    assert shadow.drain(10)
    assert outcomes(tally) == {("mismatch", "field"): 1}


def test_a_recheck_waits_for_the_mirror() -> None:
    arrivals = iter([False, False, True])

    class Lagging:
        def arriving(self, read: Read) -> Waiting[bool]:
            yield from ()
            return next(arrivals)

    pauses: list[float] = []
    recheck = Recheck(Lagging(), 1, pause=pauses.append)
    verdict = recheck.verdict(latest(), Odd(cell), Odd(cell))

    assert verdict.outcome is Outcome.IN_FLIGHT
    assert len(pauses) == 2
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("together", [False, True], ids=["control", "together"])
def test_suspects_wait_for_a_late_mirror_together(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """While nothing arrives each takes as long as its pauses are, and all of them hardly longer."""
    if not together:
        monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.SUSPECTS_MAX", 1)

    class Late:
        def arriving(self, read: Read) -> Waiting[bool]:
            yield from ()
            return False

    shadow, tally = made(Late())
    begun = time.monotonic()
    for _ in range(SUSPECTS):
        shadow.offer(latest(), cell(1), Odd(lambda: cell(2)), Odd(lambda: cell(2)))
    assert shadow.drain(60)
    seconds = time.monotonic() - begun

    assert outcomes(tally) == {("not_compared", "busy"): SUSPECTS}
    assert (seconds > SUSPECTS * PAUSES_SECONDS) is not together, seconds


def test_what_the_authority_took_after_the_look_at_the_mirror_is_no_mismatch() -> None:
    """Everything had arrived; then a service commits, and the relay has not come round yet."""
    authority, mirror = [cell(1)], [cell(1)]

    class Arriving:
        def arriving(self, read: Read) -> Waiting[bool]:
            yield from ()
            arrived = authority[0] == mirror[0]
            if arrived:
                authority[0] = cell(2)
            else:
                mirror[0] = authority[0]
            return arrived

    recheck = Recheck(Arriving(), 1, pause=lambda _seconds: None)
    verdict = recheck.verdict(latest(), Odd(lambda: authority[0]), Odd(lambda: mirror[0]))
    assert verdict.outcome is not Outcome.MISMATCH


@pytest.mark.parametrize("mirror", [(2, 1), (2, 2)])
def test_a_row_that_came_and_went_again_is_no_mismatch(mirror: tuple[int, int]) -> None:
    """The authority's two answers agree, and only the mirror was asked in between; what stays is a mismatch."""
    answers = iter(mirror)
    recheck = Recheck(Arrived(), 1, pause=lambda _seconds: None)
    verdict = recheck.verdict(latest(), Odd(cell), Odd(lambda: cell(next(answers))))

    assert verdict.outcome is (Outcome.IN_FLIGHT if mirror[-1] == 1 else Outcome.MISMATCH)
    assert next(answers, None) is None


def test_a_row_that_never_rests_is_not_compared() -> None:
    numbers = iter(range(1, 1000))
    recheck = Recheck(Arrived(), 1, pause=lambda _seconds: None)
    verdict = recheck.verdict(latest(), Odd(lambda: cell(next(numbers))), Odd(lambda: cell(1)))

    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_COMPARED, Reason.BUSY)
    assert next(numbers) == 2 * TRIES + 1


def test_an_authority_that_fails_in_the_recheck_is_no_mismatch() -> None:
    recheck = Recheck(Arrived(), 1, pause=lambda _seconds: None)
    verdict = recheck.verdict(latest(), Odd(lambda: raising(Unavailable("gone"))), Odd(cell))
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_COMPARED, Reason.AUTHORITY_FAILED)


def test_a_dead_mirror_costs_a_breaker_and_never_the_caller(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    """I10: offering is immediate while the other store does not answer at all; what has no room is counted (I12)."""
    release = threading.Event()

    def stuck() -> Cell | None:
        release.wait(30)
        raise Unavailable("stopped")

    shadow, tally = made(queue_max=5, threads=1)
    slowest = 0.0
    for _ in range(200):
        begun = time.perf_counter()
        shadow.offer(latest(), cell(), Odd(cell), Odd(stuck))
        slowest = max(slowest, time.perf_counter() - begun)
    release.set()
    assert shadow.drain(20)

    counts = Counter({label: count for (_outcome, label), count in outcomes(tally).items()})
    assert sum(counts.values()) == 200
    assert counts["queue_full"] >= 190  # five wait, and the thread holds a round of five at most
    assert slowest < 0.5, f"the slowest offer took {slowest:.3f} s"


def test_a_breaker_ends_the_questions(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    asked = []

    def dead() -> Cell | None:
        asked.append(1)
        raise Unavailable("dead")

    shadow, tally = made(threads=1)
    for _ in range(100):
        shadow.offer(latest(), cell(), Odd(cell), Odd(dead))
    assert shadow.drain(10)
    assert len(asked) < 20
    assert outcomes(tally)["not_compared", "breaker_open"] == 100 - len(asked)


def test_an_explained_difference_is_counted_as_that(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    rule = Ignore("rounded", "ada", date(2999, 1, 1), path="fare")
    shadow, tally = made(ignores=[rule])
    shadow.offer(latest(), cell(), Odd(cell), Odd(lambda: cell(body={"fare": 2})))
    shadow.offer(latest(), cell(), Odd(cell), Odd(lambda: None))
    assert shadow.drain(10)

    assert outcomes(tally) == {("ignored", "2999-01-01"): 1, ("mismatch", "missing"): 1}
    assert tally.ignored() == {rule: 1}


def test_a_fault_of_ours_is_not_called_equal(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    shadow, tally = made()
    shadow.offer(latest(), cell(), Odd(cell), Odd(lambda: raising(ZeroDivisionError())))
    shadow.offer(latest(), cell(), Odd(cell), Odd(cell))
    assert shadow.drain(10)
    assert outcomes(tally) == {("not_compared", "broken"): 1, ("equal", ""): 1}


def test_what_waits_when_the_process_ends_was_not_compared(made: Callable[..., tuple[Shadow, Tally]]) -> None:
    release = threading.Event()

    def stuck() -> Cell | None:
        release.wait(30)
        return cell()

    shadow, tally = made(threads=1)
    for _ in range(5):
        shadow.offer(latest(), cell(), Odd(cell), Odd(stuck))
    release.set()
    shadow.close()
    assert shadow.drain(10)
    assert sum(outcomes(tally).values()) == 5


def test_i12_what_was_offered_before_the_end_is_judged_and_not_let_go(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lives for a moment leaves evidence. Control: without the time to judge it leaves none."""
    for seconds, expected in ((JUDGE_SECONDS, {("equal", ""): 4, ("mismatch", "field"): 4}), (0.0, None)):
        monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.JUDGE_SECONDS", seconds)
        shadow, tally = made()
        for n in range(8):
            shadow.offer(latest(), cell(), Odd(cell), Odd(partial(cell, body={"fare": 1 + n % 2})))
        shadow.close()
        found = outcomes(tally)
        assert sum(found.values()) == 8
        assert (found == expected) if expected else ("not_compared", "closed") in found


def test_i12_suspects_whose_store_does_not_answer_until_the_end_are_counted_once(
    made: Callable[..., tuple[Shadow, Tally]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that hears them is at a question when the process ends, and comes back to it later."""
    monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.JUDGE_SECONDS", 0.2)
    monkeypatch.setattr("tripstore.engines.validation.shadow.shadow.CLOSE_SECONDS", 0.1)
    asked, release = threading.Event(), threading.Event()

    def stuck() -> Cell | None:
        asked.set()
        release.wait(30)
        return cell()

    shadow, tally = made()
    for _ in range(6):  # suspects: the mirror differs, and the authority is asked then
        shadow.offer(latest(), cell(), Odd(stuck), Odd(lambda: None))
    assert asked.wait(10)

    shadow.close()

    assert outcomes(tally) == {("not_compared", "closed"): 6}
    release.set()
    for thread in shadow._threads:
        thread.join(10)
    assert outcomes(tally) == {("not_compared", "closed"): 6}


def test_a_new_shadow_keeps_what_was_counted() -> None:
    tally = Tally()
    tally.record(Verdict(latest(), Outcome.EQUAL))
    Shadow(ShadowSettings(), Arrived(), tally).close()
    assert tally.total() == 1


def test_children_of_one_process_take_reads_of_their_own() -> None:
    """Those that end before the read that their parent would have taken would take none, ever."""
    sampling = SamplingSettings(share=0.1, per_second=float("inf"), least_per_second=0)
    shadow = Shadow(ShadowSettings(sampling=sampling), Arrived(), Tally())

    def first_taken() -> int:
        """By a child; it says so as it ends."""
        child = os.fork()
        if child == 0:
            try:
                shadow.after_fork()
                os._exit(next(n for n in range(255) if shadow.takes("get_cell")))
            finally:  # it must not run the tests of its parent
                os._exit(255)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert len({first_taken() for _child in range(12)}) > 2  # a fork of this process takes its time


def test_each_index_is_an_operation_of_its_own() -> None:
    read = Read("query_index", {"index": "driver_partner_index", "shard_value": str(uuid4())})
    assert read.name == "query_index:driver_partner_index"


def test_closing_waits_for_no_thread_that_has_nothing_to_do() -> None:
    shadow = Shadow(ShadowSettings(sampling=ALL, threads=4), Arrived(), Tally())
    store = MemoryStore()
    shadow.offer(latest(), None, store, store)
    assert shadow.drain(30)
    before = time.monotonic()

    shadow.close()

    assert time.monotonic() - before < CLOSE_SECONDS / 2
    assert not any(thread.is_alive() for thread in shadow._threads)
