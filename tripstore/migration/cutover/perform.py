"""`perform`: one hand-over, timed, written down before and after, and undone at once when anything goes wrong.

The steps are `handover.switch`'s. A process that dies in the middle needs nothing of this: every other process undoes a
hand-over that takes too long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from tripstore import metrics
from tripstore.errors import TripstoreError
from tripstore.facade.flags import FlagBook, Flags
from tripstore.handover import settle, switch
from tripstore.handover.authority import Authority
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, run
from tripstore.handover.switch import HandoverOutcome
from tripstore.migration.cutover.errors import CutoverBreached, CutoverCompleted, CutoverUnsettled
from tripstore.migration.cutover.plan import CLOSES, DECIDES, Direction
from tripstore.phase import Phase

logger = logging.getLogger(__name__)

#: How often, and after which pause, a hand-over is settled whose stores do not answer.
SETTLE_TRIES = 5
SETTLE_PAUSE_SECONDS = 0.2

Hear = Callable[[Step], None]

_LATE = {"event": "cutover.standbys_late"}
_UNKNOWN = (
    "What became of the hand-over is not known here: every process undoes or finishes it when it can;"
    " `tripstore cutover status` says which."
)


class TookTooLong(TripstoreError):
    """The pause was over before the decision."""


@dataclass(slots=True)
class StepTime:
    """How often a step was done, and how long that took in all."""

    step: Step
    times: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HandoverOrder:
    """What the operator wants done, and the gates that refused it and were overruled."""

    direction: Direction
    why: str
    forced: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Performed:
    """What became of a hand-over."""

    direction: Direction
    switch_id: str
    is_decided: bool
    #: As it is now.
    authority: Authority
    #: Why it was not decided.
    reason: str
    #: From when callers had to wait up to the end; None: they never had to.
    pause_seconds: float | None
    steps: Sequence[StepTime]


def perform(
    ports: Ports,
    order: HandoverOrder,
    *,
    flags: FlagBook,
    audit: AuditLog,
    max_pause_seconds: float,
    guard: Callable[[], Sequence[str]] = list,
    move_sequences: Callable[[], Sequence[str]] = list,
    in_the_way: Callable[[], str] = str,
    missed: Callable[[], str] = str,
    hear: Hear = lambda step: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Performed:
    """Hand authority over, or leave it where it was. `CutoverUnsettled`: it may be either, and others settle it.

    Whatever else is raised once it has begun, a note of it says what became of the hand-over.

    `guard` has a standby that is promoted from now on say that it may lack the decision; it names those that are late.

    `move_sequences` moves those of Postgres ahead of what stands in its tables, and says which were behind: SQL is not
    to draw a number that a row has. For what the reverse mirror writes after that it moves them by itself.

    `in_the_way` names the writers that kept the barrier from being taken, if any did.

    `missed` says what happened to partitions since the gates were looked at. It is asked just before the decision.
    """
    switch_id = uuid4().hex
    _prepare(order, flags)
    detail: dict[str, object] = {"switch_id": switch_id, "why": order.why, "forced": list(order.forced)}
    if late := guard():
        detail["late_standbys"] = list(late)
        logger.warning("standbys are behind: one of them may not know of this hand-over", extra={**_LATE, **detail})
    if order.direction is Direction.BACK and (moved := move_sequences()):
        detail["sequences"] = list(moved)
    audit.add(f"cutover.{order.direction.value}.begin", detail)
    _log_cutover("cutover.begun", order, detail)
    reach("cutover.begun")
    ear = _Ear(max_pause_seconds, hear, clock)
    note = _UNKNOWN
    try:
        try:
            hear_all = _but_for_breaches(missed, _but_for_completion(flags, ear.hear))
            outcome, fault = _handed_over(ports, order.direction, switch_id, hear_all, sleep)
        except BaseException:  # it could not be settled, or the operator interrupted that
            _ended(audit, order, ear, detail, "unknown")
            raise
        note = _note(outcome, switch_id)
        reason = ", ".join(filter(None, (outcome.reason, "" if outcome.is_decided else in_the_way())))
        _ended(audit, order, ear, detail, "decided" if outcome.is_decided else f"undone: {reason}")
        reach("cutover.settled")
        if fault is not None:
            raise fault
    except CutoverUnsettled:  # it says so itself
        raise
    except BaseException as error:
        error.add_note(note)
        raise
    times = list(ear.times.values())
    return Performed(
        order.direction, switch_id, outcome.is_decided, outcome.authority, reason, ear.pause_seconds, times
    )


def _note(outcome: HandoverOutcome, switch_id: str) -> str:
    """What became of it, for a caller that gets a fault alone. Only a row that it has left open says that."""
    row = outcome.authority
    if not row.is_open or row.switch_id != switch_id:
        return _UNKNOWN
    now = f"{row.backend.value} is the authority at epoch {row.epoch}"
    return f"The hand-over {'is decided' if outcome.is_decided else 'was undone'}: {now}."


def _prepare(order: HandoverOrder, flags: FlagBook) -> None:
    """The phase that the other authority begins with: the row alone changes it later."""
    if order.direction is Direction.FORWARD:
        flags.change(lambda known: replace(known, store_phase=Phase.LIVE), "cutover.phase", order.why)
    else:
        flags.change(_mirrored_again, "cutover.phase", order.why)


def _mirrored_again(known: Flags) -> Flags:
    """In phase off no relay would carry what is written after the way back."""
    return replace(known, legacy_phase=Phase.DUALWRITE) if known.legacy_phase is Phase.OFF else known


def _but_for_completion(flags: FlagBook, hear: Hear) -> Hear:
    """No way back is decided while the migration is being completed.

    Of the two, at least one always sees the other. The way back first sets the row to closing, then reads the flags;
    the completion first sets the flag, then reads the row. Is the flag not set yet when it is read here, then the row
    is read there after that, and has been closing, or is decided: the completion gives up. Is the row still open when
    it is read there, then it is closed after that, and the flags are read here later still: the way back gives up.
    """

    def heard(step: Step) -> None:
        hear(step)
        if step is switch.BACK_DECIDE and flags.find().store_phase is Phase.COMPLETE:
            raise CutoverCompleted("The migration is being completed.", hint="`tripstore cutover status`")

    return heard


def _but_for_breaches(missed: Callable[[], str], hear: Hear) -> Hear:
    """Nothing is decided on gates that a partition has changed behind. No writer is inside: this look is the last."""

    def heard(step: Step) -> None:
        if step in DECIDES and (said := missed()):
            hint = "`tripstore diff start`, then `tripstore repair`, then switch again."
            raise CutoverBreached(f"Since the gates were looked at, {said}.", hint=hint)
        hear(step)

    return heard


def _handed_over(
    ports: Ports, direction: Direction, switch_id: str, hear: Hear, sleep: Callable[[float], None]
) -> tuple[HandoverOutcome, BaseException | None]:
    """What became of it; and what has to be raised when that is written down."""
    procedure = switch.switch if direction is Direction.FORWARD else switch.reverse
    try:
        return run(procedure(ports, switch_id), hear, sleep), None
    except (SchemalessError, TripstoreError) as error:
        return _settled(ports, direction, switch_id, str(error), sleep), None
    # Ctrl-C or a bug: callers are not to wait longer for that. `perform` writes it down, then raises it again.
    except BaseException as error:  # noqa: BLE001  # `perform` raises it again
        return _settled(ports, direction, switch_id, type(error).__name__, sleep), error


def _settled(
    ports: Ports, direction: Direction, switch_id: str, reason: str, sleep: Callable[[float], None]
) -> HandoverOutcome:
    """Undo it unless it was decided, which the row says; then nothing is left but to finish it."""
    for _attempt in range(SETTLE_TRIES - 1):
        try:
            return _settled_once(ports, direction, switch_id, reason)
        except (SchemalessError, TripstoreError):
            sleep(SETTLE_PAUSE_SECONDS)
    try:
        return _settled_once(ports, direction, switch_id, reason)
    except (SchemalessError, TripstoreError) as error:
        hint = "Every process undoes or finishes it when it can; `tripstore cutover status` says what became of it."
        raise CutoverUnsettled(f"The hand-over could not be settled ({reason} {error}).", hint=hint) from error


def _settled_once(ports: Ports, direction: Direction, switch_id: str, reason: str) -> HandoverOutcome:
    row = ports.control.authority()
    if not row.is_open and row.switch_id == switch_id:
        row = run(settle.undo(ports, row))
    elif row.is_open:
        row = run(settle.settle(ports))
    is_decided = row.switch_id == switch_id and row.is_open_for(direction.target)
    return HandoverOutcome(is_decided, row, "" if is_decided else reason)


def _ended(audit: AuditLog, order: HandoverOrder, ear: _Ear, detail: dict[str, object], outcome: str) -> None:
    """Write down what became of it. A control database that is down takes nothing back."""
    ear.end()
    detail = {**detail, "outcome": outcome, "pause_seconds": ear.pause_seconds}
    metrics.handover_ended(order.direction.value, outcome.partition(":")[0], ear.pause_seconds or 0.0)
    _log_cutover("cutover.ended", order, detail)
    try:
        audit.add(f"cutover.{order.direction.value}.end", detail)
    except SchemalessError as error:
        extra = {"event": "cutover.not_written", **detail}
        logger.error("the audit log lacks the end of a hand-over: %s", error.message, extra=extra)


def _log_cutover(event: str, order: HandoverOrder, detail: dict[str, object]) -> None:
    logger.warning("a hand-over, %s", order.direction.value, extra={"event": event, **detail})


@dataclass(slots=True)
class _Ear:
    """Hears each step before it is done: takes the time, and ends a run whose pause is over."""

    max_pause_seconds: float
    tell: Hear
    clock: Callable[[], float]
    times: dict[Step, StepTime] = field(default_factory=dict)
    pause_seconds: float | None = None
    _closed_at: float | None = None
    _is_final: bool = False
    _current: Step | None = None
    _since: float = 0.0

    def hear(self, step: Step) -> None:
        now = self._turn(step)
        if step in CLOSES and self._closed_at is None:
            self._closed_at = now
        if step is settle.UNDO:
            self._is_final = True
        if not self._is_final and self._closed_at is not None and now - self._closed_at > self.max_pause_seconds:
            raise TookTooLong(f"It took longer than {self.max_pause_seconds:g} s, {self._slowest()}.")
        if step in DECIDES:
            self._is_final = True
        logger.info(step.sentence, extra={"event": "cutover.step", "step": step.name})
        self.tell(step)

    def end(self) -> None:
        now = self._turn(None)
        if self._closed_at is not None:
            self.pause_seconds = now - self._closed_at

    def _slowest(self) -> str:
        """What of the pause took the most time."""
        within = [each for each in self.times.values() if each.step not in (switch.LOOK, switch.BACK_LOOK)]
        slowest = max(within, key=lambda each: each.seconds)
        return f"{slowest.seconds:.1f} s of it to {slowest.step.sentence}"

    def _turn(self, step: Step | None) -> float:
        now = self.clock()
        if self._current is not None:
            time_of = self.times.setdefault(self._current, StepTime(self._current))
            time_of.times += 1
            time_of.seconds += now - self._since
        self._current, self._since = step, now
        return now
