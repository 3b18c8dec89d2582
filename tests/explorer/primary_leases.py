"""What one call does to leases: of voters, of the primary whose lease is extended, of puts under a lease.

The first voter is the control database. The second is the primary of another cluster, which may get another server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemaless_core.promotion.ports import SILENT, Clock
from tests.explorer.primaries import (
    RW,
    Cells,
    Handler,
    Leases,
    Outcomes,
    PrimaryScene,
    World,
    cells_of,
    is_leased,
    newest,
    shard_of,
    with_change,
)
from tests.explorer.programs import SERVERS
from tests.explorer.world import At, Done, Violation, replaced

#: So many waits are followed; a world in which there are more is not.
WAITS = 3
CONTROL, HEIR = 0, 1
#: By the clock of another server.
NEVER_ENDS = WAITS + 1


def first_leases(scene: PrimaryScene) -> Leases | None:
    return Leases((0,) + (-1,) * (scene.servers - 1), (0,) * scene.servers) if scene.has_leases else None


def is_followed(w: World) -> bool:
    return w.leases is None or w.leases.begun < WAITS


def _leases(w: World) -> Leases:
    assert w.leases is not None
    return w.leases


def _with(w: World, **changes: Any) -> World:
    return w._replace(leases=_leases(w)._replace(**changes))


# ---- voters ------------------------------------------------------------------------------------------------------


def _noted(w: World, voter: int, scene: PrimaryScene) -> list[int]:
    """What may be answered, by whichever server of the voter is asked; nothing: none may answer."""
    leases = _leases(w)
    if voter != HEIR:
        return [leases.notes[voter]]
    found = [leases.heir.noted] if leases.heir.noted is not None else []
    if leases.heir.is_first_leased or not scene.lease_rules.voter_is_leased:
        found.append(leases.notes[HEIR])
    return found


def _named(name: str, scene: PrimaryScene, *, blocks: bool) -> int:
    voter = SERVERS.index(name)
    is_other_way = blocks and not scene.lease_rules.control_first
    return {CONTROL: HEIR, HEIR: CONTROL}.get(voter, voter) if is_other_way else voter


def allows(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    name, number = arguments
    yield f"hears nothing of voter {name}", w, Done(SILENT)
    for noted in _noted(w, _named(name, scene, blocks=False), scene):
        is_allowed = number >= noted or not scene.lease_rules.asks_voter
        yield f"hears of voter {name}, which noted {noted}: {is_allowed}", w, Done(is_allowed)


def block(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    name, number = arguments
    voter = _named(name, scene, blocks=True)
    leases = _leases(w)
    yield f"hears nothing of voter {name}", w, Done(SILENT)
    if voter != CONTROL and not scene.lease_rules.blocks_all:
        yield f"leaves voter {name} out", w, Done(None)
    elif voter == HEIR and leases.heir.noted is not None:
        heir = leases.heir._replace(noted=max(leases.heir.noted, number))
        yield f"blocks the second server of voter {voter}", _with(w, heir=heir), Done(None)
    elif voter != HEIR or leases.heir.is_first_leased:
        notes = replaced(leases.notes, voter, max(leases.notes[voter], number))
        yield f"blocks voter {voter}", _with(w, notes=notes), Done(None)


def outlast(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    leases = _leases(w)
    if not scene.lease_rules.outlasts:
        yield "does not wait", w, Done(None)
    elif phase is None:
        if is_followed(w):
            yield "begins to wait", _with(w, begun=leases.begun + 1), At(leases.begun + 1)
    else:
        yield "has waited", _with(w, ended=max(leases.ended, phase)), Done(None)


def inherited(w: World, n: int, scene: PrimaryScene) -> World:
    if w.leases is None or scene.lease_rules.lease_is_of_one_server:
        return w
    return _with(w, since=replaced(w.leases.since, n, NEVER_ENDS))


# ---- another server of the second voter ----------------------------------------------------------------------------


def heir(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Its promotion, in the order that a promotion has: the old lease ends, the notes are read, the server opens."""
    its = _leases(w).heir
    if its.is_first_leased:
        yield "outlasts the lease of the second voter", _with(w, heir=its._replace(is_first_leased=False)), At("ended")
    elif its.read is None:
        read = _leases(w).notes[CONTROL] if scene.lease_rules.carries_notes else 0
        yield f"reads that control noted {read}", _with(w, heir=its._replace(read=read)), At("read")
    else:
        opened = its._replace(is_first_leased=False, noted=its.read)
        yield "opens another server of the second voter", _with(w, heir=opened), Done(None)


def rival(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Its promotion, when no operator asked for that: our primary is a voter of theirs, and notes it before."""
    its = _leases(w).heir
    if not its.is_begun:
        if not (scene.lease_rules.one_at_a_time and is_under_way(w)):
            yield "begins a promotion of the second voter", _with(w, heir=its._replace(is_begun=True)), At("begun")
    elif its.is_noted:
        yield from heir(w, me, phase, arguments, scene)
    else:
        for n, server in enumerate(w.servers):
            leads = server.up and shard_of(server.log).leader == newest(w) and newest(w).server == n
            if leads and shard_of(server.log).status == RW and is_leased(w, n):
                yield f"blocks server {n}", _with(w, heir=its._replace(is_noted=True)), At("blocked")


def is_under_way(w: World) -> bool:
    """Whether our cluster is promoted without an operator."""
    return w.record.outlasts and not w.record.is_done


def lapses(w: World) -> Iterator[tuple[str, World]]:
    """Leases end that none may extend any more."""
    leases = _leases(w)
    its = leases.heir
    if its.is_under_way and its.is_first_leased:
        yield "the lease of the second voter ends", _with(w, heir=its._replace(is_first_leased=False))
    n = newest(w).server
    may_be_extended = leases.notes[CONTROL] <= newest(w).number or its.is_first_leased or its.noted is not None
    if its.is_begun and is_leased(w, n) and not may_be_extended:
        yield f"the lease of server {n} ends", _with(w, since=replaced(leases.since, n, -1))


# ---- the lease of a primary ----------------------------------------------------------------------------------------


def clock(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Of a server that takes itself for the primary, whichever answers: the first one, until another one led."""
    yield "hears of no primary", w, Done(SILENT)
    for n, server in enumerate(w.servers):
        leader = shard_of(server.log).leader
        if server.up and not server.is_shut and leader.server == n:
            yield f"reads the clock of server {n}", w, Done(Clock(SERVERS[n], leader.number, _leases(w).begun))


def extend(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    (its,) = arguments
    n = SERVERS.index(its.server)
    yield f"hears nothing of server {n}", w, Done(SILENT)
    if w.servers[n].up:
        leases = _leases(w)
        since = its.now if scene.lease_rules.reads_clock_first else leases.begun
        extended = _with(w, since=replaced(leases.since, n, max(leases.since[n], int(since))))
        yield f"extends the lease of server {n}", extended, Done(None)


def put(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """The server looks at the lease when it begins, and may be stopped before it ends."""
    n, cell, epoch = arguments
    server, rules = w.servers[n], scene.lease_rules
    shard = shard_of(server.log)
    takes = server.up and not server.is_shut and shard.status == RW and shard.epoch == epoch
    if phase is None:
        yield f"hears nothing of server {n}", w, Done(False)
        if takes and (is_leased(w, n) or not rules.wants_lease):
            yield f"is looked at by server {n}", w, At(_leases(w).since[n])
        elif server.up:
            yield f"is refused by server {n}", w, Done(False)
    elif not takes:
        yield f"is given up at server {n}", w, Done(False)
    else:
        after = w if cell in cells_of(server.log) else with_change(w, n, Cells(cell))
        if rules.wants_lease and rules.bounds_answers and phase < _leases(w).ended:
            yield f"hears too late of server {n}", after, Done(False)
            return
        if newest(w).number > shard.leader.number:
            raise Violation(f"I9: server {n} acknowledged a put, and another one was opened since")
        acknowledged = after._replace(acknowledged=after.acknowledged | {cell})
        yield f"puts {cell} into server {n}", acknowledged, Done(True)


def read(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """A read that counts only from the open authority: what others were told before it began is in its answer."""
    n, epoch = arguments
    server, rules = w.servers[n], scene.lease_rules
    shard = shard_of(server.log)
    if phase is None:
        yield f"hears nothing of server {n}", w, Done(False)
        admits = server.up and not server.is_shut and shard.status == RW and shard.epoch == epoch
        if admits and (is_leased(w, n) or not rules.reads_want_lease):
            due = w.acknowledged & cells_of(w.servers[newest(w).server].log)
            missing = frozenset(due - cells_of(server.log))
            yield f"looks into server {n}", w, At((_leases(w).since[n], missing))
        elif server.up:
            yield f"is refused by server {n}", w, Done(False)
        return
    since, missing = phase
    if rules.reads_want_lease and since < _leases(w).ended:
        yield f"reads too late of server {n}", w, Done(False)
    elif missing:
        raise Violation(f"I9: server {n} answers a read without {sorted(missing)}, which were acknowledged before")
    else:
        yield f"reads from server {n}", w, Done(True)


HANDLERS: dict[str, Handler] = {
    "voters.allows": allows,
    "voters.block": block,
    "voters.outlast": outlast,
    "leases.clock": clock,
    "leases.extend": extend,
    "client.heir": heir,
    "client.rival": rival,
    "client.read": read,
}
