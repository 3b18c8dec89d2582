"""Cells as they are stored, for copying many: the body is canonical bytes, nothing is encoded on the way."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell, checked_bytes, encoded_name
from schemaless_core.cell.stored import NewCell
from schemaless_core.errors import SchemalessError

#: Row key, column name, ref key and canonical bytes. That the bytes are canonical is their maker's word.
EncodedCell = NewCell


class Problem(NamedTuple):
    """Why a cell of a batch is not there: a conflict, a refusal, or its shard could not be asked."""

    position: int
    error: SchemalessError


class EncodedOutcome(NamedTuple):
    """What became of a batch. Every cell is created, was there before, was purged for good, or has its problem."""

    created: int
    existed: int
    problems: tuple[Problem, ...] = ()
    #: Cells whose keys were purged: nothing is left to do for them.
    purged: int = 0

    @property
    def equal(self) -> int:
        """How many are there now, byte for byte."""
        return self.created + self.existed


def encode_cell(cell: Cell, max_body_bytes: int) -> EncodedCell:
    """A cell as it is stored, or `InvalidCell`."""
    body = checked_bytes(cell, max_body_bytes)
    return EncodedCell(cell.row_key.bytes, encoded_name(cell.column_name), cell.ref_key, body)


def decode_cell(cell: EncodedCell) -> Cell:
    """The same cell with its body."""
    return Cell(UUID(bytes=cell.row_key), cell.column_name.decode(), cell.ref_key, from_canonical(cell.body))
