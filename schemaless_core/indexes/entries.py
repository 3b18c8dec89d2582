"""Which entries a row should have in a version of an index. Pure: from the row's cells, whatever order they came in.

A row has one living entry: under the shard value of its latest cells. Under every other value that a version of it
ever had stands a dead one, as new as the latest cell, so that no late write brings it back to life. A writer that
processes a cell writes the living entry, and dead ones under the cell's own value and the one of the version before
it. That is enough: an entry was alive while its version was the latest; the version that finally follows that one was
committed later, so the writer that processes it finds its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.cell import Cell
from schemaless_core.definitions.index import FieldComplaint, IndexDefinition
from schemaless_core.engine.base import EntryWrite, IndexTable

#: The latest cell of each source column of a row; a column without any may be left out.
LatestCells = Mapping[str, Cell | None]


@dataclass(frozen=True)
class IndexVersion:
    """One version of an index: its definition, and where its entries are."""

    definition: IndexDefinition
    number: int

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def group_name(self) -> str:
        """The built-in group that keeps it up to date."""
        return f"index:{self.name}:v{self.number}"

    @cached_property
    def table(self) -> IndexTable:
        columns = self.definition.columns
        owners = tuple(number for number, column in enumerate(columns) for _field in column.fields)
        return IndexTable(f"{self.name}_v{self.number}", self.definition.fields, len(columns), owners)

    @property
    def shard_column(self) -> str:
        return self.definition.columns[0].name

    def shard_value_of(self, cell: Cell | None) -> Scalar | None:
        """The shard value that a cell of the shard column gives its row; None if it gives none."""
        return self.definition.shard_value_of(cell)


class RowEntries(NamedTuple):
    """All entries to write for a row, and why fields are missing from them although its cells hold something there."""

    writes: list[EntryWrite]
    complaints: tuple[FieldComplaint, ...]


def living_entry(version: IndexVersion, row_key: bytes, latest: LatestCells) -> EntryWrite | None:
    """The entry that a row with these latest cells has, None if it has none."""
    return _living(version, row_key, latest, version.definition.fields_of(latest).values)


def _living(
    version: IndexVersion, row_key: bytes, latest: LatestCells, values: tuple[Scalar | None, ...]
) -> EntryWrite | None:
    shard_value = values[0]
    return None if shard_value is None else EntryWrite(shard_value, row_key, values, refs_of(version, latest))


def dead_entry(version: IndexVersion, row_key: bytes, shard_value: Scalar, ref_key: int) -> EntryWrite:
    """The entry of a row that is not under this shard value, as of this ref key of the shard column."""
    values = (shard_value, *[None] * (len(version.table.fields) - 1))
    refs = (ref_key, *[None] * (version.table.columns - 1))
    return EntryWrite(shard_value, row_key, values, refs, is_dead=True)


def entries_of(
    version: IndexVersion, row_key: bytes, latest: LatestCells, versions: Iterable[Cell | None]
) -> list[EntryWrite]:
    """All entries to write for a row: the living one, and dead ones under the other values of these versions.

    `versions` are cells of the shard column: those that are processed, and the one before each.
    """
    return row_entries(version, row_key, latest, versions).writes


def row_entries(
    version: IndexVersion, row_key: bytes, latest: LatestCells, versions: Iterable[Cell | None]
) -> RowEntries:
    """The same, with what is wrong in the latest cells."""
    values, complaints = version.definition.fields_of(latest)
    living = _living(version, row_key, latest, values)
    newest = latest.get(version.shard_column)
    if newest is None:
        return RowEntries([], complaints)  # no version of the shard column yet, hence no entry, living or dead
    others = {value for cell in versions if cell is not newest and (value := version.shard_value_of(cell)) is not None}
    if living is not None:
        others.discard(living.shard_value)
    dead = [dead_entry(version, row_key, value, newest.ref_key) for value in others]
    return RowEntries(dead if living is None else [*dead, living], complaints)


def refs_of(version: IndexVersion, latest: LatestCells) -> tuple[int | None, ...]:
    """The ref keys that the fields of each source column come from."""
    cells = (latest.get(column.name) for column in version.definition.columns)
    return tuple(None if cell is None else cell.ref_key for cell in cells)
