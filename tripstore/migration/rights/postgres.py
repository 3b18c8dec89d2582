"""`PostgresObjects`: what rights are about in one company's database; and the statements that give and take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.layout import Layout, TableName, quoted
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows
from tripstore.migration.rights.roles import GrantPlace
from tripstore.migration.rights.table import Right

_DATABASE = "SELECT pg_catalog.current_database()"
_OWNERS = """
SELECT DISTINCT o.rolname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
JOIN unnest(%s::text[], %s::text[]) AS wanted(nspname, relname) USING (nspname, relname) ORDER BY 1
"""
#: Those of serial and identity columns, and of any default that draws from one.
_SEQUENCES = """
SELECT DISTINCT s_n.nspname, s.relname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN unnest(%s::text[], %s::text[]) AS wanted(nspname, relname)
    ON wanted.nspname = n.nspname AND wanted.relname = c.relname
JOIN pg_catalog.pg_depend AS d ON (d.refobjid = c.oid AND d.deptype IN ('a', 'i'))
    OR d.objid IN (SELECT f.oid FROM pg_catalog.pg_attrdef AS f WHERE f.adrelid = c.oid)
JOIN pg_catalog.pg_class AS s ON s.relkind = 'S' AND s.oid IN (d.objid, d.refobjid)
JOIN pg_catalog.pg_namespace AS s_n ON s_n.oid = s.relnamespace ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class PostgresObjects:
    """What the catalogue has of a layout."""

    database: str
    tables: tuple[TableName, ...]
    lookups: tuple[TableName, ...]
    owners: tuple[str, ...]
    sequences: tuple[TableName, ...]

    @property
    def schemas(self) -> list[str]:
        return sorted({table.schema for table in (*self.tables, *self.lookups)})


def find_objects(connection: Connection, layout: Layout) -> PostgresObjects:
    tables = tuple(sorted(layout.tables))
    lookups = tuple(sorted({lookup.table for lookup in layout.lookups} - layout.tables))
    named = [table.schema for table in tables], [table.name for table in tables]
    return PostgresObjects(
        database=rows(connection, _DATABASE)[0][0],
        tables=tables,
        lookups=lookups,
        owners=tuple(owner for (owner,) in rows(connection, _OWNERS, named)),
        sequences=tuple(TableName(*found) for found in rows(connection, _SEQUENCES, named)),
    )


def statements(right: Right, objects: PostgresObjects, login: str, operator: str, *, is_given: bool) -> Iterator[str]:
    """The GRANTs of a line of the table, or its REVOKEs."""
    verb, to = ("GRANT", "TO") if is_given else ("REVOKE", "FROM")
    for role in _memberships(right.place, objects, operator):
        if role != login:
            yield f"{verb} {quoted(role)} {to} {quoted(login)}"
    for what in _named(right, objects):
        yield f"{verb} {right.privileges} ON {what} {to} {quoted(login)}"


def _memberships(place: GrantPlace, objects: PostgresObjects, operator: str) -> tuple[str, ...]:
    match place:
        case GrantPlace.OWNER:
            return objects.owners
        case GrantPlace.OPERATOR:
            return (operator,)
        case GrantPlace.SIGNAL | GrantPlace.STATISTICS:
            return (place.value,)
    return ()


def _named(right: Right, objects: PostgresObjects) -> list[str]:
    """What stands behind ON."""
    match right.place:
        case GrantPlace.DATABASE:
            return [f"DATABASE {quoted(objects.database)}"]
        case GrantPlace.SCHEMA:
            return [f"SCHEMA {quoted(schema)}" for schema in objects.schemas]
        case GrantPlace.OWN_SCHEMA:
            return [f"SCHEMA {SCHEMA}"]
        case GrantPlace.MAPPED:
            return [_listed(objects.tables)]
        case GrantPlace.LOOKUP:
            return [_listed(objects.lookups)] if objects.lookups else []
        case GrantPlace.SEQUENCE:
            return [f"SEQUENCE {_listed(objects.sequences)}"] if objects.sequences else []
        case GrantPlace.OWN:
            return [_own(right, "TABLES", "")]
        case GrantPlace.OWN_SEQUENCE:
            return [_own(right, "SEQUENCES", "SEQUENCE ")]
    return []


def _listed(tables: tuple[TableName, ...]) -> str:
    return ", ".join(table.sql for table in tables)


def _own(right: Right, kind: str, prefix: str) -> str:
    if not right.names:
        return f"ALL {kind} IN SCHEMA {SCHEMA}"
    return prefix + ", ".join(f"{SCHEMA}.{name}" for name in right.names)
