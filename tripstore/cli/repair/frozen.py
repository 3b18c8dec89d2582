"""`tripstore repair --frozen`: rows that no service can change any more are shown, and given a version again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import click
import msgspec

from schemaless_core.cell.cell import CellKey
from tripstore.backends.postgres.cells.mend.frozen import StaysFrozen
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.questions import ask
from tripstore.cli.tables import show, table
from tripstore.migration.repair.frozen import Frozen, Jump
from tripstore.migration.repair.opening import Repairs

ROWS_MAX = 50


class FrozenRowDocument(msgspec.Struct, frozen=True):
    """A row at the last version there is."""

    row_key: UUID
    column: str
    ref_key: int
    #: The ref key that it gets; null: versions lead up to the last one, and a person must decide.
    to: int | None
    #: Whether it has that now, in both stores.
    is_lowered: bool
    #: Why it has not; "" where nothing was tried, or it has.
    why: str


class FrozenDocument(msgspec.Struct, frozen=True):
    """The document of `--frozen`."""

    rows: list[FrozenRowDocument]
    #: Rows that are frozen still.
    left: int


def lower_frozen(repairs: Repairs, *, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    """Look at every row of the mapped tables, and lower those that jumped."""
    frozen = repairs.frozen()
    jumps = frozen.find()
    if jumps and not dry_run:
        if not as_json:
            _print(_document(jumps, {}))
        ask(f"Lower {len(jumps):,} rows, and delete the versions that they jumped to?", is_answered=yes)
    tried = {} if dry_run else {jump.key: _lowered(frozen, jump) for jump in jumps}
    document = _document(jumps, tried)
    if as_json:
        print_document(document)
    else:
        _print(document)
    return Exit.FAILED if document.left else Exit.FINE


def _lowered(frozen: Frozen, jump: Jump) -> str:
    """Why not; "": it is."""
    try:
        outcome = frozen.lower(jump)
    except StaysFrozen as stays:
        return f"{stays.message} {stays.hint or ''}".strip()
    if outcome is None or outcome.is_equal:
        return ""
    return f"Postgres has it; the mirror does not yet ({outcome.last.why}): compare and repair."


def _document(jumps: Sequence[Jump], tried: Mapping[CellKey, str]) -> FrozenDocument:
    rows = [
        FrozenRowDocument(
            jump.key.row_key,
            jump.key.column_name,
            jump.key.ref_key,
            jump.to,
            is_lowered=tried.get(jump.key) == "",
            why=tried.get(jump.key, ""),
        )
        for jump in jumps
    ]
    return FrozenDocument(rows, sum(not row.is_lowered for row in rows))


def _print(document: FrozenDocument) -> None:
    rows = [
        (str(row.row_key), row.column, str(row.ref_key), "" if row.to is None else str(row.to), _said(row))
        for row in document.rows[:ROWS_MAX]
    ]
    if rows:
        show(table(("row", "column", "ref key", "gets", ""), rows))
    if len(document.rows) > ROWS_MAX:
        click.echo(f"These are the first {ROWS_MAX}; --json shows {len(document.rows):,}.", err=True)
    click.echo(f"{document.left:,} rows are frozen." if document.left else "No row is frozen.")


def _said(row: FrozenRowDocument) -> str:
    if row.is_lowered:
        return "lowered"
    return row.why or ("" if row.to is not None else "its versions are used up: insert it under another key")
