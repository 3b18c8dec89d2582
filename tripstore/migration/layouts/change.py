"""`LayoutChange`: a layout is put in force, unless cells exist that it would read in another way.

The steps are `handover.relayout`'s. A process that dies in the middle needs nothing of this: every process undoes a
hand-over that takes too long, and the layout before stays in force.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from schemaless_core.errors import SchemalessError
from tripstore import metrics
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.errors import TripstoreError
from tripstore.handover import relayout, settle
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, run
from tripstore.handover.switch import HandoverOutcome
from tripstore.migration.layouts.existing import Existing, LogMark
from tripstore.migration.layouts.meaning import MeaningChange
from tripstore.ports.control import RealControlPort

logger = logging.getLogger(__name__)

#: A service's long transaction, or another hand-over: these pass.
TRIES = 5
PAUSE_SECONDS = 1.0

_WAY_OUT = (
    "Give the column another name in the layout. `tripstore schema apply` and `tripstore backfill start` bring its rows"
    " there, and services ask for the new name. `tripstore diff start` then finds its old cells as extra, and"
    " `tripstore repair` takes them out. Or keep what stands there now."
)


class LayoutTookTooLong(TripstoreError):
    """The pause was over before the layout was in force."""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """Of one run of `schema apply`. `changes`: what of the layout columns' cells would be read by in another way."""

    layout: Layout
    changes: Sequence[MeaningChange]
    existing: Existing

    def complaints(self) -> list[Complaint]:
        """Why it may not be put in force: columns that are read in another way, and have cells."""
        places = {name: self.existing.places(name) for name in {change.column for change in self.changes}}
        return [
            error(
                change.key if change.key == "row_key" else f"columns.{change.column}.{change.key}",
                f"{change}, and column {change.column} has cells (in {', '.join(places[change.column])})",
                _WAY_OUT,
            )
            for change in self.changes
            if places[change.column]
        ]

    def put_in_force(
        self,
        ports: Ports,
        control: RealControlPort,
        max_pause_seconds: float,
        *,
        in_the_way: Callable[[], str] = str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> HandoverOutcome:
        """Do it. Raises `LegacyRefused` with the reason when the layout before stays in force."""
        if control.begin_layout(self.layout.digest):
            return HandoverOutcome(True, control.authority())
        mark = self.existing.mark() if self.changes else None
        if refused := self.complaints():
            raise LegacyRefused(f"{refused[0].where} {refused[0].reason}.", hint=refused[0].hint)
        outcome = self._tried(ports, mark, max_pause_seconds)
        for _attempt in range(TRIES - 1):
            if outcome.is_decided or outcome.reason == _CELLS:
                break
            sleep(PAUSE_SECONDS)
            outcome = self._tried(ports, mark, max_pause_seconds)
        metrics.layout_changed("decided" if outcome.is_decided else "undone")
        extra = {"event": "layout.put_in_force", "layout": self.layout.digest, "epoch": outcome.authority.epoch}
        if outcome.is_decided:
            logger.warning("another layout is in force", extra=extra)
            return outcome
        reason = ", ".join(filter(None, (outcome.reason, in_the_way())))
        hint = "The layout before stays in force. Mend that, then run the same command again: what is done stays done."
        raise LegacyRefused(f"The layout was not put in force: {reason}.", hint=hint)

    def _tried(self, ports: Ports, mark: LogMark | None, max_pause_seconds: float) -> HandoverOutcome:
        change_id, pause = f"layout-{uuid4().hex}", _Pause(max_pause_seconds)
        try:
            return run(
                relayout.relayout(ports, change_id, self.layout.digest, lambda: self._objection(mark)), pause.hear
            )
        except (SchemalessError, TripstoreError) as failed:
            row = run(settle.mend(ports))
            return HandoverOutcome(row.layout == self.layout.digest, row, str(failed).rstrip("."))
        except BaseException:  # callers are not to wait for that; if this fails as well, every other process undoes it
            run(settle.mend(ports))
            raise

    def _objection(self, mark: LogMark | None) -> str:
        if mark is None:
            return ""
        names = {change.column for change in self.changes}
        return _CELLS if any(self.existing.places_since(name, mark) for name in names) else ""


_CELLS = "cells were written meanwhile that it would read in another way"


class _Pause:
    """Ends a run whose callers have waited for too long, unless it is decided."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def hear(self, step: Step) -> None:
        now = time.monotonic()
        if step is relayout.CLOSE:
            self._until = now + self._seconds
        is_open_to_undo = step in (relayout.BARRIER, relayout.SHUT, relayout.FENCE, relayout.CHECK, relayout.DECIDE)
        if is_open_to_undo and self._until is not None and now > self._until:
            raise LayoutTookTooLong(f"It took longer than {self._seconds:g} s.")
        logger.info(step.sentence, extra={"event": "layout.step", "step": step.name})
