"""Random questions to indexes, asked of a store and of the oracle: the same pages, whichever store gave the cursor."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol, get_args
from uuid import UUID

from schemaless_core import IndexPage, MemoryStore
from schemaless_core.cell.answers import Operator
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import BadValue, IndexFieldType, parse

OPERATORS = get_args(Operator)
#: Values for conditions and shard values, beside those that rows have.
OTHERS: Mapping[IndexFieldType, list[Any]] = {
    IndexFieldType.UUID: [UUID(int=0), UUID(int=2**128 - 1)],
    IndexFieldType.STRING: ["", "a", "a\0b", "é", "~", "\0", "Aarhus"],
    IndexFieldType.INT: [0, 2, 2**62],
    IndexFieldType.FLOAT: [0, -0.0, 0.1, 1e300, 2.0**53],
    IndexFieldType.DECIMAL: [Decimal("1.1"), 0, "-0", "1.10", Decimal(2**53 + 1)],
    IndexFieldType.BOOLEAN: [True, False],
    IndexFieldType.DATETIME: [datetime(2026, 11, 20, 12, tzinfo=UTC), datetime(1000, 1, 1, tzinfo=UTC)],
}


class Asked(Protocol):
    """A store that answers index queries."""

    def query_index(self, *arguments: Any, **options: Any) -> IndexPage: ...


def ask_both(
    store: Asked,
    oracle: MemoryStore,
    definition: IndexDefinition,
    row_keys: Sequence[UUID],
    choose: random.Random,
    columns: Sequence[Any] = (None,),
) -> int:
    """One random question, asked of both for every page; the next page starts from a cursor of either.

    Returns how many entries there were.
    """
    names = [field.name for field in definition.fields]

    def pool(name: str) -> list[Any]:
        return values_there(oracle, definition, name, row_keys) * 3 + OTHERS[definition.field(name).kind]

    shard_value, where = choose.choice(pool(definition.shard_field.name)), []
    for name in choose.sample(names, min(len(names), choose.choice([0, 0, 1, 1, 2]))):
        operator = choose.choice(OPERATORS)
        several = {"between": 2, "in": choose.randint(0, 4)}.get(operator)
        where.append(
            (name, operator, choose.choice(pool(name)) if several is None else choose.choices(pool(name), k=several))
        )
    question: dict[str, Any] = {
        "fields": choose.choice([None, choose.sample(names, min(len(names), 2))]),
        "columns": choose.choice(columns),
        "order_by": choose.choice([None, *names]),
        "descending": choose.choice([False, True]),
        "consistency": choose.choice(["fast", "verified"]),
    }
    limit, cursor, found = choose.choice([1, 2, 3, 50]), None, 0
    while True:
        pages = [
            each.query_index(definition.name, shard_value, where, **question, limit=limit, cursor=cursor)
            for each in (oracle, store)
        ]
        assert shown(pages[1]) == shown(pages[0]), (definition.name, shard_value, where, question, limit)
        found += len(pages[0].entries)
        cursor = choose.choice(pages).cursor
        if cursor is None:
            return found


def values_there(oracle: MemoryStore, definition: IndexDefinition, name: str, row_keys: Sequence[UUID]) -> list[Any]:
    """The values that rows have of a field."""
    kind = definition.field(name).kind
    column = next(each for each in definition.columns if name in [field.name for field in each.fields])
    found = []
    for row_key in row_keys:
        cell = oracle.get_cell_latest(row_key, column.name)
        value = cell.body.get(name) if cell is not None and isinstance(cell.body, dict) else None
        parsed = parse(kind, value)
        if not isinstance(parsed, BadValue):
            found.append(parsed)
    return found


def shown(page: IndexPage) -> tuple[Any, ...]:
    """All of a page, the types and signs of its values and the order of its fields included."""
    entries = [(entry.row_key, [(name, repr(value)) for name, value in entry.fields.items()]) for entry in page.entries]
    return entries, page.cursor, [entry.cells for entry in page.entries]
