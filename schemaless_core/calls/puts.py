"""Puts: one cell, a batch, an append. Checks, routes, and says what became of each cell."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol
from uuid import UUID

from schemaless_core import metrics
from schemaless_core.buffers.buffers import Failure
from schemaless_core.buffers.keeper import Keeper
from schemaless_core.calls.lookups import Lookups, conflict
from schemaless_core.cell.answers import ANY, Position, PutResult, PutStatus
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import REF_KEY_MAX, Cell, check_ref_key, checked_bytes, encoded_name, no_free_ref_key
from schemaless_core.cell.page_bytes import halves
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.cell.requests import check_location, listed_cells
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Gate, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, Batch, BatchAnswer, Node, RowSeen, Stored
from schemaless_core.errors import (
    CellPurged,
    Conflict,
    ConnectionBroken,
    InvalidRequest,
    NodeUnavailable,
    PacketTooLarge,
    SchemalessError,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.failpoints import reach
from schemaless_core.habits import Habits
from schemaless_core.servers.routing import Router

_TOGETHER = "All of them are stored, and readable: put them again one by one, which finds them."
#: The longest pause between two attempts of an append.
APPEND_PAUSE_SECONDS = 0.01
_PERHAPS_APPENDED = (
    "It may be stored: look at the column's history first, since an append that is repeated may store it twice."
)
#: Cells of one shard in one packet.
CELLS_PER_BATCH = 500
#: Cells of one row that are stored by one commit, all or none; others wait for the shard meanwhile.
CELLS_TOGETHER = 5000


class CommitListener(Protocol):
    """Hears of committed cells; must not take time."""

    #: The columns whose cells it wants to hear of.
    columns: frozenset[str]

    def created(self, cell: Cell) -> None:
        """A cell of one of the columns was committed, and was not there before."""
        ...


class Puts:
    """The writing half of a datastore."""

    def __init__(
        self,
        router: Router,
        config: DatastoreConfig,
        habits: Habits,
        standing: Standing,
        lookups: Lookups,
        after_commit: CommitListener,
        keeper: Keeper,
    ) -> None:
        self._keeper = keeper
        self._router = router
        self._config = config
        self._habits = habits
        self._standing = standing
        self._lookups = lookups
        self._after_commit = after_commit
        self._is_double = habits.durability == "double"

    def put(self, cell: Cell, expect_latest: Any) -> PutResult:
        return self.put_checked(cell, checked_bytes(cell, self._config.max_body_bytes), expect_latest)

    def put_checked(self, cell: Cell, body: bytes, expect_latest: Any) -> PutResult:
        """Put a cell whose canonical bytes its caller has, as `checked_bytes` gave them."""
        if expect_latest is not ANY and expect_latest is not None:
            check_ref_key(expect_latest)
        return self._put(cell, body, expect_latest)

    def _put(self, cell: Cell, body: bytes, expect_latest: Any) -> PutResult:
        """Store a checked cell."""
        new = new_cell(cell, body)
        shard = shard_of_bytes(new.row_key, self._config.shards)
        deadline = self._deadline(0)
        try:
            stored, epoch = self._router.write(
                shard, lambda node, gate: node.put(gate, new, expect_latest, deadline), self._standing, deadline
            )
        except (NodeUnavailable, StaleEpoch) as error:
            if not _may_be_kept(error):
                raise
            if expect_latest is not ANY:
                self._keeper.explain(error)
                raise
            return self._keeper.keep_one(cell, new, error)
        reach("put.acknowledged")
        outcome = _outcome(cell, new, stored, shard, epoch, expect_latest)
        if isinstance(outcome, Conflict):
            metrics.cells_written("conflict" if isinstance(outcome, CellConflict) else "purged")
            raise outcome
        metrics.cells_written(outcome.status.lower())
        if cell.column_name in self._after_commit.columns and stored.is_created:
            self._after_commit.created(cell)
        if self._is_double:
            for missing in self._keeper.second({0: new}).values():
                raise missing
        return outcome

    def append(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        """At the next free ref key, as the column's next version: the loser of a race tries the next one."""
        data = checked_bytes(Cell(row_key, column_name, 1, body), self._config.max_body_bytes)
        deadline = self._deadline(0)
        try:
            latest = self._lookups.latest(row_key, column_name)
        except NodeUnavailable as error:
            self._keeper.explain(error)
            raise
        while True:
            if latest is not None and latest.ref_key == REF_KEY_MAX:
                raise no_free_ref_key(column_name)
            expected = None if latest is None else latest.ref_key
            cell = Cell(row_key, column_name, 1 if expected is None else expected + 1, body)
            try:
                return self._put(cell, data, expected)
            except CellConflict as lost:
                if lost.is_damaged:
                    raise
                if deadline.is_over:
                    raise Unavailable(
                        f"Column {column_name} of {row_key} is appended to by too many at once.",
                        hint="Repeat the append, or give it a longer deadline with using(deadline=…).",
                    ) from lost
                latest = lost.stored
            except NodeUnavailable as error:
                if error.is_timeout or isinstance(error, ConnectionBroken):
                    error.hint = _PERHAPS_APPENDED
                raise
            except Unavailable as lone:  # its second copy is missing
                lone.hint = f"It is stored under ref key {cell.ref_key}: put the same cell there, which finds it."
                raise
            # Losers of one race must not meet again in the next.
            time.sleep(random.uniform(0, APPEND_PAUSE_SECONDS))

    def put_many(self, cells: Sequence[Cell]) -> list[PutResult]:
        cells = listed_cells(cells)
        new = [new_cell(cell, checked_bytes(cell, self._config.max_body_bytes)) for cell in cells]
        outcomes: dict[int, PutResult | SchemalessError] = {}
        pending: Sequence[int] = range(len(cells))
        while pending:
            # A key that occurs again is put again afterwards: the store itself says whether the bodies agree.
            firsts, pending = _split_repeated(new, pending)
            for part in self._parts(new, firsts):
                self._put_part(cells, new, part, outcomes)
        return _delivered([outcomes[n] for n in range(len(cells))])

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        cells = listed_cells(cells)
        new = [new_cell(cell, checked_bytes(cell, self._config.max_body_bytes)) for cell in cells]
        self._check_together(new, seen)
        row_key, shard = new[0].row_key, shard_of_bytes(new[0].row_key, self._config.shards)
        deadline = self._deadline(len(cells))

        def put(node: Node, gate: Gate) -> BatchAnswer:
            if gate.epoch != seen.epoch:
                return range(0)  # ids of a log that has forked since say nothing
            (answer,) = node.put_many([Batch(gate, new, seen=RowSeen(row_key, seen.added_id))], deadline)
            if isinstance(answer, SchemalessError):
                raise answer
            return answer

        try:
            added_ids, epoch = self._router.write(shard, put, self._standing, deadline)
        except NodeUnavailable as error:
            self._keeper.explain(error)
            raise
        if not added_ids:
            return None
        assert isinstance(added_ids, range)  # all of it was created
        results = [
            PutResult(PutStatus.CREATED, True, shard, cell.ref_key, epoch, added_id)
            for cell, added_id in zip(cells, added_ids, strict=True)
        ]
        self._tell(cells, range(len(cells)), dict(enumerate(results)))
        missing = self._keeper.second(dict(enumerate(new))) if self._is_double else {}
        for lone in missing.values():
            lone.hint = _TOGETHER
        return _delivered([missing.get(n, result) for n, result in enumerate(results)])

    def _check_together(self, new: Sequence[NewCell], seen: Position) -> None:
        check_location(seen, self._config.datastore)
        if len({cell.row_key for cell in new}) != 1 or len({cell[:3] for cell in new}) < len(new):
            raise InvalidRequest("Cells that are put together are of one row, each key once.", hint="Put others apart.")
        if len(new) > CELLS_TOGETHER or sum(len(cell.body) for cell in new) > BYTES_PER_BATCH:
            raise InvalidRequest(
                f"No more than {CELLS_TOGETHER:,} cells and {BYTES_PER_BATCH:,} bytes are put together.",
                hint="Put some of them before.",
            )

    def _tell(
        self, cells: Sequence[Cell], positions: Iterable[int], outcomes: Mapping[int, PutResult | SchemalessError]
    ) -> None:
        """Say which cells of a part were created."""
        for n in positions:
            outcome = outcomes[n]
            is_created = isinstance(outcome, PutResult) and outcome.status is PutStatus.CREATED
            if is_created and cells[n].column_name in self._after_commit.columns:
                self._after_commit.created(cells[n])

    def _put_part(
        self,
        cells: Sequence[Cell],
        new: Sequence[NewCell],
        part: dict[int, list[int]],
        outcomes: dict[int, PutResult | SchemalessError],
    ) -> None:
        """Write one part of a batch: positions of cells by shard."""
        wanted = {shard: [new[n] for n in positions] for shard, positions in part.items()}
        count = sum(len(positions) for positions in part.values())
        answers = self._router.write_many(wanted, self._standing, self._deadline(count))
        failures: dict[int, Failure] = {}
        here: list[int] = []
        for shard, answer in answers.items():
            if isinstance(answer, PacketTooLarge) and len(part[shard]) > 1:
                for half in halves(part[shard]):
                    self._put_part(cells, new, {shard: half}, outcomes)
                continue
            if isinstance(answer, SchemalessError):
                outcomes.update(dict.fromkeys(part[shard], answer))
                if isinstance(answer, NodeUnavailable | StaleEpoch) and _may_be_kept(answer):
                    failures.update(dict.fromkeys(part[shard], answer))
                continue
            stored, epoch = answer
            here += part[shard]
            if isinstance(stored, range):
                for n, added_id in zip(part[shard], stored, strict=True):
                    outcomes[n] = PutResult(PutStatus.CREATED, True, shard, cells[n].ref_key, epoch, added_id)
                continue
            for n, what in zip(part[shard], stored, strict=True):
                outcomes[n] = _outcome(cells[n], new[n], what, shard, epoch, ANY)
        kept = self._keeper.keep_many(cells, new, failures)
        if self._after_commit.columns:
            self._tell(cells, chain.from_iterable(part.values()), outcomes)
        if self._is_double:
            outcomes.update(self._keeper.second({n: new[n] for n in here if isinstance(outcomes[n], PutResult)}))
        outcomes.update(kept)

    def _parts(self, new: Sequence[NewCell], positions: Sequence[int]) -> list[dict[int, list[int]]]:
        """Cut a batch by count and bytes, so that each part is a packet a server takes; in order per shard."""
        parts: list[dict[int, list[int]]] = []
        part: defaultdict[int, list[int]] = defaultdict(list)
        count, size = 0, 0
        for n in positions:
            body_bytes = len(new[n].body)
            if count and (count == CELLS_PER_BATCH or size + body_bytes > BYTES_PER_BATCH):
                parts.append(part)
                part, count, size = defaultdict(list), 0, 0
            part[shard_of_bytes(new[n].row_key, self._config.shards)].append(n)
            count, size = count + 1, size + body_bytes
        return [*parts, part] if part else parts

    def _deadline(self, cells: int) -> Deadline:
        if self._habits.deadline is not None:
            return Deadline(self._keeper.own_share(self._habits.deadline))
        deadlines = self._config.deadlines
        return Deadline(deadlines.put_seconds + cells * deadlines.batch_cell_seconds)


def _may_be_kept(failure: NodeUnavailable | StaleEpoch) -> bool:
    """Whether a buffer may keep what a cluster did not take: not where another backend may be the authority by now."""
    return isinstance(failure, NodeUnavailable) or failure.is_passing


def new_cell(cell: Cell, body: bytes) -> NewCell:
    """A checked cell in the form that engines take."""
    return NewCell(cell.row_key.bytes, encoded_name(cell.column_name), cell.ref_key, body)


def _outcome(
    cell: Cell, new: NewCell, stored: Stored, shard: int, epoch: int, expect_latest: Any
) -> PutResult | Conflict:
    """CREATED, EXISTS when an equal cell was there, or the conflict that carries both; or that the key was purged."""
    if stored.is_created:
        return PutResult(PutStatus.CREATED, True, shard, cell.ref_key, epoch, stored.added_id)
    found = stored.found
    if stored.purged is not None:
        return CellPurged(new[:3], stored.purged)
    if found is not None and found[1:4] == new[:3]:
        if found.body == new.body:
            return PutResult(PutStatus.EXISTS, True, shard, cell.ref_key, epoch, found.added_id)
        return conflict(cell, found)
    return conflict(cell, found, expected=expect_latest)


def _split_repeated(new: Sequence[NewCell], positions: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The first position of each key, and the others."""
    keys = {new[n][:3] for n in positions}
    if len(keys) == len(positions):
        return positions, ()
    firsts: list[int] = []
    repeated: list[int] = []
    for n in positions:
        key = new[n][:3]
        (firsts if key in keys else repeated).append(n)
        keys.discard(key)
    return firsts, repeated


def _delivered(results: list[PutResult | SchemalessError]) -> list[PutResult]:
    """The results when all cells are stored, else `BatchFailed` with all of them."""
    stored = [result for result in results if isinstance(result, PutResult)]
    for status, count in Counter(result.status for result in stored).items():
        metrics.cells_written(status.lower(), count)
    if len(stored) < len(results):
        metrics.cells_written("failed", len(results) - len(stored))
        raise BatchFailed(results)
    return stored
