"""Another layout is put in force: a hand-over that ends where it began, at a new epoch.

Every writer presents an epoch. So nothing else is needed to refuse every process that goes by the old layout than an
epoch that only readers of the new row know: Postgres' gate and all shards are past the old one before the
decision. Until then the old layout is in force, from then on the new one, and at no moment both.
"""

from __future__ import annotations

from collections.abc import Callable

from tripstore.handover import settle
from tripstore.handover.authority import Backend
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps
from tripstore.handover.switch import BARRIER_TRIES, HandoverOutcome, lost, undone

LOOK = Step("relayout.look", "read the authority row")
CLOSE = Step("relayout.close", "set the row to closing, and the gate of Postgres if that is open")
BARRIER = Step("relayout.barrier", "wait for the writers inside Postgres, let no writer in", pause_seconds=0.05)
SHUT = Step("relayout.shut", "close the gate of Postgres, to the reverse mirror too")
FENCE = Step("relayout.fence", "raise the epoch of the shards of each server; each acknowledges")
CHECK = Step("relayout.check", "look whether cells exist that the new layout would read in another way")
DECIDE = Step("relayout.decide", "decide: the new layout is in force; the barrier goes")

#: In order, as a plan shows them.
STEPS = (LOOK, CLOSE, BARRIER, SHUT, FENCE, CHECK, DECIDE, settle.OBEY, settle.OPEN)

#: Why the new layout may not be put in force now; nothing: it may.
Objection = Callable[[], str]


def relayout(
    ports: Ports, change_id: str, layout: str, objection: Objection, tries: int = BARRIER_TRIES
) -> Steps[HandoverOutcome]:
    """Put a layout in force, whichever side is the authority; that stays as it is."""
    yield LOOK
    found = ports.control.authority()
    if not found.is_open:
        return HandoverOutcome(False, found, "a hand-over is under way")
    if found.layout == layout:
        row = yield from settle.settle(ports)
        return HandoverOutcome(True, row)
    closing = found.closing(change_id)
    decided = closing.relaid(layout)
    yield CLOSE
    if not ports.control.close(found, closing):
        return (yield from lost(ports, closing, decided))
    yield BARRIER
    while not ports.legacy.take_barrier():
        tries -= 1
        if not tries:
            return (yield from undone(ports, closing, "writers stay inside"))
        yield BARRIER
    yield SHUT
    if not ports.control.shut_gate(closing):
        return (yield from lost(ports, closing, decided))
    # Relays claim while the row is closing, at its epoch: copies of the old layout are refused by one above it. Shards
    # that are to be opened again must be below the epoch at which they are.
    epoch = decided.epoch if found.backend is Backend.LEGACY else closing.epoch
    servers = ports.store.servers
    for server in servers:
        yield FENCE
        if not ports.store.close(server, epoch):
            return (yield from undone(ports, closing, f"{server} did not acknowledge"))
    yield CHECK
    reason = objection()
    if reason:
        return (yield from undone(ports, closing, reason))
    yield DECIDE
    if not ports.control.decide(closing, decided):
        return (yield from lost(ports, closing, decided))
    row = yield from settle.settle(ports)
    return HandoverOutcome(True, row)
