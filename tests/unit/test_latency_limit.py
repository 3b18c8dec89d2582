"""The limit on a probe's latency: a job goes slowly while the probe is slow, recovers, and ignores no trouble."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pytest

from schemaless_core.errors import InvalidRequest, NodeUnavailable
from tests.unit.clock import FakeClock
from tests.unit.throttles import waited
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.latency_limit import GROWTH, LatencyLimit, LatencyWatch
from tripstore.engines.backfill.throttle import SHARE_MIN, Leave, Limit

MOST, DEADLINE = 0.05, 1.0
QUICK, SLOW = 0.01, 0.06


class Heard(LatencyWatch):
    """A watch that hears what a test says, without a thread."""

    def __init__(self, *found: float | Exception) -> None:
        self.found = deque[float | Exception](found)
        self.is_closed = False

    def begin(self) -> None:
        pass

    def heard(self) -> Iterator[float | Exception]:
        while self.found:
            yield self.found.popleft()

    def close(self) -> None:
        self.is_closed = True


class Probe:
    """Answers as a test says, once it is let; counts its answers."""

    def __init__(self, *answers: float | Exception) -> None:
        self._answers = deque(answers)
        self.measured = 0
        self.closed = 0
        self.has_measured = threading.Event()

    def measure(self) -> float:
        self.measured += 1
        answer = self._answers.popleft() if self._answers else QUICK
        if not self._answers:
            self.has_measured.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1


def limit_of(*found: float | Exception) -> tuple[LatencyLimit, Heard, FakeClock]:
    clock, watch = FakeClock(), Heard(*found)
    return LatencyLimit(MOST, DEADLINE, watch, clock=clock), watch, clock


def test_nothing_begins_before_the_first_probe() -> None:
    limit, watch, _clock = limit_of()
    pause = limit.pause()
    assert pause is not None
    assert (pause.limit, pause.reason) == (None, "the probe is waited for")

    watch.found.append(QUICK)
    assert limit.pause() is None
    assert limit.leave == Leave()


def test_a_slow_probe_halves_what_is_done_and_quick_ones_let_it_grow_again() -> None:
    limit, watch, _clock = limit_of(SLOW)
    limit.pause()
    assert limit.leave == Leave(0.5, "the probe took 60 ms, the limit is 50 ms", Limit.PROBE)

    watch.found.append(QUICK)
    limit.pause()
    assert limit.leave.share == pytest.approx(0.5 * GROWTH)
    assert limit.leave.reason == "the probe takes 10 ms again, the limit is 50 ms; 75 % of the time is used"
    watch.found.append(QUICK)
    limit.pause()
    assert limit.leave == Leave()


def test_one_that_is_very_slow_leaves_little_at_once() -> None:
    limit, _watch, _clock = limit_of(10 * MOST)
    limit.pause()
    assert limit.leave.share == pytest.approx(0.1)


def test_one_that_has_no_answer_in_its_time_leaves_a_trickle_at_once() -> None:
    limit, _watch, clock = limit_of(DEADLINE)
    limit.pause()
    assert limit.leave == Leave(SHARE_MIN, "the probe had no answer within 1000 ms, the limit is 50 ms", Limit.PROBE)

    limit.copied(100, 0.1)
    assert waited(limit, clock) == pytest.approx(0.1 / SHARE_MIN, rel=0.05)


def test_a_chunk_waits_as_its_share_asks_for_and_no_longer_when_the_probe_is_quick() -> None:
    limit, watch, clock = limit_of(1.0)
    limit.pause()
    limit.copied(100, 1.0)
    clock.advance(1)
    assert limit.pause() is not None

    watch.found.extend([QUICK] * 12)
    assert waited(limit, clock) == 0


def test_a_probe_that_cannot_be_run_now_is_waited_for_and_one_that_never_can_stops_the_job() -> None:
    """I12 for throttles: unknown is not fine."""
    limit, watch, _clock = limit_of(NodeUnavailable("a", "it starts up"))
    pause = limit.pause()
    assert pause is not None
    assert "the probe's latency is unknown" in pause.reason
    assert "it starts up" in pause.reason
    watch.found.append(QUICK)
    assert limit.pause() is None

    watch.found.append(InvalidRequest("The probe is refused: there is no table trips."))
    with pytest.raises(CannotCopy, match="no table trips") as stopped:
        limit.pause()
    assert stopped.value.hint is not None
    assert "--max-probe-seconds 0" in stopped.value.hint
    watch.found.append(ZeroDivisionError("a bug"))
    with pytest.raises(CannotCopy, match="ZeroDivisionError: a bug"):
        limit.pause()


def test_the_watch_measures_while_nothing_asks_and_ends_when_it_is_closed() -> None:
    trouble = NodeUnavailable("a", "down")
    probe = Probe(QUICK, trouble, SLOW)
    watch = LatencyWatch(probe, every_seconds=0.001)
    watch.begin()
    watch.begin()
    assert probe.has_measured.wait(20)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("probe") == 1

    heard = list[float | Exception]()
    while len(heard) < 3:
        heard += list(watch.heard())
    assert heard[:3] == [QUICK, trouble, SLOW]
    watch.close()
    watch.close()
    measured = probe.measured
    assert probe.closed == 1
    assert "probe" not in [thread.name for thread in threading.enumerate()]

    watch.begin()
    while probe.measured == measured:
        threading.Event().wait(0.001)
    watch.close()
    assert probe.closed == 2


def test_a_limit_that_is_closed_begins_with_a_look() -> None:
    limit, watch, _clock = limit_of(QUICK)
    assert limit.pause() is None
    limit.close()
    assert watch.is_closed
    assert limit.pause() is not None
