"""What may happen next around a move, accidents included, and what must hold whatever does."""

from __future__ import annotations

from collections.abc import Iterator

from schemaless_core.moves.ports import MoveState, Placed
from schemaless_core.promotion.ports import SILENT
from schemaless_core.steps import Step
from tests.explorer.moving import (
    FENCEABLE,
    MOVED,
    NAMES,
    RO,
    RW,
    Cluster,
    MoveScene,
    Outcomes,
    World,
    first,
    spent,
    with_cluster,
)
from tests.explorer.moving_actors import tools_of
from tests.explorer.moving_calls import CHANGES, HANDLERS, with_copy
from tests.explorer.programs import Node, Program
from tests.explorer.world import Done, Place, Violation, replaced

#: Who moves when no actor does.
SERVER, ACCIDENT = -1, -2

Move = tuple[int, str, World]


class MoveModel:
    """One scene."""

    def __init__(self, scene: MoveScene) -> None:
        self.scene = scene
        self._programs = [Program(actor.code, tools_of=tools_of) for actor in scene.cast]

    @property
    def may_stop(self) -> list[int]:
        return [n for n, actor in enumerate(self.scene.cast) if actor.may_stop]

    def steps_taken(self) -> set[Step]:
        return {node.step for program in self._programs for node in program.nodes if node.step is not None}

    def first(self) -> World:
        return first(self.scene)

    def _node(self, w: World, me: int) -> Node:
        return self._programs[me].nodes[w.places[me].node]

    def moves(self, w: World) -> Iterator[Move]:
        for me, actor in enumerate(self.scene.cast):
            node = self._node(w, me)
            if node.call is None:
                continue
            name, arguments = node.call
            outcomes = _silence(w, name) if _is_dead(w, arguments) else HANDLERS[name](w, arguments, self.scene, me)
            for label, after, outcome in outcomes:
                following = node.after(outcome.answer)
                number = 0 if following.call is None and actor.repeats else following.number
                places = replaced(after.places, me, Place(number))
                yield me, f"{actor.name} {label}", after._replace(places=places)
            if w.budget.kills and actor.is_mortal and w.places[me] != Place(0):
                dead = spent(w, "kills")._replace(places=replaced(w.places, me, Place(0)))
                yield ACCIDENT, f"{actor.name} is killed", dead
        yield from self._servers(w)

    def _servers(self, w: World) -> Iterator[Move]:
        for n in self.scene.promotes:
            cluster = w.clusters[n]
            if cluster.replica != cluster.primary and not cluster.is_dead and cluster.promotion != "decided":
                yield SERVER, f"the replica of {NAMES[n]} follows", with_cluster(w, n, replica=cluster.primary)
            yield from self._promotion(w, n, cluster)
        for late in w.late:
            rest = w._replace(late=w.late - {late})
            cluster = w.clusters[late.cluster]
            copy = cluster.before if late.is_before else cluster.primary
            if copy is not None:
                is_held = late.is_before or bool(cluster.promotion)
                after = CHANGES[late.verb](copy, late.arguments, self.scene.rules, is_held)
                rest = with_copy(rest, late.cluster, after, is_before=late.is_before)
            yield SERVER, f"{late.verb} arrives late at {NAMES[late.cluster]}", rest

    def _promotion(self, w: World, n: int, cluster: Cluster) -> Iterator[Move]:
        """Fence, decide, open, as the promotion that production has; its own steps are explored elsewhere."""
        rules, name = self.scene.rules, NAMES[n]
        if not cluster.promotion and w.budget.promotions:
            fenceable = FENCEABLE if rules.promotion_fences_moves else ("RW", "COPY")
            state = RO if cluster.primary.state in fenceable else cluster.primary.state
            fenced = with_cluster(w, n, promotion="fenced", primary=cluster.primary._replace(state=state))
            yield ACCIDENT, f"{name} is fenced for a promotion", spent(fenced, "promotions")
        if not cluster.promotion and w.budget.deaths:
            yield (
                ACCIDENT,
                f"the primary of {name} dies",
                spent(w, "deaths")._replace(
                    clusters=replaced(w.clusters, n, cluster._replace(promotion="fenced", is_dead=True))
                ),
            )
        if cluster.promotion == "fenced" and (cluster.is_dead or cluster.replica == cluster.primary):
            placed = w.placed
            if placed.cluster == name:
                placed = placed._replace(epoch=placed.epoch + 1)
            decided = with_cluster(w, n, promotion="decided")
            decided = decided._replace(placed=placed)
            yield SERVER, f"another primary of {name} is decided on", decided
        if cluster.promotion == "decided":
            yield SERVER, f"another primary of {name} is opened", self._opened(w, n, cluster)

    def _opened(self, w: World, n: int, cluster: Cluster) -> World:
        copy = cluster.replica
        if copy.state != MOVED:
            if w.placed.cluster == NAMES[n]:
                copy = copy.opened(max(copy.epoch + 1, w.placed.epoch))
            elif self.scene.rules.promotion_closes_strays:
                copy = copy._replace(state=MOVED)
        before = None if cluster.is_dead else cluster.primary
        late = frozenset(each._replace(is_before=True) if each.cluster == n else each for each in w.late)
        if cluster.is_dead and w.placed.cluster == NAMES[n]:  # what it alone had is the salvage's
            w = w._replace(acknowledged=w.acknowledged - (set(cluster.primary.log) - set(copy.log)))
            if cluster.primary.state == RW:  # and so are entries that it took as the owner
                w = w._replace(indexed=w.indexed - (cluster.primary.entries - copy.entries))
        led = Cluster(copy, copy, before=before, generation=cluster.generation + 1)
        return w._replace(clusters=replaced(w.clusters, n, led), late=late)

    def check(self, w: World) -> None:
        """Where the shard is open: all that was acknowledged is there, once; offsets are behind what was delivered."""
        owners = [cluster.primary for cluster in w.clusters if cluster.primary.state == RW]
        for owner in owners:
            if owner.epoch != max(each.epoch for each in owners):
                continue
            if not w.acknowledged <= set(owner.log):
                raise Violation(f"I1: acknowledged {sorted(w.acknowledged - set(owner.log))}, and the owner lacks it")
            if len(set(owner.log)) < len(owner.log):
                raise Violation("I3: a cell is twice in the log")
            if not w.indexed <= owner.entries:
                raise Violation("I6: an entry that was written is not there")
            if not set(owner.log[: owner.offset]) <= w.delivered:
                raise Violation("I7: the offset is above a cell that was not delivered")
        if len(owners) > 1 and len({each.epoch for each in owners}) == 1:
            raise Violation("I9: two clusters have the shard at one epoch")

    def is_good(self, w: World) -> bool:
        """The shard is open where the topology has it, and no move is under way."""
        copy = w.clusters[NAMES.index(w.placed.cluster)].primary
        is_open = copy.state == (w.row.status if self.scene.has_authority else RW) and copy.epoch >= w.placed.epoch
        is_row = not self.scene.has_authority or (not w.row.is_held and copy.authority == w.row.epoch)
        is_quiet = all(not each.promotion for each in w.clusters)
        return is_open and is_row and is_quiet and w.move.state is MoveState.DONE

    def describe(self, w: World) -> str:
        rows = [tuple(each.primary) for each in w.clusters]
        return f"move {tuple(w.move)}, placed {tuple(w.placed)}, rows {rows}, row {tuple(w.row)}"


def _is_dead(w: World, arguments: tuple[object, ...]) -> bool:
    """Whether a call goes to a primary that is dead, while no other one leads."""
    asked = {each.cluster if isinstance(each, Placed) else each for each in arguments[:2]}
    return any(cluster.is_dead and name in asked for name, cluster in zip(NAMES, w.clusters, strict=True))


def _silence(w: World, name: str) -> Outcomes:
    """A mover gives up, callers wait."""
    if not name.startswith("client."):
        yield "hears nothing", w, Done(SILENT)
