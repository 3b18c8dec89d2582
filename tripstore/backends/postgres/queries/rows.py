"""The statement of an index query: rows of one shard value, their latest cells, in order, behind a place.

It answers a superset of the rows that are asked for, `portion` at a time. Where SQL cannot order by the field, rows
come in the order of their row keys, and all of them must be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.query import CheckedCondition, Query
from schemaless_core.engine.index_sql import Clause
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.queries.conditions import bindable
from tripstore.backends.postgres.queries.physical import PhysicalTypes
from tripstore.backends.postgres.queries.sources import IndexSource, all_of, joined_by, source_of


class OrderPlace(NamedTuple):
    """Where a portion ends: the text of the order's value, None where it is missing, and the row key."""

    value: str | None
    row_key: str


class FoundCell(NamedTuple):
    """The latest cell of a source column: a captured row, a body of our own, or neither."""

    ref_key: int | None
    row: str | None
    body: bytes | None


class FoundRow(NamedTuple):
    """A row that may belong to the answer, with one cell per source column."""

    place: OrderPlace
    cells: tuple[FoundCell, ...]

    @property
    def row_key(self) -> UUID:
        return UUID(self.place.row_key)


@dataclass(frozen=True)
class IndexRows:
    """How the rows of one index are found in the tables."""

    definition: IndexDefinition
    sources: tuple[IndexSource, ...]

    @classmethod
    def of(cls, definition: IndexDefinition, layout: Layout, types: PhysicalTypes) -> IndexRows:
        return cls(definition, tuple(source_of(column, layout, types) for column in definition.columns))

    def order_of(self, query: Query) -> str | None:
        """What SQL orders by before the row key, None if it cannot, or need not."""
        if query.order_by is None:
            return None
        number = self._owners[query.order_by.name]
        return self.sources[number].order(f"s{number}", query.order_by.name)

    def is_ordered(self, query: Query) -> bool:
        """Whether the statement answers in the order asked for."""
        return query.order_by is None or self.order_of(query) is not None

    def reads_no_more(self, query: Query) -> bool:
        """Whether SQL finds the rows of a shard value, and no more of them than a page needs."""
        stored = self.sources[0].fields.get(self.definition.shard_field.name)
        return stored is not None and stored.is_searchable and self.is_ordered(query)

    def start(self, query: Query) -> OrderPlace | None:
        """Where the first portion starts, None at the beginning."""
        if query.after is None or not self.is_ordered(query):
            return None
        after = query.after
        if query.order_by is None or after.value is None:
            return OrderPlace(None, str(after.row_key))
        value = bindable(query.order_by.kind, after.value)
        return None if value is None else OrderPlace(value, str(after.row_key))

    def statement(self, query: Query, after: OrderPlace | None, portion: int) -> Clause:
        """The next rows behind a place."""
        conditions = self._conditions(query)
        order, descending = self.order_of(query), query.descending and self.is_ordered(query)
        early = {0} | {number for number, some in conditions.items() if some}
        if order is not None and query.order_by is not None:
            early.add(self._owners[query.order_by.name])
        first = self.sources[0].first("s0", conditions[0])
        others = sorted(early - {0})
        joins = [self.sources[number].joined(f"s{number}", first.row_key, conditions[number]) for number in others]
        demands = [Clause(f"{first.row_key} IS NOT NULL", ()), first.demands]
        demands += [self.sources[number].met(f"s{number}", conditions[number]) for number in others]
        if after is not None:
            demands.append(self._behind(query, order, first.row_key, after))
        columns = ", ".join(self.sources[number].cell(f"s{number}") for number in sorted(early))
        names = ", ".join(f"ref_{number}, row_{number}, body_{number}" for number in sorted(early))
        inner = joined_by(
            " ",
            [
                Clause(f"SELECT {first.row_key}, {order or 'NULL::text'}, {columns} FROM", ()),
                first.item,
                *joins,
                Clause("WHERE", ()),
                all_of(demands),
                # By positions, as the names are given outside.
                Clause(f"ORDER BY {_order('2' if order else None, '1', descending)} LIMIT %s", (portion,)),
            ],
        )
        return self._with_other_cells(inner, names, early, order is not None, descending)

    def found(self, row: Sequence[Any]) -> FoundRow:
        """A row of the statement's answer."""
        row_key, value, *cells = row
        portions = [cells[start : start + 3] for start in range(0, len(cells), 3)]
        return FoundRow(
            OrderPlace(value, row_key),
            tuple(FoundCell(ref, text, None if body is None else bytes(body)) for ref, text, body in portions),
        )

    @cached_property
    def _owners(self) -> dict[str, int]:
        """The number of the source column of every field."""
        columns = self.definition.columns
        return {field.name: number for number, column in enumerate(columns) for field in column.fields}

    def _conditions(self, query: Query) -> dict[int, list[CheckedCondition]]:
        """The conditions of each source column; that on the shard field is one like the others."""
        found: dict[int, list[CheckedCondition]] = {number: [] for number in range(len(self.sources))}
        found[0].append(CheckedCondition(self.definition.shard_field, "=", (query.shard_value,)))
        for condition in query.conditions:
            found[self._owners[condition.field.name]].append(condition)
        return found

    def _behind(self, query: Query, order: str | None, row_key: str, after: OrderPlace) -> Clause:
        """What stands behind a place, where missing values come first, or last in the reverse."""
        descending = query.descending and self.is_ordered(query)
        beyond = "<" if descending else ">"
        next_row = f"{row_key} {beyond} %s::uuid"
        if order is None or query.order_by is None:
            return Clause(next_row, (after.row_key,))
        if after.value is None:
            text = f"{order} IS NULL AND {next_row}" if descending else f"({order} IS NOT NULL OR {next_row})"
            return Clause(text, (after.row_key,))
        place = f"%s::{self._order_type(query)}"
        missing = f" OR {order} IS NULL" if descending else ""
        text = f"({order} {beyond} {place} OR ({order} = {place} AND {next_row}){missing})"
        return Clause(text, (after.value, after.value, after.row_key))

    def _order_type(self, query: Query) -> str:
        assert query.order_by is not None  # only then is there a value to compare with
        return self.sources[self._owners[query.order_by.name]].fields[query.order_by.name].comparison.type

    def _with_other_cells(self, inner: Clause, names: str, early: set[int], ordered: bool, descending: bool) -> Clause:
        """The cells that neither conditions nor order need are looked up for the rows of the portion only."""
        late = [number for number in range(len(self.sources)) if number not in early]
        joins = [self.sources[number].joined(f"s{number}", "found.row_key", ()) for number in late]
        cells = [
            f"found.ref_{number}, found.row_{number}, found.body_{number}"
            if number in early
            else self.sources[number].cell(f"s{number}")
            for number in range(len(self.sources))
        ]
        order = _order("found.place" if ordered else None, "found.row_key", descending)
        return joined_by(
            " ",
            [
                Clause(f"SELECT found.row_key::text, found.place::text, {', '.join(cells)} FROM (", ()),
                inner,
                Clause(f") found(row_key, place, {names})", ()),
                *joins,
                Clause(f"ORDER BY {order}", ()),
            ],
        )


def _order(value: str | None, row_key: str, descending: bool) -> str:
    if descending:
        return f"{row_key} DESC" if value is None else f"{value} DESC NULLS LAST, {row_key} DESC"
    return row_key if value is None else f"{value} NULLS FIRST, {row_key}"
