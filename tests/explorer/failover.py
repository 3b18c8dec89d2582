"""The procedures that are to bear a Postgres which goes back to an earlier state (decision 0044).

What a promoted Postgres says of itself is not believed before it is accepted, by the steps of production. How far the
reverse mirror is, Postgres says, in a row that goes back when Postgres goes back: production's mirror has that, in code
of its own, and counts on its way back by the lesser of that and the shard's offset.
"""

from __future__ import annotations

from schemaless_core.errors import StaleEpoch
from tests.explorer.programs import Tools
from tests.explorer.rules import Actor
from tests.explorer.world import Put, cell
from tripstore.handover import accept, reverse, settle, switch
from tripstore.handover.authority import Backend
from tripstore.handover.call import call
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

FROM = Step("reverse.from", "ask Postgres how far it is")
READ = Step("reverse.read", "read what follows")
MOVE = Step("reverse.move", "tell Postgres how far it is now, if it is where this page began")
ASK = Step("back.ask", "ask Postgres how far the reverse mirror is")


def mirror(name: str, key: int) -> Actor:
    """The reverse mirror of a shard. Its offset stands in Postgres, committed after the rows that it speaks of."""

    def code(tools: Tools) -> Steps[None]:
        yield FROM
        start = tools.positions.find(key)
        yield READ
        page = tools.positions.read(key, start.position, 1)
        if not page.cells:
            return
        yield reverse.LOOK
        row = tools.ports.control.authority()
        row.check_layout(tools.ports.layout)
        if row.backend is Backend.STORE:
            yield reverse.WRITE
            try:
                tools.hands.write(page.cells, row.epoch if row.is_open else row.epoch - 1)
            except StaleEpoch:  # the gate is behind the row: a keeper sees to that
                return
        yield MOVE
        tools.positions.move(key, start, page.position, row)

    return Actor(name, code, repeats=True, carries=key)


def reverser(name: str) -> Actor:
    return Actor(name, lambda tools: reverse_(tools, name), restarts=False, may_stop=True)


def reverse_(tools: Tools, switch_id: str) -> Steps[None]:
    """The way back: Postgres says how far it is. On another timeline than that of the closing it decides nothing."""
    ports = tools.ports
    yield switch.BACK_LOOK
    found = ports.control.authority()
    if not found.is_open_for(Backend.STORE):
        return
    closing = found.closing(switch_id)
    yield switch.BACK_CLOSE
    if not ports.control.close(found, closing):
        return
    servers = ports.store.servers
    for server in servers:
        yield switch.BACK_SHUT
        if not ports.store.close(server, closing.epoch):
            yield from settle.undo(ports, closing)
            return
    yield ASK
    applied = tools.positions.all()
    for server in servers:
        yield switch.BACK_COUNT
        while tools.positions.unmirrored(server, applied):
            yield ASK
            applied = tools.positions.all()
            yield switch.BACK_COUNT
    yield switch.BACK_DECIDE
    if not ports.control.decide(closing, closing.decided()):
        yield from settle.undo(ports, closing)
        return
    yield from settle.settle(ports)


def switcher_that_puts(name: str, key: int) -> Actor:
    """Switches, then puts a cell: a service that comes at once, and nothing of it in between."""

    def code(tools: Tools) -> Steps[None]:
        outcome = yield from switch.switch(tools.ports, name, 1, 1)
        if outcome.is_decided:
            yield from call(tools.ports, outcome.authority, Put(cell(key, 3, name)))

    return Actor(name, code, restarts=False)


def keeper(name: str = "K", *, settles: bool = True) -> Actor:
    """Any process that finds a hand-over unfinished, or a Postgres that is not accepted; one who settles: anybody."""
    return Actor(name, lambda tools: keep(tools.ports, settles=settles), repeats=True, watches=True)


def keep(ports: Ports, *, settles: bool) -> Steps[None]:
    acceptance = yield from accept.accept(ports, settles=settles)
    if acceptance.is_accepted:
        yield from settle.mend(ports)
