"""`ColumnShape` and `IndexShape`: which keys a class has and of which types, before any of it is text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import IndexFieldType
from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Field, FieldType, Layout, MappedColumn

#: What an index's type is among those of a layout: they have the same names.
OF_INDEX = {kind: FieldType(kind.value.lower()) for kind in IndexFieldType}


@dataclass(frozen=True, slots=True)
class KeyShape:
    """One key of a column's bodies."""

    name: str
    kind: FieldType
    items: FieldType | None = None
    keeps_null: bool = False


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """One column of cells. `table`: the company's table that holds it; None of a column that only indexes name."""

    name: str
    keys: tuple[KeyShape, ...]
    table: str | None
    child_bits: int | None


@dataclass(frozen=True, slots=True)
class IndexShape:
    """One index: its shard field first."""

    name: str
    fields: tuple[tuple[str, IndexFieldType], ...]


def columns_of(layout: Layout | None, indexes: Sequence[IndexDefinition]) -> list[ColumnShape]:
    """The columns of the layout in its order, then those that only indexes name."""
    mapped = {} if layout is None else dict(layout.columns)
    shapes = [_of_column(column, indexes) for column in mapped.values()]
    others = [source.name for index in indexes for source in index.columns if source.name not in {*mapped, LEGACY_ID}]
    return shapes + [
        ColumnShape(name, _indexed_keys(name, indexes, set()), None, None) for name in dict.fromkeys(others)
    ]


def indexes_of(indexes: Sequence[IndexDefinition]) -> list[IndexShape]:
    """The indexes in their order, but for the one that finds legacy ids."""
    return [
        IndexShape(index.name, tuple((field.name, field.kind) for field in index.fields))
        for index in indexes
        if index.name != LEGACY_ID_INDEX
    ]


def _of_column(column: MappedColumn, indexes: Sequence[IndexDefinition]) -> ColumnShape:
    keys = tuple(map(_of_field, column.fields))
    known = {key.name for key in keys}
    return ColumnShape(
        column.name, keys + _indexed_keys(column.name, indexes, known), str(column.table), column.child_bits
    )


def _of_field(field: Field) -> KeyShape:
    return KeyShape(field.name, field.kind, field.items, field.keeps_null)


def _indexed_keys(column: str, indexes: Sequence[IndexDefinition], known: set[str]) -> tuple[KeyShape, ...]:
    """Keys that only indexes name: those in a layout's extra, and all of a column that it does not map."""
    kinds: dict[str, set[IndexFieldType]] = {}
    for index in indexes:
        for source in index.columns:
            for field in source.fields if source.name == column else ():
                kinds.setdefault(field.name, set()).add(field.kind)
    return tuple(KeyShape(name, _one_of(found)) for name, found in kinds.items() if name not in known)


def _one_of(kinds: set[IndexFieldType]) -> FieldType:
    """Where indexes disagree on a key, it is whatever the body holds."""
    return OF_INDEX[next(iter(kinds))] if len(kinds) == 1 else FieldType.JSON
