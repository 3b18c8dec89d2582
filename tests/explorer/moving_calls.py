"""What one call does to the shard's copies: a mover's, a caller's, an index writer's, a trigger's, a hand-over's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemaless_core.engine.primacy import Opening
from schemaless_core.moves.ports import MoveSeen, MoveState, PageRead, Placed, ShardSeen
from schemaless_core.promotion.ports import HANDING_OVER, SILENT
from tests.explorer.moving import (
    COMES,
    COPY,
    GOING,
    MOVED,
    NAMES,
    RO,
    RW,
    Copy,
    Late,
    MoveRules,
    MoveScene,
    Outcomes,
    Read,
    Row,
    World,
    spent,
    with_cluster,
    with_primary,
)
from tests.explorer.world import Done, Violation

# ---- the record ------------------------------------------------------------------------------------------------------


def find(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    seen = MoveSeen(w.move, w.move_version, w.placed)
    yield f"reads {w.move.state}, placed {tuple(w.placed)}", w, Done(seen)


def change(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    seen, after = arguments
    is_now = seen.placed == w.placed or not scene.rules.ends_at_topology
    if seen.move_version != w.move_version or not is_now:
        yield "finds record or topology changed", w, Done(False)
    else:
        yield f"notes {after.state}", w._replace(move=after, move_version=w.move_version + 1), Done(True)


def decide(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    seen, after = arguments
    is_now = seen.placed == w.placed or not scene.rules.compares_topology
    if seen.move_version != w.move_version or not is_now:
        yield "finds record or topology changed", w, Done(False)
        return
    rises = scene.rules.raises_epoch if after.state is MoveState.OVER else scene.rules.staying_raises_epoch
    cluster = after.target if after.state is MoveState.OVER else after.source
    placed = Placed(cluster, w.placed.epoch + rises)
    decided = w._replace(move=after, move_version=w.move_version + 1, placed=placed)
    yield f"decides {after.state}", decided, Done(True)


# ---- the shard's rows ------------------------------------------------------------------------------------------------


def seen_of(copy: Copy) -> ShardSeen:
    return ShardSeen(copy.epoch, copy.state, len(copy.log))


def look(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (name,) = arguments
    primary = w.clusters[NAMES.index(name)].primary
    yield f"looks at {name}: {primary.state}", w, Done(seen_of(primary))


def replicated(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (name,) = arguments
    n = NAMES.index(name)
    cluster = w.clusters[n]
    is_asked = n in scene.promotes and scene.rules.waits_for_replicas
    has = not is_asked or cluster.replica == cluster.primary
    yield f"hears that replicas of {name} have {'all' if has else 'less'}", w, Done(has)


Change = Callable[[Copy, tuple[Any, ...], MoveRules, bool], Copy]


def left(copy: Copy, arguments: tuple[Any, ...], rules: MoveRules, is_held: bool) -> Copy:
    (epoch,) = arguments
    is_it = copy.state in (RW, COPY) and (copy.epoch == epoch or not rules.leaves_at_epoch)
    return copy._replace(state=GOING) if is_it else copy


def arrived(copy: Copy, arguments: tuple[Any, ...], rules: MoveRules, is_held: bool) -> Copy:
    (arrival,) = arguments
    is_whole = copy.epoch == arrival.copied_at and len(copy.log) == arrival.last
    is_beside = copy.may_arrive == arrival.epoch or not rules.arrives_with_beside
    if copy.state != MOVED or not is_whole or not is_beside:
        return copy
    if is_held and rules.arrives_unfenced:
        return copy
    return copy.opened(arrival.epoch, COMES)


def opened(copy: Copy, arguments: tuple[Any, ...], rules: MoveRules, is_held: bool) -> Copy:
    epoch, opening = arguments
    how = opening or Opening(copy.authority, RW)
    if copy.authority > how.authority_epoch and rules.compares_authority:
        return copy
    is_here = copy.state == COMES and copy.epoch <= epoch
    is_back = copy.state in (GOING, RW, COPY) and copy.epoch < epoch
    if not rules.opens_in_place:
        is_here = copy.state in (COMES, GOING, RO) and copy.epoch == epoch
    is_same = not rules.staying_raises_epoch and copy.state == GOING and copy.epoch == epoch
    return copy.opened(epoch, how.status, how.authority_epoch) if is_here or is_back or is_same else copy


def closed(copy: Copy, arguments: tuple[Any, ...], rules: MoveRules, is_held: bool) -> Copy:
    (epoch,) = arguments
    return copy._replace(state=MOVED) if copy.epoch <= epoch else copy


#: What may run later than its sender waited.
CHANGES: dict[str, Change] = {"leave": left, "arrive": arrived, "open": opened, "close": closed}


def prepare(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    name, epoch = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    may = copy.state == MOVED and copy.may_arrive <= epoch
    yield f"prepares {name}", with_primary(w, n, claim=me) if may else w, Done(seen_of(copy))


def claims(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (name,) = arguments
    has = is_claimed(w.clusters[NAMES.index(name)].primary, me, scene.rules)
    yield f"has {'its' if has else 'no'} claim on {name}", w, Done(has)


def _changing(verb: str) -> Callable[[World, tuple[Any, ...], MoveScene, int], Outcomes]:
    def call(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
        name, *rest = arguments
        n = NAMES.index(name)
        cluster = w.clusters[n]
        if verb == "leave" and not scene.rules.leaves:
            yield "believes that it is fenced", w, Done(seen_of(cluster.primary)._replace(state=GOING))
            return
        if verb == "close" and not scene.rules.closes_first and w.clusters[1 - n].primary.state == COMES:
            yield "leaves it for later", w, Done(SILENT)
            return
        after = CHANGES[verb](cluster.primary, tuple(rest), scene.rules, bool(cluster.promotion))
        answer = None if verb == "close" else seen_of(after)
        yield f"has {name} {verb}: {after.state} {after.epoch}", with_cluster(w, n, primary=after), Done(answer)
        if w.budget.silences:
            silent = spent(w, "silences")
            yield f"hears nothing of {name}", silent, Done(SILENT)
            yield f"has {name} {verb}, unheard", with_cluster(silent, n, primary=after), Done(SILENT)
        if w.budget.lates:
            late = Late(verb, n, False, tuple(rest))
            yield f"sends {verb} to {name}, slowly", spent(w, "lates")._replace(late=w.late | {late}), Done(SILENT)

    return call


# ---- copies ----------------------------------------------------------------------------------------------------------


def read(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    name, after = arguments
    primary = w.clusters[NAMES.index(name)].primary
    cells = primary.log[after : after + 1]
    page = PageRead(seen_of(primary), primary.forks, cells, after + len(cells))
    yield f"reads {cells} of {name}", w, Done(page)
    if w.budget.silences:
        yield f"cannot read {name}", spent(w, "silences"), Done(SILENT)


def is_claimed(copy: Copy, me: int, rules: MoveRules) -> bool:
    return copy.state == MOVED and (copy.claim == me or not rules.claims)


def write(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    name, page, after, epoch = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    is_place = len(copy.log) == after or not scene.rules.writes_in_place
    if is_claimed(copy, me, scene.rules) and copy.epoch == epoch and is_place:
        copy = copy._replace(log=copy.log + page.cells)
    yield f"writes to {name}: {copy.log}", with_cluster(w, n, primary=copy), Done(seen_of(copy))


def cut(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    name, before, epoch, last = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    if seen_of(copy) == before and is_claimed(copy, me, scene.rules):
        log = copy.log[:last] if scene.rules.cuts else copy.log
        copy = copy._replace(log=log, epoch=epoch)
    yield f"cuts {name} at {last}", with_cluster(w, n, primary=copy), Done(seen_of(copy))


def beside(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    source, target, epoch = arguments
    here, n = w.clusters[NAMES.index(source)].primary, NAMES.index(target)
    copy = w.clusters[n].primary
    if not epoch:
        yield "practises", w, Done(True)
    elif is_claimed(copy, me, scene.rules) or not scene.rules.beside_copies_alone:
        has = here if scene.rules.copies_beside else Copy()
        forks = (*(each for each in here.forks if each[0] < epoch), *(each for each in copy.forks if each[0] >= epoch))
        both = {
            "offset": has.offset,
            "entries": has.entries,
            "forks": forks,
            "may_arrive": epoch,
            "authority": max(copy.authority, here.authority),
        }
        yield f"copies what is beside {source}", with_primary(w, n, **both), Done(True)
    else:
        yield "finds no copy", w, Done(False)


def late(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    yield "looks for groups that began meanwhile", w, Done(None)


def forget(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    name, epoch = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    is_old = copy.state == MOVED and copy.epoch <= epoch
    yield f"has {name} forget", with_primary(w, n, offset=0) if is_old else w, Done(None)


def is_over(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    yield "is in time", w, Done(False)
    if scene.is_impatient:
        yield "is late", w, Done(True)


def was_quick(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    yield "waited shortly", w, Done(True)
    if scene.is_impatient:
        yield "waited long", w, Done(False)


# ---- callers ---------------------------------------------------------------------------------------------------------


def hear(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    yield f"hears {tuple(w.placed)}", w, Done(w.placed)


def put(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (cluster, epoch), cell = arguments
    n = NAMES.index(cluster)
    for label, copy, is_before in _reached(w, n):
        if (copy.state, copy.epoch) != (RW, epoch) or (scene.has_authority and copy.authority != w.row.epoch):
            yield f"is refused by {cluster}{label}", w, Done(False)
            continue
        if scene.has_authority and w.row.status != RW:
            raise Violation("I9: a put is taken while Postgres is the authority")
        log = copy.log if cell in copy.log else (*copy.log, cell)
        has = with_copy(w, n, copy._replace(log=log), is_before=is_before)
        yield f"puts {cell} on {cluster}{label}", has._replace(acknowledged=w.acknowledged | {cell}), Done(True)


def _reached(w: World, n: int) -> list[tuple[str, Copy, bool]]:
    """The servers that a caller may take for the primary: one that led before, if it knows no better."""
    before = w.clusters[n].before
    return [("", w.clusters[n].primary, False), *([(" of before", before, True)] if before is not None else [])]


def with_copy(w: World, n: int, copy: Copy, *, is_before: bool) -> World:
    return with_cluster(w, n, before=copy) if is_before else with_cluster(w, n, primary=copy)


def get(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    ((cluster, epoch),) = arguments
    for label, copy, is_before in _reached(w, NAMES.index(cluster)):
        if is_before and copy.epoch < epoch:
            continue  # with a later epoch a reader has heard who leads
        is_fenced = copy.state in (RO, GOING, COMES)
        is_admitted = copy.state != MOVED and (copy.epoch == epoch or (is_fenced and copy.epoch < epoch))
        is_whole = w.acknowledged <= set(copy.log)
        rule = scene.rules.confirms_fenced if copy.state == RO else scene.rules.confirms_going
        is_asked = is_fenced and rule
        if is_admitted and not is_asked and not is_whole:
            raise Violation("I9: a read is answered with less than was acknowledged")
        answer = Read(is_admitted, is_asked, is_whole)
        yield f"reads on {cluster}{label}: {copy.state}", w, Done(answer)


def confirm(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    """The look behind an answer of a shard that takes no writes."""
    placed, is_whole = arguments
    is_there = tuple(placed) == tuple(w.placed)
    if is_there and not is_whole:
        raise Violation("I9: a read is answered with less than was acknowledged")
    yield f"is told that the shard is {'still there' if is_there else 'elsewhere'}", w, Done(is_there)


def enter(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (cluster, _epoch), cell = arguments
    n = NAMES.index(cluster)
    entries = w.clusters[n].primary.entries | {cell}
    yield f"writes an entry on {cluster}", with_primary(w, n, entries=entries), Done(w.clusters[n].generation)


def admits(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    """The look behind an entry, by the same packet: a server that leads since then has not run it."""
    (cluster, epoch), entry, generation = arguments
    its = w.clusters[NAMES.index(cluster)]
    copy = its.primary
    is_it = (
        copy.epoch == epoch and copy.state in (RW, COPY) and its.generation == generation
    ) or not scene.rules.looks_beside
    indexed = w.indexed | {entry} if is_it and entry else w.indexed
    yield f"{cluster} {'admits' if is_it else 'refuses'} it", w._replace(indexed=indexed), Done(is_it)


def tail(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    """One cell behind the group's offset; delivered before the offset moves."""
    ((cluster, epoch),) = arguments
    copy = w.clusters[NAMES.index(cluster)].primary
    if copy.state == MOVED or copy.epoch != epoch:
        yield f"is refused by {cluster}", w, Done(None)
    else:
        cells = copy.log[copy.offset : copy.offset + 1]
        yield f"delivers {cells}", w._replace(delivered=w.delivered | set(cells)), Done((copy.offset, len(cells)))


def advance(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (cluster, epoch), offset = arguments
    n = NAMES.index(cluster)
    copy = w.clusters[n].primary
    after = with_primary(w, n, offset=max(copy.offset, offset)) if copy.epoch == epoch else w
    yield f"moves the offset on {cluster} to {offset}", after, Done(None)


# ---- a hand-over -----------------------------------------------------------------------------------------------------


def hold(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    yield "begins a hand-over", w._replace(row=w.row._replace(is_held=True)), Done(None)


def shut(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    """Close the shards of a cluster to owners, at the next epoch."""
    (name,) = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    if copy.authority <= w.row.epoch:
        copy = copy._replace(authority=w.row.epoch + 1, state=COPY if copy.state == RW else copy.state)
    is_closed = copy.state in (COPY, MOVED)
    yield f"closes {name}: {is_closed}", with_cluster(w, n, primary=copy), Done(is_closed)


def settle(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    (is_closed,) = arguments
    row = Row(w.row.epoch + 1, COPY) if is_closed else Row(w.row.epoch + 2, RW)
    yield f"decides {row.status}", w._replace(row=row), Done(None)


def obey(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    """Make a cluster's shards what the row says."""
    (name,) = arguments
    n = NAMES.index(name)
    copy = w.clusters[n].primary
    if not w.row.is_held and copy.authority < w.row.epoch:
        states = {COPY: RW} if w.row.status == RW else {RW: COPY}
        copy = copy._replace(authority=w.row.epoch, state=states.get(copy.state, copy.state))
    yield f"has {name} obey", with_cluster(w, n, primary=copy), Done(None)


def opening(w: World, arguments: tuple[Any, ...], scene: MoveScene, me: int) -> Outcomes:
    if not scene.has_authority:
        yield "is told to leave it as it was", w, Done(None)
    elif w.row.is_held:
        yield "hears that a hand-over goes on", w, Done(HANDING_OVER)
    else:
        yield f"hears {w.row.status} {w.row.epoch}", w, Done(Opening(w.row.epoch, w.row.status))


HANDLERS: dict[str, Callable[[World, tuple[Any, ...], MoveScene, int], Outcomes]] = {
    "record.find": find,
    "record.change": change,
    "record.decide": decide,
    "shards.look": look,
    "shards.prepare": prepare,
    "shards.replicated": replicated,
    "shards.claims": claims,
    **{f"shards.{verb}": _changing(verb) for verb in CHANGES},
    "copies.read": read,
    "copies.write": write,
    "copies.cut": cut,
    "copies.beside": beside,
    "copies.late": late,
    "copies.forget": forget,
    "patience.is_over": is_over,
    "patience.was_quick": was_quick,
    "authority.opening": opening,
    "client.hear": hear,
    "client.put": put,
    "client.get": get,
    "client.confirm": confirm,
    "client.enter": enter,
    "client.admits": admits,
    "client.tail": tail,
    "client.advance": advance,
    "client.hold": hold,
    "client.shut": shut,
    "client.settle": settle,
    "client.obey": obey,
}
