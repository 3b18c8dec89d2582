"""The mirror, forward: changes of the queue are claimed, sent, and marked as delivered.

Twice is fine, never is not: a change leaves the queue after the other store has it. Relays need no order.
"""

from __future__ import annotations

from typing import NamedTuple

from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

CLAIM = Step("relay.claim", "claim changes, durably")
SEND = Step("relay.send", "put them as a copier at the epoch of the claim")
MARK = Step("relay.mark", "move what is delivered from the queue to the log")
COUNT = Step("relay.count", "count the queue; no claim or lock hides a change")

CHANGES_PER_CLAIM = 500


class Delivered(NamedTuple):
    """What became of one claim."""

    claimed: int
    delivered: int


def deliver(ports: Ports, limit: int = CHANGES_PER_CLAIM, *, from_others: bool = False) -> Steps[Delivered]:
    """Carry some changes to the other store."""
    yield CLAIM
    claim = ports.legacy.claim(limit, from_others=from_others)
    if not claim.cells:
        return Delivered(0, 0)
    yield SEND
    delivered = ports.store.copy(claim.cells, claim.epoch)
    if delivered:
        yield MARK
        ports.legacy.mark_delivered(delivered)
    return Delivered(len(claim.cells), len(delivered))


def drain(ports: Ports, limit: int = CHANGES_PER_CLAIM) -> Steps[bool]:
    """Deliver all there is, others' claims included; False: something cannot be delivered."""
    while True:
        yield COUNT
        if not ports.legacy.queued():
            return True
        delivery = yield from deliver(ports, limit, from_others=True)
        if delivery.delivered < delivery.claimed:
            return False
