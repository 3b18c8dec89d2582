"""A Postgres that was promoted, or put back to an earlier state, says nothing that counts before it is accepted.

Its row may lack decisions. A shard that was open to owners above the row proves that one was lost: then Schemaless is
the authority, for it has all that it acknowledged. Else the row is right about the backend, and a hand-over that was
closing is undone. Anybody may do this, many at once, and be killed anywhere: what is asked of the shards they remember.
"""

from __future__ import annotations

from typing import NamedTuple

from tripstore.handover import settle
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports, Standing
from tripstore.handover.steps import Step, Steps

#: An epoch above all that a Postgres has given, and may have given before it was lost, whatever of that is known.
EPOCHS_PER_TIMELINE = 1_000_000

LOOK = Step("accept.look", "read the authority row, and the timeline of the Postgres that answers")
ASK = Step("accept.ask", "ask each server at which epoch its shards were open last")
FENCE = Step("accept.fence", "close the shards of each server to all that the lost Postgres decided; each acknowledges")
ACCEPT = Step("accept.accept", "accept this Postgres: the row takes an epoch above")

#: In order, as a plan shows them.
STEPS = (LOOK, ASK, FENCE, ASK, ACCEPT, settle.OBEY, settle.OPEN)


class Acceptance(NamedTuple):
    """What became of it."""

    is_accepted: bool
    #: As it is now.
    authority: Authority
    #: Why it was not accepted.
    reason: str = ""
    #: Whether a decision was lost, as far as it was asked for.
    has_lost: bool = False


def accept(ports: Ports, *, settles: bool = False, without: tuple[str, ...] = (), who: str = "") -> Steps[Acceptance]:
    """Accept the Postgres that answers. Where it has lost a decision, only one who `settles` does it; one
    that was lost between the two looks is settled by who found it, since the shards are shut by then.

    `without`: of these servers an operator says that they are down and open nothing that the lost Postgres decided.
    """
    yield LOOK
    found = ports.control.standing()
    if found.is_accepted:
        return Acceptance(True, found.row)
    fence = fence_of(found)
    servers = tuple(server for server in ports.store.servers if server not in without)
    # Nothing is closed for one who may not go on: while an operator is waited for, callers go on at Schemaless.
    opened = 0
    for server in servers:
        yield ASK
        opened = max(opened, ports.store.opened(server))
    if opened > found.row.epoch and not settles:
        return Acceptance(False, found.row, lost_decision(opened, found.row), True)
    if opened > fence:
        yield LOOK
        again = ports.control.standing()
        if again != found:  # who accepts it opens shards after the row has changed
            return Acceptance(False, again.row, "another process was faster")
        fence = (timeline_of(opened) + 1) * EPOCHS_PER_TIMELINE + 1
    for server in servers:
        yield FENCE
        if not ports.store.close(server, fence):
            return Acceptance(False, found.row, f"{server} did not acknowledge")
    # Once more: an opening of the lost Postgres may have come in between. From now on none can.
    for server in servers:
        yield ASK
        opened = max(opened, ports.store.opened(server))
    has_lost = opened > found.row.epoch
    backend = Backend.STORE if has_lost else found.row.backend
    accepted = Authority(fence + 1, backend, None, found.row.switch_id, None, who, found.row.layout)
    yield ACCEPT
    is_mine = ports.control.accept(found.row, accepted, found.timeline)
    if not is_mine:
        return Acceptance(False, found.row, "another process was faster", has_lost)
    row = yield from settle.settle(ports)
    return Acceptance(True, row, "", has_lost)


def fence_of(found: Standing) -> int:
    """The same for all who find this: an odd epoch, as while a hand-over goes on."""
    return max(found.timeline, timeline_of(found.row.epoch) + 1) * EPOCHS_PER_TIMELINE + 1


def timeline_of(epoch: int) -> int:
    """The upper part of an epoch: grows with each acceptance, and is never below the timeline that was accepted."""
    return epoch // EPOCHS_PER_TIMELINE


def lost_decision(opened: int, row: Authority) -> str:
    """What proves it."""
    return (
        f"Postgres has lost a decision: shards were opened at epoch {opened},"
        f" and the authority row is at {row.epoch}, {row.backend.value}"
    )
