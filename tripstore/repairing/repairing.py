"""`Repairing`: targets are looked at, put right, and looked at again, until they are equal or a person must decide.

Safe to repeat, to race and to kill at any line: every step begins with a look, and changes only what it saw. What is
counted is what the last look found.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from schemaless_core.cell import CellKey
from schemaless_core.control.job_commands import job_command
from schemaless_core.errors import Conflict, Invalid, SchemalessError, StaleEpoch
from schemaless_core.failpoints import reach
from tripstore import metrics
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Authority, Backend
from tripstore.repairing.sides import Pair, Sides, TableBusy
from tripstore.repairing.targets import Target
from validation.repair import Action, Held, Step, Version, plan_latest, plan_older

logger = logging.getLogger(__name__)

#: Looks at a target, the last of which only sees what became of it.
ROUNDS = 8
FIRST_PAUSE_SECONDS = 0.01
#: Times that it is begun anew because the authority row moved.
TRIES = 5
#: Targets that are looked at together.
TARGETS_PER_LOOK = 2000


class AuthorityMoved(TripstoreError):
    """The mirror that was to be repaired is the authority by now, or is about to be."""


class Seen(NamedTuple):
    """What is to be done about a target, and what was seen of it."""

    target: Target
    step: Step
    ours: Version
    theirs: Held | None


class Outcome(NamedTuple):
    """How a target stands after its repair."""

    target: Target
    #: NOTHING: it is equal. LEAVE: a person must decide. Anything else: it never rested.
    last: Step
    done: tuple[Action, ...]
    #: What a store said that would not have it, or was busy.
    refusal: SchemalessError | None = None

    @property
    def is_equal(self) -> bool:
        return self.last.action is Action.NOTHING

    @property
    def is_left(self) -> bool:
        """Whether a person must decide; else it never rested, or its table did not."""
        is_refused = self.refusal is not None and not isinstance(self.refusal, TableBusy)
        return self.last.action is Action.LEAVE or is_refused


class Repairing:
    """One process, at one epoch of the authority."""

    def __init__(
        self,
        authority: Callable[[], Authority],
        sides_at: Callable[[Authority], Sides],
        wanted: Backend,
        job: str = "",
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._authority = authority
        self._sides_at = sides_at
        #: Who was the authority when the repair was planned.
        self._wanted = wanted
        #: "": nothing was begun yet.
        self._job = job
        self._sleep = sleep

    def plan(self, targets: Sequence[Target]) -> list[Seen]:
        """Say of each target what would be done. Changes nothing."""
        _row, sides = self._sides()
        found: list[Seen] = []
        for first in range(0, len(targets), TARGETS_PER_LOOK):
            found += _look(sides, targets[first : first + TARGETS_PER_LOOK])
        return found

    def check(self) -> None:
        """Raise `AuthorityMoved` unless the mirror is still the one that this repair is for."""
        self._sides()

    def repair(self, targets: Sequence[Target]) -> list[Outcome]:
        """Put targets right; one outcome for each, in order. It counts only at one epoch of the authority."""
        for n in range(TRIES):
            if n:
                self._sleep(FIRST_PAUSE_SECONDS * 2**n)
            row, sides = self._sides()
            try:
                outcomes = self._repaired(sides, targets)
            except StaleEpoch:
                continue  # the row says whether it is to be done again
            if self._authority() == row:
                return outcomes
        raise self._moved(row)

    def _repaired(self, sides: Sides, targets: Sequence[Target]) -> list[Outcome]:
        done: dict[Target, list[Action]] = {target: [] for target in targets}
        refused: dict[Target, SchemalessError] = {}
        last: dict[Target, Step] = {}
        waiting = list(targets)
        for n in range(ROUNDS):
            if n > 1:
                self._sleep(FIRST_PAUSE_SECONDS * 2**n)
            seen = _look(sides, waiting)
            last.update({each.target: each.step for each in seen})
            reach("repair.looked")
            todo = [each for each in seen if each.step.action not in (Action.NOTHING, Action.LEAVE)]
            if not todo or n == ROUNDS - 1:
                break
            lifted = {target for target, actions in done.items() if Action.LIFT in actions}
            for each, error in _act(sides, todo, lifted):
                refused.pop(each.target, None)
                if error is None:
                    done[each.target].append(each.step.action)
                else:
                    refused[each.target] = error
            waiting = [each.target for each in todo]
        sides.settle([target.column for target in targets])
        reach("repair.settled")
        return [_outcome(target, last[target], done[target], refused.get(target)) for target in targets]

    def _sides(self) -> tuple[Authority, Sides]:
        row = self._authority()
        if not row.is_open_for(self._wanted):
            raise self._moved(row)
        return row, self._sides_at(row)

    def _moved(self, row: Authority) -> AuthorityMoved:
        what = "is the authority" if row.is_open else "is being handed over"
        return AuthorityMoved(
            f"{row.backend.value} {what} at epoch {row.epoch}: the mirror that this repair is for is none now.",
            hint=self._hint(),
        )

    def _hint(self) -> str:
        anew = f"`{job_command('diff', 'start')}` compares again; then repair what that finds."
        if not self._job:
            return anew
        cancel = f"`{job_command('repair', 'cancel', self._job)}` gives it up."
        return f"{cancel} {anew} Or resume it when {self._wanted.value} is the authority again."


def _look(sides: Sides, targets: Sequence[Target]) -> list[Seen]:
    """The mirror first: what it holds rightly the authority then knows."""
    latest = [target for target in targets if target.older is None]
    rows = [target.row for target in latest]
    theirs = sides.theirs(rows)
    reach("repair.mirror_read")
    ours = sides.ours(rows)
    pairs = [Pair(target.column, own, other) for target, own, other in zip(latest, ours, theirs, strict=True)]
    seen = [
        *_seen_latest(sides, latest, pairs),
        *_seen_older(sides, [each for each in targets if each.older is not None]),
    ]
    found = {each.target: each for each in seen}
    return [found[target] for target in targets]


def _seen_latest(sides: Sides, targets: Sequence[Target], pairs: Sequence[Pair]) -> list[Seen]:
    # Of a version below the authority's latest it is not asked: that one is put, whatever stands below.
    asked = {
        pair: CellKey(*pair.column, pair.theirs.ref_key)
        for pair in pairs
        if pair.theirs is not None and not (isinstance(pair.ours, Held) and pair.theirs.ref_key <= pair.ours.ref_key)
    }
    at = dict(zip(asked, sides.ours_at(list(asked.values())), strict=True))
    return [
        Seen(target, plan_latest(*pair, at.get(pair), powers), pair.ours, pair.theirs)
        for target, pair, powers in zip(targets, pairs, sides.powers(pairs), strict=True)
    ]


def _seen_older(sides: Sides, targets: Sequence[Target]) -> list[Seen]:
    keys = [target.key for target in targets]
    theirs = sides.theirs_at(keys)
    ours = sides.ours_at(keys)
    pairs = [Pair(target.column, own, other) for target, own, other in zip(targets, ours, theirs, strict=True)]
    return [
        Seen(target, plan_older(target.key, pair.ours, pair.theirs, powers), pair.ours, pair.theirs)
        for target, pair, powers in zip(targets, pairs, sides.powers(pairs), strict=True)
    ]


def _act(sides: Sides, todo: Sequence[Seen], lifted: Collection[Target]) -> list[tuple[Seen, SchemalessError | None]]:
    """Do the steps. What was lifted is new: it never stood in a hole of the log."""
    puts = [each for each in todo if each.step.action is Action.PUT]
    lost = [each for each in puts if each.target not in lifted]
    new = [each for each in puts if each.target in lifted]
    outcomes = [
        *zip(lost, sides.put([each.step for each in lost]), strict=True),
        *zip(new, sides.put_new([each.step for each in new]), strict=True),
    ]
    gone = [each for each in todo if each.step.action is Action.BURY]
    outcomes += zip(gone, _buried(sides, gone), strict=True)
    torn = [each for each in todo if each.step.action is Action.MEND]
    outcomes += zip(torn, sides.mend([each.step for each in torn]) if torn else [], strict=True)
    outcomes += _purged(sides, [each for each in todo if each.step.action is Action.PURGE])
    outcomes += _lifted(sides, [each for each in todo if each.step.action is Action.LIFT])
    _tell([each for each, error in outcomes if error is None])
    for _each, error in outcomes:
        if error is not None and not isinstance(error, Conflict | Invalid):
            raise error  # a server that does not answer, or refuses: says nothing of the cell
    return outcomes


def _buried(sides: Sides, gone: Sequence[Seen]) -> list[SchemalessError | None]:
    if not gone:
        return []
    reach("repair.before_bury")
    return sides.bury([(each.step, each.theirs) for each in gone if each.theirs is not None])


def _lifted(sides: Sides, seen: Sequence[Seen]) -> list[tuple[Seen, SchemalessError | None]]:
    lifts = [(each.step, each.ours) for each in seen if isinstance(each.ours, Held)]
    assert len(lifts) == len(seen)
    if not lifts:
        return []
    reach("repair.before_lift")
    return list(zip(seen, sides.lift(lifts), strict=True))


def _purged(sides: Sides, seen: Sequence[Seen]) -> list[tuple[Seen, SchemalessError | None]]:
    extra = [(each.step, each.theirs) for each in seen if each.theirs is not None]
    assert len(extra) == len(seen)
    return list(zip(seen, sides.purge(extra), strict=True)) if extra else []


def _tell(done: Sequence[Seen]) -> None:
    """Count what was done. Each cell has a line of its own, where lines are wanted."""
    for action, count in Counter(each.step.action for each in done).items():
        metrics.cells_repaired(action.value, count)
    if not logger.isEnabledFor(logging.INFO):
        return
    for each in done:
        key = each.step.key
        extra = {
            "event": "repair.step_done",
            "action": each.step.action.value,
            "row_key": str(key.row_key),
            "column": key.column_name,
            "ref_key": key.ref_key,
        }
        logger.info("a cell was repaired", extra=extra)


def _outcome(target: Target, last: Step, done: Sequence[Action], refusal: SchemalessError | None) -> Outcome:
    return Outcome(target, last, tuple(done), None if last.action is Action.NOTHING else refusal)


def counted(outcomes: Sequence[Outcome]) -> Counter[str]:
    """What the last look found: equal, left to a person, or not to be said of what never rested (I12)."""
    counts = Counter[str](rows=len(outcomes))
    for each in outcomes:
        if each.is_equal:
            counts["equal"] += 1
        elif each.is_left:
            counts["left"] += 1
        else:
            counts["not_compared"] += 1
    return counts
