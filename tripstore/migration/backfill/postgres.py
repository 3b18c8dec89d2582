"""`PostgresCopying`: the past of the legacy tables, copied chunk by chunk. The steps are those of the hand-over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidCell, SchemalessError
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.past.plan import check_selection, cuts, estimate
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, Unrepresentable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import Again
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.source import Copied, Spec
from tripstore.handover.backfill import WRITE, CopiedChunk, copy_chunk
from tripstore.handover.ports import Ports, Selection, Unreadable
from tripstore.handover.steps import Step, run
from tripstore.migration.backfill.blocks import BLOCKS, BlockPortion
from tripstore.migration.backfill.portions import CopyPortion, PartPortion, ranges
from tripstore.migration.backfill.standing import BackfillStanding
from tripstore.migration.backfill.verify import Readable, verify
from tripstore.migration.backfill.walk import BlockWalk, record_of
from tripstore.migration.backfill.walk_end import END, EndPortion

T = TypeVar("T")

#: A sample of a table, or what the planner makes of a predicate.
PLAN_SECONDS, PLAN_TIMEOUT = 60.0, "60s"


class JobSoFar(Protocol):
    """What other parts of the job have done: those that come after all others ask for it."""

    def findings_of(self, row_keys: Collection[UUID]) -> Sequence[Finding]:
        """What is open about some rows."""
        ...

    def ended(self) -> Json:
        """The checkpoint of the part that looks what a walk has missed; None: it is not done."""
        ...


class PostgresCopying:
    """A `Copying` from Postgres to Schemaless. Belongs to one worker and one job."""

    def __init__(
        self,
        database: LegacyDatabase,
        layout: Layout,
        ports: Ports,
        store: Readable,
        shards: int,
        standing: BackfillStanding,
        walk: BlockWalk,
        spec: Spec,
        *,
        so_far: JobSoFar | None = None,
        counts_blocks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._layout = layout
        self._ports = ports
        self._store = store
        self._shards = shards
        self._standing = standing
        self._clock = clock
        self._walk = walk
        self._so_far = so_far
        self._counts_blocks = counts_blocks
        #: Where the part of a walk's end is that looks, once it is done.
        self._ended: Json = None
        self._record = record_of(spec)
        self._selection = selection_of(spec)
        note = spec.get("note")
        self._capture_since = str(note["capture_since"]) if isinstance(note, dict) else ""

    def check(self, spec: Spec) -> None:
        """Raise `InvalidRequest` when it asks for what is not there."""
        self._ask(lambda connection: check_selection(connection, self._layout, selection_of(spec)))

    def plan(self, spec: Spec, parts: int) -> Sequence[Json]:
        """Ranges of row keys with about as many rows each."""
        return ranges(self._ask(lambda connection: cuts(connection, self._layout, parts, selection_of(spec))))

    def estimate(self, spec: Spec) -> int:
        """About how many rows, as the planner sees it."""
        return self._ask(lambda connection: estimate(connection, self._layout, selection_of(spec)))

    def copy(self, bounds: Json, checkpoint: Json, rows: int, verify_share: float, source_share: float = 1.0) -> Copied:
        """Read, write, verify; nothing is kept of it here, so that it may be done again."""
        self._standing.check(self._capture_since)
        portion = self._portion(bounds, checkpoint, rows)
        if portion is None:
            return Copied(0, 0, checkpoint, is_end=True)
        if isinstance(portion, EndPortion) and portion.is_through:
            return Copied(0, 0, portion.document, is_end=True)
        chunk = portion.chunk(rows, self._selection)
        chunk = chunk._replace(source_share=source_share, counts_blocks=self._counts_blocks)
        timing = _Timing(self._clock)
        try:
            copied = run(copy_chunk(self._ports, chunk), timing.hear)
        except (Unrepresentable, LegacyRefused) as error:
            if chunk.selection.where is None:
                raise
            hint = "Cancel the job, and begin one whose predicate has an answer for every row."
            raise CannotCopy(f"The predicate fails on a row: {error.message}", hint=hint) from error
        read_seconds, write_seconds = timing.ended()
        reach("backfill.written")
        past = copied.past
        if not copied.is_whole:
            return Copied(0, 0, checkpoint, is_end=False, is_again=True, why=_first_passing(copied))
        problems = {each.position: each.error for each in copied.outcome.problems}
        verified = verify(self._store, self._shards, past.cells, problems, verify_share)
        reach("backfill.verified")
        refused = [_refused(past.cells[n], problem) for n, problem in problems.items()]
        findings = [*map(_unreadable, past.unreadable), *refused, *verified.findings]
        if portion.may_repeat:
            findings = self._unknown(findings)
        counted, following = portion.counted(past), portion.next(chunk, past)
        return Copied(
            rows=counted.rows,
            looked_at=counted.looked_at,
            cells_equal=copied.outcome.equal - len(verified.findings),
            checkpoint=following.checkpoint,
            is_end=following.is_end,
            conflicts=sum(each.kind == "conflict" for each in findings),
            quarantined=tuple(findings),
            # Each of these is there and equal, or is set aside anew.
            solved=portion.solved(chunk, past, set(map(key_of, past.cells)) if portion.questions else ()),
            verified=verified.cells,
            read_seconds=read_seconds,
            source_seconds=past.source_seconds,
            rested_seconds=past.rested_seconds,
            blocks_read=past.blocks_read,
            write_seconds=write_seconds,
        )

    def _unknown(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those that the job has not found yet. No other worker has a part with these rows, so none comes meanwhile."""
        row_keys = {each.row_key for each in findings if each.row_key is not None}
        told = set(map(_identity, self._so_far.findings_of(row_keys))) if self._so_far and row_keys else set()
        return [each for each in findings if _identity(each) not in told]

    def _portion(self, bounds: Json, checkpoint: Json, rows: int) -> CopyPortion | None:
        """What is left of a part; None: nothing."""
        assert isinstance(bounds, dict)
        if BLOCKS in bounds:
            return BlockPortion.of(bounds, checkpoint)
        if END in bounds:
            assert self._record is not None
            portion = EndPortion.of(bounds, checkpoint, self._looked())
            return self._walk.prepared(self._record, portion, rows)
        return PartPortion.of(bounds, checkpoint)

    def _looked(self) -> Json:
        """What the part of a walk's end found that comes before all others; None: it is the one that is to look."""
        if self._ended is None and self._so_far is not None:
            self._ended = self._so_far.ended()
        return self._ended

    def _ask(self, verb: Callable[[LegacyConnection], T]) -> T:
        """On a connection of its own that only reads and is then closed: no other call meets what a predicate left."""
        connection = self._database.connect_apart(
            "tripstore backfill", default_transaction_read_only="on", statement_timeout=PLAN_TIMEOUT
        )
        connection.deadline = Deadline(PLAN_SECONDS)
        try:
            return verb(connection)
        except Again as lost:
            raise LegacyUnavailable(f"Postgres ended the reading ({lost}).", hint="Repeat the command.") from lost
        finally:
            self._database.part_with(connection)


class _Timing:
    """How long reading took, and writing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = self._read = clock()

    def hear(self, step: Step) -> None:
        if step == WRITE:
            self._read = self._clock()

    def ended(self) -> tuple[float, float]:
        return self._read - self._begun, self._clock() - self._read


def selection_of(spec: Spec) -> Selection:
    """What of the rows is copied, and of which."""
    columns, where = spec.get("columns"), spec.get("where")
    names = tuple(map(str, columns)) if isinstance(columns, list) else None
    return Selection(names, None if where is None else str(where))


def key_of(cell: EncodedCell) -> CellKey:
    return CellKey(UUID(bytes=cell.row_key), cell.column_name.decode(), cell.ref_key)


def _identity(found: Finding) -> tuple[object, ...]:
    """What it is about. Reasons are texts of servers."""
    return found.kind, found.row_key, found.column_name, found.ref_key, found.body.get("field")


def _first_passing(copied: CopiedChunk) -> str:
    """Why it has to be copied again: what passes by itself."""
    errors = (each.error for each in copied.outcome.problems)
    return next(each.message for each in errors if not isinstance(each, CellConflict | InvalidCell))


def _refused(cell: EncodedCell, problem: SchemalessError) -> Finding:
    """What Schemaless will never take, or has otherwise."""
    if isinstance(problem, InvalidCell):
        return Finding("refused", *key_of(cell), {"reason": problem.reason, "field": problem.path})
    return Finding("conflict", *key_of(cell), {"reason": problem.message})


def _unreadable(found: Unreadable) -> Finding:
    return Finding(
        "unreadable",
        found.row_key,
        found.column_name,
        found.ref_key,
        {"reason": found.reason, "field": found.field} | ({} if found.rows == 1 else {"rows": found.rows}),
    )
