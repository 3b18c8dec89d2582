"""Procedures with one mistake each: the explorer must find it."""

from __future__ import annotations

from tripstore.handover import relay, reverse, settle, switch
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Steps


def relay_that_marks_first(ports: Ports) -> Steps[None]:
    yield relay.CLAIM
    claim = ports.legacy.claim(1)
    if claim.cells:
        yield relay.MARK
        ports.legacy.mark_delivered(claim.cells)
        yield relay.SEND
        ports.store.copy(claim.cells, claim.epoch)


def mirror_that_saves_first(ports: Ports, shard: int) -> Steps[None]:
    yield reverse.READ
    page = ports.store.read_log(shard, 1)
    if page.cells:
        yield reverse.SAVE
        ports.store.save_offset(shard, page.position)
        yield reverse.APPLY
        ports.legacy.apply(page.cells)


def switch_that_drains_first(ports: Ports, switch_id: str) -> Steps[None]:
    """The queue is empty, and then the gate is closed."""
    yield switch.LOOK
    found = ports.control.authority()
    closing = found.closing(switch_id)
    is_drained = yield from relay.drain(ports, 1)
    yield switch.CLOSE
    if not is_drained or not ports.control.close(found, closing):
        return
    yield switch.BARRIER
    if not ports.legacy.take_barrier():
        return
    yield switch.SHUT
    if ports.control.shut_gate(closing):
        yield switch.DECIDE
        ports.control.decide(closing, closing.decided())
    yield from settle.settle(ports)


def switch_that_opens_first(ports: Ports, switch_id: str) -> Steps[None]:
    """The servers are open, and then it is decided."""
    yield switch.LOOK
    found = ports.control.authority()
    closing = found.closing(switch_id)
    yield switch.CLOSE
    if not ports.control.close(found, closing):
        return
    yield switch.BARRIER
    if not ports.legacy.take_barrier():
        return
    is_drained = yield from relay.drain(ports, 1)
    servers = ports.store.servers
    for server in servers:
        yield settle.OPEN
        ports.store.open(server, closing.decided().epoch)
    yield switch.DECIDE
    if is_drained:
        ports.control.decide(closing, closing.decided())


def reverse_that_counts_first(ports: Ports, switch_id: str) -> Steps[None]:
    """Each server is caught up with, and then closed."""
    yield switch.BACK_LOOK
    found = ports.control.authority()
    closing = found.closing(switch_id)
    yield switch.BACK_CLOSE
    if not ports.control.close(found, closing):
        return
    servers = ports.store.servers
    for server in servers:
        yield switch.BACK_COUNT
        while ports.store.unmirrored(server):
            yield switch.BACK_COUNT
        yield switch.BACK_SHUT
        if not ports.store.close(server, closing.epoch):
            return
    yield switch.BACK_DECIDE
    ports.control.decide(closing, closing.decided())
    yield from settle.settle(ports)


def reverse_that_needs_no_answer(ports: Ports, switch_id: str) -> Steps[None]:
    """A server that does not acknowledge its closing is taken for closed."""
    yield switch.BACK_LOOK
    found = ports.control.authority()
    closing = found.closing(switch_id)
    yield switch.BACK_CLOSE
    if not ports.control.close(found, closing):
        return
    servers = ports.store.servers
    for server in servers:
        yield switch.BACK_SHUT
        ports.store.close(server, closing.epoch)
    for server in servers:
        yield switch.BACK_COUNT
        while ports.store.unmirrored(server):
            yield switch.BACK_COUNT
    yield switch.BACK_DECIDE
    ports.control.decide(closing, closing.decided())
    yield from settle.settle(ports)
