"""What one call does to Postgres: the queue, the barrier and the authority row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.explorer.postgres import CLOSED, CLOSING, OPEN, REFUSES, Handler, flush, unflushed
from tests.explorer.programs import Raised
from tests.explorer.rules import BufferRules, Rules, Scenario
from tests.explorer.world import (
    At,
    Done,
    Outcomes,
    Queued,
    Sent,
    Violation,
    World,
    cell,
    encoded,
    is_accepted,
    key_of,
    row_of,
)
from tripstore.backends.postgres.capture.functions.gate import GateReading
from tripstore.errors import StaleLayout
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Copies, Past

#: One object: what an actor knows is compared.
STALE = Raised(StaleLayout("A", "B"))


def is_foreign(w: World, scene: Scenario) -> bool:
    """Whether the row was written on another timeline than that of the Postgres that answers."""
    return scene.mends is not None and scene.mends.row_has_timeline and not is_accepted(w, scene)


def is_stale(w: World, me: int, scene: Scenario) -> bool:
    """Whether an actor goes by another layout than the one in force."""
    layout = scene.cast[me].layout
    return layout is not None and layout != w.row.layout


# ---- the queue ----------------------------------------------------------------------------------------------------


def queued(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    counted = [change for change in w.queue if rules.counts_claimed or not change.is_claimed]
    yield f"counts {len(counted)}", w, Done(len(counted))


def _claims(queue: tuple[Queued, ...], limit: int) -> list[tuple[Queued, ...]]:
    singly: list[tuple[Queued, ...]] = [(change,) for change in queue]
    return [*singly, queue] if 1 < len(queue) <= limit else singly


def claim(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """Any of the changes, or as many as may be: the lease of the relay that has them may be over."""
    limit, from_others = (*arguments, False)[:2]
    if rules.claims_look_at_layout and is_stale(w, me, scene):
        yield "claims nothing: another layout is in force", w, Done(STALE)
        return
    w = flush(w) if rules.claims_durably else w
    for changes in _claims(w.queue, limit):
        # Remembered only where it matters.
        queue = tuple(change._replace(is_claimed=change.is_claimed or change in changes) for change in w.queue)
        claimed = w if rules.counts_claimed else w._replace(queue=queue)
        cells = tuple(cell(key, version, str(w.tables[key].bodies[version])) for key, version, _ in changes)
        names = ", ".join(f"{key}@{version}" for key, version, _ in changes)
        yield f"claims {names}", claimed, Done(Copies(cells, w.row.epoch))
    if from_others and not w.queue:
        yield "finds nothing to claim", w, Done(Copies((), w.row.epoch))


def mark_delivered(
    w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario
) -> Outcomes:
    (cells,) = arguments
    gone = {(key_of(each), each.ref_key) for each in cells}
    yield "marks it", w._replace(queue=tuple(c for c in w.queue if (c.key, c.version) not in gone)), Done(None)


def read_chunk(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    if rules.chunks_fenced and not w.row.is_open_for(Backend.LEGACY):
        yield "reads nothing: Postgres is not the authority", w, Done(REFUSES)
        return
    if rules.chunks_look_at_layout and is_stale(w, me, scene):
        yield "reads nothing: another layout is in force", w, Done(STALE)
        return
    (chunk,) = arguments
    key = row_of(chunk)
    w = flush(w) if rules.chunks_are_durable else w
    table = w.tables[key]
    version = table.version
    body = table.bodies[version] if version else None
    found = (encoded(cell(key, version, body)),) if body is not None else ()
    yield f"reads row {key}", w, Done(Past(found, w.row.epoch, len(found)))


# ---- the barrier and the row --------------------------------------------------------------------------------------


def take_barrier(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    if w.barrier is not None or (w.inside - {me} and rules.barrier_waits):
        yield "waits for the barrier in vain", w, Done(False)
    else:
        yield "has the barrier", w._replace(barrier=me), Done(True)


def authority(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    layout = scene.cast[me].layout
    row = w.row if rules.looks_at_layout or layout is None else replace(w.row, layout=layout)
    yield f"reads the row, epoch {w.row.epoch}", w, Done(row)


def set_row(w: World, row: Authority, rules: Rules) -> World:
    return (flush(w) if rules.row_is_durable else unflushed(w))._replace(row=row)


def close(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    found, closing = arguments
    if phase == "gate is closing":
        yield "commits the row as closing", set_row(w, closing, rules)._replace(row_lock=None), Done(True)
    elif w.row_lock is not None:
        return
    elif w.row != found or is_foreign(w, scene):
        yield "finds the row changed", w, Done(False)
    elif found.backend is Backend.LEGACY:
        begun = w._replace(gate=GateReading(closing.epoch, CLOSING), row_lock=me)
        yield "sets the gate to closing", begun, At("gate is closing")
    else:
        yield "sets the row to closing", set_row(w, closing, rules), Done(True)


def shut_gate(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (closing,) = arguments
    if w.row_lock is not None:
        return
    if w.row == closing and not is_foreign(w, scene):
        shut = flush(w)._replace(gate=GateReading(closing.epoch, CLOSED)) if rules.shuts_gate else w
        yield "shuts the gate", shut, Done(True)
    else:
        yield "finds the row changed", w, Done(False)


def decide(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    closing, decided = arguments
    if w.row_lock is not None:
        return
    without = w._replace(barrier=None) if w.barrier == me else w
    needs_barrier = closing.backend is Backend.LEGACY or decided.layout != closing.layout
    has_lost = w.row != closing or is_foreign(w, scene) or (needs_barrier and w.barrier != me)
    if phase == "sees it closing":
        yield "writes its decision", set_row(without, decided, rules), Done(True)
    elif has_lost:
        yield "finds the row changed", without, Done(False)
    elif rules.decides_in_one_write:
        if scene.is_incompatible and decided.layout != closing.layout and there_are_cells(w, BufferRules()):
            raise Violation("I2: cells of the old layout are read by the new one")
        yield "decides", set_row(without, decided, rules), Done(True)
        if w.budget.breaks and w.barrier == me:
            budget = w.budget._replace(breaks=w.budget.breaks - 1)
            sent = w._replace(barrier=Sent(closing, decided), budget=budget)
            yield "sends its decision, loses the connection and finds none", sent, Done(False)
    else:
        yield "sees it closing", w, At("sees it closing")


def without_client(w: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """What becomes of the session that has the barrier, when its client is gone."""
    if not isinstance(w.barrier, Sent):
        return
    gone = w._replace(barrier=None)
    yield "the session of a lost connection ends", gone
    if w.row_lock is None:
        closing, decided = w.barrier
        has_lost = w.row != closing and rules.late_decision_compares
        yield "a decision of a lost connection is run", gone if has_lost else set_row(gone, decided, rules)


def there_are_cells(w: World, rules: BufferRules) -> bool:
    is_waiting = any(w.buffers) and rules.objects_to_buffered
    return any(any(cells) for cells in w.cells) or bool(w.queue) or is_waiting


def objection(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    objects = scene.is_incompatible and there_are_cells(w, scene.buffer_rules)
    yield "looks for cells", w, Done("there are cells" if objects else "")


def undo(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    closing, undone = arguments
    if w.row_lock is not None:
        return
    if is_foreign(w, scene):
        yield "finds another timeline", w, Done(False)
    elif w.row == closing or not rules.undo_compares:
        yield "undoes it", set_row(w, undone, rules), Done(True)
    else:
        yield "finds the row changed", w, Done(False)


def obey(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    if phase is not None:
        yield "sets the gate to what it had read", w._replace(gate=_gate(phase)), Done(phase)
        return
    if w.row_lock is not None:
        return
    if not w.row.is_open or is_foreign(w, scene):
        yield "leaves the hand-over alone", w, Done(w.row)
        return
    free = w._replace(barrier=None) if rules.ends_barrier else w
    if not rules.gate_under_row:
        yield "reads the row for the gate", free, At(w.row)
    else:
        obeyed = flush(free)._replace(gate=_gate(w.row), accepted=w.given)
        yield "sets the gate to what the row says", obeyed, Done(w.row)


def _gate(row: Authority) -> GateReading:
    return GateReading(row.epoch, OPEN if row.is_open_for(Backend.LEGACY) else CLOSED)


def is_overdue(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    yield "is patient", w, Done(False)
    yield "has waited for too long", w, Done(True)


HANDLERS: dict[str, Handler] = {
    "legacy.take_barrier": take_barrier,
    "legacy.queued": queued,
    "legacy.claim": claim,
    "legacy.mark_delivered": mark_delivered,
    "legacy.read_chunk": read_chunk,
    "control.authority": authority,
    "control.close": close,
    "control.shut_gate": shut_gate,
    "control.decide": decide,
    "control.undo": undo,
    "control.obey": obey,
    "control.is_overdue": is_overdue,
    "cells.objection": objection,
}
