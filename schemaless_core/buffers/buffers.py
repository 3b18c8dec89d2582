"""`Buffers`: keeps cells that their own cluster did not take, finds them again, and carries them to their shards."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemaless_core import metrics
from schemaless_core.buffers import steps
from schemaless_core.buffers.choice import others_by_weight
from schemaless_core.buffers.ports import UNANSWERED, Kept, Silence, Unanswered
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import BufferConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import BufferedCell, BufferSize, Offered
from schemaless_core.errors import BufferFull, InvalidServer, SchemalessError, SchemaMissing, StaleEpoch, Unavailable
from schemaless_core.servers.routing import Router
from schemaless_core.steps import run

logger = logging.getLogger(__name__)

#: How long a buffer's size is believed: counting it reads an index.
SIZE_SECONDS = 2.0
#: Of the time that is left: so much for the next buffer, the rest for those after it.
SHARE = 0.7


class BufferRefused(NamedTuple):
    """The other body that waits under a cell's key."""

    body: bytes


#: What became of a cell: None: it is kept.
Outcome = SchemalessError | BufferRefused | None


class Buffers:
    """The buffers of all clusters, as one caller uses them."""

    def __init__(
        self, router: Router, config: BufferConfig, shards: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._router = router
        self._config = config
        self._shards = shards
        self._clock = clock
        self._sizes: dict[str, tuple[float, BufferSize]] = {}

    def keep(
        self, cells: Sequence[NewCell], failures: Sequence[Unavailable], standing: Standing, deadline: Deadline
    ) -> list[Outcome]:
        """Keep cells, all with different keys, whose own clusters failed so; say of each what became of it."""
        outcomes: list[Outcome] = list(failures)
        places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for n, cell in enumerate(cells):
            own = self._router.cluster_of(shard_of_bytes(cell.row_key, self._shards), deadline)
            places[others_by_weight(cell.row_key, own, self._router.cluster_names)].append(n)
        for servers, positions in places.items():
            part = tuple(cells[n] for n in positions)
            offer = _Offer(self, standing, deadline)
            kept = run(steps.keep(offer, servers, part, standing.authority_epoch))
            for n, outcome in zip(positions, offer.outcomes(kept, [failures[n] for n in positions]), strict=True):
                outcomes[n] = outcome
        metrics.cells_buffered(sum(outcome is None for outcome in outcomes))
        return outcomes

    def of_rows(self, row_keys: Sequence[bytes], deadline: Deadline) -> list[BufferedCell]:
        """Return what waits of these rows, as far as buffers answer. Ask before the shards: see decision 57."""
        wanted = list(dict.fromkeys(row_keys))
        found: list[BufferedCell] = []
        answers = self._router.ask_all(lambda node: node.buffers.of_rows(wanted, deadline), deadline)
        for cluster, answer in answers.items():
            if isinstance(answer, SchemalessError):
                extra = {"event": "buffer.silent", "cluster": cluster, "reason": answer.message}
                logger.debug("a buffer does not answer", extra=extra)
            else:
                found += answer
        return found

    def is_full(self, cluster: str, deadline: Deadline) -> bool:
        """Whether a buffer holds as much as it may, by a count that is not older than two seconds."""
        known = self._sizes.get(cluster)
        if known is None or self._clock() - known[0] > SIZE_SECONDS:
            size = self._router.ask_cluster(cluster, lambda node: node.buffers.size(deadline))
            known = self._sizes[cluster] = (self._clock(), size)
        size = known[1]
        return size.cells >= self._config.max_cells or size.bytes >= self._config.max_bytes

    def offer(
        self, cluster: str, cells: tuple[NewCell, ...], standing: Standing, deadline: Deadline
    ) -> list[bytes | None]:
        """Offer cells to one buffer, by the gate of any of the shards that are there."""
        offered = [Offered(shard_of_bytes(cell.row_key, self._shards), cell) for cell in cells]
        shard = self._router.shard_at(cluster, int.from_bytes(cells[0].row_key[:4], "big"), deadline)
        kept, _epoch = self._router.write(
            shard, lambda node, gate: node.buffers.keep(gate, offered, deadline), standing, deadline
        )
        return kept


class _Offer:
    """The `BufferPort` of one put: what the buffers said to its cells."""

    def __init__(self, buffers: Buffers, standing: Standing, deadline: Deadline) -> None:
        self._buffers = buffers
        self._standing = standing
        self._deadline = deadline
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
            self._kept = self._buffers.offer(server, cells, self._standing, share)
        except StaleEpoch as refusal:
            if not refusal.is_of_authority or self._standing.authority_epoch is None:
                return UNANSWERED
            self._refusal = refusal
            return (Kept.REFUSED,) * len(cells)
        except (Unavailable, SchemaMissing, InvalidServer) as silence:
            extra = {"event": "buffer.not_kept", "cluster": server, "reason": silence.message}
            logger.warning("a buffer does not take cells", extra=extra)
            return UNANSWERED
        return tuple(Kept.KEPT if other is None else Kept.CONFLICT for other in self._kept)

    def outcomes(self, kept: tuple[Kept, ...] | Silence, failures: Sequence[Unavailable]) -> list[Outcome]:
        if isinstance(kept, Silence):
            return list(failures)
        if self._refusal is not None and Kept.REFUSED in kept:
            return [self._refusal] * len(failures)
        if Kept.FULL in kept:
            return [BufferFull(self._full, failure.message) for failure in failures]
        return [None if other is None else BufferRefused(other) for other in self._kept]
