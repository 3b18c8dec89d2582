"""What `--json` prints: one document per command, and how cells stand in it.

Numbers of a body are the stored ones: its canonical bytes go into the document as they are.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click
import msgspec

from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell
from tripstore.cli.visible import on_terminal


class CellDocument(msgspec.Struct, frozen=True):
    """A cell in a JSON document."""

    row_key: UUID
    column_name: str
    ref_key: int
    body: msgspec.Raw
    added_id: int | None
    created_at: datetime | None


class PutDocument(msgspec.Struct, frozen=True):
    """What became of a put, with the key it ended under."""

    row_key: UUID
    column_name: str
    result: PutResult


def cell_document(cell: Cell) -> CellDocument:
    body = msgspec.Raw(canonical_bytes(cell.body))
    return CellDocument(cell.row_key, cell.column_name, cell.ref_key, body, cell.added_id, cell.created_at)


def print_document(document: object) -> None:
    """Print the one JSON document of a command."""
    click.echo(on_terminal(msgspec.json.encode(document).decode()))
