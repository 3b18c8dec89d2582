"""Diffs as JSON documents, and on screens."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from uuid import UUID

import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import JobState, StoredFinding
from schemaless_core.control.jobs.notes import NOT_COMPARED
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.tables import table
from tripstore.engines.validation.diff.differences import EXPLAINED, Difference, from_finding
from tripstore.engines.validation.diff.older import FORGOTTEN_COUNT
from tripstore.engines.validation.diff.runner import LEFT_OUT
from tripstore.engines.validation.diff.table_rows import ROWS, tables_of
from tripstore.migration.diff.rechecking import Rechecked


class ComparedDocument(msgspec.Struct, frozen=True):
    """What came of one kind of comparison. What was not compared is part of no other number."""

    equal: int
    missing: int
    extra: int
    differs: int
    not_compared: int


class TableDocument(msgspec.Struct, frozen=True):
    """A table of the company's: how many rows Postgres counted, and how many of them were compared."""

    column: str
    table: str
    rows: int
    compared: int


class ComparedIndexesDocument(msgspec.Struct, frozen=True):
    """All entries held against cells, and a sample of the answers of both stores against each other."""

    entries: int
    missing: int
    stale: int
    different: int
    answers: int
    answers_differ: int
    not_compared: int
    #: Answers that differ by rows alone that Schemaless keeps rightly.
    deletions_ignored: int


class DiffDocument(msgspec.Struct, frozen=True):
    """A diff: the JSON document of `start`, `resume` and `status`."""

    progress: ProgressDocument
    source: str
    target: str
    #: Rows: the latest cell of each child, or of a column; `in_flight` are equal ones that differed at first.
    cells: ComparedDocument
    in_flight: int
    #: Versions below the latest of a child.
    older: ComparedDocument
    #: Older versions that one store has and the other has forgotten: they cannot be compared, and no gate minds.
    forgotten: int
    #: Latest cells that Schemaless keeps rightly: the layout ignores that their rows were deleted.
    deletions_ignored: int
    #: Rows that went through the independent decoder; `not_compared` were not in Schemaless.
    decoder: ComparedDocument
    indexes: ComparedIndexesDocument
    #: Empty until the sums are made, and of a diff of an earlier version.
    tables: list[TableDocument]
    #: Differences of all kinds that nothing has solved yet.
    open: int
    solved: int
    #: Findings beyond those that a job keeps; they are counted, and stand in the key list.
    left_out: int
    #: Whether everything was compared, and nothing differs that should not.
    is_equal: bool

    @property
    def exit(self) -> Exit:
        """Differences weigh more than what is not compared, and that more than what is not done."""
        if self.open:
            return Exit.FAILED
        if not self.progress.is_done:
            return Exit.FAILED if self.progress.job.state == JobState.CANCELLED else Exit.INTERRUPTED
        return Exit.NOT_VERIFIED if _not_compared(self.progress.counts) else Exit.FINE


class DifferenceDocument(msgspec.Struct, frozen=True):
    """A finding of a diff, and how to look at it. Null: the store has none."""

    id: int
    kind: str
    row_key: UUID | None
    column: str | None
    from_ref_key: int | None
    to_ref_key: int | None
    path: str
    is_older: bool
    seen_by: str
    is_open: bool
    command: str
    #: Which of its column's children; null: the column is one row, or it is an older version.
    child: int | None = None


class DifferencesDocument(msgspec.Struct, frozen=True):
    """The JSON document of `show`. Cells whose deletions were ignored are counted, not listed."""

    job: str
    differences: list[DifferenceDocument]
    is_complete: bool
    deletions_ignored: int


class RecheckDocument(msgspec.Struct, frozen=True):
    """The JSON document of `recheck`."""

    looked_at: int
    solved: int
    remaining: int
    not_compared: int
    deletions_ignored: int


def diff_document(progress: ProgressDocument) -> DiffDocument:
    counts = progress.counts
    spec = progress.job.spec
    cells, is_done = _compared(counts, ""), progress.is_done
    return DiffDocument(
        progress,
        str(spec.get("source", "postgres")),
        str(spec.get("target", "schemaless")),
        cells,
        counts.get("in_flight", 0),
        _compared(counts, "older_"),
        counts.get(FORGOTTEN_COUNT, 0),
        counts.get(EXPLAINED, 0),
        msgspec.structs.replace(_compared(counts, "decoder_"), not_compared=counts.get("decoder_skipped", 0)),
        ComparedIndexesDocument(
            *(
                counts.get(f"index_{name}", 0)
                for name in (
                    "entries",
                    "missing",
                    "stale",
                    "different",
                    "answers",
                    "answers_differ",
                    "not_compared",
                    EXPLAINED,
                )
            )
        ),
        _tables(spec, counts),
        counts.get("open", 0),
        counts.get("solved", 0),
        counts.get(LEFT_OUT, 0),
        is_done and not counts.get("open", 0) and not _not_compared(counts),
    )


def difference_document(found: StoredFinding) -> DifferenceDocument:
    each = from_finding(found)
    if each is None:
        index, value = found.body.get("index"), found.body.get("shard_value")
        command = shlex.join(["tripstore", "index", "verify" if value is None else "query", str(index)])
        command = command if value is None else f"{command} {shlex.quote(str(value))}"
        path = str(found.body.get("path") or found.body.get("class") or "")
        return DifferenceDocument(
            found.id, found.kind, found.row_key, None, None, None, path, False, "", found.is_open, command
        )
    return DifferenceDocument(
        found.id,
        found.kind,
        each.row_key,
        each.column_name,
        each.from_ref_key,
        each.to_ref_key,
        each.path,
        each.is_older,
        each.seen_by,
        found.is_open,
        _command(each),
        each.child,
    )


def recheck_document(done: Rechecked) -> RecheckDocument:
    return RecheckDocument(done.looked_at, done.solved, len(done.remaining), done.not_compared, done.explained)


def ignored_line(count: int) -> str:
    return f"{count:,} cells stay in Schemaless though their rows were deleted: the layout ignores that"


def diff_screen(seen: DiffDocument) -> Iterator[RenderableType]:
    """What was compared, and what came of it."""
    yield Text(f"{progress_line(seen.progress)}, {seen.progress.job.shown_state}", style="bold")
    yield Text(f"{seen.source} → {seen.target}: what the target has, held against the source")
    rows = [_row("rows", seen.cells)]
    rows += [
        _row(name, each)
        for name, each in (("older versions", seen.older), ("independent decoder", seen.decoder))
        if any(msgspec.structs.astuple(each))
    ]
    yield table(("", "equal", "missing", "extra", "differs", "not compared"), rows)
    indexes = seen.indexes
    if any(msgspec.structs.astuple(indexes)):
        wrong = indexes.missing + indexes.stale + indexes.different + indexes.answers_differ
        yield Text(
            f"indexes: {indexes.entries:,} entries, a sample of {indexes.answers:,} answers; {wrong:,} differ,"
            f" {indexes.not_compared:,} not compared",
            style="bold red" if wrong else "",
        )
    yield from _of_tables(seen.tables)
    if seen.in_flight:
        yield Text(f"{seen.in_flight:,} cells were on their way at first, and are equal", style="dim")
    if seen.deletions_ignored:
        yield Text(ignored_line(seen.deletions_ignored), style="dim")
    if seen.forgotten:
        yield Text(f"{seen.forgotten:,} older versions one store has forgotten: they cannot be compared", style="dim")
    yield from _verdict(seen)
    yield from (Text(advice, style="bold red") for advice in seen.progress.advice)


_LEFT_OUT = (
    "`tripstore repair` lifts rows that came back below their tombstones; a row whose row key is NULL has no cell:"
    " `tripstore doctor`"
)


def _of_tables(tables: list[TableDocument]) -> Iterator[Text]:
    """All together when nothing is missing, else those where something is."""
    rows, compared = sum(each.rows for each in tables), sum(each.compared for each in tables)
    if rows == compared and tables:
        yield Text(f"compared {compared:,} of {rows:,} rows of {len(tables):,} tables")
    for each in tables:
        if each.rows != each.compared:
            said = f"compared {each.compared:,} of {each.rows:,} rows of {each.table} ({each.column})"
            yield Text(f"{said}; {_LEFT_OUT}", style="bold red")


def differences_screen(found: list[DifferenceDocument]) -> RenderableType:
    """Each with its place and a command."""
    rows = [
        (
            str(each.id),
            each.kind if each.is_open else f"{each.kind}, solved",
            "/".join(str(part) for part in (each.row_key, each.column) if part is not None),
            _versions(each),
            each.path,
            each.command,
        )
        for each in found
    ]
    return table(("finding", "class", "row", "versions", "path", "look at it"), rows)


def _verdict(seen: DiffDocument) -> Iterator[RenderableType]:
    job = seen.progress.job.job
    if seen.open:
        show = job_command("diff", "show", job)
        yield Text(f"{seen.open:,} differences are open; `{show}` lists them", style="bold red")
        if seen.left_out:
            hint = "`tripstore diff start --keys FILE` writes all"
            yield Text(f"{seen.left_out:,} of them are counted and not kept; {hint}", style="yellow")
    if seen.cells.not_compared:
        count = f"{seen.cells.not_compared:,} cells were not compared"
        yield Text(f"{count}; `tripstore diff recheck {job}` looks at them again", style="yellow")
    if seen.older.not_compared:
        count = f"{seen.older.not_compared:,} older versions were not compared"
        yield Text(f"{count}; `tripstore diff recheck {job}` looks at them again", style="yellow")
    if seen.indexes.not_compared:
        count = f"{seen.indexes.not_compared:,} entries or answers of indexes were not compared"
        hint = "`tripstore index status` says which is behind, `tripstore worker run` serves it; then a diff anew"
        yield Text(f"{count}; {hint}", style="yellow")
    if not seen.progress.is_done:
        yield Text(f"not done: `{job_command('diff', 'resume', job)}` goes on where it was", style="yellow")
    elif seen.is_equal:
        but = ", but for those" if seen.deletions_ignored or seen.forgotten else ""
        yield Text(f"equal{but}", style="bold green")


def _row(name: str, each: ComparedDocument) -> tuple[str | Text, ...]:
    wrong = [
        Text(f"{count:,}", style="bold red" if count else "") for count in (each.missing, each.extra, each.differs)
    ]
    return (
        name,
        f"{each.equal:,}",
        *wrong,
        Text(f"{each.not_compared:,}", style="yellow" if each.not_compared else ""),
    )


def _versions(each: DifferenceDocument) -> str:
    ours, theirs = ("–" if version is None else str(version) for version in (each.from_ref_key, each.to_ref_key))
    return "" if each.column is None else f"{ours} / {theirs}"


def _not_compared(counts: Mapping[str, int]) -> int:
    """Of cells, older versions and indexes: with any nothing is called equal (I12)."""
    return sum(counts.get(name, 0) for name in NOT_COMPARED)


def _tables(spec: Mapping[str, Json], counts: Mapping[str, int]) -> list[TableDocument]:
    """Those of the columns that it compares."""
    tables, columns = spec.get("tables"), spec.get("columns")
    if not isinstance(tables, dict) or ROWS not in counts:
        return []
    names = [name for name in tables if not isinstance(columns, list) or name in columns]
    return [TableDocument(name, str(tables[name]), *found) for name, found in tables_of(counts, names).items()]


def _compared(counts: Mapping[str, int], prefix: str) -> ComparedDocument:
    names = ("equal", "missing", "extra", "differs", "not_compared")
    return ComparedDocument(*(counts.get(f"{prefix}{name}", 0) for name in names))


def _command(each: Difference) -> str:
    if each.child is not None and each.ref_key is not None:  # the latest of the column may be another child's
        return shlex.join(["tripstore", "cell", "get", str(each.row_key), each.column_name, str(each.ref_key)])
    words = ["tripstore", "cell", "history" if each.is_older else "get", str(each.row_key), each.column_name]
    return shlex.join(words)
