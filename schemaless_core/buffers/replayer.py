"""`Replayer`: carries cells that wait in buffers to their shards, for as long as a worker runs.

Any number of them may run at once: two that carry the same cell waste work, and the second finds it there.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeVar

from schemaless_core import metrics
from schemaless_core.buffers import steps
from schemaless_core.buffers.facts import facts_of
from schemaless_core.buffers.ports import Buffering, Differs, Fate, PresentPort, Waiting
from schemaless_core.buffers.second_copies import Lacking, leaders_of, replicated
from schemaless_core.buffers.silent_clusters import PROBE_SECONDS, SilentClusters
from schemaless_core.cell.page_bytes import fitting, halves
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import BufferConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, Fact, Node, Stored
from schemaless_core.engine.buffers import BufferConflict, BufferedCell, BufferSize
from schemaless_core.engine.primacy import FIRST, Lead
from schemaless_core.errors import NodeUnavailable, PacketTooLarge, SchemalessError, SchemaMissing
from schemaless_core.servers.routing import Router
from schemaless_core.steps import run

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOTHING = BufferSize(0, 0, None, 0)

#: Shards of which cells are carried at once, by one transaction of their server, and at most how many cells of all of
#: them together. The bytes of a packet bound them, too.
SHARDS_PER_TAKE = 16
CELLS_PER_TAKE = 2_000
#: Between two looks at buffers that hold nothing, or nothing whose cluster is back; it doubles up to the longest.
PAUSE_SECONDS = 0.2
PAUSE_SECONDS_MAX = 2.0
#: Between two counts for the metrics: of a million cells one takes a tenth of a second.
COUNT_SECONDS = 5.0
CALL_SECONDS = 4.0


class AnyEpoch:
    """Of a datastore without a layer above it: its shards' own epoch."""

    def epoch(self) -> None:
        return None


class Replayed(NamedTuple):
    """What one round took out of buffers."""

    cells: int
    #: Clusters whose buffers held any when it began.
    left: tuple[str, ...]


class Replayer:
    """The replayer of all buffers of a datastore."""

    def __init__(self, router: Router, config: BufferConfig | None, shards: int, present: PresentPort) -> None:
        """`config`: None: the section is not there (any more). What waits is carried all the same."""
        self._router = router
        self._is_configured = config is not None
        self._config = config or BufferConfig()
        self._shards = shards
        self._present = present
        self._silent = SilentClusters()
        #: By the cluster whose buffer it is.
        self._lacking: dict[str, Lacking] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def round(self) -> Replayed:
        """Carry once what waits, a portion of each buffer."""
        deadline = Deadline(CALL_SECONDS)
        waiting = self._router.ask_all(lambda node: node.buffers.shards(deadline))
        carried, left = 0, list[str]()
        for cluster, shards in waiting.items():
            if not isinstance(shards, SchemalessError) and shards:
                carried += self._replay(cluster, shards)
                left.append(cluster)
        return Replayed(carried, tuple(left))

    def sizes(self) -> Mapping[str, BufferSize | SchemalessError]:
        """How much each buffer holds; the metrics are told. A cluster without the tables, a new one, holds nothing."""
        deadline = Deadline(CALL_SECONDS)
        sizes = self._router.ask_all(lambda node: _or(node.buffers.size, NOTHING, deadline))
        now = datetime.now(UTC)
        for cluster, size in sizes.items():
            if isinstance(size, BufferSize):
                age = 0.0 if size.oldest_at is None else max(0.0, (now - size.oldest_at).total_seconds())
                metrics.buffer_seen(cluster, size.cells, size.bytes, age, size.conflicts)
        return sizes

    def facts(self, cluster: str) -> list[Fact]:
        """What the doctor says of a buffer."""
        deadline = Deadline(CALL_SECONDS)
        size = self._router.ask_cluster(cluster, lambda node: _or(node.buffers.size, NOTHING, deadline))
        return facts_of(size, is_configured=self._is_configured)

    def columns(self) -> set[str]:
        """The columns of which cells wait; raises where a server does not answer."""
        deadline = Deadline(CALL_SECONDS)
        found = self._router.ask_all(lambda node: _or(node.buffers.columns, set[str](), deadline))
        names: set[str] = set()
        for answer in found.values():
            if isinstance(answer, SchemalessError):
                raise answer
            names |= answer
        return names

    def conflicts(self, limit: int) -> dict[str, list[BufferConflict] | SchemalessError]:
        """The ledgers of all buffers."""
        deadline = Deadline(CALL_SECONDS)
        return self._router.ask_all(lambda node: _or(partial(node.buffers.conflicts, limit), [], deadline))

    def close_conflicts(self, cluster: str, numbers: Sequence[int]) -> int:
        """Take these out of a ledger: a person has decided. Return how many were there."""
        deadline = Deadline(CALL_SECONDS)
        return self._router.ask_cluster(cluster, lambda node: node.buffers.close_conflicts(numbers, deadline))

    def __enter__(self) -> Replayer:
        self._thread = threading.Thread(target=self._run, name="replayer", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause, counted_at = PAUSE_SECONDS, -COUNT_SECONDS
        while not self._ended.is_set():
            carried, begun_at = 0, time.monotonic()
            try:
                carried = self.round().cells
                if time.monotonic() - counted_at >= COUNT_SECONDS:
                    self.sizes()
                    counted_at = time.monotonic()
            except SchemalessError as error:
                logger.warning("buffers wait", extra={"event": "replay.waits", "reason": error.message})
            except Exception:  # whatever it is: without this thread what waits would wait for ever, and unseen
                logger.exception("buffers wait", extra={"event": "replay.failed"})
            pause = PAUSE_SECONDS if carried else min(2 * pause, PAUSE_SECONDS_MAX)
            rest = rest_seconds(carried, self._config.cells_per_second, time.monotonic() - begun_at)
            self._ended.wait(rest if carried else pause)

    def _replay(self, cluster: str, shards: Sequence[int]) -> int:
        """Carry a portion of one buffer: of those of its shards whose cluster may be asked."""
        lacking = self._lacking.setdefault(cluster, Lacking())
        hands = _Hands(self._router, self._shards, lacking.awake(shards), self._silent, lacking)
        try:
            return run(steps.replay(Buffering(self._present, hands, hands), cluster, CELLS_PER_TAKE))
        except SchemalessError as error:
            extra = {"event": "replay.not_carried", "cluster": cluster, "reason": error.message}
            logger.warning("a buffer could not be carried", extra=extra)
            return 0


def rest_seconds(carried: int, per_second: int, took_seconds: float) -> float:
    """How long a worker waits after a round, so that it carries no more cells a second than it may."""
    return max(0.0, carried / per_second - took_seconds)


class _Hands:
    """The buffer of one cluster, and the shards that its cells are of."""

    def __init__(
        self,
        router: Router,
        shards: int,
        waiting: Sequence[int],
        silent: SilentClusters,
        lacking: Lacking,
    ) -> None:
        self._router = router
        self._shards = shards
        self._waiting = waiting
        self._silent = silent
        self._lacking = lacking
        #: Who led the buffer's cluster when it was read, and those of the shards when they were written to.
        self._kept_by = FIRST
        self._led: dict[str, Lead] = {}
        #: Numbers of cells that no packet of their server takes.
        self._too_large: set[int] = set()
        #: Shards whose clusters have little time, and get one cell each.
        self._probes: frozenset[int] = frozenset()

    def waiting(self, server: str, limit: int) -> tuple[Waiting, ...]:
        """Of some shards whose cluster may be asked now: one that is down keeps no cell of another one waiting."""
        deadline = Deadline(CALL_SECONDS)
        self._kept_by = self._router.leader_of(server)
        may_be_asked = [shard for shard in self._waiting if self._router.may_write(shard, deadline)]
        random.shuffle(may_be_asked)
        clusters = ((shard, self._router.cluster_of(shard, deadline)) for shard in may_be_asked)
        present = self._silent.sort(clusters)
        some = present.answering[:SHARDS_PER_TAKE]
        self._probes = frozenset(present.probes)
        takes = [(some, max(1, limit // max(1, len(some)))), (present.probes, 1)]
        found = (
            self._router.ask_cluster(
                server, partial(_take, shards=shards, each=each, deadline=deadline, after=self._lacking.passed)
            )
            for shards, each in takes
            if shards
        )
        taken = [one for cells in found for one in cells]
        is_cut = sum(len(one.cell.body) for one in taken) >= BYTES_PER_BATCH
        self._lacking.read(some, [one.shard for one in taken], takes[0][1], is_cut=is_cut)
        return tuple(Waiting(one.number, one.cell, one.is_second) for one in taken)

    def copy(self, cells: tuple[Waiting, ...], epoch: int | None) -> tuple[Fate | Differs, ...]:
        """Versions of one row go in the order of their arrival: they are of one shard, whose batch keeps it."""
        parts: dict[int, list[int]] = {}
        for n, (_number, cell, _is_second) in enumerate(cells):
            parts.setdefault(shard_of_bytes(cell.row_key, self._shards), []).append(n)
        self._led = leaders_of(self._router, parts, Deadline(CALL_SECONDS))
        fates: list[Fate | Differs] = [Fate.NOT_YET] * len(cells)
        answering = {shard: part for shard, part in parts.items() if shard not in self._probes}
        probes = {shard: part for shard, part in parts.items() if shard in self._probes}
        for some, seconds in ((answering, CALL_SECONDS), (probes, PROBE_SECONDS)):
            if some:
                self._copy(cells, some, Standing(Kind.COPIER, epoch), Deadline(seconds), fates)
        for each, fate in zip(cells, fates, strict=True):
            if fate is Fate.NOT_YET and each.number not in self._too_large:
                self._lacking.keep_out(shard_of_bytes(each.cell.row_key, self._shards), each.number)
        return tuple(fates)

    def _copy(
        self,
        cells: Sequence[Waiting],
        parts: Mapping[int, Sequence[int]],
        standing: Standing,
        deadline: Deadline,
        fates: list[Fate | Differs],
    ) -> None:
        """Put these positions of cells, by shard: by halves, where they are too large for a server together."""
        wanted = {shard: [cells[n].cell for n in positions] for shard, positions in parts.items()}
        answers = self._router.write_many(wanted, standing, deadline)
        self._hear(answers, deadline)
        for shard, answer in answers.items():
            positions = parts[shard]
            if isinstance(answer, PacketTooLarge):
                if len(positions) > 1:
                    for half in halves(positions):
                        self._copy(cells, {shard: half}, standing, deadline, fates)
                else:
                    self._too_large.add(cells[positions[0]].number)
                    _tell_too_large(cells[positions[0]], answer)
            elif not isinstance(answer, SchemalessError):
                stored, _epoch = answer
                for nth, n in enumerate(positions):
                    fates[n] = Fate.THERE if isinstance(stored, range) else _fate(stored[nth], cells[n].cell)

    def replicated(self, cells: tuple[Waiting, ...]) -> tuple[bool, ...]:
        """What a replica lacks that is silent, or behind, waits on; others do not wait behind it."""
        parts: dict[int, list[Waiting]] = {}
        for each in cells:
            parts.setdefault(shard_of_bytes(each.cell.row_key, self._shards), []).append(each)
        wanted = {shard: [each.cell for each in some] for shard, some in parts.items()}
        there = replicated(self._router, wanted, self._led, Deadline(CALL_SECONDS))
        self._lacking.note(parts, there)
        return tuple(each.cell[:3] in there for each in cells)

    def _hear(self, answers: Mapping[int, object], deadline: Deadline) -> None:
        """A cluster of which one shard answered is there: the others may be locked."""
        answered: dict[str, bool] = {}
        for shard, answer in answers.items():
            cluster = self._router.cluster_of(shard, deadline)
            answered[cluster] = answered.get(cluster, False) or not isinstance(answer, NodeUnavailable)
        for cluster, has_answered in answered.items():
            self._silent.heard(cluster, is_silent=not has_answered)

    def settle(self, server: str, there: Sequence[Waiting], conflicts: Sequence[tuple[Waiting, bytes]]) -> None:
        """What one packet does not take is settled by several: each cell is settled whole.

        Where another server leads by now the numbers may be those of other cells.
        """
        if self._router.leader_of(server) != self._kept_by:
            return
        if there:
            second = frozenset(each.number for each in there if each.is_second)
            self._settle(server, [each.number for each in there], {}, second)
        left = list(conflicts)
        while left:
            count = fitting((len(stored) for _each, stored in left), BYTES_PER_BATCH)
            self._note(server, left[:count])
            left = left[count:]

    def _note(self, server: str, conflicts: Sequence[tuple[Waiting, bytes]]) -> None:
        """Move cells to the ledger: by halves, where the stored bodies are too large for the server together."""
        try:
            self._settle(server, [], {each.number: stored for each, stored in conflicts})
        except PacketTooLarge as error:
            if len(conflicts) == 1:
                _tell_too_large(conflicts[0][0], error)
                return
            for half in halves(conflicts):
                self._note(server, half)
            return
        extra = {"event": "replay.conflict", "cluster": server, "cells": len(conflicts)}
        logger.warning("cells that waited conflict with what is stored: see the ledger", extra=extra)

    def _settle(
        self, server: str, gone: Sequence[int], others: Mapping[int, bytes], second: Collection[int] = ()
    ) -> None:
        deadline = Deadline(CALL_SECONDS)
        self._router.ask_cluster(server, lambda node: node.buffers.settle(gone, others, deadline, second=second))
        metrics.cells_replayed(len(gone), len(others))


def _tell_too_large(waiting: Waiting, error: PacketTooLarge) -> None:
    """It goes on waiting, and others pass it."""
    extra = {"event": "replay.too_large", "number": waiting.number, "reason": error.message, "hint": error.hint}
    logger.warning("a cell that waits is too large for a server", extra=extra)


def _take(
    node: Node, shards: Sequence[int], each: int, deadline: Deadline, after: Mapping[int, int]
) -> Sequence[BufferedCell]:
    return node.buffers.waiting(shards, each, BYTES_PER_BATCH, deadline, after)


def _or(ask: Callable[[Deadline], T], otherwise: T, deadline: Deadline) -> T:
    """What the tables of a buffer say, or this where there are none: nothing was ever kept there."""
    try:
        return ask(deadline)
    except SchemaMissing:
        return otherwise


def _fate(stored: Stored, cell: NewCell) -> Fate | Differs:
    if stored.purged is not None:
        return Fate.PURGED
    if stored.is_created:
        return Fate.THERE
    if stored.found is None:
        return Fate.NOT_YET
    return Fate.THERE if stored.found.body == cell.body else Differs(stored.found.body)
