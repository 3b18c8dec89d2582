"""A server of each engine with tables of index versions, for tests of the engines' half of the indexes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Protocol
from uuid import UUID, uuid4

from schemaless_core import Datastore
from schemaless_core.cell.answers import Scalar
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexField
from schemaless_core.definitions.values import IndexFieldType
from schemaless_core.engine.base import EntryQuery, EntryWrite, IndexTable, Node, StoredEntry
from schemaless_core.engine.open import open_node

Values = tuple[Scalar | None, ...]

_numbers = itertools.count(1)

#: Two source columns: `shard`, `number` and `text` come from the first, the others from the second.
FIELDS = (
    IndexField("shard", IndexFieldType.STRING),
    IndexField("number", IndexFieldType.INT),
    IndexField("text", IndexFieldType.STRING),
    IndexField("uuid", IndexFieldType.UUID),
    IndexField("float", IndexFieldType.FLOAT),
    IndexField("decimal", IndexFieldType.DECIMAL),
    IndexField("is_true", IndexFieldType.BOOLEAN),
    IndexField("moment", IndexFieldType.DATETIME),
)
OWNERS = (0, 0, 0, 1, 1, 1, 1, 1)
NOTHING: Values = (None,) * 7

#: Of each type the values that a database may get wrong.
EDGES: dict[IndexFieldType, tuple[Scalar, ...]] = {
    IndexFieldType.UUID: (UUID(int=0), UUID(int=2**128 - 1), UUID(int=0x27 << 120 | 0x5C00), UUID(int=10**30)),
    IndexFieldType.STRING: (
        "",
        " ",
        "a",
        "A",
        "a ",
        "ä",
        "\0",
        "'\"\\%s%",
        "\n\r\x1a",
        "\U0001f697",
        "ÿ" * 256,
        "\uffff",
    ),
    IndexFieldType.INT: (0, -1, 2**63 - 1, -(2**63), 10),
    IndexFieldType.FLOAT: (0.0, 0.1, -0.1, 1e300, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 1 / 3, 3.0),
    IndexFieldType.DECIMAL: (
        Decimal(0),
        Decimal("-0.1"),
        Decimal("0." + "0" * 29 + "1"),
        Decimal("9" * 35 + "." + "9" * 30),
        Decimal("-" + "9" * 35 + "." + "9" * 30),
        Decimal(10),
    ),
    IndexFieldType.BOOLEAN: (False, True),
    IndexFieldType.DATETIME: (
        datetime(1000, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, 0, 1, UTC),
    ),
}


@dataclass
class Indexed:
    """The first cluster's server of a datastore, its shards, and the table of one index version in them."""

    node: Node
    shards: list[int]
    datastore: str
    table: IndexTable = field(default_factory=lambda: table_of(FIELDS, OWNERS))

    def put(self, *writes: EntryWrite, shard: int | None = None) -> None:
        self.node.put_entries(self.table, {self.shards[0] if shard is None else shard: writes}, patience())

    def all(self, shard: int | None = None) -> list[StoredEntry]:
        found = self.node.scan_entries(self.table, self.shards[0] if shard is None else shard, None, 10_000, patience())
        return found[1]

    def find(self, shard_value: Scalar, limit: int = 1_000) -> list[StoredEntry]:
        return self.ask(EntryQuery(shard_value, limit))

    def ask(self, query: EntryQuery) -> list[StoredEntry]:
        return self.node.find_entries(self.table, self.shards[0], query, patience())[1]


class IndexedFactory(Protocol):
    """Makes indexes on an engine, with a table of its own unless one is given."""

    def __call__(self, engine: str, table: IndexTable | None = None) -> Indexed: ...


def table_of(fields: Sequence[IndexField], owners: Sequence[int]) -> IndexTable:
    """A table that no other test uses."""
    return IndexTable(f"entries_v{next(_numbers)}", tuple(fields), max(owners) + 1, tuple(owners))


def indexed(store: Datastore, table: IndexTable | None = None) -> Indexed:
    """The index of a test, with its tables."""
    config = store.config
    node = open_node(config.clusters[0].primary, config)
    made = Indexed(node, list(store.schema.plan().topology.shards_of("a")), config.datastore)
    if table is not None:
        made.table = table
    node.create_index(made.table, made.shards, patience())
    return made


def write(
    shard_value: Scalar = "s",
    row_key: bytes | None = None,
    values: Values = NOTHING,
    refs: tuple[int | None, ...] = (1, 1),
    *,
    is_dead: bool = False,
) -> EntryWrite:
    """A valid write; the shard field's value goes in front of the others."""
    return EntryWrite(shard_value, row_key or uuid4().bytes, (shard_value, *values), refs, is_dead)


def patience() -> Deadline:
    return Deadline(60)
