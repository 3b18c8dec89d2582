"""One cell whose caller asked for two copies: its primary and a replica, two buffers elsewhere, and one server's loss.

The caller's order is that of a put; keeping and replaying are the production steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemaless_core.buffers import steps
from schemaless_core.buffers.ports import UNANSWERED, Buffering, Fate, KeepPort, Kept, Waiting
from schemaless_core.cell.stored import NewCell
from schemaless_core.steps import Step, Steps
from tests.explorer.programs import Node, Program
from tests.explorer.world import Place, Violation, replaced

PUT = Step("second.put", "put the cell into its own shard")
ACKNOWLEDGE = Step("second.acknowledge", "tell the caller that two servers have it")

CELL = NewCell(b"row", b"BASE", 1, b"1")
#: The servers: the first primary, its replica, and those of two other clusters with buffers.
FIRST, REPLICA, B, C = range(4)
BUFFERS = ("B", "C")
FATE = -1


@dataclass(frozen=True)
class SecondRules:
    """Each flag taken away is a control."""

    #: A second copy goes when every replica has the cell.
    asks_replicas: bool = True
    #: Of a cell that its own primary did not take, two buffers have to keep it.
    keeps_two: bool = True
    #: A stored cell is acknowledged when a buffer has it, too.
    keeps_second: bool = True


class SecondWorld(NamedTuple):
    """Which servers have the cell, and which are there."""

    places: tuple[Place, ...]
    #: In the log of the first primary and of its replica; in the two buffers.
    has: tuple[bool, ...] = (False,) * 4
    up: tuple[bool, ...] = (True,) * 4
    leads: int = FIRST
    is_acknowledged: bool = False


class SecondTools(NamedTuple):
    """What the code of an actor may use."""

    client: Any
    keeping: KeepPort
    buffering: Buffering


def tools_of(port: Callable[[str], Any]) -> SecondTools:
    return SecondTools(port("client"), port("buffers"), Buffering(port("present"), port("own"), port("buffers")))


def caller(rules: SecondRules) -> Callable[[SecondTools], Steps[None]]:
    def code(tools: SecondTools) -> Steps[None]:
        while True:
            left: tuple[str, ...] = BUFFERS
            copies = 1
            yield PUT
            if not tools.client.put():
                copies = 2 if rules.keeps_two else 1
            elif not rules.keeps_second:
                copies = 0
            for _copy in range(copies):
                server, kept = yield from steps.keep(tools.keeping, left, (CELL,), None)
                if not isinstance(kept, tuple):
                    break
                left = tuple(each for each in left if each != server)
            else:
                yield ACKNOWLEDGE
                tools.client.acknowledge()
                return

    return code


def replayer(server: str) -> Callable[[SecondTools], Steps[None]]:
    def code(tools: SecondTools) -> Steps[None]:
        yield from steps.replay(tools.buffering, server, 1)

    return code


Outcomes = Iterator[tuple[str, SecondWorld, object]]


class SecondModel:
    """One scene. One server may be lost, for good."""

    may_stop: tuple[int, ...] = ()

    def __init__(self, rules: SecondRules) -> None:
        self._rules = rules
        codes = (caller(rules), replayer("B"), replayer("C"))
        self.programs = [Program(code, tools_of=tools_of) for code in codes]

    def first(self) -> SecondWorld:
        return SecondWorld((Place(0),) * len(self.programs))

    def moves(self, w: SecondWorld) -> Iterator[tuple[int, str, SecondWorld]]:
        for me, program in enumerate(self.programs):
            node: Node = program.nodes[w.places[me].node]
            if node.call is None:
                continue
            name, arguments = node.call
            for label, after, answer in getattr(self, name.replace(".", "_"))(w, *arguments):
                following = node.after(answer)
                number = 0 if following.call is None and me else following.number
                yield me, f"{me} {label}", after._replace(places=replaced(after.places, me, Place(number)))
        if w.up[FIRST] and w.up[REPLICA] and w.leads == FIRST and w.has[FIRST] and not w.has[REPLICA]:
            yield FATE, "the replica fetches it", w._replace(has=replaced(w.has, REPLICA, True))
        if w.leads == FIRST and not w.up[FIRST]:
            yield FATE, "the replica is promoted", w._replace(leads=REPLICA)
        if all(w.up):
            for server in range(4):
                yield FATE, f"server {server} is lost for good", w._replace(up=replaced(w.up, server, False))

    # ---- what calls do -----------------------------------------------------------------------------------------

    def client_put(self, w: SecondWorld) -> Iterator[tuple[str, SecondWorld, object]]:
        yield "hears nothing of its primary", w, False
        if w.up[w.leads]:
            stored = w._replace(has=replaced(w.has, w.leads, True))
            yield "stores it, and does not hear of it", stored, False
            yield "stores it", stored, True

    def client_acknowledge(self, w: SecondWorld) -> Iterator[tuple[str, SecondWorld, object]]:
        yield "is told", w._replace(is_acknowledged=True), None

    def buffers_keep(
        self, w: SecondWorld, name: str, cells: object, epoch: object
    ) -> Iterator[tuple[str, SecondWorld, object]]:
        server = B + BUFFERS.index(name)
        yield f"hears nothing of {name}", w, UNANSWERED
        if w.up[server]:
            kept = w._replace(has=replaced(w.has, server, True))
            yield f"has it kept by {name}, and does not hear of it", kept, UNANSWERED
            yield f"has it kept by {name}", kept, (Kept.KEPT,)

    def present_epoch(self, w: SecondWorld) -> Iterator[tuple[str, SecondWorld, object]]:
        yield "asks for the epoch", w, None

    def buffers_waiting(self, w: SecondWorld, name: str, limit: int) -> Iterator[tuple[str, SecondWorld, object]]:
        server = B + BUFFERS.index(name)
        found = (Waiting(1, CELL, is_second=True),) if w.up[server] and w.has[server] else ()
        yield f"reads {name}", w, found

    def own_copy(self, w: SecondWorld, cells: object, epoch: object) -> Iterator[tuple[str, SecondWorld, object]]:
        yield "hears nothing of the primary", w, (Fate.NOT_YET,)
        if w.up[w.leads]:
            yield "copies it", w._replace(has=replaced(w.has, w.leads, True)), (Fate.THERE,)

    def own_replicated(self, w: SecondWorld, cells: object) -> Iterator[tuple[str, SecondWorld, object]]:
        yield "hears nothing of a replica", w, (False,)
        others = [n for n in (FIRST, REPLICA) if n != w.leads]
        if all(w.up[n] and w.has[n] for n in others) or not self._rules.asks_replicas:
            yield "hears that the replica has it", w, (True,)

    def buffers_settle(
        self, w: SecondWorld, name: str, there: object, conflicts: object
    ) -> Iterator[tuple[str, SecondWorld, object]]:
        server = B + BUFFERS.index(name)
        yield f"hears nothing of {name}", w, None
        if w.up[server]:
            yield f"removes it from {name}", w._replace(has=replaced(w.has, server, False)), None

    # ---- what must hold ----------------------------------------------------------------------------------------

    def check(self, w: SecondWorld) -> None:
        """What leads, or would, has it, or a buffer that is there."""
        leader = w.leads if w.up[w.leads] else REPLICA
        is_found = w.has[leader] or any(w.up[n] and w.has[n] for n in (B, C))
        if w.is_acknowledged and not is_found:
            raise Violation("I1: acknowledged by two servers, and the loss of one lost it")

    def is_good(self, w: SecondWorld) -> bool:
        """It is where it belongs, and its caller knows."""
        return w.is_acknowledged and w.up[w.leads] and w.has[w.leads]

    def describe(self, w: SecondWorld) -> str:
        return f"has {w.has}, up {w.up}, leads {w.leads}, acknowledged {w.is_acknowledged}"
