"""`Model`: what may happen next in a world, accidents included, and what must hold in every one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.explorer import buffers, control, postgres, promotion, schemaless
from tests.explorer.actors import is_troubled
from tests.explorer.postgres import Handler, crash, is_of_now, roll_back
from tests.explorer.programs import Node, Program
from tests.explorer.rules import Rules, Scenario
from tests.explorer.world import KEYS, TOMBSTONE, At, Done, Place, Violation, World, first_world, is_accepted, replaced
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.handover.authority import Backend
from tripstore.handover.steps import Step

HANDLERS: dict[str, Handler] = {
    name: handler
    for part in (postgres, control, schemaless, promotion, buffers)
    for name, handler in part.HANDLERS.items()
}

#: Who moves when no actor does: a server goes on by itself, or there is an accident.
SERVER, ACCIDENT = -1, -2

Move = tuple[int, str, World]


class Model:
    """One scenario under given rules."""

    def __init__(self, scene: Scenario, rules: Rules | None = None, *, merges: bool = True) -> None:
        self.scene = scene
        self.rules = rules or Rules()
        self._programs = [
            Program(actor.code, actor.layout, merges=merges, servers=scene.servers) for actor in scene.cast
        ]

    @property
    def may_stop(self) -> list[int]:
        return [n for n, actor in enumerate(self.scene.cast) if actor.may_stop]

    def steps_taken(self) -> set[Step]:
        """The steps that any actor has come to so far."""
        return {node.step for program in self._programs for node in program.nodes if node.step is not None}

    def values(self) -> set[Any]:
        """What the programs of the actors have returned so far."""
        return {node.value for program in self._programs for node in program.nodes}

    def first(self) -> World:
        return first_world(self.scene)

    def moves(self, w: World) -> Iterator[Move]:
        for me in range(len(self.scene.cast)):
            yield from self.moves_of(w, me)
            if w.budget.kills:
                yield from self._kill(w, me)
            if self.scene.cast[me].may_stop and w.places[me].phase == "written":
                yield SERVER, f"Postgres ends {self.scene.cast[me].name}, idle in its transaction", self._dead(w, me)
        for label, after in control.without_client(w, self.rules):
            yield SERVER, label, after
        for label, after in buffers.without_client(w, self.scene.buffer_rules):
            yield SERVER, label, after
        yield from self._accidents(w)

    # ---- actors ---------------------------------------------------------------------------------------------------

    def node(self, w: World, me: int) -> Node:
        """Where an actor is in its code."""
        return self._programs[me].nodes[w.places[me].node]

    def moves_of(self, w: World, me: int) -> Iterator[Move]:
        """What an actor does next, or a server for it."""
        place, node, actor = w.places[me], self.node(w, me), self.scene.cast[me]
        if node.call is None or (actor.watches and place == Place(0) and not is_troubled(w)):
            return
        name, arguments = node.call
        mover = SERVER if self._is_packet(name, place) else me
        try:
            for label, after, outcome in HANDLERS[name](w, me, place.phase, arguments, self.rules, self.scene):
                yield mover, f"{actor.name} {label}", self._at(after, me, node, outcome)
        except Violation as broken:
            raise Violation(f"{broken} (then {actor.name}: {name})") from broken

    def _at(self, w: World, me: int, node: Node, outcome: Done | At) -> World:
        if isinstance(outcome, At):
            place = Place(node.number, outcome.phase)
        else:
            next_ = node.after(outcome.answer)
            has_ended = next_.call is None and self.scene.cast[me].repeats
            place = Place(0 if has_ended else next_.number)
        return w._replace(places=replaced(w.places, me, place))

    def _is_packet(self, name: str, place: Place) -> bool:
        """Whether the server runs the rest of it whatever becomes of the client."""
        return place.phase is not None and name == "control.close" and self.rules.closes_in_one_packet

    # ---- accidents ------------------------------------------------------------------------------------------------

    def _kill(self, w: World, me: int) -> Iterator[Move]:
        place, node, actor = w.places[me], self.node(w, me), self.scene.cast[me]
        is_busy = place != Place(0) and node.call is not None
        if is_busy and not self._is_packet(node.call.name if node.call else "", place):
            budget = w.budget._replace(kills=w.budget.kills - 1)
            yield ACCIDENT, f"{actor.name} is killed", self._dead(w, me)._replace(budget=budget)

    def _dead(self, w: World, me: int) -> World:
        number = 0 if self.scene.cast[me].restarts else self._programs[me].gone.number
        return roll_back(w, me)._replace(places=replaced(w.places, me, Place(number)))

    def _accidents(self, w: World) -> Iterator[Move]:
        if w.budget.crashes:
            for loses in (False, True) if w.flushed is not None else (False,):
                after = crash(w, loses=loses)._replace(budget=w.budget._replace(crashes=w.budget.crashes - 1))
                for me in range(len(self.scene.cast)):
                    if self._was_in_postgres(w, me):
                        after = self._dead(after, me)
                yield ACCIDENT, f"Postgres crashes{', its last commits are lost' if loses else ''}", after
        if w.budget.losses:
            yield from self._losses(w)
        if w.budget.breaks and isinstance(w.barrier, int):
            budget = w.budget._replace(breaks=w.budget.breaks - 1)
            yield ACCIDENT, "the barrier's connection is lost", w._replace(barrier=None, budget=budget)
        for server in self.scene.fails:
            shard = w.shards[server]
            after = w._replace(shards=replaced(w.shards, server, shard._replace(up=not shard.up)))
            if w.budget.outages and shard.up:
                budget = w.budget._replace(outages=w.budget.outages - 1)
                yield ACCIDENT, f"server {server} stops answering", after._replace(budget=budget)
            if not shard.up:
                yield ACCIDENT, f"server {server} answers again", after

    def _losses(self, w: World) -> Iterator[Move]:
        if w.standby is None:
            yield ACCIDENT, "the standby is cut off", promotion.cut_off(w)
            return
        after = promotion.promote(w, self.scene)
        for me in range(len(self.scene.cast)):
            if self._was_in_postgres(w, me):
                after = self._dead(after, me)
        is_old = w.standby[-1] <= w.timeline and self.scene.returns
        what = "the old primary is back, and shut" if is_old else "Postgres is lost, the standby is promoted"
        yield ACCIDENT, what, after

    def _was_in_postgres(self, w: World, me: int) -> bool:
        """Whether its call, or its transaction, broke off. A barrier is missed when it comes to decide."""
        call = self.node(w, me).call
        in_call = w.places[me].phase is not None and call is not None and not call.name.startswith("store.")
        return in_call or (me in w.inside)

    # ---- what must hold -------------------------------------------------------------------------------------------

    def check(self, w: World) -> None:
        is_rw = any(shard.state == "RW" for shard in w.shards)
        if is_rw and w.gate.state is GateState.OPEN and is_of_now(w, self.scene):
            raise Violation("I9: the gate of Postgres is open and a shard is RW")
        if is_rw and w.writes:
            raise Violation("I9: who has written in Postgres is not done, and a shard is RW")
        for key, version, body in w.acknowledged:
            places = (w.tables[key].bodies[version], w.cells[key][version])
            if body not in places and not buffers.is_named(w, key, version, body):
                raise Violation(f"I1: acknowledged {key}@{version} is nowhere")
        for key in KEYS:
            self._check_row(w, key)

    def _check_row(self, w: World, key: int) -> None:
        table, cells = w.tables[key], w.cells[key]
        queued = {change.version for change in w.queue if change.key == key}
        here = {version for version, body in enumerate(table.bodies) if body}
        there = {version for version, body in enumerate(cells) if body}
        # What had been replaced before it was copied is not missed.
        past = {1} if not self._is_copied(w) or (not self.scene.is_copied and max(here, default=0) > 1) else set()
        if any(table.bodies[version] != cells[version] for version in here & there):
            raise Violation(f"I2: two bodies under one key of row {key}: {table.bodies}, {cells}")
        if table.version != (0 if table.bodies[max(here, default=0)] == TOMBSTONE else max(here, default=0)):
            raise Violation(f"I4: row {key} holds version {table.version} of {table.bodies}")
        if here - there - queued - past:
            raise Violation(f"I8: row {key} is {table.bodies} in Postgres, {cells} in Schemaless, and not queued")
        if not self.scene.losses and not here.issuperset(w.log[key][: w.offsets[key]]):
            raise Violation(f"I1: the reverse mirror is past what it has not written of row {key}")
        if self.scene.losses:
            self._check_owned(w, key, here)
        elif w.row.is_open_for(Backend.LEGACY) and (there | buffers.waiting_versions(w, key)) - here:
            raise Violation(f"I1: Postgres is the authority and lacks what Schemaless has of row {key}")
        if is_of_now(w, self.scene) and w.row.is_open_for(Backend.STORE) and here - there - past:
            raise Violation(f"I8: Schemaless is the authority and lacks what Postgres has of row {key}")

    def _check_owned(self, w: World, key: int, here: set[int]) -> None:
        """What Postgres lost it may have lost for good, but not what Schemaless had acknowledged."""
        owned = {version for owner, version in w.owned if owner == key}
        log = w.log[key]
        if self.scene.mends and owned.intersection(log[: w.applied[key]]) - here:
            raise Violation(f"I1: Postgres says that it has what it lacks of row {key}")
        if w.row.is_open_for(Backend.LEGACY) and is_accepted(w, self.scene) and owned - here:
            raise Violation(f"I1: Postgres is the authority and lacks what Schemaless acknowledged of row {key}")

    def _is_copied(self, w: World) -> bool:
        """Whether what the mirror did not have from the start has been copied."""
        places = (self.node(w, me) for me, actor in enumerate(self.scene.cast) if actor.copies)
        return self.scene.is_copied or all(node.call is None for node in places)

    def is_good(self, w: World) -> bool:
        """One store is open, as the row says, and nothing is on its way."""
        legacy = w.row.is_open_for(Backend.LEGACY) and w.gate == GateReading(w.row.epoch, GateState.OPEN)
        store = w.row.is_open_for(Backend.STORE) and all(shard[:3] == (w.row.epoch, "RW", True) for shard in w.shards)
        is_free = w.barrier is None and w.row_lock is None
        is_free = is_free and is_accepted(w, self.scene)
        return (legacy or store) and is_free and self._is_carried(w)

    def _is_carried(self, w: World) -> bool:
        """Whether all has arrived that an actor of the cast carries."""
        carried = {carries for actor in self.scene.cast if (carries := actor.carries) is not None}
        is_relayed = "queue" not in carried or not w.queue
        passed = w.offsets if self.scene.mends is None else w.applied
        is_replayed = "buffers" not in carried or not any(w.buffers)
        return (
            is_relayed
            and is_replayed
            and (self._is_copied(w) or w.row.is_open_for(Backend.STORE))  # the past waits for a way back
            and all(len(w.log[key]) <= passed[key] for key in KEYS if key in carried)
        )

    def describe(self, w: World) -> str:
        shards = [tuple(shard) for shard in w.shards]
        return f"row {w.row}, gate {tuple(w.gate)}, barrier {w.barrier}, row lock {w.row_lock}, shards {shards}"
