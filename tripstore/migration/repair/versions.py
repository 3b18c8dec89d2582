"""Versions as repair compares them: ref key and bytes, of either store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.mends import RawCell
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.engines.validation.repair import HeldVersion, Rendered, UnknownVersion, Version


def known_at(store: PostgresBackend, keys: Sequence[CellKey]) -> list[Version]:
    """Many at once; one by one when one among them cannot be read, or is not known any more."""
    try:
        return [None if cell is None else _version(cell) for cell in store.get_cells(keys)]
    except (UnreadableRow, HistoryTruncated):
        return [_one(lambda key=key: store.get_cell(*key)) for key in keys]  # type: ignore[misc]  # bound at once


def known_latest(store: PostgresBackend, rows: Sequence[ChildKey]) -> list[Version]:
    """Many at once; one by one when a row among them cannot be read."""
    try:
        return [None if cell is None else _version(cell) for cell in store.get_children_latest(rows)]
    except UnreadableRow:
        return [_one(lambda key=key: store.get_children_latest([key])[0]) for key in rows]  # type: ignore[misc]  # bound at once


def _one(read: Callable[[], Cell | None]) -> Version:
    try:
        cell = read()
    except (UnreadableRow, HistoryTruncated) as error:
        return UnknownVersion(error.message)
    return None if cell is None else _version(cell)


def _version(cell: Cell) -> HeldVersion:
    return Rendered(cell.ref_key, canonical_bytes(cell.body))


def held(raw: RawCell | None) -> HeldVersion | None:
    return None if raw is None else HeldVersion(raw.stored.ref_key, raw.stored.body)
