"""`FieldNames`: which field of a body Postgres refused, as far as its error tells."""

from __future__ import annotations

from collections.abc import Mapping

from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import MappedColumn, quoted
from tripstore.backends.postgres.wire.translation import ValueRefused
from tripstore.backends.postgres.wire.wire import LegacyConnection

_CONSTRAINED = """\
SELECT a.attname::text FROM pg_catalog.pg_constraint AS c
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
JOIN pg_catalog.pg_class AS t ON t.oid = c.conrelid
JOIN pg_catalog.pg_namespace AS s ON s.oid = t.relnamespace
WHERE c.conname = %s AND t.relname = %s AND s.nspname = %s ORDER BY a.attnum"""
# Planning does not check what a domain demands: these values are cast.
_DOMAINS = """\
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem
WHERE a.attrelid = %s::pg_catalog.regclass AND a.attnum > 0 AND 'd' IN (t.typtype, e.typtype)"""


class FieldNames:
    """The fields of one mapped column by their physical columns."""

    def __init__(self, column: MappedColumn) -> None:
        self._column = column

    def named(
        self, connection: LegacyConnection, refused: ValueRefused, texts: Mapping[str, str | None]
    ) -> Unrepresentable:
        """The same refusal with the path of the field. Ends the transaction that it broke."""
        connection.rows("ROLLBACK")
        columns = [refused.column] if refused.column else self._constrained(connection, refused)
        columns = columns or self._not_taken(connection, texts) or self._not_of_domain(connection, texts)
        return Unrepresentable(", ".join(map(self._field, columns)), refused.reason, hint=refused.hint)

    def _constrained(self, connection: LegacyConnection, refused: ValueRefused) -> list[str]:
        if refused.constraint is None:
            return []
        table = self._column.table
        return [name for (name,) in connection.rows(_CONSTRAINED, (refused.constraint, table.name, table.schema))]

    def _not_taken(self, connection: LegacyConnection, texts: Mapping[str, str | None]) -> list[str]:
        """The first column whose type does not take its text: planning is enough to find it."""
        table = self._column.table.sql.replace("%", "%%")
        for name, value in texts.items():
            column = quoted(name).replace("%", "%%")
            try:
                connection.rows(f"EXPLAIN UPDATE {table} SET {column} = %s WHERE false", (value,))
            except ValueRefused:
                return [name]
        return []

    def _not_of_domain(self, connection: LegacyConnection, texts: Mapping[str, str | None]) -> list[str]:
        for name, domain in connection.rows(_DOMAINS, (self._column.table.sql,)):
            if name in texts:
                try:
                    connection.rows(f"SELECT %s::{domain.replace('%', '%%')}", (texts[name],))
                except ValueRefused:
                    return [name]
        return []

    def _field(self, physical: str) -> str:
        names = [field.name for field in self._column.fields if field.column == physical]
        return names[0] if names else physical
