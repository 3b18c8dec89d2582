"""What hand-overs cost writers: the pauses of services, and how long those took that were undone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.switch_actors import Attempt
from tests.chaos.switch_hand_overs import HandOvers
from tests.chaos.switch_rules import Evidence
from tripstore.backends.postgres.sqlstates import GATE_SHUT


class Pause(NamedTuple):
    """How long a service was not answered around a hand-over."""

    seconds: float
    begun: float
    attempt: Attempt


@dataclass(frozen=True)
class Figures:
    """Of one run, when it is over."""

    evidence: Evidence
    hands: HandOvers
    seconds: float
    #: What writers by SQL were told, by isolation and code.
    errors: Mapping[tuple[str, str], int]

    @cached_property
    def pauses(self) -> list[Pause]:
        """Of hand-overs without an accident, those that were undone as well, the shortest first."""
        return sorted(_pauses(self.evidence, self.hands.quiet))

    @cached_property
    def undone_seconds(self) -> list[float]:
        return _undone_seconds(self.evidence, self.hands.excused)

    @property
    def per_second(self) -> float:
        """Writes through the facade, accidents included."""
        return sum(1 for _ in self.evidence.acknowledged()) / self.seconds

    def pause_ms(self, share: float) -> float:
        """What this share of them stays below."""
        pauses = self.pauses
        return 1000 * pauses[min(int(share * len(pauses)), len(pauses) - 1)].seconds if pauses else 0.0

    @property
    def _longest(self) -> str:
        """What went on during the longest of them."""
        if not self.pauses:
            return "none"
        pause = max(self.pauses)
        attempt = pause.attempt
        steps = sorted(attempt.steps.items(), key=lambda step: -step[1])[:3]
        told = ", ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in steps)
        begun, ended = (1000 * (each - attempt.begun) for each in (pause.begun, pause.begun + pause.seconds))
        took = 1000 * (attempt.ended - attempt.begun)
        return f"the longest from {begun:.0f} to {ended:.0f} of a hand-over that took {took:.0f}: {told}"

    def line(self, engine: str) -> str:
        """As `make soak` keeps it."""
        evidence, hands, undone = self.evidence, self.hands, self.undone_seconds
        stored = sum(1 for _ in evidence.acknowledged())
        events = Counter(line.event for line in evidence.lines)
        refused = sum(count for (_isolation, what), count in self.errors.items() if what == GATE_SHUT)
        return (
            f"{engine}: {stored:,} writes in {self.seconds:.0f} s ({self.per_second:.0f}/s),"
            f" {len(evidence.witnesses):,} by SQL and {refused:,} refused;"
            f" {len(hands.quiet)} hand-overs without an accident, pause p50 {self.pause_ms(0.5):.0f} ms,"
            f" p99 {self.pause_ms(0.99):.0f} ms ({self._longest}); accidents {dict(hands.met)}; {len(undone)} undone"
            f" after {max(undone, default=0):.1f} s at most; {dict(events)}; {dict(hands.undone)}"
        )


def _pauses(evidence: Evidence, attempts: list[Attempt]) -> Iterator[Pause]:
    """For each service the longest time between two answers, from the last before a hand-over to the first after it.

    However late that is: between two hand-overs everybody who lives is answered. An error is no answer.
    """
    answered = defaultdict[int, list[float]](list)
    for line in evidence.lines:
        if line.event != "failed":
            answered[line.pid].append(line.ended)
    for attempt in attempts:
        for times in answered.values():
            last, first = bisect_left(times, attempt.begun) - 1, bisect_right(times, attempt.ended)
            if last >= 0 and times[-1] > attempt.begun:  # it had begun by then, and was alive
                assert first < len(times), "a service was never answered after a hand-over without an accident"
                near = times[last : first + 1]
                seconds, begun = max((later - earlier, earlier) for earlier, later in pairwise(near))
                yield Pause(seconds, begun, attempt)


def _undone_seconds(evidence: Evidence, excused: set[int]) -> list[float]:
    """How long each hand-over was closing that was undone then."""
    rows = evidence.rows
    return [
        (after.since - row.since).total_seconds()
        for row, after in (
            (row, rows.get(row.epoch + 1)) for row in rows.values() if not row.is_open and row.epoch not in excused
        )
        if after is not None and after.backend is row.backend and after.since is not None and row.since is not None
    ]
