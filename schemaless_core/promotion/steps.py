"""A promotion, step by step. Its process may die or be stopped at any of them, and any number may run at once.

Decision 61 says why each step stands where it does.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from schemaless_core.engine.primacy import NotNow, Reached
from schemaless_core.promotion.ports import HANDING_OVER, Busy, PromotionOrder, PromotionPorts, Record, Unheard
from schemaless_core.steps import Step, Steps

LOOK = Step("promotion.look", "read how far a promotion of this cluster is")
BEGIN = Step("promotion.begin", "write down that one begins, and which servers are given up")
BLOCK = Step("promotion.block", "have a voter allow no more lease to the old primary")
OUTLAST = Step("promotion.outlast", "wait until the last lease of the old primary has ended")
FENCE = Step("promotion.fence", "take all writes from a server")
CUT_OFF = Step("promotion.cut_off", "have a replica apply what it has fetched", 0.1)
MEASURE = Step("promotion.measure", "ask a server how far its changes go")
FETCH = Step("promotion.fetch", "have the next primary fetch what another replica has")
CATCH_UP = Step("promotion.catch_up", "wait until the next primary has all that there is", 0.05)
DECIDE = Step("promotion.decide", "write down which server leads from now on")
ASK = Step("promotion.ask", "ask which backend is the authority", 0.2)
OPEN = Step("promotion.open", "open the server with the next epoch")
FOLLOW = Step("promotion.follow", "make another server its replica")
END = Step("promotion.end", "write down that it is done")

#: In order. Where servers have leases, and one may be alive, BLOCK and OUTLAST come before FENCE.
PROMOTE = (LOOK, BEGIN, FENCE, CUT_OFF, MEASURE, FETCH, CATCH_UP, DECIDE, ASK, OPEN, FOLLOW, END)


class Stop(Enum):
    """Why a promotion did not go on."""

    SILENT = "silent"  #: A server that is not given up does not answer.
    OVERTAKEN = "overtaken"  #: Another promotion is further.
    DECIDED = "decided"  #: Which server will lead is decided, and is not the one that was asked for.
    ASTRAY = "astray"  #: Servers have changes that the next primary cannot get.
    NO_TARGET = "no target"  #: No server is left that could lead.
    PLANNED = "planned"  #: An operator asked for the one that is under way: it is not made a failover.
    BUSY = "busy"  #: Another cluster is promoted without an operator: each would wait for the promise of the other.
    UNLEASED = "unleased"  #: A server that may be alive takes writes without a lease: no wait outlasts it.


class Stopped(NamedTuple):
    """It may be gone on with: what is done stays done."""

    why: Stop
    #: The server or the cluster that it is about.
    server: str = ""


class Promoted(NamedTuple):
    """It is done."""

    record: Record
    #: Servers that did not become replicas.
    left: tuple[str, ...] = ()


class _Taken(NamedTuple):
    """The servers that this promotion has in hand, and whether one of them is open already."""

    answering: tuple[str, ...]
    is_open: bool


class _Most(NamedTuple):
    """The server that has the changes of all, and which these are."""

    server: str
    reached: Reached


def promote(ports: PromotionPorts, order: PromotionOrder) -> Steps[Promoted | Stopped]:
    """Make another server of a cluster its primary, or go on with the promotion that is under way."""
    yield LOOK
    record = ports.record.find()
    if is_fulfilled(record, order):
        return (yield from _attach(ports, record))
    if order.outlasts and not record.is_done and not record.outlasts:
        return Stopped(Stop.PLANNED)
    begun = _begun(ports, record, order)
    if begun.outlasts and not begun.was_leased:
        return Stopped(Stop.UNLEASED, _old(ports, begun))
    if not begun.target and not _candidates(ports, begun, order):
        return Stopped(Stop.NO_TARGET, order.to)
    if begun != record:
        yield BEGIN
        is_alone = begun.outlasts and record.is_done
        is_begun = (ports.record.begin_alone if is_alone else ports.record.change)(record, begun)
        if isinstance(is_begun, Busy):
            return Stopped(Stop.BUSY, is_begun.cluster)
        if not is_begun:
            return Stopped(Stop.OVERTAKEN)
        record = begun
    if record.target and order.to not in ("", record.target):
        return Stopped(Stop.DECIDED, record.target)
    if _may_be_alive(record, order):
        stopped = yield from _outlast(ports, record)
        if stopped is not None:
            return stopped
    fenced = yield from _fence(ports, record)
    if isinstance(fenced, Stopped):
        return fenced
    answering, is_open = fenced
    if is_open and not record.target:
        return Stopped(Stop.OVERTAKEN)  # the record is older than what a server knows
    if not record.target:
        target = yield from _choose(ports, record, answering, order)
        if isinstance(target, Stopped):
            return target
        yield DECIDE
        decided = record._replace(target=target)
        if not ports.record.change(record, decided):
            return Stopped(Stop.OVERTAKEN)
        record = decided
    elif not is_open:
        # Whether it is still this promotion's to open, asked by who has the server in hand.
        yield LOOK
        if ports.record.find() != record:
            return Stopped(Stop.OVERTAKEN)
    if not is_open:
        stopped = yield from _open(ports, record)
        if stopped is not None:
            return stopped
    return (yield from _follow(ports, record, answering))


def is_fulfilled(record: Record, order: PromotionOrder) -> bool:
    """Whether an order that is repeated was done: else it would be taken for the next one, and the server that leads
    for the one that is to go."""
    if not record.is_done or not record.target or record.target in order.given_up:
        return False
    if order.leases not in (None, record.is_leased):
        return False
    return record.target == order.to or (not order.to and bool(order.given_up))


def _old(ports: PromotionPorts, record: Record) -> str:
    return record.before or ports.servers.names[0]


def _candidates(ports: PromotionPorts, record: Record, order: PromotionOrder) -> tuple[str, ...]:
    """Servers that may lead from now on; the old primary only if it is asked for."""
    wanted = (order.to,) if order.to else ports.servers.names
    old = _old(ports, record)
    return tuple(
        server
        for server in wanted
        if server in ports.servers.names and server not in record.given_up and (order.to or server != old)
    )


def _begun(ports: PromotionPorts, record: Record, order: PromotionOrder) -> Record:
    """The record as this order wants it: of the promotion that is under way, or of the next one."""
    if record.is_done or record.target in order.given_up:
        # Who leads by another name since then is the configured primary.
        before = record.leads if record.leads in ports.servers.names else ""
        given_up, is_leased = tuple(sorted(set(order.given_up))), _are_leased(record, order)
        return Record(record.number + 1, before, given_up, "", False, order.outlasts, is_leased, record.is_leased)
    given_up, outlasts = tuple(sorted({*record.given_up, *order.given_up})), record.outlasts or order.outlasts
    is_leased = record.is_leased if record.target else _are_leased(record, order)  # decided, it stays so
    return record._replace(given_up=given_up, outlasts=outlasts, is_leased=is_leased)


def _are_leased(record: Record, order: PromotionOrder) -> bool:
    return record.is_leased if order.leases is None else order.leases


def _may_be_alive(record: Record, order: PromotionOrder) -> bool:
    """Whether a server that is given up may take writes, for all that this order says."""
    is_vouched = not order.outlasts and set(record.given_up) <= set(order.given_up)
    return record.outlasts and not is_vouched


def _outlast(ports: PromotionPorts, record: Record) -> Steps[Stopped | None]:
    """Until what is given up takes no writes, wherever it is. Each promotion waits the whole time by itself.

    The control database is the first voter: another primary that becomes a voter meanwhile learns of it there.
    """
    assert ports.voters is not None, "only servers with leases are given up while they may be alive"
    for voter in ports.voters.names:
        yield BLOCK
        if isinstance(ports.voters.block(voter, record.number), Unheard):
            return Stopped(Stop.SILENT, voter)
    yield OUTLAST
    ports.voters.outlast()
    return None


def _fence(ports: PromotionPorts, record: Record) -> Steps[_Taken | Stopped]:
    """Take all servers but those that were given up; and those, too, if they answer."""
    taken, old = _Taken((), False), _old(ports, record)
    # The old primary last: as long as another server is silent, callers notice nothing.
    for server in sorted(ports.servers.names, key=old.__eq__):
        yield FENCE
        leader = ports.servers.fence(server, record.number, server == old)
        if isinstance(leader, Unheard):
            if server not in record.given_up:
                return Stopped(Stop.SILENT, server)
            continue
        if leader.number > record.number:
            return Stopped(Stop.OVERTAKEN, server)
        is_open = taken.is_open or leader.number == record.number
        answering = taken.answering if server in record.given_up else (*taken.answering, server)
        taken = _Taken(answering, is_open)
    return taken


def _choose(
    ports: PromotionPorts, record: Record, answering: tuple[str, ...], order: PromotionOrder
) -> Steps[str | Stopped]:
    """The server that leads from now on. It has all changes of every server that is not given up."""
    candidates = _candidates(ports, record, order)
    if _old(ports, record) not in answering:  # nothing more comes from there
        for server in answering:
            stopped = yield from _cut_off(ports, server)
            if stopped is not None:
                return stopped
    most = yield from _most_advanced(ports, answering)
    if isinstance(most, Stopped):
        return most
    target = most.server if most.server in candidates else candidates[0]
    if target != most.server:
        stopped = yield from _catch_up(ports, target, most)
        if stopped is not None:
            return stopped
    return target


def _cut_off(ports: PromotionPorts, server: str) -> Steps[Stopped | None]:
    while True:
        yield CUT_OFF
        is_applied = ports.servers.cut_off(server)
        if isinstance(is_applied, Unheard):
            return Stopped(Stop.SILENT, server)
        if is_applied:
            return None


def _most_advanced(ports: PromotionPorts, answering: tuple[str, ...]) -> Steps[_Most | Stopped]:
    """The server that has the changes of all. How far these go is asked last: replicas fetch meanwhile."""
    for server in answering:
        has_all = True
        for other in answering:
            if other != server and has_all:
                yield MEASURE
                others = ports.servers.reached(other)
                if isinstance(others, Unheard):
                    return Stopped(Stop.SILENT, other)
                yield MEASURE
                has = ports.servers.has(server, others)
                if isinstance(has, Unheard):
                    return Stopped(Stop.SILENT, server)
                has_all = has
        if has_all:
            yield MEASURE
            reached = ports.servers.reached(server)
            return Stopped(Stop.SILENT, server) if isinstance(reached, Unheard) else _Most(server, reached)
    return Stopped(Stop.ASTRAY)


def _catch_up(ports: PromotionPorts, target: str, most: _Most) -> Steps[Stopped | None]:
    """It fetches what it lacks, as a replica of the server that has it."""
    yield FETCH
    if isinstance(ports.servers.follow(target, most.server), Unheard):
        return Stopped(Stop.SILENT, target)
    while True:
        yield CATCH_UP
        has = ports.servers.has(target, most.reached)
        if isinstance(has, Unheard):
            return Stopped(Stop.SILENT, target)
        if has:
            return None


def _open(ports: PromotionPorts, record: Record) -> Steps[Stopped | None]:
    """At the authority epoch of now: no hand-over is decided without the word of a server that is fenced."""
    while True:
        yield ASK
        opening = ports.authority.opening()
        if opening is HANDING_OVER:
            continue
        yield OPEN
        answer = ports.servers.open(record.target, record.number, opening)
        if isinstance(answer, Unheard):
            return Stopped(Stop.SILENT, record.target)
        if isinstance(answer, NotNow):
            continue  # there was a hand-over since the authority was asked
        return None if answer.number == record.number else Stopped(Stop.OVERTAKEN, record.target)


def _attach(ports: PromotionPorts, record: Record) -> Steps[Promoted | Stopped]:
    """Of a promotion that is done: have those servers follow that did not answer when it was."""
    answering: tuple[str, ...] = ()
    for server in ports.servers.names:
        if server == record.target or server in record.given_up:
            continue
        yield FENCE
        leader = ports.servers.fence(server, record.number, False)
        if isinstance(leader, Unheard):
            continue
        if leader.number > record.number:
            return Stopped(Stop.OVERTAKEN, server)
        answering = (*answering, server)
    return (yield from _follow(ports, record, answering))


def _follow(ports: PromotionPorts, record: Record, answering: tuple[str, ...]) -> Steps[Promoted | Stopped]:
    left = tuple(server for server in ports.servers.names if server not in (*answering, record.target))
    for server in answering:
        if server != record.target:
            yield FOLLOW
            if isinstance(ports.servers.follow(server, record.target), Unheard):
                left = (*left, server)
    if record.is_done:
        return Promoted(record, left)
    yield END
    done = record._replace(is_done=True)
    return Promoted(done, left) if ports.record.change(record, done) else Stopped(Stop.OVERTAKEN)
