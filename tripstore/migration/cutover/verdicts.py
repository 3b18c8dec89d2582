"""`GateVerdict`: what a gate says, and the words in which gates say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from tripstore.migration.cutover.facts import Facts, Unknown
from tripstore.thresholds import CutoverSettings

#: Fewer comparisons than this in a second are said by the hour.
_SLOW = 0.1
STATUS = "`tripstore status` and `tripstore doctor` say more."


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate says: what was found, what it wants, and how to get there."""

    name: str
    is_passed: bool
    said: str
    wanted: str
    hint: str = ""


class Trouble(NamedTuple):
    """What of a job's evidence is in the way of a gate, and what to do about it; neither: nothing is."""

    said: str = ""
    hint: str = ""

    def verdict(self, name: str, found: str, wanted: str) -> GateVerdict:
        """What the gate says: the trouble, else what was found."""
        return verdict_of(name, not self.said, self.said or found, wanted, self.hint)


GateCheck = Callable[[Facts, CutoverSettings], Iterator[GateVerdict]]


def refusals(verdicts: list[GateVerdict]) -> list[GateVerdict]:
    return [verdict for verdict in verdicts if not verdict.is_passed]


def verdict_of(name: str, is_passed: bool, said: str, wanted: str, hint: str = "") -> GateVerdict:
    return GateVerdict(name, is_passed, said, wanted, "" if is_passed else hint)


def unknown(name: str, fact: Unknown, wanted: str) -> GateVerdict:
    return GateVerdict(name, False, f"not known: {fact.reason}", wanted, fact.hint or STATUS)


def percent(rate: float) -> str:
    return f"{100 * rate:.4g} %"


def duration(count: int, per_second: float) -> str:
    """How long so many comparisons take, as it goes lately."""
    if per_second <= 0:
        return "none were made lately, so the time is unknown"
    rate = f"{per_second:.3g} a second" if per_second >= _SLOW else f"{3600 * per_second:.3g} an hour"
    return f"{timedelta(seconds=round(max(count, 0) / per_second))} at {rate}"


def moment(at: datetime) -> str:
    return str(at)[:19]


def first_unknown(name: str, wanted: str, *facts: object) -> GateVerdict | None:
    """The verdict where one of the facts is not known."""
    return next((unknown(name, fact, wanted) for fact in facts if isinstance(fact, Unknown)), None)
