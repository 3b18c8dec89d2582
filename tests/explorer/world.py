"""`World`: all that two stores, the authority row and some processes are at one moment, as one value."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.cell import DEFAULT_MAX_BODY_BYTES, Cell
from schemaless_core.cell.encoded import EncodedCell, decode_cell, encode_cell
from tests.explorer.rules import Scenario
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Chunk

#: Two rows, each in a shard and on a server of its own.
KEYS = (0, 1)
ROWS = (UUID(int=1), UUID(int=2))
COLUMN = "STATUS"
#: Ref keys are 1 … VERSIONS - 1.
VERSIONS = 6
TOMBSTONE = "(deleted)"
OLD = "old"

Bodies = tuple[str | None, ...]


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Put:
    """An owner's write of one cell."""

    cell: Cell

    def __call__(self, store: object) -> Any:
        raise NotImplementedError("the world looks at it")


@dataclass(frozen=True)
class Get:
    """A caller's read of the latest version of a row."""

    key: int

    def __call__(self, store: object) -> Any:
        raise NotImplementedError("the world looks at it")


class Shard(NamedTuple):
    epoch: int
    state: str
    up: bool
    #: The highest epoch at which it was RW.
    opened: int = 0


class Table(NamedTuple):
    """What Postgres has of one row: every version there ever was, and which one the row holds (0: there is no row)."""

    bodies: Bodies
    version: int


class Queued(NamedTuple):
    key: int
    version: int
    is_claimed: bool


class Write(NamedTuple):
    """A statement that is not committed."""

    actor: int
    key: int
    version: int
    body: str


class Budget(NamedTuple):
    """Accidents that may still happen."""

    kills: int
    crashes: int
    outages: int
    breaks: int
    losses: int = 0
    lates: int = 0


class Place(NamedTuple):
    """Where an actor is: a point of its program, and how far the server is with the call that comes next."""

    node: int
    phase: Hashable = None


class Sent(NamedTuple):
    """A session whose client is gone: it has the barrier, and may run the decision that it was sent, or not."""

    closing: Authority
    decided: Authority


class Kept(NamedTuple):
    """A cell that waits in a buffer."""

    number: int
    key: int
    version: int
    body: str


class Late(NamedTuple):
    """A packet whose sender hears nothing of it: a put, one to a buffer, or one of the replayer's."""

    verb: str
    server: int
    key: int
    version: int
    body: str
    epoch: int
    #: Of its sender.
    layout: str | None


class World(NamedTuple):
    row: Authority
    row_lock: int | None
    gate: GateReading
    barrier: int | Sent | None
    inside: frozenset[int]
    writes: tuple[Write, ...]
    tables: tuple[Table, ...]
    queue: tuple[Queued, ...]
    #: Postgres as it was at its last flush, when something is committed that it has not flushed.
    flushed: tuple[Any, ...] | None
    shards: tuple[Shard, ...]
    cells: tuple[Bodies, ...]
    log: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    #: The latest version of each row that an actor was told of.
    floor: tuple[int, ...]
    acknowledged: frozenset[tuple[int, int, str]]
    budget: Budget
    places: tuple[Place, ...]
    #: Up to where Postgres has what the reverse mirror applied of each log, as Postgres itself says.
    applied: tuple[int, ...] = ()
    #: What another server has that may become Postgres: a standby from when it was cut off, or the old primary.
    standby: tuple[Any, ...] | None = None
    #: Grows with each promotion. The two of one standby have the same.
    timeline: int = 1
    #: On which the row was given, as `Standing` says it; and what the gate's own sequence says.
    given: int = 1
    accepted: int = 1
    #: What Schemaless acknowledged as the authority; kept where Postgres may go back.
    owned: frozenset[tuple[int, int]] = frozenset()
    #: What waits on each server for other servers, in the order of arrival, and the numbers that were given there.
    buffers: tuple[tuple[Kept, ...], ...] = ((), ())
    given_numbers: tuple[int, ...] = (0, 0)
    #: Both bodies of each conflict that the replayer met.
    ledger: frozenset[tuple[int, int, str]] = frozenset()
    late: frozenset[Late] = frozenset()


class Done(NamedTuple):
    """The server has answered."""

    answer: Hashable


class At(NamedTuple):
    """The server is in the middle of it."""

    phase: Hashable


Outcomes = Iterator[tuple[str, World, Done | At]]


def replaced(sequence: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*sequence[:index], value, *sequence[index + 1 :])


@cache
def cell(key: int, version: int, body: str) -> Cell:
    return Cell(ROWS[key], COLUMN, version, None if body == TOMBSTONE else body)


@cache
def encoded(of: Cell) -> EncodedCell:
    return encode_cell(of, DEFAULT_MAX_BODY_BYTES)


@cache
def decoded(of: EncodedCell) -> Cell:
    return decode_cell(of)


def chunk_of(key: int) -> Chunk:
    """The part of the past that is one row."""
    return Chunk(keys=(ROWS[key],))


def row_of(chunk: Chunk) -> int:
    """The row that a chunk asks for."""
    assert chunk.keys is not None
    (row_key,) = chunk.keys
    return ROWS.index(row_key)


def key_of(of: Cell) -> int:
    return ROWS.index(of.row_key)


def body_of(of: Cell) -> str:
    return TOMBSTONE if of.body is None else str(of.body)


def latest(bodies: Bodies) -> int:
    return max((version for version, body in enumerate(bodies) if body), default=0)


def acknowledge(w: World, key: int, version: int, body: str) -> World:
    floor = replaced(w.floor, key, max(w.floor[key], version))
    return w._replace(acknowledged=w.acknowledged | {(key, version, body)}, floor=floor)


def told(w: World, who: int, key: int, version: int, floor: int) -> World:
    """A caller is given an answer, `floor` having been acknowledged when it was asked for."""
    if version < floor:
        raise Violation(f"I9: actor {who} was answered version {version} of row {key}, {floor} was there before")
    return w._replace(floor=replaced(w.floor, key, max(version, w.floor[key])))


def is_accepted(w: World, scene: Scenario) -> bool:
    """Whether the row was given by the Postgres that answers now; True where no rule asks for it."""
    return scene.mends is None or not scene.mends.is_guarded or w.given == w.timeline


def check_owner(w: World, backend: Backend, scene: Scenario) -> World:
    """A backend has taken an owner's write. Before a promoted Postgres is accepted its row says nothing."""
    if backend is Backend.STORE and not is_accepted(w, scene):
        return w
    if w.row.backend is not backend:
        raise Violation(f"I9: {backend.value} took an owner's write, and the authority is {w.row.backend.value}")
    return w


def check_layout(w: World, me: int, scene: Scenario) -> None:
    """A store has taken a write of an actor, or has answered it. A row that is not accepted says nothing of that."""
    layout = scene.cast[me].layout
    if layout is not None and layout != w.row.layout and is_accepted(w, scene):
        raise Violation(f"I9: a store took layout {layout} of {scene.cast[me].name}, and {w.row.layout} is in force")


def first_world(scene: Scenario) -> World:
    nothing: Bodies = (None,) * VERSIONS
    old: Bodies = nothing if scene.is_empty else replaced(nothing, 1, OLD)
    is_legacy = scene.start is Backend.LEGACY
    copied = old if scene.is_copied else (None,) * VERSIONS
    return World(
        row=Authority(1, scene.start, layout=scene.layout),
        row_lock=None,
        gate=GateReading(1, GateState.OPEN if is_legacy else GateState.CLOSED),
        barrier=None,
        inside=frozenset(),
        writes=(),
        tables=(Table(old, latest(old)),) * len(KEYS),
        queue=(),
        flushed=None,
        shards=(Shard(1, "COPY", True) if is_legacy else Shard(1, "RW", True, 1),) * scene.servers,
        cells=(copied,) * len(KEYS),
        log=((1,) if scene.is_copied else (),) * len(KEYS),
        offsets=(1 if scene.is_copied else 0,) * len(KEYS),
        floor=(latest(old),) * len(KEYS),
        acknowledged=frozenset(),
        budget=Budget(scene.kills, scene.crashes, scene.outages, scene.breaks, scene.losses, scene.lates),
        places=(Place(0),) * len(scene.cast),
        applied=(1 if scene.is_copied else 0,) * len(KEYS),
        buffers=((),) * scene.servers,
        given_numbers=(0,) * scene.servers,
    )
