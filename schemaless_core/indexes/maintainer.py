"""`IndexGroup`: the built-in group that guarantees a version's entries. It follows the logs of all shards.

Whatever writes entries sooner, this one processes each committed cell at least once, and its offset passes a cell only
when the entries that it calls for are written. A version is filled by the same group, started at the beginning.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from schemaless_core.servers.routing import Router
from schemaless_core.store import CellStore
from schemaless_core.triggers.group import Parking, RunOutcome, Tombstones, never
from schemaless_core.triggers.offsets import Offsets, Progress
from schemaless_core.triggers.parking import Parking as ParkedCells

#: One write of up to 500 cells: longer than servers wait for a lock, and no longer than others can wait for this loop.
WRITE_SECONDS = 2.0
#: What could not be processed in time is processed in so many parts.
PORTION_SHRINK = 4
#: How often it is asked whether another process noted errors of fields, which a good value then clears.
ERRORS_SECONDS = 30.0


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.name = version.group_name
        self.columns = frozenset(version.definition.column_names)
        self._writer = writer
        self._router = router
        self._shards = shards
        self._clock = clock
        self._has_errors = False
        self._portion = CELLS_PER_WRITE
        self._errors_asked_at = float("-inf")

    def deliver(
        self,
        runs: Mapping[int, Sequence[Cell]],
        store: CellStore | None = None,
        is_over: Callable[[], bool] = never,
    ) -> dict[int, RunOutcome]:
        """Write the entries of all these cells; a shard is done as far as all its cells' entries are written."""
        numbered = [(shard, cell) for shard, cells in runs.items() for cell in cells]
        answers: defaultdict[int, list[SchemalessError | None]] = defaultdict(list)
        first, until = 0, self._clock() + WRITE_SECONDS
        while first < len(numbered) and not (first and self._clock() >= until):  # the rest is fetched again
            part = numbered[first : first + self._portion]
            found = self._process([cell for _shard, cell in part])
            if len(part) > 1 and any(_is_late(answer) for answer in found):
                self._portion = max(1, len(part) // PORTION_SHRINK)  # their rows are too large to be read at once
                until = self._clock() + WRITE_SECONDS
                continue
            self._portion = min(CELLS_PER_WRITE, self._portion * 2)
            for (shard, _cell), answer in zip(part, found, strict=True):
                answers[shard].append(answer)
            first += len(part)
        reach("index.delivered")
        return {shard: _outcome(answers[shard]) for shard in runs}

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> RunOutcome:
        return self.deliver({shard: [cell]}, store)[shard]

    def progress(self, offsets: Offsets, parked: ParkedCells) -> Progress:
        return offsets

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        return ()

    def _process(self, cells: Sequence[Cell]) -> list[SchemalessError | None]:
        deadline = Deadline(WRITE_SECONDS)
        plan, answers = self._writer.write(self.version, cells, deadline)
        failed = self._note_errors(plan, Deadline(WRITE_SECONDS))
        if not failed:
            return answers
        return [
            answer or failed.get(shard_of_bytes(cell.row_key.bytes, self._shards))
            for cell, answer in zip(cells, answers, strict=True)
        ]

    # The list of fields that do not parse.

    def _note_errors(self, plan: EntryPlan, deadline: Deadline) -> dict[int, SchemalessError]:
        """Note which fields are missing and why, and which are not any more; return the errors of shards."""
        notes: defaultdict[int, list[FieldError]] = defaultdict(list)
        is_new = False
        for row_key in plan.writes:
            shard = shard_of_bytes(row_key, self._shards)
            if shard not in plan.errors:
                of_row = list(self._notes(plan, row_key, shard))
                notes[shard] += of_row
                is_new = is_new or any(note.reason is not None for note in of_row)
        if is_new:
            self._has_errors = True
        elif not self._may_clear(deadline):
            return {}

        def note(node: Node, part: Mapping[int, Sequence[FieldError]]) -> dict[int, ShardHead]:
            node.put_field_errors([error for of_shard in part.values() for error in of_shard], deadline)
            return heads_of(node, part, deadline)

        wanted = {shard: of_shard for shard, of_shard in notes.items() if of_shard}
        answers = self._router.write_each(wanted, note, AS_COPIER, deadline)
        return {shard: answer for shard, answer in answers.items() if isinstance(answer, SchemalessError)}

    def _notes(self, plan: EntryPlan, row_key: bytes, shard: int) -> Iterable[FieldError]:
        """What is to be said of every field that a latest cell of the row speaks of."""
        latest = plan.rows.of(row_key)
        reasons = {each.field: each.reason for each in self.version.definition.fields_of(latest).complaints}
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
