"""Procedures with one mistake each: the explorer must find it."""

from __future__ import annotations

from tests.explorer.actors import ADVANCE, READ_LOG
from tests.explorer.programs import Tools
from tripstore.handover import relay, relayout, reverse, settle, switch
from tripstore.handover.authority import Backend
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


def mirror_that_saves_first(tools: Tools, shard: int) -> Steps[None]:
    yield READ_LOG
    page = tools.log.read(shard, 1)
    yield ADVANCE
    tools.log.advance(shard, page.position)
    yield from reverse.deliver(tools.ports.control, tools.hands, page.cells)


def mirror_that_looks_first(tools: Tools, shard: int) -> Steps[None]:
    """What is put after its look it takes for what came from Postgres."""
    yield reverse.LOOK
    row = tools.ports.control.authority()
    yield READ_LOG
    page = tools.log.read(shard, 1)
    if row.backend is Backend.STORE:
        yield reverse.WRITE
        tools.hands.write(page.cells, row.epoch)
    yield ADVANCE
    tools.log.advance(shard, page.position)


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


def switch_that_leaves_it_closing(ports: Ports, switch_id: str) -> Steps[None]:
    """A switcher that could not decide takes it that another one did something."""
    yield switch.LOOK
    found = ports.control.authority()
    closing = found.closing(switch_id)
    yield switch.CLOSE
    if not ports.control.close(found, closing):
        return
    yield switch.BARRIER
    is_taken = ports.legacy.take_barrier()
    yield switch.SHUT
    is_drained = is_taken and ports.control.shut_gate(closing)
    if is_drained:
        is_drained = yield from relay.drain(ports, 1)
    if not is_drained:
        yield from settle.undo(ports, closing)
        return
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
        ports.store.open(server, closing.decided().epoch, None)
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


def relayout_that_fences_afterwards(ports: Ports, layout: str) -> Steps[None]:
    """The new layout is in force, and then the shards hear of it."""
    yield relayout.LOOK
    found = ports.control.authority()
    closing = found.closing("Y")
    yield relayout.CLOSE
    if not ports.control.close(found, closing):
        return
    yield relayout.BARRIER
    if not ports.legacy.take_barrier():
        return
    yield relayout.SHUT
    if not ports.control.shut_gate(closing):
        return
    yield relayout.DECIDE
    ports.control.decide(closing, closing.relaid(layout))
    servers = ports.store.servers
    for server in servers:
        yield relayout.FENCE
        ports.store.close(server, closing.epoch)
    yield from settle.settle(ports)


def relayout_that_fences_too_low(ports: Ports, layout: str) -> Steps[None]:
    """What a relay claims while the row is closing passes shards that are at the epoch of the closing."""
    yield relayout.LOOK
    found = ports.control.authority()
    closing = found.closing("Y")
    yield relayout.CLOSE
    if not ports.control.close(found, closing):
        return
    yield relayout.BARRIER
    if not ports.legacy.take_barrier():
        return
    yield relayout.SHUT
    if not ports.control.shut_gate(closing):
        return
    servers = ports.store.servers
    for server in servers:
        yield relayout.FENCE
        if not ports.store.close(server, closing.epoch):
            return
    yield relayout.DECIDE
    ports.control.decide(closing, closing.relaid(layout))
    yield from settle.settle(ports)


def relayout_that_leaves_the_gate(ports: Ports, layout: str) -> Steps[None]:
    """The gate is shut already: the reverse mirror goes on until a process obeys the new row."""
    yield relayout.LOOK
    found = ports.control.authority()
    closing = found.closing("Y")
    yield relayout.CLOSE
    if not ports.control.close(found, closing):
        return
    yield relayout.BARRIER
    if not ports.legacy.take_barrier():
        return
    servers = ports.store.servers
    for server in servers:
        yield relayout.FENCE
        if not ports.store.close(server, closing.epoch):
            return
    yield relayout.DECIDE
    ports.control.decide(closing, closing.relaid(layout))
    yield from settle.settle(ports)


def relayout_that_checks_first(ports: Ports, layout: str, objection: relayout.Objection) -> Steps[None]:
    """There are no cells, and no process may put one after that."""
    yield relayout.CHECK
    if not objection():
        yield from relayout.relayout(ports, "Y", layout, str)
