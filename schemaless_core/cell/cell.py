"""The cell: an immutable JSON body under (row key, column name, ref key).

Knows what a valid key and body are and when two cells are equal; leaves storing them to the stores.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import msgspec

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.errors import InvalidCell, shown

REF_KEY_MIN = -(2**63)
REF_KEY_MAX = 2**63 - 1
COLUMN_NAME_MAX_BYTES = 64
DEFAULT_MAX_BODY_BYTES = 4 * 1024 * 1024


class ColumnKey(NamedTuple):
    """One column of one row."""

    row_key: UUID
    column_name: str


class CellKey(NamedTuple):
    """The key of one cell."""

    row_key: UUID
    column_name: str
    ref_key: int


class Cell(msgspec.Struct, frozen=True, eq=False):
    """An immutable JSON body under its key; a body of None is a tombstone.

    Equal when key and canonical bytes are; added id and time say where it was stored, not what it is.
    """

    row_key: UUID
    column_name: str
    ref_key: int
    body: Json
    added_id: int | None = None
    created_at: datetime | None = None

    @property
    def key(self) -> CellKey:
        return CellKey(self.row_key, self.column_name, self.ref_key)

    @property
    def is_tombstone(self) -> bool:
        return self.body is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cell):
            return NotImplemented
        return self.key == other.key and canonical_bytes(self.body) == canonical_bytes(other.body)

    def __ne__(self, other: object) -> bool:
        return not self == other  # msgspec's own compares identities

    def __hash__(self) -> int:
        return hash(self.key)


def check_row_key(row_key: UUID) -> None:
    if not isinstance(row_key, UUID):
        raise InvalidCell(
            f"the row key {shown(row_key)} is a {type(row_key).__name__}", hint="Pass a uuid.UUID, UUID('...')."
        )


def check_column_name(column_name: str) -> None:
    if type(column_name) is not str:
        raise _no_name(
            f"{shown(column_name)} is a {type(column_name).__name__}, not a string{_conversion(column_name, str)}"
        )
    _check_text(column_name)


@lru_cache(maxsize=1024)
def _check_text(column_name: str) -> None:
    """Columns are few, and each is checked once; a name that is refused is not remembered."""
    if not column_name:
        raise _no_name("is empty")
    if not column_name.isprintable():
        raise _no_name(f"{shown(column_name)} holds unprintable characters")
    if len(column_name) > COLUMN_NAME_MAX_BYTES or len(column_name.encode()) > COLUMN_NAME_MAX_BYTES:
        raise _no_name(f"{column_name[:16]!r}… is over {COLUMN_NAME_MAX_BYTES} bytes")


def check_ref_key(ref_key: int) -> None:
    if type(ref_key) is not int:
        raise _no_ref_key(f"{shown(ref_key)} is a {type(ref_key).__name__}, not an int{_conversion(ref_key, int)}")
    if not REF_KEY_MIN <= ref_key <= REF_KEY_MAX:
        raise _no_ref_key(f"{shown(ref_key)} does not fit into 64 bits with a sign")


@lru_cache(maxsize=1024)
def encoded_name(column_name: str) -> bytes:
    """A checked column name as servers hold it."""
    return column_name.encode()


def check_key(row_key: UUID, column_name: str, ref_key: int) -> None:
    check_row_key(row_key)
    check_column_name(column_name)
    check_ref_key(ref_key)


def checked_bytes(cell: Cell, max_body_bytes: int) -> bytes:
    """Return the canonical bytes of a cell that may be stored, or raise `InvalidCell`."""
    if not isinstance(cell, Cell):
        raise InvalidCell(
            f"{shown(cell)} is a {type(cell).__name__}", hint="Pass Cell(row_key, column_name, ref_key, body)."
        )
    check_key(cell.row_key, cell.column_name, cell.ref_key)
    data = canonical_bytes(cell.body)
    if len(data) > max_body_bytes:
        raise InvalidCell(
            f"the body has {len(data):,} bytes, {max_body_bytes:,} are allowed",
            hint="Split the body over several columns, or raise max_body_bytes.",
        )
    return data


def _conversion(value: object, kind: type) -> str:
    """How to convert what means the same: a member of an enum, a numpy integer. A bool means something else."""
    means_the_same = isinstance(value, kind) or (kind is int and hasattr(value, "__index__"))
    return f"; write {kind.__name__}(…)" if means_the_same and not isinstance(value, bool) else ""


def no_free_ref_key(column_name: str) -> InvalidCell:
    """What an append meets when the column's highest ref key is the last there is."""
    return InvalidCell(
        f"column {column_name} has no free ref key above {REF_KEY_MAX}", hint="Append to a column of another name."
    )


def _no_name(reason: str) -> InvalidCell:
    return InvalidCell(
        f"the column name {reason}", hint=f"Use 1 to {COLUMN_NAME_MAX_BYTES} bytes of printable text, like BASE."
    )


def _no_ref_key(reason: str) -> InvalidCell:
    return InvalidCell(f"the ref key {reason}", hint="Use an int from -2^63 to 2^63-1, such as a version number.")
