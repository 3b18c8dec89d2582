"""A move of a shard, step by step. Its process may die or be stopped at any of them, and any number may run at once.

Decision 70 says why each step stands where it does.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.moves.ports import Arrival, MovePorts, MoveRecord, MoveSeen, MoveState, PageRead, Placed, ShardSeen
from schemaless_core.promotion.ports import HandingOver, Unheard
from schemaless_core.steps import Step, Steps

LOOK = Step("move.look", "read how far a move of this shard is")
BEGIN = Step("move.begin", "write down that one begins")
RESUME = Step("move.resume", "see whether a move has left the shard closed")
PREPARE = Step("move.prepare", "make tables for the copy")
READ = Step("move.read", "read a page of the log")
CUT = Step("move.cut", "take from the copy what a promotion took from the log")
WRITE = Step("move.write", "write a page of the log")
PRACTISE = Step("move.practise", "copy what changes beside the log, and see how long that takes")
NEAR = Step("move.near", "see whether replicas of the other cluster follow so closely that a closed shard may wait")
CLAIMED = Step("move.claimed", "see whether the copy is still written by this process")
LEAVE = Step("move.leave", "take all writes from the shard")
HOLD = Step("move.hold", "see whether the shard was closed for too long")
BESIDE = Step("move.beside", "copy what has changed beside the log")
REPLICATED = Step("move.replicated", "wait until the replicas of the other cluster have the copy", 0.02)
DECIDE = Step("move.decide", "write down that the other cluster owns the shard")
GIVE_UP = Step("move.give_up", "write down that the shard stays")
ARRIVE = Step("move.arrive", "make the copy the shard", 0.1)
CLOSE = Step("move.close", "make the old shard a copy")
RETURN = Step("move.return", "look at the shard that stays", 0.1)
ASK = Step("move.ask", "ask which backend is the authority", 0.05)
OPEN = Step("move.open", "open the shard")
LATE = Step("move.late", "give the shard what groups began with meanwhile")
FORGET = Step("move.forget", "take offsets and parked cells from the old copy")
END = Step("move.end", "write down that it is done")

#: In order.
MOVE = (
    LOOK,
    BEGIN,
    PREPARE,
    READ,
    WRITE,
    PRACTISE,
    NEAR,
    CLAIMED,
    LEAVE,
    BESIDE,
    REPLICATED,
    DECIDE,
    ARRIVE,
    CLOSE,
    ASK,
    OPEN,
    LATE,
    FORGET,
    END,
)

#: The copy is near when what is left is no more cells than this: they are copied while the shard takes no writes.
NEAR_CELLS = 200

_OPEN = (ShardStatus.RW.value, ShardStatus.COPY.value)
_GOING, _COMES, _MOVED = ShardStatus.GOING.value, ShardStatus.COMES.value, ShardStatus.MOVED.value


class MoveStop(Enum):
    """Why a move did not go on."""

    SILENT = "silent"  #: A cluster does not answer.
    OVERTAKEN = "overtaken"  #: Another move of the shard has gone on.
    OTHER = "other"  #: One to another cluster is under way.
    FENCED = "fenced"  #: A cluster is being promoted.
    STAYED = "stayed"  #: It was given up: the shard is where it was.
    NEAR = "near"  #: The last cells, or what changes beside the log, would take too long.


class MoveStopped(NamedTuple):
    """It may be gone on with: what is done stays done."""

    why: MoveStop
    cluster: str = ""


class Moved(NamedTuple):
    """It is done."""

    placed: Placed


def move(ports: MovePorts, to: str) -> Steps[Moved | MoveStopped]:
    """Move the shard to a cluster, or go on with the move that is under way.

    One that has ended meanwhile, with the shard where it was, was given up: it is not begun again.
    """
    is_begun = False
    while True:
        yield LOOK
        seen = ports.record.find()
        if seen.move.state is MoveState.DONE:
            if seen.placed.cluster == to:
                return Moved(seen.placed)
            if is_begun:
                return MoveStopped(MoveStop.STAYED)
            yield BEGIN
            if not ports.record.change(seen, MoveRecord(MoveState.COPY, seen.placed.cluster, to)):
                return MoveStopped(MoveStop.OVERTAKEN)
            continue
        if seen.move.target != to:
            return MoveStopped(MoveStop.OTHER, seen.move.target)
        is_begun = True
        ended = yield from _go_on(ports, seen)
        if ended is not None:
            return ended


def give_up(ports: MovePorts) -> Steps[Moved | MoveStopped]:
    """Have the shard stay, unless it is decided that it goes; then go on with the move."""
    while True:
        yield LOOK
        seen = ports.record.find()
        if seen.move.state is MoveState.DONE:
            return Moved(seen.placed)
        if seen.move.state is MoveState.COPY:
            yield from _decide_to_stay(ports, seen)
            continue
        ended = yield from _go_on(ports, seen)
        if ended is not None:
            return ended


def _go_on(ports: MovePorts, seen: MoveSeen) -> Steps[Moved | MoveStopped | None]:
    """None: look again."""
    if seen.move.state is MoveState.COPY:
        return (yield from _copy(ports, seen))
    if seen.move.state is MoveState.OVER:
        return (yield from _over(ports, seen))
    return (yield from _stay(ports, seen))


def _copy(ports: MovePorts, seen: MoveSeen) -> Steps[MoveStopped | None]:
    """Until the copy is near; then take the writes from the shard, copy the rest, and decide."""
    source, target = seen.move.source, seen.move.target
    yield RESUME
    found = ports.shards.look(source)
    if isinstance(found, Unheard):
        return MoveStopped(MoveStop.SILENT, source)
    if found.state == _GOING:  # a process died there: opened again it waits for no copy to be compared
        yield from _decide_to_stay(ports, seen)
        return None
    yield PREPARE
    if isinstance(ports.shards.prepare(target, seen.placed.epoch), Unheard):
        return MoveStopped(MoveStop.SILENT, target)
    stopped = yield from _catch_up(ports, seen, NEAR_CELLS)
    if stopped is not None:
        return stopped
    yield PRACTISE
    practised = ports.copies.beside(source, target, 0)
    if isinstance(practised, Unheard):
        return MoveStopped(MoveStop.SILENT, target)
    if not practised:
        return (yield from _claimed(ports, target)) or MoveStopped(MoveStop.NEAR, target)
    stopped = (
        (yield from _replicated(ports, target))
        or (yield from _quick(ports, target))
        or (yield from _catch_up(ports, seen, NEAR_CELLS))
        or (yield from _claimed(ports, target))
    )
    if stopped is not None:
        return stopped
    yield LEAVE
    going = ports.shards.leave(source, seen.placed.epoch)
    if isinstance(going, Unheard):
        return MoveStopped(MoveStop.SILENT, source)
    if (going.state, going.epoch) != (_GOING, seen.placed.epoch):
        return MoveStopped(MoveStop.FENCED, source)
    if (yield from _last_copied(ports, seen)):
        yield DECIDE
        ports.record.decide(seen, MoveRecord(MoveState.OVER, source, target, going.epoch, going.head))
    else:
        yield from _decide_to_stay(ports, seen)
    return None


def _quick(ports: MovePorts, cluster: str) -> Steps[MoveStopped | None]:
    """Replicas may be behind, as other movers copy to them: a shard is not closed to wait for that."""
    yield NEAR
    return None if ports.patience.was_quick() else MoveStopped(MoveStop.SILENT, cluster)


def _claimed(ports: MovePorts, cluster: str) -> Steps[MoveStopped | None]:
    """A shard is not closed for a copy that another process has claimed: it would be opened again."""
    yield CLAIMED
    is_claimed = ports.shards.claims(cluster)
    if isinstance(is_claimed, Unheard):
        return MoveStopped(MoveStop.SILENT, cluster)
    return None if is_claimed else MoveStopped(MoveStop.OVERTAKEN)


def _last_copied(ports: MovePorts, seen: MoveSeen) -> Steps[bool]:
    """While the shard takes no writes."""
    stopped = yield from _catch_up(ports, seen, 0)
    yield HOLD
    if stopped is not None or ports.patience.is_over():
        return False
    yield BESIDE
    if ports.copies.beside(seen.move.source, seen.move.target, seen.placed.epoch + 1) is not True:
        return False
    return (yield from _replicated(ports, seen.move.target)) is None


def _replicated(ports: MovePorts, cluster: str) -> Steps[MoveStopped | None]:
    """Until a replica that is promoted has all of the copy. Else cells that were safe where they were would be lost."""
    while True:
        yield REPLICATED
        has = ports.shards.replicated(cluster)
        if has is True:
            return None
        yield HOLD
        if isinstance(has, Unheard) or ports.patience.is_over():
            return MoveStopped(MoveStop.SILENT, cluster)


def _decide_to_stay(ports: MovePorts, seen: MoveSeen) -> Steps[None]:
    yield GIVE_UP
    ports.record.decide(seen, seen.move._replace(state=MoveState.STAY))


def _catch_up(ports: MovePorts, seen: MoveSeen, near: int) -> Steps[MoveStopped | None]:
    """Until the copy has all but `near` cells of the log. It knows by itself how far it is."""
    source, target = seen.move.source, seen.move.target
    yield READ
    copy = ports.shards.look(target)
    while True:
        if isinstance(copy, Unheard):
            return MoveStopped(MoveStop.SILENT, target)
        if copy.state != _MOVED:
            return None  # another process has gone on
        yield READ
        page = ports.copies.read(source, copy.head)
        if isinstance(page, Unheard):
            return MoveStopped(MoveStop.SILENT, source)
        if page.seen.epoch < copy.epoch:
            return MoveStopped(MoveStop.FENCED, source)  # the server led before
        before = copy
        if page.seen.epoch > copy.epoch:
            yield CUT
            copy = ports.copies.cut(target, copy, page.seen.epoch, _kept(copy, page))
        elif copy.head + near >= page.seen.head:
            return None
        else:
            yield WRITE
            copy = ports.copies.write(target, page, copy.head, copy.epoch)
        if copy == before:
            return MoveStopped(MoveStop.OVERTAKEN)  # another process has claimed the copy


def _kept(copy: ShardSeen, page: PageRead) -> int:
    """The last added id that is the same in a copy of an earlier epoch: a promotion may have forked the log below."""
    return min((first - 1 for epoch, first in page.forks if copy.epoch < epoch <= page.seen.epoch), default=0)


def _over(ports: MovePorts, seen: MoveSeen) -> Steps[Moved | MoveStopped | None]:
    """The decision is made: every process that comes along may carry it out."""
    source, target, epoch = seen.move.source, seen.move.target, seen.placed.epoch
    yield ARRIVE
    come = ports.shards.arrive(target, Arrival(epoch, seen.move.epoch, seen.move.last))
    if isinstance(come, Unheard):
        return MoveStopped(MoveStop.SILENT, target)
    if come.state == _MOVED:  # a promotion of the target has lost the end of the copy
        yield PREPARE
        if isinstance(ports.shards.prepare(target, epoch), Unheard):
            return MoveStopped(MoveStop.SILENT, target)
        stopped = yield from _catch_up(ports, seen, 0)
        if stopped is not None:
            return stopped
        yield BESIDE
        copied = ports.copies.beside(source, target, epoch)
        return MoveStopped(MoveStop.SILENT, target) if isinstance(copied, Unheard) else None
    # First, if it answers: a reader that knows no better finds nothing there from the moment that puts are taken here.
    yield CLOSE
    closed = ports.shards.close(source, seen.move.epoch)
    opened = yield from _open(ports, target, come, epoch)
    if not isinstance(opened, ShardSeen):
        return opened
    yield LATE
    if isinstance(closed, Unheard) or isinstance(ports.copies.late(source, target), Unheard):
        return MoveStopped(MoveStop.SILENT, source)
    # A replica that knows of a copy alone, and is promoted, would have no shard.
    stopped = yield from _replicated(ports, target)
    if stopped is not None:
        return stopped
    yield FORGET
    if isinstance(ports.copies.forget(source, seen.move.epoch), Unheard):
        return MoveStopped(MoveStop.SILENT, source)
    return (yield from _end(ports, seen))


def _stay(ports: MovePorts, seen: MoveSeen) -> Steps[Moved | MoveStopped | None]:
    source = seen.move.source
    yield RETURN
    found = ports.shards.look(source)
    if isinstance(found, Unheard):
        return MoveStopped(MoveStop.SILENT, source)
    opened = yield from _open(ports, source, found, seen.placed.epoch)
    if not isinstance(opened, ShardSeen):
        return opened
    ended = yield from _end(ports, seen)
    return MoveStopped(MoveStop.STAYED) if isinstance(ended, Moved) else ended


def _open(ports: MovePorts, cluster: str, found: ShardSeen, epoch: int) -> Steps[ShardSeen | MoveStopped | None]:
    """At the authority epoch of now; None: look again."""
    while found.state not in _OPEN or found.epoch < epoch:
        if found.state == ShardStatus.RO.value:
            return MoveStopped(MoveStop.FENCED, cluster)  # a promotion has it, and opens it
        if found.epoch > epoch or found.state == _MOVED:
            return None
        if found.state == _GOING and found.epoch == epoch:
            return None  # it was opened, and a later move has closed it
        yield ASK
        opening = ports.authority.opening()
        if isinstance(opening, HandingOver):
            continue
        yield OPEN
        answer = ports.shards.open(cluster, epoch, opening)
        if isinstance(answer, Unheard):
            return MoveStopped(MoveStop.SILENT, cluster)
        found = answer
    return found


def _end(ports: MovePorts, seen: MoveSeen) -> Steps[Moved | None]:
    yield END
    is_done = ports.record.change(seen, seen.move._replace(state=MoveState.DONE))
    return Moved(seen.placed) if is_done else None
