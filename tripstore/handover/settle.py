"""What a process does that finds a hand-over unfinished: undo it before its decision, finish it after.

The row decides: a process that loses a compare-and-set obeys the row like all others. All of this may be done by many
at once and as often as wanted; a process that was stopped in the middle does no harm when it goes on.
"""

from __future__ import annotations

from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps

LOOK = Step("settle.look", "read the authority row")
WAIT = Step("settle.wait", "wait for the hand-over to end", pause_seconds=0.005)
UNDO = Step("settle.undo", "reopen the old authority, unless the hand-over is decided")
OBEY = Step("settle.obey", "end the session that holds the barrier, set the gate of Postgres to what the row says")
OPEN = Step("settle.open", "open the shards of each server at the row's epoch")


def settle(ports: Ports) -> Steps[Authority]:
    """Make both stores what the row says, if it is open; return the row."""
    yield OBEY
    row = ports.control.obey()
    if row.is_open_for(Backend.STORE):
        servers = ports.store.servers
        for server in servers:
            yield OPEN
            ports.store.open(
                server, row.epoch, row.layout
            )  # one that does not answer is opened by the process that finds it behind
    return row


def undo(ports: Ports, closing: Authority) -> Steps[Authority]:
    """Undo it: before the decision any process may. Won or lost, the row says what to do next."""
    yield UNDO
    ports.control.undo(closing, closing.undone())
    return (yield from settle(ports))


def mend(ports: Ports) -> Steps[Authority]:
    """Leave no hand-over behind unfinished."""
    yield LOOK
    row = ports.control.authority()
    if row.is_open:
        return (yield from settle(ports))
    return (yield from undo(ports, row))


def follow(ports: Ports, known: Authority) -> Steps[Authority]:
    """Return the row to go by after a store refused the one that was known."""
    while True:
        yield LOOK
        row = ports.control.authority()
        if row.is_open and row != known:
            return row
        if row.is_open:  # it should be open, and says that it is not: the process that decided did not come to tell it
            return (yield from settle(ports))
        yield WAIT
        if ports.control.is_overdue(row):
            return (yield from undo(ports, row))
