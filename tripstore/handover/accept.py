"""A Postgres that was promoted, or put back to an earlier state, says nothing that counts before it is accepted.

Its row may lack decisions. A shard that was open to owners above the row proves that one was lost: then Schemaless is
the authority, for it has all that it acknowledged. Else the row is right about the backend, and a hand-over that was
closing is undone. Any process may do this, many at once, and be killed anywhere. The shards remember what they were
asked; at which epoch this Postgres is accepted stands in its own row, above all that any other one has given.
"""

from __future__ import annotations

from typing import NamedTuple

from tripstore.handover import settle
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports, StatedAuthority
from tripstore.handover.steps import Step, Steps

#: An epoch above all that a Postgres has given, and may have given before it was lost, whatever of that is known.
EPOCHS_PER_TIMELINE = 1_000_000

LOOK = Step("accept.look", "read the authority row, and the timeline of the Postgres that answers")
ASK = Step("accept.ask", "ask each server at which epoch its shards were open last")
REACH = Step("accept.reach", "ask each server at which epoch its shards are, closed or open")
RESERVE = Step("accept.reserve", "write into this Postgres above which epoch it is accepted: for all who accept it")
FENCE = Step("accept.fence", "close the shards of each server to all that the lost Postgres decided; each acknowledges")
ACCEPT = Step("accept.accept", "accept this Postgres: the row takes an epoch above")

#: In order, as a plan shows them.
STEPS = (LOOK, ASK, REACH, RESERVE, FENCE, ASK, ACCEPT, settle.OBEY, settle.OPEN)


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
    """Accept the Postgres that answers. Where it has lost a decision, only a caller that `settles` does so.

    A decision that was lost between the two looks is settled by the caller that found it: the shards are shut by then.

    `without`: of these servers an operator says that they are down and open nothing that the lost Postgres decided.
    """
    yield LOOK
    found = ports.control.stated_authority()
    if found.is_accepted:
        return Acceptance(True, found.row)
    servers = tuple(server for server in ports.store.servers if server not in without)
    # A caller that may not go on closes nothing: until an operator comes, callers go on at Schemaless.
    opened = 0
    for server in servers:
        yield ASK
        opened = max(opened, ports.store.opened(server))
    if opened > found.row.epoch and not settles:
        return Acceptance(False, found.row, lost_decision(opened, found.row), True)
    reached = opened
    for server in servers:
        yield REACH
        reached = max(reached, ports.store.reached(server))
    # Of another Postgres shards may have reached more: the old primary has its timeline, two standbys have the same.
    if not is_reserved(found, reached):
        if is_passed_by(found, reached) and not settles:
            return Acceptance(False, found.row, lost_acceptance(reached, found.row))
        reserving = found.reserving(generation_above(found, reached))
        yield RESERVE
        if not ports.control.reserve(found, reserving):
            return Acceptance(False, found.row, "another process was faster")
        found = reserving
    fence = fence_of(found)
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
    is_mine = ports.control.accept(found, accepted)
    if not is_mine:
        return Acceptance(False, found.row, "another process was faster", has_lost)
    row = yield from settle.settle(ports)
    return Acceptance(True, row, "", has_lost)


def is_reserved(found: StatedAuthority, reached: int) -> bool:
    """Whether an acceptance of this very Postgres was begun, and no shard has passed it by since."""
    reserved = found.reserved
    return reserved is not None and reserved.timeline == found.timeline and reached <= fence_of(found)


def is_passed_by(found: StatedAuthority, reached: int) -> bool:
    """Whether another Postgres was accepted, of which this one knows nothing: which is the right one?"""
    is_mine = found.is_accepted or is_reserved(found, reached)
    return not is_mine and generation_of(reached) > generation_of(found.row.epoch)


def generation_above(found: StatedAuthority, reached: int) -> int:
    """One whose epochs no Postgres has given, and none that was copied on the way to its own acceptance."""
    known = generation_of(max(found.row.epoch, reached))
    return max(found.timeline, known + 1, 0 if found.reserved is None else found.reserved.generation + 1)


def fence_of(found: StatedAuthority) -> int:
    """The same for all processes that find this reserved: an odd epoch, as while a hand-over goes on."""
    assert found.reserved is not None
    return found.reserved.generation * EPOCHS_PER_TIMELINE + 1


def generation_of(epoch: int) -> int:
    """The upper part of an epoch: grows with each acceptance, and is never below the timeline that was accepted."""
    return epoch // EPOCHS_PER_TIMELINE


def end_of_generation(epoch: int) -> int:
    """The first epoch that only another Postgres, accepted later, can give."""
    return (generation_of(epoch) + 1) * EPOCHS_PER_TIMELINE


def lost_acceptance(reached: int, row: Authority) -> str:
    """What the operator is told: this may be the old primary, and the address led to it by mistake."""
    return (
        f"another Postgres was accepted meanwhile: shards are at epoch {reached},"
        f" and the authority row is at {row.epoch}, {row.backend.value}"
    )


def lost_decision(opened: int, row: Authority) -> str:
    """What proves it."""
    return (
        f"Postgres has lost a decision: shards were opened at epoch {opened},"
        f" and the authority row is at {row.epoch}, {row.backend.value}"
    )
