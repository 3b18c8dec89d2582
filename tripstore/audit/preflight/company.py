"""`Company`: what each relation that statements name is to the migration, as layout and catalogue say. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tripstore.audit.preflight.effects import Verb
from tripstore.audit.preflight.grammar import Name
from tripstore.backends.postgres.layout.layout import Layout, Lookup, MappedColumn, TableName

_SYSTEM = ("pg_catalog", "information_schema", "pg_toast")


class RelationRole(StrEnum):
    """What a relation is to the migration."""

    MAPPED = "mapped"  #: Its rows are cells.
    LOOKUP = "lookup"  #: Cells hold the UUIDs of its rows.
    VIEW = "view"  #: It shows mapped rows.
    OTHER = "other"  #: The migration has nothing to do with it.
    UNKNOWN = "unknown"  #: It is not in the layout, and the database was not asked or has no such relation.


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key by which a change here changes rows elsewhere."""

    event: Verb  #: DELETE, or UPDATE of the columns that the key points to.
    columns: frozenset[str]
    table: TableName  #: Where rows change.
    verb: Verb
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Firing:
    """A trigger or rule of the company's: it may change the row itself, or reach mapped tables."""

    name: str
    events: frozenset[Verb]
    is_before_row: bool
    may_reach: bool


@dataclass(frozen=True)
class CompanyRelation:
    """One relation."""

    name: str
    role: RelationRole
    column: MappedColumn | None = None
    lookups: tuple[Lookup, ...] = ()
    #: What `schema apply` adds to it; None: the database was not asked.
    added: tuple[str, ...] | None = None
    #: The tables that a view shows.
    shows: frozenset[str] = frozenset()
    cascades: tuple[Cascade, ...] = ()
    #: What TRUNCATE … CASCADE takes along.
    truncates: tuple[TableName, ...] = ()
    triggers: tuple[Firing, ...] = ()


@dataclass(frozen=True)
class Catalogued:
    """What the catalogue says of the relations and functions that are not the system's."""

    relations: Mapping[TableName, CompanyRelation]
    #: Functions that name mapped tables, or run SQL that is made at run time.
    functions: frozenset[Name]


@dataclass(frozen=True)
class Company:
    """The layout, and what the database says, when it was asked."""

    layout: Layout
    found: Catalogued | None = None
    may_truncate: bool = False
    warns: bool = False
    #: Tables that the statements made themselves.
    made: frozenset[str] = frozenset()

    @property
    def is_asked(self) -> bool:
        return self.found is not None

    def relation(self, name: Name) -> CompanyRelation:
        """A name without a schema is taken for a mapped table's, whatever the search path would choose."""
        if name.schema in _SYSTEM or (name.schema is None and name.name.startswith("pg_")):
            return CompanyRelation(str(name), RelationRole.OTHER)
        mapped = _named(name, self.layout.tables) or _named(name, {lookup.table for lookup in self.layout.lookups})
        if mapped is not None:
            return self.table(mapped)
        known = _named(name, self.found.relations) if self.found is not None else None
        if known is not None:
            return self.table(known)
        return CompanyRelation(str(name), RelationRole.OTHER if name.name in self.made else RelationRole.UNKNOWN)

    def table(self, name: TableName) -> CompanyRelation:
        """A table that was found, or that the layout knows."""
        found = self.found.relations.get(name) if self.found is not None else None
        return found if found is not None else self._by_layout(name)

    def reaches(self, function: Name) -> bool:
        """Whether a function may touch mapped tables, as far as its text says."""
        if self.found is None:
            return False
        return any(
            known.name == function.name and function.schema in (None, known.schema) for known in self.found.functions
        )

    def _by_layout(self, name: TableName) -> CompanyRelation:
        return CompanyRelation(str(name), *role_of(self.layout, name))


def role_of(layout: Layout, name: TableName) -> tuple[RelationRole, MappedColumn | None, tuple[Lookup, ...]]:
    """What the layout says of a table."""
    column = next((each for each in layout.columns.values() if each.table == name), None)
    lookups = tuple(lookup for lookup in layout.lookups if lookup.table == name)
    role = RelationRole.MAPPED if column is not None else RelationRole.LOOKUP if lookups else RelationRole.OTHER
    return role, column, lookups


def _named(name: Name, tables: Iterable[TableName]) -> TableName | None:
    """The table that a name means; of several without a schema, that of `public`."""
    found = [table for table in tables if table.name == name.name and name.schema in (None, table.schema)]
    return min(found, key=lambda table: (table.schema != "public", table.schema), default=None)
