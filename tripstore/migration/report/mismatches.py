"""What differs, could not be copied or could not be delivered: each with its place and with commands that show it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.control.jobs.commands import job_command, kind_of
from schemaless_core.control.jobs.jobs import StoredFinding
from schemaless_core.errors import SchemalessError
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.diff.differences import CellClass
from tripstore.engines.validation.report.document import DIFF, Quarantined, ReportConflict, ReportMismatch, Side
from tripstore.engines.validation.shadow.ledger import KnownMismatch
from tripstore.migration.mirror.parked import Parked
from tripstore.migration.report.redacting import without_values
from tripstore.migration.report.sides import NoSides, ReportSides

SHADOW = "shadow"
CONFLICT = "conflict"
INDEX = "index"
#: What saw an index that could not be verified.
UNVERIFIED = "verify"
#: Operations whose answer is the latest of each column.
LATEST = frozenset({"get_cell_latest", "get_cells_latest", "get_row"})
#: As `tripstore.engines.validation.compare` names a cell.
_CELL = re.compile(r"(?P<column>.+)@(?P<ref_key>-?\d+) of (?P<row_key>[0-9a-f-]{36})")
_MESSAGES = frozenset({DifferenceClass.ERROR, DifferenceClass.TIMEOUT})
DIFFERENT = frozenset(CellClass)


def shadow_mismatches(known: Iterable[KnownMismatch], sides: ReportSides | NoSides) -> Iterator[ReportMismatch]:
    """Answers that differ."""
    for each in known:
        key = _key_of(each.entry)
        yield ReportMismatch(
            at=each.at,
            found_by=SHADOW,
            operation=each.operation,
            kind=each.kind,
            entry=each.entry,
            path=without_values(each.path) if each.kind in _MESSAGES else each.path,
            differences=each.differences,
            row_key=key and key.row_key,
            column_name=key and key.column_name,
            ref_key=key and key.ref_key,
            commands=[each.command, *_show(key)],
            sides=_sides(sides, key, is_latest=each.operation in LATEST),
        )


def diff_mismatches(found: Iterable[StoredFinding], sides: ReportSides | NoSides) -> Iterator[ReportMismatch]:
    """Cells, entries of indexes and answers of queries that differ."""
    for each in found:
        if not is_difference(each):
            continue
        if each.kind == INDEX:
            yield _of_index(each)
            continue
        key = _key(each)
        seen_by = str(each.body.get("seen_by") or "")
        yield ReportMismatch(
            at=each.at,
            found_by=each.job,
            operation=DIFF,
            kind=each.kind,
            entry=_entry(each) + (f", seen by {seen_by}" if seen_by else ""),
            path=str(each.body.get("path") or ""),
            differences=1,
            row_key=each.row_key,
            column_name=each.column_name,
            ref_key=each.ref_key,
            commands=[*_show(key), f"tripstore diff recheck {shlex.quote(each.job)}"],
            sides=_sides(sides, key, is_latest=not each.body.get("is_older"), child=_child(each)),
        )


def quarantine(found: Iterable[StoredFinding], *, with_values: bool) -> Iterator[Quarantined]:
    """Rows that could not be copied, or not compared."""
    for each in found:
        if each.kind == CONFLICT or is_difference(each):
            continue
        yield Quarantined(
            at=each.at,
            job=each.job,
            kind=each.kind,
            row_key=each.row_key,
            column_name=each.column_name,
            ref_key=each.ref_key,
            path=_told(each.body, ("field", "path"), with_values=True),
            reason=_told(each.body, ("reason", "because", "error"), with_values=with_values),
            command=job_command(kind_of(each.job), "show", each.job),
        )


def job_conflicts(found: Iterable[StoredFinding], *, with_values: bool) -> Iterator[ReportConflict]:
    """Cells that a copy met with another body."""
    for each in found:
        if each.kind != CONFLICT:
            continue
        show = _show(_key(each))
        yield ReportConflict(
            at=each.at,
            found_by=each.job,
            kind=each.kind,
            row_key=each.row_key,
            column_name=each.column_name,
            ref_key=each.ref_key,
            reason=_told(each.body, ("reason", "because", "error"), with_values=with_values),
            attempts=None,
            command=show[0] if show else job_command(kind_of(each.job), "show", each.job),
        )


def parked_conflicts(direction: str, parked: Sequence[Parked], *, with_values: bool) -> Iterator[ReportConflict]:
    """Changes that the mirror set aside."""
    for each in parked:
        yield ReportConflict(
            at=each.at,
            found_by=direction,
            kind=each.kind,
            row_key=each.key.row_key,
            column_name=each.key.column_name,
            ref_key=each.key.ref_key,
            reason=each.because if with_values else without_values(each.because),
            attempts=each.attempts,
            command=_show(each.key)[0],
        )


def is_difference(found: StoredFinding) -> bool:
    """An index that could not be verified is none."""
    return found.kind in DIFFERENT or (found.kind == INDEX and found.body.get("seen_by") != UNVERIFIED)


def _of_index(found: StoredFinding) -> ReportMismatch:
    """An entry that does not fit its cells, or an answer that differs."""
    body = found.body
    index, value = str(body.get("index")), body.get("shard_value")
    command = ["verify", index] if value is None else ["query", index, str(value)]
    path = str(body.get("path") or "")
    return ReportMismatch(
        at=found.at,
        found_by=found.job,
        operation=f"query_index:{index}",
        kind=str(body.get("class") or "entry"),
        entry=str(body.get("entry") or f"entry of {found.row_key}"),
        path=path,
        differences=1,
        row_key=found.row_key,
        column_name=None,
        ref_key=None,
        commands=[shlex.join(["tripstore", "index", *command])],
        sides=None,
    )


def _key_of(entry: str) -> CellKey | None:
    """The cell that an entry of an answer is, if it is one."""
    found = _CELL.fullmatch(entry)
    if found is None:
        return None
    try:
        return CellKey(UUID(found["row_key"]), found["column"], int(found["ref_key"]))
    except (ValueError, SchemalessError):
        return None


def _key(found: StoredFinding) -> CellKey | None:
    if found.row_key is None or found.column_name is None or found.ref_key is None:
        return None
    return CellKey(found.row_key, found.column_name, found.ref_key)


def _entry(found: StoredFinding) -> str:
    ref_key = "" if found.ref_key is None else f"@{found.ref_key}"
    return f"{found.column_name or 'row'}{ref_key} of {found.row_key}"


def _child(found: StoredFinding) -> int | None:
    child = found.body.get("child")
    return child if isinstance(child, int) else None


def _sides(
    sides: ReportSides | NoSides, key: CellKey | None, *, is_latest: bool, child: int | None = None
) -> list[Side] | None:
    """Of the latest, the finding's version is what one side had: under that key they may be equal and differ."""
    if key is None:
        return None
    return sides.latest(ChildKey(key.row_key, key.column_name, child)) if is_latest else sides.at(key)


def _show(key: CellKey | None) -> list[str]:
    if key is None:
        return []
    return [shlex.join(["tripstore", "mirror", "show", f"{key.row_key}/{key.column_name}/{key.ref_key}"])]


def _told(body: dict[str, Json], names: Sequence[str], *, with_values: bool) -> str:
    said = next((str(body[name]) for name in names if body.get(name)), "")
    return said if with_values else without_values(said)
