"""What a live database has: tables, columns, types, indexes, foreign keys, triggers. Read by `catalogue`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tripstore.backends.postgres.layout.layout import TableName


class TypeKind(StrEnum):
    """`pg_type.typtype`, spelt out."""

    BASE = "b"
    COMPOSITE = "c"
    DOMAIN = "d"
    ENUM = "e"
    MULTIRANGE = "m"
    PSEUDO = "p"
    RANGE = "r"


class TableKind(StrEnum):
    """`pg_class.relkind`, spelt out."""

    TABLE = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN_TABLE = "f"


class KeyAction(StrEnum):
    """`pg_constraint.confdeltype` and `confupdtype`, spelt out."""

    NO_ACTION = "a"
    RESTRICT = "r"
    CASCADE = "c"
    SET_NULL = "n"
    SET_DEFAULT = "d"

    @property
    def sql(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class LiveType:
    """A type; a domain knows what it is of, an array what it holds."""

    schema: str
    name: str
    kind: TypeKind
    element: LiveType | None = None
    base: LiveType | None = None
    is_not_null: bool = False
    delimiter: str = ","  #: Between the elements of an array of it.
    modifier: int | None = None  #: Of a column or a domain's base, length or precision in Postgres' form; -1: neither.

    @property
    def plain(self) -> LiveType:
        """The type below all domains."""
        return self if self.base is None else self.base.plain

    @property
    def is_array(self) -> bool:
        return self.element is not None

    @property
    def is_built_in(self) -> bool:
        return self.schema == "pg_catalog"

    @property
    def refuses_null(self) -> bool:
        """Whether this domain, or one below it, is NOT NULL."""
        return self.is_not_null or (self.base is not None and self.base.refuses_null)

    @property
    def is_char_without_length(self) -> bool:
        """Whether it is `bpchar` that no length pads: blanks at its end are the writer's own, and its text has none."""
        return self.is_built_in and self.name == "bpchar" and self.modifier == -1


@dataclass(frozen=True, slots=True)
class LiveColumn:
    """A column; `shown_type` is its type as people write it."""

    name: str
    type: LiveType
    shown_type: str
    is_not_null: bool
    has_default: bool
    is_generated: bool
    is_identity: bool
    is_always_identity: bool
    is_added: bool  #: By `schema apply`, as its comment says.

    @property
    def refuses_null(self) -> bool:
        return self.is_not_null or self.type.refuses_null

    @property
    def fills_itself(self) -> bool:
        """Whether an INSERT may leave it out."""
        return not self.refuses_null or self.has_default or self.is_identity or self.is_generated


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """A unique index; of expressions the names are empty."""

    name: str
    columns: tuple[str, ...]
    is_immediate: bool
    is_valid: bool
    is_partial: bool
    is_primary: bool

    def is_exactly(self, names: Iterable[str]) -> bool:
        """Whether it holds each combination of these columns to one row."""
        return sorted(self.columns) == sorted(names) and self.is_valid and not self.is_partial


@dataclass(frozen=True, slots=True)
class LiveForeignKey:
    """A foreign key of a table."""

    name: str
    columns: tuple[str, ...]
    target: TableName
    target_columns: tuple[str, ...]
    on_delete: KeyAction
    on_update: KeyAction
    is_initially_deferred: bool
    cleared: tuple[str, ...]  #: What ON DELETE SET NULL or SET DEFAULT changes: all of them, or those that it names.

    def leads(self, column: str, table: TableName, target_column: str) -> bool:
        return (self.columns, self.target, self.target_columns) == ((column,), table, (target_column,))


@dataclass(frozen=True, slots=True)
class LiveTrigger:
    """A trigger of the company's or ours, internal ones left out."""

    name: str
    function: TableName
    enabled: str  #: `pg_trigger.tgenabled`: O, D, R or A.
    is_row: bool
    is_before: bool
    is_insert: bool
    is_update: bool
    #: Columns that it assigns before a row is written, by whether it always does; those that could be read.
    assigned: Mapping[str, bool] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class LiveTable:
    """A table; figures of a partitioned one are the sums of its partitions'."""

    name: TableName
    kind: TableKind
    persistence: str  #: `pg_class.relpersistence`: p, u or t.
    partition_of: TableName | None
    partition_key: tuple[str, ...]
    leaves: tuple[TableName, ...]
    foreign_leaves: tuple[TableName, ...]
    unlogged_leaves: tuple[TableName, ...]
    heirs: tuple[TableName, ...]  #: Children by plain inheritance.
    has_row_security: bool
    hides_rows: bool  #: From this session: its policies hold for this role.
    subscribed: tuple[str, ...]  #: It, and its partitions, that a subscription fills.
    columns: dict[str, LiveColumn]
    unique_indexes: tuple[LiveIndex, ...]
    foreign_keys: tuple[LiveForeignKey, ...]
    triggers: tuple[LiveTrigger, ...]
    rows: int | None  #: An estimate; None: not counted yet.
    inserted: int
    updated: int
    deleted: int

    def fillers(self, column: str) -> tuple[LiveTrigger | None, LiveTrigger | None]:
        """The trigger that always gives a column a value of its own, and one that does at times."""
        of = [trigger for trigger in self.triggers if column in trigger.assigned]
        always = next((trigger for trigger in of if trigger.assigned[column]), None)
        return always, next((trigger for trigger in of if not trigger.assigned[column]), None)

    def find_unique(self, *names: str) -> LiveIndex | None:
        """The best unique index on exactly these columns: an immediate one if there is any."""
        found = [index for index in self.unique_indexes if index.is_exactly(names)]
        return max(found, key=lambda index: index.is_immediate, default=None)
