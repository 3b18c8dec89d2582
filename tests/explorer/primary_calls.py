"""What one call does to the servers of a cluster: of a promotion, of callers, of a hand-over."""

from __future__ import annotations

from typing import Any

from schemaless_core.engine.primacy import FIRST, Lead, NotNow, Opening, Reached
from schemaless_core.promotion.ports import HANDING_OVER, SILENT, Busy
from tests.explorer import primary_leases
from tests.explorer.primaries import (
    ALONE,
    COPY,
    CUT_OFF,
    NO_ACTOR,
    RO,
    RW,
    Authority,
    Cells,
    Fence,
    Handler,
    Late,
    Open,
    Outcomes,
    PrimaryRules,
    PrimaryScene,
    Row,
    World,
    cells_of,
    is_leased,
    newest,
    shard_of,
    status_before,
    with_change,
    with_server,
)
from tests.explorer.programs import SERVERS
from tests.explorer.world import At, Done, Violation

# ---- a promotion -------------------------------------------------------------------------------------------------


def fence(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    name, number, led = arguments
    n = SERVERS.index(name)
    server, rules = w.servers[n], scene.rules
    if not server.up or server.is_shut:
        yield f"cannot take {name}", w, Done(SILENT)
        return
    if n in w.given_up and w.leases is not None:
        yield f"cannot reach {name}", w, Done(SILENT)  # and others can
    if rules.has_one_holder and server.holder not in (NO_ACTOR, me):
        return  # it waits
    taken = with_server(w, n, holder=me)
    shard = shard_of(server.log)
    leads = shard.leader.server == n if shard.leader.number else led
    is_replica = not leads and server.follows != ALONE
    if shard.leader.number >= number or is_replica or shard.status == RO or not rules.fences:
        yield f"takes {name}", taken, Done(shard.leader)
    else:
        yield f"fences {name}", with_change(taken, n, Fence(number)), Done(shard.leader)
    if w.budget.lates:
        after = w if is_replica or shard.status == RO else with_change(w, n, Fence(number))
        budget = w.budget._replace(lates=w.budget.lates - 1)
        if shard.leader.number < number and rules.fences:
            yield f"fences {name} and does not hear of it", after._replace(budget=budget), Done(SILENT)


def has_in_hand(w: World, me: int, name: str, rules: PrimaryRules) -> bool:
    server = w.servers[SERVERS.index(name)]
    return server.up and (server.holder == me or not rules.keeps_session or not rules.has_one_holder)


def reached(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    (name,) = arguments
    if has_in_hand(w, me, name, scene.rules):
        log = w.servers[SERVERS.index(name)].log
        yield f"measures {name}", w, Done(Reached(log))  # type: ignore[arg-type]  # what a position is, only servers know
    else:
        yield f"has lost {name}", w, Done(SILENT)


def has(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    name, (position,) = arguments
    if not has_in_hand(w, me, name, scene.rules):
        yield f"has lost {name}", w, Done(SILENT)
        return
    log = w.servers[SERVERS.index(name)].log
    yield f"compares {name}", w, Done(set(position) <= set(log) or not scene.rules.waits_for_changes)


def cut_off(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    (name,) = arguments
    n = SERVERS.index(name)
    if not has_in_hand(w, me, name, scene.rules):
        yield f"has lost {name}", w, Done(SILENT)
        return
    follows = ALONE if w.servers[n].follows == ALONE else CUT_OFF
    yield f"cuts off {name}", with_server(w, n, follows=follows), Done(True)


def open_(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """First it follows no other any more; then it is looked at, and opened by one transaction."""
    name, number, opening = arguments
    n = SERVERS.index(name)
    if not has_in_hand(w, me, name, scene.rules):
        yield f"has lost {name}", w, Done(SILENT)
        return
    server, shard = w.servers[n], shard_of(w.servers[n].log)
    if phase is None:
        if shard.leader.number >= number:
            yield f"finds {name} open", w, Done(shard.leader)
        else:
            yield f"has {name} follow no other", with_server(w, n, follows=ALONE), At("alone")
        return
    if opening is not None and shard.authority_epoch > opening.authority_epoch and scene.rules.compares_authority:
        yield f"finds a later authority epoch at {name}", w, Done(NotNow(shard.authority_epoch))
        return
    if newest(w).number > number and w.leases is None:  # else it gets no lease
        raise Violation(f"I9: {name} is opened by promotion {number}, and a later one has opened another")
    authority_epoch, status = opening or (shard.authority_epoch, status_before(server.log))
    epoch = shard.epoch + scene.rules.raises_epoch
    opened = with_server(w, n, is_shut=False)
    opened = primary_leases.inherited(opened, n, scene)
    opened = with_change(opened, n, Open(number, n, epoch, max(authority_epoch, shard.authority_epoch), status))
    yield f"opens {name} by promotion {number}, {status}", opened, Done(Lead(number, n))
    if w.budget.lates:
        budget = w.budget._replace(lates=w.budget.lates - 1)
        yield f"opens {name} and does not hear of it", opened._replace(budget=budget), Done(SILENT)


def follow(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    name, other = arguments
    n = SERVERS.index(name)
    if has_in_hand(w, me, name, scene.rules):
        leader = newest(w)
        if leader.number and leader.server == n and shard_of(w.servers[n].log).status != RO:
            raise Violation(f"I9: {name} leads, and is made a replica of {other}")
        after = with_server(w, n, follows=SERVERS.index(other))
        yield f"has {name} follow {other}", after, Done(None)
    else:
        yield f"has lost {name}", w, Done(SILENT)


def let_go(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    yield "lets go", released(w, me), Done(None)


def released(w: World, me: int) -> World:
    """The sessions of an actor have ended."""
    return w._replace(
        servers=tuple(each._replace(holder=NO_ACTOR) if each.holder == me else each for each in w.servers)
    )


def find_record(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    yield f"reads {tuple(w.record)}", w, Done(w.record)


def change_record(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    before, after = arguments
    if w.record == before or not scene.rules.compares_record:
        given_up = w.given_up | {SERVERS.index(server) for server in after.given_up}
        after = after._replace(outlasts=after.outlasts and scene.lease_rules.keeps_outlasts)
        yield f"writes {tuple(after)}", w._replace(record=after, given_up=given_up), Done(True)
    else:
        yield "finds another record", w, Done(False)


def begin_alone(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    if w.leases is not None and w.leases.heir.is_under_way and scene.lease_rules.one_at_a_time:
        yield "finds that the second voter is promoted", w, Done(Busy("the second voter"))
    else:
        yield from change_record(w, me, phase, arguments, scene)


def ask_authority(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    if not scene.has_authority:
        yield "has no authority to ask", w, Done(None)
    elif w.row.is_held and scene.rules.waits_for_hand_over:
        yield "hears that a hand-over goes on", w, Done(HANDING_OVER)
    else:
        yield f"reads authority epoch {w.row.epoch}", w, Done(Opening(w.row.epoch, w.row.status))


def vouch(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """The operator has seen that a server's process is gone, and that it comes back shut."""
    (name,) = arguments
    n = SERVERS.index(name)
    if not w.servers[n].up or n in w.given_up:
        yield f"gives up {name}", w._replace(given_up=w.given_up | {n}), Done(None)


# ---- callers -----------------------------------------------------------------------------------------------------


def put(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    if w.leases is not None:
        yield from primary_leases.put(w, me, phase, arguments, scene)
        return
    n, cell, epoch = arguments
    yield f"hears nothing of server {n}", w, Done(False)
    if w.budget.lates:
        budget = w.budget._replace(lates=w.budget.lates - 1)
        yield (
            f"sends {cell} to server {n}",
            w._replace(late=w.late | {Late(n, cell, epoch)}, budget=budget),
            Done(False),
        )
    if w.servers[n].up:
        after = put_into(w, Late(n, cell, epoch), scene)
        if after is None:
            yield f"is refused by server {n}", w, Done(False)
        else:
            yield f"puts {cell} into server {n}", after._replace(acknowledged=after.acknowledged | {cell}), Done(True)


def put_into(w: World, late: Late, scene: PrimaryScene) -> World | None:
    """A server takes a put by its shard's row, and nothing else: a superuser's write passes `read_only`."""
    server = w.servers[late.server]
    shard = shard_of(server.log)
    if server.is_shut or shard.status != RW or shard.epoch != late.epoch:
        return None
    if newest(w).number > shard.leader.number:
        raise Violation(f"I9: server {late.server} took a put, and another one was opened since")
    if scene.has_authority and w.row.status == COPY and not w.row.is_held:
        raise Violation(f"I9: server {late.server} took a put, and Postgres is the authority")
    if late.cell in cells_of(server.log):
        return w
    return with_change(w, late.server, Cells(late.cell))


def hear(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Whichever server answers first."""
    for n, server in enumerate(w.servers):
        if server.up:
            shard = shard_of(server.log)
            yield f"hears from server {n}", w, Done((shard.leader, shard.epoch))


# ---- a hand-over to Postgres -------------------------------------------------------------------------------------


def hold(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    if w.row == Row():
        yield "begins a hand-over", w._replace(row=w.row._replace(is_held=True)), Done(True)
    else:
        yield "finds one that began", w, Done(False)


def shut(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Close the shard to owners, at the server that this process takes for the primary."""
    (n,) = arguments
    server = w.servers[n]
    if not server.up or server.is_shut:
        yield f"cannot close server {n}", w, Done(False)
        return
    if scene.lease_rules.only_leased_closes and not is_leased(w, n):
        yield f"is refused by server {n}, whose lease has ended", w, Done(False)
        return
    shard = shard_of(server.log)
    if scene.rules.only_leader_closes and shard.leader not in (FIRST, Lead(shard.leader.number, n)):
        yield f"is refused by server {n}, which does not lead", w, Done(False)
        return
    epoch = w.row.epoch + 1
    after = with_change(w, n, Authority(epoch, COPY)) if shard.authority_epoch < epoch else w
    is_closed = shard_of(after.servers[n].log).status != RO or not scene.rules.fenced_is_not_closed
    yield f"closes server {n}: {is_closed}", after, Done(is_closed)


def decide(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    (is_closed,) = arguments
    epoch, status = (w.row.epoch + 1, COPY) if is_closed else (w.row.epoch + 2, RW)
    if not w.row.is_held:
        yield "finds it decided", w, Done(None)
        return
    if is_closed and any(_takes_puts(w, n) for n in range(len(w.servers))):
        raise Violation("I9: Postgres is the authority, and a server takes puts")
    yield f"decides on {status}", w._replace(row=Row(epoch, status)), Done(None)


def _takes_puts(w: World, n: int) -> bool:
    server = w.servers[n]
    shard = shard_of(server.log)
    is_leader = shard.leader == newest(w) and shard.leader.server in (n, 0) and server.follows == ALONE
    return is_leader and shard.status == RW and server.up


def switch(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """Schemaless becomes the authority: shards are opened after the decision, whatever state they are in."""
    if w.row == Row(status=COPY):
        yield "switches", w._replace(row=Row(w.row.epoch + 2, RW)), Done(None)


def obey(w: World, me: int, phase: Any, arguments: tuple[Any, ...], scene: PrimaryScene) -> Outcomes:
    """A worker makes the server that leads what the row says."""
    n = newest(w).server
    server = w.servers[n]
    shard = shard_of(server.log)
    if server.up and not server.is_shut and not w.row.is_held and shard.authority_epoch < w.row.epoch:
        change = Authority(w.row.epoch, w.row.status)
        yield f"makes server {n} what the row says", with_change(w, n, change), Done(None)


HANDLERS: dict[str, Handler] = {
    "record.find": find_record,
    "record.change": change_record,
    "record.begin_alone": begin_alone,
    "servers.fence": fence,
    "servers.reached": reached,
    "servers.has": has,
    "servers.cut_off": cut_off,
    "servers.open": open_,
    "servers.follow": follow,
    "authority.opening": ask_authority,
    "client.let_go": let_go,
    "client.vouch": vouch,
    "client.put": put,
    "client.hear": hear,
    "client.hold": hold,
    "client.shut": shut,
    "client.decide": decide,
    "client.switch": switch,
    "client.obey": obey,
    **primary_leases.HANDLERS,
}
