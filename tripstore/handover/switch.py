"""The hand-over itself: forward to Schemaless, and back. One compare-and-set on the authority row is the decision.

The process that runs this may die or be stopped at any step: before the decision any other undoes it, after it any
other finishes it (`settle`). The loser of a compare-and-set obeys the row. There is no clock here: the caller of the
steps stops them at `max_pause`.
"""

from __future__ import annotations

from typing import NamedTuple

from tripstore.handover import relay, settle
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

LOOK = Step("switch.look", "read the authority row")
CLOSE = Step("switch.close", "set the gate of Postgres and the row to closing")
BARRIER = Step("switch.barrier", "wait for the writers inside, let no writer in", pause_seconds=0.05)
SHUT = Step("switch.shut", "close the gate of Postgres")
DECIDE = Step("switch.decide", "decide: Schemaless is the authority; the barrier goes")

BACK_LOOK = Step("back.look", "read the authority row")
BACK_CLOSE = Step("back.close", "set the row to closing")
BACK_SHUT = Step("back.shut", "close the shards of each server to owners; each acknowledges")
BACK_REPLAY = Step("back.replay", "wait until no cell waits in a buffer", pause_seconds=0.005)
BACK_COUNT = Step("back.count", "wait until the reverse mirror has passed every cell", pause_seconds=0.005)
BACK_DECIDE = Step("back.decide", "decide: Postgres is the authority")

#: In order, as a plan shows them.
FORWARD = (
    LOOK,
    CLOSE,
    BARRIER,
    SHUT,
    relay.COUNT,
    relay.CLAIM,
    relay.SEND,
    relay.MARK,
    DECIDE,
    settle.OBEY,
    settle.OPEN,
)
BACK = (BACK_LOOK, BACK_CLOSE, BACK_SHUT, BACK_REPLAY, BACK_COUNT, BACK_DECIDE, settle.OBEY)

BARRIER_TRIES = 3


class HandoverOutcome(NamedTuple):
    """What became of a hand-over."""

    is_decided: bool
    #: As it is now.
    authority: Authority
    #: Why it was not decided.
    reason: str = ""


def switch(
    ports: Ports, switch_id: str, tries: int = BARRIER_TRIES, limit: int = relay.CHANGES_PER_CLAIM
) -> Steps[HandoverOutcome]:
    """Postgres → Schemaless."""
    yield LOOK
    found = ports.control.authority()
    found.check_layout(ports.layout)
    if not found.is_open_for(Backend.LEGACY):
        return HandoverOutcome(False, found, "Postgres is not the open authority")
    closing = found.closing(switch_id)
    yield CLOSE
    if not ports.control.close(found, closing):
        return (yield from lost(ports, closing, closing.decided()))
    yield BARRIER
    while not ports.legacy.take_barrier():
        tries -= 1
        if not tries:
            return (yield from undone(ports, closing, "writers stay inside"))
        yield BARRIER
    yield SHUT
    if not ports.control.shut_gate(closing):
        return (yield from lost(ports, closing, closing.decided()))
    is_drained = yield from relay.drain(ports, limit)
    if not is_drained:
        return (yield from undone(ports, closing, "a change cannot be delivered"))
    yield DECIDE
    if not ports.control.decide(closing, closing.decided()):
        return (yield from lost(ports, closing, closing.decided()))
    row = yield from settle.settle(ports)
    return HandoverOutcome(True, row)


def reverse(ports: Ports, switch_id: str) -> Steps[HandoverOutcome]:
    """Schemaless → Postgres."""
    yield BACK_LOOK
    found = ports.control.authority()
    found.check_layout(ports.layout)
    if not found.is_open_for(Backend.STORE):
        return HandoverOutcome(False, found, "Schemaless is not the open authority")
    closing = found.closing(switch_id)
    yield BACK_CLOSE
    if not ports.control.close(found, closing):
        return (yield from lost(ports, closing, closing.decided()))
    servers = ports.store.servers
    for server in servers:
        yield BACK_SHUT
        if not ports.store.close(server, closing.epoch):
            return (yield from undone(ports, closing, f"{server} did not acknowledge"))
    # Only after all have: what an open shard takes in the meantime would not be counted. What waits in buffers comes
    # to the logs, so these are counted last.
    for server in servers:
        yield BACK_REPLAY
        while ports.store.buffered(server):
            yield BACK_REPLAY
    for server in servers:
        yield BACK_COUNT
        while ports.store.unmirrored(server):
            yield BACK_COUNT
    yield BACK_DECIDE
    if not ports.control.decide(closing, closing.decided()):
        return (yield from lost(ports, closing, closing.decided()))
    row = yield from settle.settle(ports)
    return HandoverOutcome(True, row)


def lost(ports: Ports, closing: Authority, decided: Authority) -> Steps[HandoverOutcome]:
    """Nothing was changed: another process has changed the row, or the barrier is gone. Undo at once, if it is ours.

    A decision that was sent over a connection that broke may be run by now. Later it finds another row.
    """
    yield settle.UNDO
    is_undone = ports.control.undo(closing, closing.undone())
    row = yield from settle.settle(ports)
    if row == decided:
        return HandoverOutcome(True, row)
    return HandoverOutcome(False, row, "the barrier was lost" if is_undone else "another process changed the row first")


def undone(ports: Ports, closing: Authority, reason: str) -> Steps[HandoverOutcome]:
    row = yield from settle.undo(ports, closing)
    return HandoverOutcome(False, row, reason)
