"""The processes of a cast around a move: movers, callers, an index writer, a trigger, a hand-over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from schemaless_core.moves import steps
from schemaless_core.moves.ports import MovePorts, Placed
from schemaless_core.promotion.ports import Unheard
from schemaless_core.steps import Step, Steps
from tests.explorer.moving import GOING, NAMES, SOURCE, TARGET, Read

PUT = Step("actor.put", "put a cell")
GET = Step("actor.get", "read")
CONFIRM = Step("actor.confirm", "see whether the shard is still there")
HEAR = Step("actor.hear", "ask where the shard is")
ENTER = Step("actor.enter", "write an entry")
ADMITTED = Step("actor.admitted", "look at the shard behind it")
TAIL = Step("actor.tail", "deliver a cell")
ADVANCE = Step("actor.advance", "move the offset")
HOLD = Step("actor.hold", "begin a hand-over")
SHUT = Step("actor.shut", "close a cluster to owners")
SETTLE = Step("actor.settle", "decide the hand-over")
OBEY = Step("actor.obey", "make a cluster what the row says")

BEGIN = Placed(SOURCE, 1)


class ClientPort(Protocol):
    """What is asked of the world beside a move."""

    def hear(self) -> Placed: ...
    def put(self, placed: Placed, cell: int) -> bool: ...
    def get(self, placed: Placed) -> Read: ...
    def confirm(self, placed: Placed, is_whole: bool) -> bool: ...
    def enter(self, placed: Placed, entry: int) -> int: ...
    def admits(self, placed: Placed, entry: int, generation: int) -> bool: ...
    def tail(self, placed: Placed) -> tuple[int, int] | None: ...
    def advance(self, placed: Placed, offset: int) -> None: ...
    def hold(self) -> None: ...
    def shut(self, cluster: str) -> bool: ...
    def settle(self, is_closed: bool) -> None: ...
    def obey(self, cluster: str) -> None: ...


class MoveTools(NamedTuple):
    """What the code of an actor may use."""

    ports: MovePorts
    client: ClientPort


def tools_of(port: Callable[[str], Any]) -> MoveTools:
    ports = MovePorts(port("record"), port("shards"), port("copies"), port("patience"), port("authority"))
    return MoveTools(ports, port("client"))


@dataclass(frozen=True)
class MoveActor:
    """One process."""

    name: str
    code: Callable[[MoveTools], Steps[Any]]
    is_mortal: bool = True
    repeats: bool = False
    #: Another one goes on when it stands still for ever.
    may_stop: bool = False


def mover(name: str, to: str = TARGET, *, may_stop: bool = False, move: Any = steps.move) -> MoveActor:
    """Asks for a move until it is done, or was given up."""

    def code(tools: MoveTools) -> Steps[None]:
        while True:
            result = yield from move(tools.ports, to)
            if isinstance(result, steps.Moved) or result.why is steps.MoveStop.STAYED:
                return

    return MoveActor(name, code, may_stop=may_stop)


def sleeper(name: str) -> MoveActor:
    """A mover that was stopped with a page in its hands, and wakes up at any time; then before it copies the rest."""

    def code(tools: MoveTools) -> Steps[None]:
        copies = tools.ports.copies
        yield steps.LOOK
        placed = tools.ports.record.find().placed
        yield steps.PREPARE
        tools.ports.shards.prepare(TARGET, placed.epoch)
        yield steps.READ
        page = copies.read(SOURCE, 0)
        if isinstance(page, Unheard) or (page.seen.state, page.seen.epoch) != (GOING, placed.epoch):
            return
        yield steps.WRITE
        copies.write(TARGET, page, 0, page.seen.epoch)
        yield steps.BESIDE
        copies.beside(SOURCE, TARGET, placed.epoch + 1)

    return MoveActor(name, code, is_mortal=False)


def undoer(name: str) -> MoveActor:
    """Gives a move up, whenever it comes to it."""

    def code(tools: MoveTools) -> Steps[None]:
        while True:
            result = yield from steps.give_up(tools.ports)
            if isinstance(result, steps.Moved) or result.why is steps.MoveStop.STAYED:
                return

    return MoveActor(name, code)


def writer(name: str, cell: int) -> MoveActor:
    """Puts a cell where it thinks that the shard is. A replayer, a relay and a mirror do the same."""

    def code(tools: MoveTools) -> Steps[None]:
        placed = BEGIN
        while True:
            yield PUT
            if tools.client.put(placed, cell):
                return
            yield HEAR
            placed = tools.client.hear()

    return MoveActor(name, code, is_mortal=False)


def reader(name: str) -> MoveActor:
    def code(tools: MoveTools) -> Steps[None]:
        placed = BEGIN
        while True:
            yield GET
            found = tools.client.get(placed)
            counts = found.is_admitted
            if counts and found.is_asked:
                yield CONFIRM
                counts = tools.client.confirm(placed, found.is_whole)
            if not counts:
                yield HEAR
                placed = tools.client.hear()

    return MoveActor(name, code, is_mortal=False)


def indexer(name: str, entry: int, *, hears_first: bool = False) -> MoveActor:
    """Writes an entry; what the shard says behind it decides whether it is there."""

    def code(tools: MoveTools) -> Steps[None]:
        placed = BEGIN
        if hears_first:
            yield HEAR
            placed = tools.client.hear()
        while True:
            yield ENTER
            generation = tools.client.enter(placed, entry)
            yield ADMITTED
            if tools.client.admits(placed, entry, generation):
                return
            yield HEAR
            placed = tools.client.hear()

    return MoveActor(name, code, is_mortal=False)


def trigger(name: str) -> MoveActor:
    """Delivers cells in the order of the log, and moves its offset behind each."""

    def code(tools: MoveTools) -> Steps[None]:
        placed = BEGIN
        while True:
            yield TAIL
            found = tools.client.tail(placed)
            if found is not None:
                offset, count = found
                yield ADVANCE
                tools.client.advance(placed, offset + count)
            yield HEAR
            placed = tools.client.hear()

    return MoveActor(name, code, is_mortal=False)


def hand_over(name: str) -> MoveActor:
    """Gives the authority back to Postgres, or undoes it when a cluster does not close."""

    def code(tools: MoveTools) -> Steps[None]:
        yield HOLD
        tools.client.hold()
        is_closed = True
        for cluster in (TARGET, SOURCE):
            yield SHUT
            is_closed = tools.client.shut(cluster) and is_closed
        yield SETTLE
        tools.client.settle(is_closed)

    return MoveActor(name, code, is_mortal=False)


def worker(name: str) -> MoveActor:
    def code(tools: MoveTools) -> Steps[None]:
        for cluster in NAMES:
            yield OBEY
            tools.client.obey(cluster)

    return MoveActor(name, code, is_mortal=False, repeats=True)
