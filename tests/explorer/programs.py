"""`Program`: the production steps as an automaton that the explorer can enter at any point.

A generator can neither be copied nor compared. So a point between two steps is known by what the code could do from
here on: where each frame stands, and its local variables. To leave a point by an answer, the generator is run anew
with the answers that led there, once for each point and answer; after that the explorer only follows the links.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import GeneratorType
from typing import Any, NamedTuple, Protocol, cast

from schemaless_core.buffers.ports import Buffering, BufferPort, KeepPort, OwnPort, PresentPort
from schemaless_core.cell.cell import Cell
from schemaless_core.moves.ports import MovePorts
from schemaless_core.promotion import ports as promotion
from tripstore.handover.authority import Authority
from tripstore.handover.ports import ControlPort, LegacyPort, Ports, Refusal, StorePort
from tripstore.handover.reverse import Hands
from tripstore.handover.steps import Step, Steps

#: The third has shards of which nothing is told, and a buffer.
SERVERS = ("server 0", "server 1", "server 2")
_PORTS = ("legacy", "store", "control", "sql", "log", "hands", "cells", "positions", "present", "own", "buffers")


class SqlPort(NamedTuple):
    """What a service's own SQL asks of Postgres: not ours, so in no port."""

    statement: Callable[[str, int], bool]
    commit: Callable[[], None]


class Page(NamedTuple):
    """Cells of a shard's log, and where the log goes on."""

    cells: tuple[Cell, ...]
    position: int


class LogPort(NamedTuple):
    """What the trigger workers ask of a shard's log, for the reverse mirror's group."""

    read: Callable[[int, int], Page]
    advance: Callable[[int, int], None]


class CellsPort(NamedTuple):
    """What `schema apply` asks of both stores before it changes what cells mean."""

    objection: Callable[[], str]


class Told(NamedTuple):
    """A position, and on which timeline Postgres said it."""

    position: int
    timeline: int


class PositionsPort(NamedTuple):
    """How far the reverse mirror is, as Postgres itself says: what a promoted Postgres has lost it does not claim."""

    find: Callable[[int], Told]
    read: Callable[[int, int, int], Page]
    move: Callable[[int, Told, int, Authority], bool]
    all: Callable[[], tuple[int, ...]]
    unmirrored: Callable[[str, tuple[int, ...]], int]


class Asked(NamedTuple):
    """What a read that includes buffers has been told so far."""

    #: The highest version; None: one that may have a higher one does not answer.
    version: int | None = 0
    #: What was acknowledged before it began; -1: it has yet to begin.
    due: int = -1


class ClientPort(Protocol):
    """What a caller asks of a shard and of a buffer, each by itself. The last answer of a read is given out."""

    def put(self, cell: Cell, epoch: int) -> object: ...
    def ask_buffer(self, server: str, key: int, asked: Asked, is_last: bool) -> Asked: ...
    def ask_shard(self, key: int, epoch: int, asked: Asked, is_last: bool) -> Asked | Refusal: ...


class Call(NamedTuple):
    """One call of a port."""

    name: str
    arguments: tuple[Any, ...]


class Raised(NamedTuple):
    """An answer that is an error."""

    error: Exception


class _Reached(BaseException):
    """The call whose answer is not known yet."""

    def __init__(self, call: Call) -> None:
        self.call = call


class _Port:
    """Answers from a record; what is not in there has been reached."""

    def __init__(self, name: str, record: _Record, servers: tuple[str, ...]) -> None:
        self._name = name
        self._record = record
        self.servers = self.names = servers

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._record.answer(
            Call(f"{self._name}.{verb}", (*arguments, *options.values()))
        )


class _Record:
    def __init__(self, answers: tuple[Any, ...]) -> None:
        self.answers = answers
        self.given = 0
        self.since_yield = 1  # a call before the first step is one too many

    def answer(self, call: Call) -> Any:
        self.since_yield += 1
        assert self.since_yield == 1, f"{call.name}: a second call in one step"
        if self.given == len(self.answers):
            raise _Reached(call)
        self.given += 1
        answer = self.answers[self.given - 1]
        if isinstance(answer, Raised):
            raise answer.error.with_traceback(None)
        return answer


class Node:
    """A point between two steps."""

    __slots__ = ("answers", "call", "links", "number", "program", "step", "value")

    def __init__(self, program: Program, number: int, answers: tuple[Any, ...]) -> None:
        self.program = program
        self.number = number
        self.answers = answers
        self.links: dict[Hashable, Node] = {}
        #: What comes next; None: it has ended.
        self.step: Step | None = None
        self.call: Call | None = None
        #: What it returned.
        self.value: Any = None

    def after(self, answer: Hashable) -> Node:
        """Where this answer leads."""
        found = self.links.get(answer)
        if found is None:
            found = self.links[answer] = self.program.node((*self.answers, answer))
        return found


Code = Callable[["Tools"], Steps[Any]]


class Tools(NamedTuple):
    """What the code of an actor may use."""

    ports: Ports
    sql: SqlPort
    log: LogPort
    #: The reverse mirror's.
    hands: Hands[tuple[Cell, ...], None]
    cells: CellsPort
    positions: PositionsPort
    buffering: Buffering
    client: ClientPort
    keeping: KeepPort


class Program:
    """An actor's code, explored as far as it was needed."""

    def __init__(
        self,
        code: Callable[[Any], Steps[Any]],
        layout: str | None = None,
        *,
        merges: bool = True,
        servers: int = 2,
        tools_of: Callable[[Callable[[str], Any]], Any] | None = None,
    ) -> None:
        """`tools_of`: makes what the code may use, of ports by their names; None: that of the hand-over."""
        self._code = code
        self._tools_of = tools_of
        self._servers = SERVERS[:servers]
        self._layout = layout
        self._merges = merges
        self._known: dict[Hashable, Node] = {}
        #: By number; the first is the beginning.
        self.nodes: list[Node] = []
        self._gone: Node | None = None
        self.node(())

    def node(self, answers: tuple[Any, ...]) -> Node:
        """The point to which these answers lead; one that is known, when the code could not tell the difference."""
        record = _Record(answers)
        if self._tools_of is not None:
            own = self._tools_of(lambda name: _Port(name, record, self._servers))
            return self._entered(self._code(own), record, own)
        ports = [_Port(name, record, self._servers) for name in _PORTS]
        tools = Tools(
            Ports(cast(LegacyPort, ports[0]), cast(StorePort, ports[1]), cast(ControlPort, ports[2]), self._layout),
            cast(SqlPort, ports[3]),
            cast(LogPort, ports[4]),
            cast(Hands[tuple[Cell, ...], None], ports[5]),
            cast(CellsPort, ports[6]),
            cast(PositionsPort, ports[7]),
            Buffering(cast(PresentPort, ports[8]), cast(OwnPort, ports[9]), cast(BufferPort, ports[10])),
            cast(ClientPort, ports[9]),
            cast(KeepPort, ports[10]),
        )
        return self._entered(self._code(tools), record, tools)

    def _entered(self, steps: Steps[Any], record: _Record, tools: object) -> Node:
        step, call, value, place = _advance(steps, record, tools)
        key = (step, place) if self._merges else record.answers
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = self._add(record.answers)
            node.step, node.call, node.value = step, call, value
        assert (node.step, node.call) == (step, call), "two ways to one point, and it goes on in two ways"
        return node

    @property
    def gone(self) -> Node:
        """Where an actor is that does not come back."""
        if self._gone is None:
            self._gone = self._add(())
        return self._gone

    def _add(self, answers: tuple[Any, ...]) -> Node:
        self.nodes.append(Node(self, len(self.nodes), answers))
        return self.nodes[-1]


def _advance(steps: Steps[Any], record: _Record, tools: object) -> tuple[Step | None, Call | None, Any, Hashable]:
    """Run to the first call that the record has no answer to."""
    step: Step | None = None
    place: Hashable = None
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            assert record.given == len(record.answers), "it ended before its answers did"
            return None, None, end.value, ("ended", end.value)
        except _Reached as reached:
            return step, reached.call, None, place
        record.since_yield = 0
        if record.given == len(record.answers):
            place = _place(steps, tools)


def _place(steps: object, tools: object) -> Hashable:
    """Where the code stands: every frame, innermost last, with its local variables but the ports."""
    frames: list[Hashable] = []
    while isinstance(steps, GeneratorType):
        frame = steps.gi_frame
        assert frame is not None
        variables = tuple(
            (name, value)
            for name, value in frame.f_locals.items()
            if value is not tools
            and not isinstance(
                value, _Port | Ports | Buffering | promotion.PromotionPorts | promotion.LeasePorts | MovePorts
            )
        )
        frames.append((frame.f_code, frame.f_lasti, variables))
        steps = steps.gi_yieldfrom
    return tuple(frames)
