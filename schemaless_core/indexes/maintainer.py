"""`IndexGroup`: the built-in group that guarantees a version's entries. It follows the logs of all shards.

Whatever writes entries sooner, this one processes each committed cell at least once, and its offset passes a cell only
when the entries that it calls for are written. A version is filled by the same group, started at the beginning.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import ShardHead
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import FieldError, Node
from schemaless_core.errors import NodeUnavailable, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.rows import AS_COPIER, heads_of
from schemaless_core.indexes.writer import CELLS_PER_WRITE, EntryPlan, EntryWriter
from schemaless_core.process.collecting import uncollected
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.routing import Router
from schemaless_core.store import CellStore
from schemaless_core.triggers.group import Parking, RunOutcome, Tombstones, never
from schemaless_core.triggers.offsets import Offsets, Progress
from schemaless_core.triggers.parking import Parking as ParkedCells

#: One write: longer than servers wait for a lock, and no longer than others can wait for this loop.
WRITE_SECONDS = 2.0
#: Cells of one write, as long as each was in time and more wait: what a statement, a commit and a round trip cost is
#: shared by as many.
PORTION_MAX = 4_000
#: What could not be processed in time is processed in so many parts.
PORTION_SHRINK = 4
#: How often it is asked whether another process noted errors of fields, which a good value then clears.
ERRORS_SECONDS = 30.0
#: With fewer cells alone than this share the question costs more than it spares; so many portions go without it.
ALONE_SHARE = 0.5
UNASKED_PORTIONS = 8


class _Lane(NamedTuple):
    """What became of the cells of one write, and how many of them were alone."""

    answers: list[SchemalessError | None]
    alone: int


class IndexGroup:
    """Keeps the entries of one index version up to date."""

    parking: Parking = "never"
    is_transactional = False
    is_bundled = True
    rest_seconds = 0.0

    def __init__(
        self,
        version: IndexVersion,
        writer: EntryWriter,
        router: Router,
        shards: int,
        lanes: FanOut,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.name = version.group_name
        self.columns = frozenset(version.definition.column_names)
        self._writer = writer
        self._router = router
        self._shards = shards
        self._lanes = lanes
        self._clock = clock
        self._has_errors = False
        self._portion = CELLS_PER_WRITE
        self._errors_asked_at = float("-inf")
        #: For so many portions it is not asked which cells are alone.
        self._unasked = 0

    def deliver(
        self,
        runs: Mapping[int, Sequence[Cell]],
        store: CellStore | None = None,
        is_over: Callable[[], bool] = never,
    ) -> dict[int, RunOutcome]:
        """Write the entries of all these cells; a shard is done as far as all its cells' entries are written."""
        numbered = [(shard, cell) for shard, cells in runs.items() for cell in cells]
        answers: defaultdict[int, list[SchemalessError | None]] = defaultdict(list)
        with uncollected():
            self._process_all(numbered, answers)
        reach("index.delivered")
        return {shard: _outcome(answers[shard]) for shard in runs}

    def _process_all(
        self, numbered: Sequence[tuple[int, Cell]], answers: defaultdict[int, list[SchemalessError | None]]
    ) -> None:
        """Process cells of shards for a while; each shard gets an answer for each of its cells that were processed."""
        first, until = 0, self._clock() + WRITE_SECONDS
        while first < len(numbered) and not (first and self._clock() >= until):  # the rest is fetched again
            part = numbered[first : first + self._portion]
            found = self._process([cell for _shard, cell in part])
            if len(part) > 1 and any(_is_late(answer) for answer in found):
                self._portion = max(1, len(part) // PORTION_SHRINK)  # their rows are too large to be read at once
                until = self._clock() + WRITE_SECONDS
                continue
            self._portion = min(PORTION_MAX, self._portion * 2)
            for (shard, _cell), answer in zip(part, found, strict=True):
                answers[shard].append(answer)
            first += len(part)

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> RunOutcome:
        return self.deliver({shard: [cell]}, store)[shard]

    def progress(self, offsets: Offsets, parked: ParkedCells) -> Progress:
        return offsets

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        return ()

    def _process(self, cells: Sequence[Cell]) -> list[SchemalessError | None]:
        """One answer per cell. Of many each half is a write of its own: while a server works, the other one is made.

        In what order they are done is all the same, as it is with two workers.
        """
        middle = len(cells) // 2 if len(cells) > CELLS_PER_WRITE else len(cells)
        parts = [part for part in (cells[:middle], cells[middle:]) if part]
        is_asked = not self._unasked
        done = self._lanes.run({n: partial(self._write, part, is_asked) for n, part in enumerate(parts)})
        if not is_asked:
            self._unasked -= 1
        elif sum(lane.alone for lane in done.values()) < len(cells) * ALONE_SHARE:
            self._unasked = UNASKED_PORTIONS
        return [answer for lane in done.values() for answer in lane.answers]

    def _write(self, cells: Sequence[Cell], may_be_alone: bool) -> _Lane:
        deadline = Deadline(WRITE_SECONDS)
        (plan,) = self._writer.plan([self.version], cells, deadline, may_be_alone=may_be_alone)
        answers = self._writer.carry_out(plan, cells, deadline)
        failed = self._note_errors(plan, Deadline(WRITE_SECONDS))
        if failed:
            answers = [
                answer or failed.get(shard_of_bytes(cell.row_key.bytes, self._shards))
                for cell, answer in zip(cells, answers, strict=True)
            ]
        return _Lane(answers, plan.alone)

    # The list of fields that do not parse.

    def _note_errors(self, plan: EntryPlan, deadline: Deadline) -> dict[int, SchemalessError]:
        """Note which fields are missing and why, and which are not any more; return the errors of shards."""
        if any(shard_of_bytes(row_key, self._shards) not in plan.errors for row_key in plan.complaints):
            self._has_errors = True
        elif not self._may_clear(deadline):
            return {}
        notes: defaultdict[int, list[FieldError]] = defaultdict(list)
        for row_key in plan.writes:
            shard = shard_of_bytes(row_key, self._shards)
            if shard not in plan.errors:
                notes[shard] += self._notes(plan, row_key, shard)

        def note(node: Node, part: Mapping[int, Sequence[FieldError]]) -> dict[int, ShardHead]:
            node.put_field_errors([error for of_shard in part.values() for error in of_shard], deadline)
            return heads_of(node, part, deadline)

        wanted = {shard: of_shard for shard, of_shard in notes.items() if of_shard}
        answers = self._router.write_each(wanted, note, AS_COPIER, deadline)
        return {shard: answer for shard, answer in answers.items() if isinstance(answer, SchemalessError)}

    def _notes(self, plan: EntryPlan, row_key: bytes, shard: int) -> Iterable[FieldError]:
        """What is to be said of every field that a latest cell of the row speaks of."""
        latest = plan.rows.of(row_key)
        reasons = {each.field: each.reason for each in plan.complaints.get(row_key, ())}
        for column in self.version.definition.columns:
            cell = latest.get(column.name)
            if cell is not None:
                key = (self.version.name, self.version.number, shard, row_key, column.name.encode(), cell.ref_key)
                for field in column.fields:
                    yield FieldError(*key, field.name, reasons.get(field.name))

    def _may_clear(self, deadline: Deadline) -> bool:
        """Whether any error is noted at all. Most indexes never have one, and need not be told of each good field."""
        if not self._has_errors and self._clock() - self._errors_asked_at > ERRORS_SECONDS:
            self._errors_asked_at = self._clock()
            self._has_errors = bool(count_errors(self._router, self.version, self._shards, deadline))
        return self._has_errors


def count_errors(router: Router, version: IndexVersion, shards: int, deadline: Deadline) -> int | None:
    """How many fields of a version do not parse; None when a server does not say."""
    counts: dict[str, int] = {}

    def count(node: Node, part: Mapping[int, None]) -> dict[int, ShardHead]:
        counts[node.name] = node.count_field_errors(version.name, version.number, deadline)
        return heads_of(node, part, deadline)

    answers = router.read_each(dict.fromkeys(range(shards)), count, AS_COPIER, "primary_only", deadline)
    if any(isinstance(answer, SchemalessError) for answer in answers.values()):
        return None
    return sum(counts.values())


def _is_late(answer: SchemalessError | None) -> bool:
    return isinstance(answer, NodeUnavailable) and answer.is_timeout


def _outcome(answers: Sequence[SchemalessError | None]) -> RunOutcome:
    """The cells up to the first that is not done, and what hindered it."""
    for done, error in enumerate(answers):
        if error is not None:
            return RunOutcome(done, error)
    return RunOutcome(len(answers), None)
