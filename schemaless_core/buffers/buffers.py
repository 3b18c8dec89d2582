"""`Buffers`: keeps cells that their own cluster did not take, finds them again, and carries them to their shards."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from schemaless_core import metrics
from schemaless_core.buffers import steps
from schemaless_core.buffers.choice import others_by_weight
from schemaless_core.buffers.fullness import Fullness
from schemaless_core.buffers.ports import UNANSWERED, Kept, Silence, Unanswered
from schemaless_core.cell.page_bytes import fitting, halves
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import BufferConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, Node
from schemaless_core.engine.buffers import BufferedPage, BufferSize, BufferTables, CellKeyBytes, Offered
from schemaless_core.errors import (
    BufferFull,
    InvalidServer,
    PacketTooLarge,
    SchemalessError,
    SchemaMissing,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.servers.routing import Router
from schemaless_core.steps import run

logger = logging.getLogger(__name__)

#: Of the time that is left: so much for the next buffer, the rest for those after it.
SHARE = 0.7
#: In one statement: keys of cells, and rows with all their columns.
KEYS_PER_CALL, ROWS_PER_CALL = 1000, 200

UNKEPT = "Repeat the put, which is safe: its shard opens in a moment, and a buffer may have it already."

T = TypeVar("T")
W = TypeVar("W")


class BufferRefused(NamedTuple):
    """The other body that waits under a cell's key."""

    body: bytes


#: Why its own cluster did not take a cell: it did not answer in time, or another server is about to lead it.
Failure = Unavailable | StaleEpoch


class WantedCopies(NamedTuple):
    """On how many servers a cell is to be kept."""

    servers: int
    #: They wait there until each replica of the own cluster has them.
    are_second: bool


ONE = WantedCopies(1, False)
#: Of cells that their own primary has; and of those that it has not.
SECOND, BOTH = WantedCopies(1, True), WantedCopies(2, True)

#: What became of a cell: None: it is kept.
BufferedOutcome = SchemalessError | BufferRefused | None


class Buffers:
    """The buffers of all clusters, as one caller uses them."""

    def __init__(self, router: Router, config: BufferConfig, shards: int) -> None:
        self._router = router
        self._shards = shards
        self._is_full = {name: Fullness(partial(self._size, name), config) for name in router.cluster_names}

    def keep(
        self,
        cells: Sequence[NewCell],
        failures: Sequence[Failure],
        standing: Standing,
        deadline: Deadline,
        copies: WantedCopies = ONE,
    ) -> list[BufferedOutcome]:
        """Keep cells, all with different keys, whose own clusters failed so; say of each what became of it."""
        outcomes: list[BufferedOutcome] = list(failures)
        places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for n, cell in enumerate(cells):
            own = self._router.cluster_of(shard_of_bytes(cell.row_key, self._shards), deadline)
            places[others_by_weight(cell.row_key, own, self._router.cluster_names)].append(n)
        for servers, positions in places.items():
            for portion in _portions(cells, positions):
                part, why = [cells[n] for n in portion], [failures[n] for n in portion]
                kept = self._keep(servers, part, why, standing, deadline, copies)
                for n, outcome in zip(portion, kept, strict=True):
                    outcomes[n] = outcome
        if copies is not SECOND:
            metrics.cells_buffered(sum(outcome is None for outcome in outcomes))
        return outcomes

    def _keep(
        self,
        servers: tuple[str, ...],
        cells: Sequence[NewCell],
        failures: Sequence[Failure],
        standing: Standing,
        deadline: Deadline,
        copies: WantedCopies,
    ) -> list[BufferedOutcome]:
        """Keep cells on one server, or on two: by halves, where they are too large for it together."""
        offer = _Offer(self, standing, deadline, are_second=copies.are_second)
        try:
            server, kept = run(steps.keep(offer, servers, tuple(cells), standing.authority_epoch))
        except PacketTooLarge:
            return [
                outcome
                for some, why in zip(halves(cells), halves(failures), strict=True)
                for outcome in self._keep(servers, some, why, standing, deadline, copies)
            ]
        outcomes = offer.outcomes(kept, failures)
        if copies.servers == 1:
            return outcomes
        kept_here = [n for n, outcome in enumerate(outcomes) if outcome is None]
        if kept_here:
            others = tuple(each for each in servers if each != server)
            part, why = [cells[n] for n in kept_here], [failures[n] for n in kept_here]
            again = self._keep(others, part, why, standing, deadline, SECOND)
            for n, outcome in zip(kept_here, again, strict=True):
                outcomes[n] = outcome
        return outcomes

    def find(self, keys: Collection[CellKeyBytes], deadline: Deadline) -> list[NewCell]:
        """Return those of these cells that wait, as far as buffers answer. Ask before the shards: see decision 57."""
        return self._found(keys, KEYS_PER_CALL, lambda tables, some: tables.find(some, deadline))

    def latest(self, row_keys: Collection[bytes], deadline: Deadline) -> list[NewCell]:
        """Return of each column of these rows the highest that waits in each buffer. Ask before the shards."""
        return self._found(row_keys, ROWS_PER_CALL, lambda tables, some: tables.latest(some, deadline))

    def history(
        self, row_key: bytes, column_name: bytes, before: int | None, limit: int, deadline: Deadline
    ) -> list[BufferedPage]:
        """Return a page of a column of each buffer. Ask before the shards."""
        return self._answers(lambda node: node.buffers.history(row_key, column_name, before, limit, deadline))

    def _found(
        self, wanted: Collection[W], at_once: int, ask: Callable[[BufferTables, list[W]], list[NewCell]]
    ) -> list[NewCell]:
        distinct = list(dict.fromkeys(wanted))
        portions = [distinct[first : first + at_once] for first in range(0, len(distinct), at_once)]
        # Each buffer is asked for all of them: one that is silent takes no time from the others.
        return [cell for cells in self._answers(partial(_ask, ask, portions)) for cell in cells]

    def _answers(self, verb: Callable[[Node], T]) -> list[T]:
        found = list[T]()
        for cluster, answer in self._router.ask_all(verb).items():
            if isinstance(answer, SchemalessError):
                extra = {"event": "buffer.silent", "cluster": cluster, "reason": answer.message}
                logger.debug("a buffer does not answer", extra=extra)
            else:
                found.append(answer)
        return found

    def is_full(self, cluster: str, deadline: Deadline) -> bool:
        """Whether a buffer holds as much as it may."""
        return self._is_full[cluster](deadline)

    def _size(self, cluster: str, deadline: Deadline) -> BufferSize:
        return self._router.ask_cluster(cluster, lambda node: node.buffers.size(deadline))

    def offer(
        self, cluster: str, cells: tuple[NewCell, ...], standing: Standing, deadline: Deadline, *, are_second: bool
    ) -> list[bytes | None]:
        """Offer cells to one buffer, by the gate of any of the shards that are there."""
        offered = [Offered(shard_of_bytes(cell.row_key, self._shards), cell) for cell in cells]
        shard = self._router.shard_at(cluster, int.from_bytes(cells[0].row_key[:4], "big"), deadline)
        kept, _epoch = self._router.write(
            shard,
            lambda node, gate: node.buffers.keep(gate, offered, deadline, are_second=are_second),
            standing,
            deadline,
        )
        return kept


class _Offer:
    """The `BufferPort` of one put: what the buffers said to its cells."""

    def __init__(self, buffers: Buffers, standing: Standing, deadline: Deadline, *, are_second: bool) -> None:
        self._buffers = buffers
        self._standing = standing
        self._deadline = deadline
        self._are_second = are_second
        self._kept: list[bytes | None] = []
        self._refusal: StaleEpoch | None = None
        self._full = ""

    def keep(self, server: str, cells: tuple[NewCell, ...], epoch: int | None) -> tuple[Kept, ...] | Unanswered:
        if self._deadline.is_over:
            return UNANSWERED
        share = Deadline(self._deadline.remaining_seconds() * SHARE)
        try:
            if self._buffers.is_full(server, share):
                self._full = server
                return (Kept.FULL,) * len(cells)
            offer = self._buffers.offer
            self._kept = offer(server, cells, self._standing, share, are_second=self._are_second)
        except StaleEpoch as refusal:
            if not refusal.is_of_authority or self._standing.authority_epoch is None:
                return UNANSWERED
            self._refusal = refusal
            return (Kept.REFUSED,) * len(cells)
        except (Unavailable, SchemaMissing, InvalidServer) as silence:
            if isinstance(silence, PacketTooLarge) and len(cells) > 1:
                raise
            extra = {"event": "buffer.not_kept", "cluster": server, "reason": silence.message}
            logger.warning("a buffer does not take cells", extra=extra)
            return UNANSWERED
        return tuple(Kept.KEPT if other is None else Kept.CONFLICT for other in self._kept)

    def outcomes(self, kept: tuple[Kept, ...] | Silence, failures: Sequence[Failure]) -> list[BufferedOutcome]:
        if isinstance(kept, Silence):
            return [_unkept(failure) for failure in failures]
        if self._refusal is not None and Kept.REFUSED in kept:
            return [self._refusal] * len(failures)
        if Kept.FULL in kept:
            return [BufferFull(self._full, failure.message) for failure in failures]
        return [None if other is None else BufferRefused(other) for other in self._kept]


def _unkept(failure: Failure) -> Unavailable:
    """Of a cell that no buffer answered for. Its shard's refusal would say that it is nowhere: a buffer may have it."""
    if isinstance(failure, Unavailable):
        return failure
    return Unavailable(f"{failure.message.rstrip('.')}, and no buffer answers.", hint=UNKEPT)


def _ask(ask: Callable[[BufferTables, list[W]], list[NewCell]], portions: list[list[W]], node: Node) -> list[NewCell]:
    return [cell for some in portions for cell in ask(node.buffers, some)]


def _portions(cells: Sequence[NewCell], positions: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut positions of cells into what one packet takes."""
    while positions:
        count = fitting((len(cells[n].body) for n in positions), BYTES_PER_BATCH)
        yield positions[:count]
        positions = positions[count:]
