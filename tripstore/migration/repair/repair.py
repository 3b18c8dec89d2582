"""`Repairing`: targets are looked at, put right, and looked at again, until they are equal or a person must decide.

Safe to repeat, to race and to kill at any line: every step begins with a look, and changes only what it saw. What is
counted is what the last look found.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from schemaless_core.cell.cell import CellKey
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.errors import Conflict, Invalid, SchemalessError, StaleEpoch
from schemaless_core.failpoints import reach
from schemaless_core.process.collecting import uncollected
from tripstore import metrics
from tripstore.engines.validation.repair import (
    Action,
    HeldVersion,
    RepairStep,
    Version,
    equal_latest,
    plan_latest,
    plan_older,
)
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.repair.sides import GaveWay, Pair, Sides
from tripstore.migration.repair.targets import Target

logger = logging.getLogger(__name__)

#: Looks at a target, the last of which only sees what became of it.
ROUNDS = 8
FIRST_PAUSE_SECONDS = 0.01
#: Times that it is begun anew because the authority row moved.
TRIES = 5
#: Targets that are looked at together.
TARGETS_PER_LOOK = 2000
#: With which there is nothing to do about a target.
_AT_REST = (Action.NOTHING, Action.LEAVE)


class AuthorityMoved(TripstoreError):
    """The mirror that was to be repaired is the authority by now, or is about to be."""


class SeenTarget(NamedTuple):
    """What is to be done about a target, and what was seen of it."""

    target: Target
    step: RepairStep
    ours: Version
    theirs: HeldVersion | None


class Acted(NamedTuple):
    """What was done about a target in one round, and why not more."""

    done: tuple[Action, ...]
    refusal: SchemalessError | None = None


Act = Callable[[Sequence[SeenTarget]], list[Acted]]


class TargetOutcome(NamedTuple):
    """How a target stands after its repair."""

    target: Target
    #: NOTHING: it is equal. LEAVE: a person must decide. Anything else: it never rested.
    last: RepairStep
    done: tuple[Action, ...]
    #: What a store said that would not have it, or was busy.
    refusal: SchemalessError | None = None

    @property
    def is_equal(self) -> bool:
        return self.last.action is Action.NOTHING

    @property
    def is_left(self) -> bool:
        """Whether a person must decide; else it never rested, or its table did not."""
        is_refused = self.refusal is not None and not isinstance(self.refusal, GaveWay)
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
        #: Which backend was the authority when the repair was planned.
        self._wanted = wanted
        #: "": nothing was begun yet.
        self._job = job
        self._sleep = sleep

    def plan(self, targets: Sequence[Target]) -> list[SeenTarget]:
        """Say of each target what would be done. Changes nothing."""
        _row, sides = self._sides()
        found: list[SeenTarget] = []
        for first in range(0, len(targets), TARGETS_PER_LOOK):
            found += _look(sides, targets[first : first + TARGETS_PER_LOOK])
        return found

    def check(self) -> None:
        """Raise `AuthorityMoved` unless the mirror is still the one that this repair is for."""
        self._sides()

    def repair(self, targets: Sequence[Target]) -> list[TargetOutcome]:
        """Put targets right; one outcome for each, in order. It counts only at one epoch of the authority."""
        for n in range(TRIES):
            if n:
                self._sleep(FIRST_PAUSE_SECONDS * 2**n)
            row, sides = self._sides()
            try:
                with uncollected():
                    outcomes = self._repaired(sides, targets)
            except StaleEpoch:
                continue  # the row says whether it is to be done again
            if self._authority() == row:
                return outcomes
        raise self._moved(row)

    def _repaired(self, sides: Sides, targets: Sequence[Target]) -> list[TargetOutcome]:
        done = [list[Action]() for _ in targets]
        refused: list[SchemalessError | None] = [None] * len(targets)
        last: list[RepairStep | None] = [None] * len(targets)
        #: Positions of targets that are not equal yet.
        waiting = list(range(len(targets)))
        for n in range(ROUNDS):
            if n > 1:
                self._sleep(FIRST_PAUSE_SECONDS * 2**n)
            seen = dict(zip(waiting, _look(sides, [targets[at] for at in waiting]), strict=True))
            for at, each in seen.items():
                last[at] = each.step
            reach("repair.looked")
            waiting = [at for at, each in seen.items() if each.step.action not in _AT_REST]
            if not waiting or n == ROUNDS - 1:
                break
            todo = [seen[at] for at in waiting]
            lifted = [Action.LIFT in done[at] for at in waiting]
            for at, acted in zip(waiting, _act(sides, todo, lifted), strict=True):
                refused[at] = acted.refusal
                done[at] += acted.done
        sides.settle([target.column for target in targets])
        reach("repair.settled")
        return [_outcome(*each) for each in zip(targets, last, done, refused, strict=True)]

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


def _look(sides: Sides, targets: Sequence[Target]) -> list[SeenTarget]:
    """The mirror first: what it holds rightly the authority then knows."""
    latest = [target for target in targets if target.older is None]
    rows = [target.row for target in latest]
    theirs = sides.theirs(rows)
    reach("repair.mirror_read")
    ours = sides.ours(rows)
    pairs = [Pair(target.column, own, other) for target, own, other in zip(latest, ours, theirs, strict=True)]
    seen = iter(_seen_latest(sides, latest, pairs))
    older = iter(_seen_older(sides, [each for each in targets if each.older is not None]))
    return [next(seen if target.older is None else older) for target in targets]


def _seen_latest(sides: Sides, targets: Sequence[Target], pairs: Sequence[Pair]) -> list[SeenTarget]:
    unlike = [pair for pair in pairs if not pair.is_plainly_equal]
    # Of a version below the authority's latest it is not asked: that one is put, whatever stands below.
    asked = {
        pair: CellKey(*pair.column, pair.theirs.ref_key)
        for pair in unlike
        if pair.theirs is not None
        and not (isinstance(pair.ours, HeldVersion) and pair.theirs.ref_key <= pair.ours.ref_key)
    }
    at = dict(zip(asked, sides.ours_at(list(asked.values())), strict=True))
    powers = iter(sides.powers(unlike))
    return [
        SeenTarget(
            target,
            equal_latest(pair.column, pair.ours)
            if pair.is_plainly_equal
            else plan_latest(*pair, at.get(pair), next(powers)),
            pair.ours,
            pair.theirs,
        )
        for target, pair in zip(targets, pairs, strict=True)
    ]


def _seen_older(sides: Sides, targets: Sequence[Target]) -> list[SeenTarget]:
    keys = [target.key for target in targets]
    theirs = sides.theirs_at(keys)
    ours = sides.ours_at(keys)
    pairs = [Pair(target.column, own, other) for target, own, other in zip(targets, ours, theirs, strict=True)]
    return [
        SeenTarget(target, plan_older(target.key, pair.ours, pair.theirs, powers), pair.ours, pair.theirs)
        for target, pair, powers in zip(targets, pairs, sides.powers(pairs), strict=True)
    ]


def _act(sides: Sides, todo: Sequence[SeenTarget], lifted: Sequence[bool]) -> list[Acted]:
    """Do the steps. What was lifted is new: it never stood in a hole."""
    puts = [n for n, each in enumerate(todo) if each.step.action is Action.PUT]
    kinds: list[tuple[list[int], Act]] = [
        ([n for n in puts if not lifted[n]], lambda seen: _acted(seen, sides.put([each.step for each in seen]))),
        ([n for n in puts if lifted[n]], lambda seen: _acted(seen, sides.put_new([each.step for each in seen]))),
        (_of(todo, Action.BURY), lambda seen: _acted(seen, _buried(sides, seen))),
        (_of(todo, Action.MEND), lambda seen: _acted(seen, sides.mend([each.step for each in seen]))),
        (_of(todo, Action.PURGE), lambda seen: _acted(seen, _purged(sides, seen))),
        (_of(todo, Action.LIFT), lambda seen: _lifted(sides, seen)),
    ]
    acted = [Acted(())] * len(todo)
    for places, act in kinds:
        for n, each in zip(places, act([todo[n] for n in places]) if places else [], strict=True):
            acted[n] = each
    _tell(todo, acted)
    for each in acted:
        if each.refusal is not None and not isinstance(each.refusal, Conflict | Invalid):
            raise each.refusal  # a server that does not answer, or refuses: says nothing of the cell
    return acted


def _of(todo: Sequence[SeenTarget], action: Action) -> list[int]:
    return [n for n, each in enumerate(todo) if each.step.action is action]


def _acted(seen: Sequence[SeenTarget], errors: Sequence[SchemalessError | None]) -> list[Acted]:
    return [
        Acted((each.step.action,) if error is None else (), error) for each, error in zip(seen, errors, strict=True)
    ]


def _buried(sides: Sides, gone: Sequence[SeenTarget]) -> list[SchemalessError | None]:
    reach("repair.before_bury")
    return sides.bury([(each.step, each.theirs) for each in gone if each.theirs is not None])


def _purged(sides: Sides, seen: Sequence[SeenTarget]) -> list[SchemalessError | None]:
    return sides.purge([(each.step, each.theirs) for each in seen if each.theirs is not None])


def _lifted(sides: Sides, seen: Sequence[SeenTarget]) -> list[Acted]:
    """Lift, and put what stands there now: that was seen by the very statement that lifted, which is a look enough."""
    lifts = [(each.step, each.ours) for each in seen if isinstance(each.ours, HeldVersion)]
    reach("repair.before_lift")
    outcomes = sides.lift(lifts)
    puts = [
        step._replace(action=Action.PUT, body=outcome.body)
        for (step, _ours), outcome in zip(lifts, outcomes, strict=True)
        if isinstance(outcome, HeldVersion)
    ]
    put = iter(sides.put_new(puts) if puts else [])
    return [_risen(outcome, put) for outcome in outcomes]


def _risen(outcome: SchemalessError | HeldVersion | None, put: Iterator[SchemalessError | None]) -> Acted:
    if isinstance(outcome, SchemalessError):
        return Acted((), outcome)
    if outcome is None:
        return Acted((Action.LIFT,))
    error = next(put)
    return Acted((Action.LIFT, Action.PUT) if error is None else (Action.LIFT,), error)


def _tell(todo: Sequence[SeenTarget], acted: Sequence[Acted]) -> None:
    """Count what was done. Each cell has a line of its own, where lines are wanted."""
    for action, count in Counter(action for each in acted for action in each.done).items():
        metrics.cells_repaired(action.value, count)
    if not logger.isEnabledFor(logging.INFO):
        return
    for seen, each in zip(todo, acted, strict=True):
        for action in each.done:
            key = seen.step.key
            extra = {
                "event": "repair.step_done",
                "action": action.value,
                "row_key": str(key.row_key),
                "column": key.column_name,
                "ref_key": key.ref_key,
            }
            logger.info("a cell was repaired", extra=extra)


def _outcome(
    target: Target, last: RepairStep | None, done: Sequence[Action], refusal: SchemalessError | None
) -> TargetOutcome:
    assert last is not None
    return TargetOutcome(target, last, tuple(done), None if last.action is Action.NOTHING else refusal)


def counted(outcomes: Sequence[TargetOutcome]) -> Counter[str]:
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
