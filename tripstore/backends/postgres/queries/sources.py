"""Where the latest cell of an index's source column stands: in a parent's row, in child rows, in cells of our own.

Each source is one item of a FROM clause per row key, with the ref key, the captured row or the body of the latest cell.
The latest cell of a parent is its row: what is put with a higher ref key than its tombstone's becomes a row. A child's
may also be a tombstone, or a cell that came before its parent. Whether conditions hold is looked for in the columns of
rows, and in the bytes of cells of our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from schemaless_core.definitions.index import SourceColumn
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.engine.index_sql import Clause
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Field, FieldType, Layout, MappedColumn, RefKeySource
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.queries.conditions import StoredField, named, named_table, stored_field
from tripstore.backends.postgres.queries.own_bodies import held
from tripstore.backends.postgres.queries.physical import PhysicalTypes


class First(NamedTuple):
    """Where a statement starts: at least the rows that meet some conditions."""

    item: Clause
    row_key: str
    demands: Clause  #: What WHERE must add.


class IndexSource(Protocol):
    """One source column of an index."""

    @property
    def mapped(self) -> MappedColumn | None:
        """What decodes its rows, None for a free column."""
        ...

    @property
    def fields(self) -> Mapping[str, StoredField]:
        """The fields that SQL can compare."""
        ...

    def first(self, alias: str, conditions: Sequence[CheckedCondition]) -> First:
        """A FROM item with the rows whose fields meet the conditions. Rows are searched by the first of them."""
        ...

    def joined(self, alias: str, row_key: str, conditions: Sequence[CheckedCondition]) -> Clause:
        """A join that neither loses nor doubles a row."""
        ...

    def cell(self, alias: str) -> str:
        """Ref key, row and body of the latest cell; no row and no body: a tombstone, or no cell at all."""
        ...

    def met(self, alias: str, conditions: Sequence[CheckedCondition]) -> Clause:
        """What to demand so that only rows go that do not meet the conditions."""
        ...

    def order(self, alias: str, field: str) -> str | None:
        """What orders rows exactly by a field, None if SQL has nothing such."""
        ...


class ParentSource:
    """The column of the table whose rows are the rows of the datastore."""

    def __init__(self, mapped: MappedColumn, fields: Mapping[str, StoredField]) -> None:
        self.mapped = mapped
        self.fields = fields

    def first(self, alias: str, conditions: Sequence[CheckedCondition]) -> First:
        table, row_key = named_table(self.mapped.table), f"{alias}.{named(self.mapped.uuid)}"
        if not self._is_searched_by(conditions[:1]):
            return First(Clause(f"{table} {alias}", ()), row_key, self.met(alias, conditions))
        # OFFSET 0 keeps the planner from walking all rows in the order asked for until it has met enough of them.
        met = self.met("t", conditions)
        rows = Clause(f"(SELECT * FROM {table} t WHERE {met.text} OFFSET 0) {alias}", met.values)
        return First(rows, row_key, Clause("true", ()))

    def joined(self, alias: str, row_key: str, conditions: Sequence[CheckedCondition]) -> Clause:
        table, uuid = named_table(self.mapped.table), f"{alias}.{named(self.mapped.uuid)}"
        return Clause(f"LEFT JOIN {table} {alias} ON {uuid} = {row_key}", ())

    def cell(self, alias: str) -> str:
        ref_key = escaped(self.mapped.ref_key_sql(alias))
        uuid = f"{alias}.{named(self.mapped.uuid)}"
        return f"{ref_key}, CASE WHEN {uuid} IS NOT NULL THEN {row_of(self.mapped, alias)} END, NULL::bytea"

    def met(self, alias: str, conditions: Sequence[CheckedCondition]) -> Clause:
        return all_of(_conditions(self.fields, alias, conditions))

    def order(self, alias: str, field: str) -> str | None:
        return self.fields[field].order(alias) if field in self.fields else None

    def _is_searched_by(self, conditions: Sequence[CheckedCondition]) -> bool:
        stored = [self.fields.get(condition.field.name) for condition in conditions]
        return any(field is not None and field.is_searchable for field in stored)


class _LateralSource:
    """A column whose latest cell is the one with the highest ref key of several places."""

    def __init__(self, name: str, mapped: MappedColumn | None, fields: Mapping[str, StoredField]) -> None:
        self.mapped = mapped
        self.fields = fields
        self._name = name

    def first(self, alias: str, conditions: Sequence[CheckedCondition]) -> First:
        keys = f"{alias}_key"
        row_key = f"{keys}.row_key"
        rows, join = self._row_keys(conditions), self.joined(alias, row_key, conditions)
        item = Clause(f"({rows.text}) {keys} {join.text}", rows.values + join.values)
        return First(item, row_key, self.met(alias, conditions))

    def joined(self, alias: str, row_key: str, conditions: Sequence[CheckedCondition]) -> Clause:
        places = [Clause(f"({place.text})", place.values) for place in self._places(row_key, conditions)]
        latest = joined_by(" UNION ALL ", places)
        text = (
            f"LEFT JOIN LATERAL (SELECT * FROM ({latest.text}) places ORDER BY ref_key DESC, row IS NULL"
            f" LIMIT 1) {alias} ON true"
        )
        return Clause(text, latest.values)

    def cell(self, alias: str) -> str:
        return f"{alias}.ref_key, {alias}.row, {alias}.body"

    def met(self, alias: str, conditions: Sequence[CheckedCondition]) -> Clause:
        return Clause(f"{alias}.held" if conditions else "true", ())

    def order(self, alias: str, field: str) -> str | None:
        return None  # a body of a cell of our own has no order in SQL

    def _row_keys(self, conditions: Sequence[CheckedCondition]) -> Clause:
        """A row of which one cell of our own may meet the conditions, be it not the latest."""
        may = all_of(held("c.body", condition) for condition in conditions)
        text = f"SELECT DISTINCT c.row_key FROM {SCHEMA}.cell c WHERE c.column_name = %s AND {may.text}"
        return Clause(text, (self._name, *may.values))

    def _places(self, row_key: str, conditions: Sequence[CheckedCondition]) -> list[Clause]:
        """The latest of each place: ref key, row, body, and whether the conditions may hold."""
        may = all_of(held("c.body", condition) for condition in conditions)
        text = (
            f"SELECT c.ref_key, NULL::text AS row, c.body, {may.text} AS held FROM {SCHEMA}.cell c"
            f" WHERE c.row_key = {row_key} AND c.column_name = %s ORDER BY c.ref_key DESC LIMIT 1"
        )
        return [Clause(text, (*may.values, self._name))]


class FreeSource(_LateralSource):
    """A column that the layout does not know: all its cells are our own, and a query looks at each of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None, {})


class ChildSource(_LateralSource):
    """A column of child rows."""

    def __init__(self, mapped: MappedColumn, fields: Mapping[str, StoredField]) -> None:
        super().__init__(mapped.name, mapped, fields)
        self._child = mapped

    def _row_keys(self, conditions: Sequence[CheckedCondition]) -> Clause:
        """A row of which one child row meets the conditions, be it not the latest."""
        met = all_of(_conditions(self.fields, "t", conditions))
        others = super()._row_keys(conditions)
        text = (
            f"SELECT t.{named(self._child.uuid)} AS row_key FROM {named_table(self._child.table)} t"
            f" WHERE {met.text} UNION {others.text}"
        )
        return Clause(text, met.values + others.values)

    def _places(self, row_key: str, conditions: Sequence[CheckedCondition]) -> list[Clause]:
        child, met = self._child, all_of(_conditions(self.fields, "t", conditions))
        number = child.ref_key.column or child.ref_key.version
        assert number is not None  # a layout says one of them
        live = (
            f"SELECT {escaped(child.ref_key_sql('t'))} AS ref_key, {row_of(child, 't')} AS row, NULL::bytea AS body,"
            f" COALESCE({met.text}, false) AS held FROM {named_table(child.table)} t"
            f" WHERE t.{named(child.uuid)} = {row_key} ORDER BY t.{named(number)} DESC LIMIT 1"
        )
        tomb = (
            f"SELECT b.ref_key, NULL::text AS row, NULL::bytea AS body, NULL::boolean AS held FROM {SCHEMA}.tomb b"
            f" WHERE b.row_key = {row_key} AND b.column_name = %s ORDER BY b.ref_key DESC LIMIT 1"
        )
        return [Clause(live, met.values), Clause(tomb, (self._name,)), *super()._places(row_key, conditions)]


class LegacyIdSource(ChildSource):
    """The legacy ids of rows; of one that was deleted its pair is a cell of our own."""

    def _places(self, row_key: str, conditions: Sequence[CheckedCondition]) -> list[Clause]:
        met = all_of(_conditions(self.fields, "t", conditions))
        live = (
            f"SELECT 0::bigint AS ref_key, {row_of(self._child, 't')} AS row, NULL::bytea AS body,"
            f" COALESCE({met.text}, false) AS held FROM {named_table(self._child.table)} t"
            f" WHERE t.{named(self._child.uuid)} = {row_key}"
        )
        return [Clause(live, met.values), *_LateralSource._places(self, row_key, conditions)]


def source_of(column: SourceColumn, layout: Layout, types: PhysicalTypes) -> IndexSource:
    """Where the cells of a source column stand, with no more of its fields than the index needs."""
    if column.name == LEGACY_ID:
        mapped = _legacy_id(layout)
        return LegacyIdSource(mapped, _stored(mapped, column, types))
    if column.name not in layout.columns:
        return FreeSource(column.name)
    whole = layout.columns[column.name]
    wanted = {field.name for field in column.fields}
    fields = tuple(field for field in whole.fields if field.name in wanted)
    # The json beside the columns is read only if it may hold a field of the index.
    mapped = replace(whole, fields=fields, extra=None if len(fields) == len(wanted) else whole.extra)
    stored = _stored(mapped, column, types)
    return ChildSource(mapped, stored) if mapped.is_child else ParentSource(mapped, stored)


def row_of(mapped: MappedColumn, alias: str) -> str:
    """The captured columns of a row as text."""
    return escaped(mapped.row_sql(alias)) if mapped.captured else "'{}'::text"


def escaped(sql: str) -> str:
    """A text in a statement that has values to bind."""
    return sql.replace("%", "%%")


def all_of(clauses: Iterable[Clause]) -> Clause:
    return joined_by(" AND ", list(clauses) or [Clause("true", ())])


def joined_by(between: str, clauses: Sequence[Clause]) -> Clause:
    values = tuple(value for clause in clauses for value in clause.values)
    return Clause(between.join(clause.text for clause in clauses), values)


def _conditions(
    fields: Mapping[str, StoredField], alias: str, conditions: Sequence[CheckedCondition]
) -> Iterable[Clause]:
    for condition in conditions:
        field = fields.get(condition.field.name)
        clause = field.condition(alias, condition) if field is not None else None
        if clause is not None:
            yield clause


def _stored(mapped: MappedColumn, column: SourceColumn, types: PhysicalTypes) -> dict[str, StoredField]:
    found = {field.name: stored_field(mapped, field, types) for field in column.fields}
    return {name: field for name, field in found.items() if field is not None}


def _legacy_id(layout: Layout) -> MappedColumn:
    """The pair of id and UUID: a cell whose ref key is always 0."""
    source = layout.row_key
    fields = (Field("id", source.id, FieldType.INT),)
    return MappedColumn(LEGACY_ID, source.table, source.uuid, None, RefKeySource(version=source.id), fields)
