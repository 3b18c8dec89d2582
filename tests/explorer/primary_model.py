"""What may happen next to the servers of a cluster, accidents included, and what must hold whatever does."""

from __future__ import annotations

from collections.abc import Iterator

from schemaless_core.promotion.ports import Record
from schemaless_core.steps import Step
from tests.explorer.primaries import (
    ALONE,
    NO_ACTOR,
    RO,
    Authority,
    PrimaryScene,
    Row,
    Server,
    World,
    cells_of,
    is_leased,
    newest,
    shard_of,
    with_server,
)
from tests.explorer.primary_actors import tools_of
from tests.explorer.primary_calls import HANDLERS, put_into, released
from tests.explorer.primary_leases import first_leases, is_followed, lapses
from tests.explorer.programs import SERVERS, Node, Program
from tests.explorer.world import At, Place, Violation, replaced

#: Who moves when no actor does.
SERVER, ACCIDENT = -1, -2

Move = tuple[int, str, World]


class PrimaryModel:
    """One scene."""

    def __init__(self, scene: PrimaryScene) -> None:
        self.scene = scene
        self._programs = [Program(actor.code, servers=scene.servers, tools_of=tools_of) for actor in scene.cast]

    @property
    def may_stop(self) -> list[int]:
        return [n for n, actor in enumerate(self.scene.cast) if actor.may_stop]

    def steps_taken(self) -> set[Step]:
        return {node.step for program in self._programs for node in program.nodes if node.step is not None}

    def first(self) -> World:
        log = (Authority(1, self.scene.begins),)
        servers = tuple(Server(log, 0 if n else ALONE) for n in range(self.scene.servers))
        places = (Place(0),) * len(self.scene.cast)
        row, leases = Row(status=self.scene.begins), first_leases(self.scene)
        record = Record(is_leased=self.scene.has_leases)
        return World(servers, places, self.scene.budget, record, row, leases=leases)

    def moves(self, w: World) -> Iterator[Move]:
        for me, actor in enumerate(self.scene.cast):
            yield from self._moves_of(w, me)
            if w.budget.kills and w.places[me] != Place(0) and self._node(w, me).call is not None and actor.is_mortal:
                budget = w.budget._replace(kills=w.budget.kills - 1)
                dead = released(w, me)._replace(places=replaced(w.places, me, Place(0)), budget=budget)
                yield ACCIDENT, f"{actor.name} is killed", dead
        yield from self._servers(w)

    def _node(self, w: World, me: int) -> Node:
        return self._programs[me].nodes[w.places[me].node]

    def _moves_of(self, w: World, me: int) -> Iterator[Move]:
        place, node, actor = w.places[me], self._node(w, me), self.scene.cast[me]
        if node.call is None:
            return
        name, arguments = node.call
        for label, after, outcome in HANDLERS[name](w, me, place.phase, arguments, self.scene):
            if isinstance(outcome, At):
                at = Place(node.number, outcome.phase)
            else:
                following = node.after(outcome.answer)
                at = Place(0 if following.call is None and actor.repeats else following.number)
            yield me, f"{actor.name} {label}", after._replace(places=replaced(after.places, me, at))

    def _servers(self, w: World) -> Iterator[Move]:
        for n, server in enumerate(w.servers):
            if server.up and server.follows >= 0 and w.servers[server.follows].up:
                has, there = server.log, w.servers[server.follows].log
                if len(has) < len(there) and there[: len(has)] == has:
                    yield SERVER, f"server {n} fetches {there[len(has)]}", with_server(w, n, log=there[: len(has) + 1])
            if n in self.scene.fails:
                yield from self._failures(w, n)
            if server.holder != NO_ACTOR and w.budget.breaks:
                budget = w.budget._replace(breaks=w.budget.breaks - 1)
                yield (
                    ACCIDENT,
                    f"the session at server {n} ends",
                    with_server(w, n, holder=NO_ACTOR)._replace(budget=budget),
                )
            elif server.holder != NO_ACTOR and self._is_waited_for(w, n):
                yield SERVER, f"server {n} ends an idle session", with_server(w, n, holder=NO_ACTOR)
        if w.leases is not None:
            yield from ((SERVER, label, after) for label, after in lapses(w))
        for late in w.late:
            rest = w._replace(late=w.late - {late})
            after = put_into(rest, late, self.scene) if w.servers[late.server].up else None
            yield SERVER, f"{tuple(late)} arrives", after or rest

    def _is_waited_for(self, w: World, n: int) -> bool:
        """Whether a promotion waits for a server that another one has. Servers end sessions that are idle."""
        calls = (self._node(w, me).call for me in range(len(self.scene.cast)) if me != w.servers[n].holder)
        return any(
            call is not None and call.name == "servers.fence" and call.arguments[0] == SERVERS[n] for call in calls
        )

    def _failures(self, w: World, n: int) -> Iterator[Move]:
        server = w.servers[n]
        if server.up and w.budget.crashes:
            budget = w.budget._replace(crashes=w.budget.crashes - 1)
            yield ACCIDENT, f"server {n} dies", with_server(w, n, up=False, holder=NO_ACTOR)._replace(budget=budget)
        if not server.up:
            is_shut = n in w.given_up and self.scene.rules.returns_shut
            yield ACCIDENT, f"server {n} is back", with_server(w, n, up=True, is_shut=is_shut)

    def check(self, w: World) -> None:
        leader = newest(w)
        server = w.servers[leader.server if leader.number else 0]
        if shard_of(server.log).status == RO:
            return
        lost = w.acknowledged - cells_of(server.log)
        if lost and not w.given_up:
            raise Violation(f"I1: acknowledged {sorted(lost)}, and the primary lacks it")
        where = [cells_of(each.log) for each in w.servers]
        if any(all(cell not in cells for cells in where) for cell in lost):
            raise Violation(f"I1: acknowledged {sorted(lost)} is on no disk")

    def is_good(self, w: World) -> bool:
        """One server is open, and is what record and row say; puts that began have ended."""
        if not is_followed(w):
            return True
        leader = newest(w)
        n = leader.server if leader.number else 0
        server = w.servers[n]
        shard = shard_of(server.log)
        is_row = not self.scene.has_authority or (
            not w.row.is_held and (shard.authority_epoch, shard.status) == (w.row.epoch, w.row.status)
        )
        is_open = (
            is_leased(w, n) and server.up and not server.is_shut and shard.status != RO and server.follows == ALONE
        )
        is_voter_open = w.leases is None or not w.leases.heir.is_under_way
        return is_open and is_voter_open and is_row and (not w.record.target or w.record.number == leader.number)

    def describe(self, w: World) -> str:
        shards = [(tuple(shard_of(server.log)), server.follows, server.up, server.holder) for server in w.servers]
        return f"record {tuple(w.record)}, row {tuple(w.row)}, servers {shards}, leases {w.leases}"
