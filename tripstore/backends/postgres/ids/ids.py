"""Ids and UUIDs: what a row without a UUID is given, and which id belongs to which UUID.

A row gets the version 3 UUID of namespace, table and id, which Postgres and Python compute alike. A UUID that was there
before stays, and so does one that a writer gives: so pairs are looked up, never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid3

from psycopg2 import errors as postgres

from schemaless_core import InvalidRequest, Json, canonical_bytes
from schemaless_core.errors import shown
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, RowKeySource, quoted

#: Of every UUID that stands for an id of a legacy table. Never changes: stored UUIDs hang on it.
NAMESPACE = UUID("6f0c3c5e-0f43-4d0e-9b55-5b4d8a0c7a11")
#: The ref key of every cell of `_LEGACY_ID`.
LEGACY_ID_REF_KEY = 0

ID_MIN, ID_MAX = -(1 << 63), (1 << 63) - 1

#: Runs a statement and returns its rows.
RowsOf = Callable[[str, Any], list[tuple[Any, ...]]]

# What capture keeps of deleted rows.
_DELETED = "SELECT pg_catalog.convert_from(body, 'UTF8')::json ->> 'id', row_key::text FROM tripstore.cell"
_DELETED_UUIDS = f"{_DELETED} WHERE column_name = '{LEGACY_ID}' AND body = ANY (%s::bytea[]) ORDER BY created_at"
_DELETED_IDS = f"{_DELETED} WHERE column_name = '{LEGACY_ID}' AND row_key = ANY (%s::uuid[])"
_UUIDS = "SELECT {id}::text, {uuid}::text FROM {table} WHERE {id} = ANY (%s::bigint[]) AND {uuid} IS NOT NULL"
_IDS = "SELECT {id}::text, {uuid}::text FROM {table} WHERE {uuid} = ANY (%s::uuid[])"


def uuid_of_id(layout: Layout, number: int) -> UUID:
    """The UUID that a row of this id is given when it has none. Whether it has one, only `Ids` knows."""
    return uuid3(NAMESPACE, _name_before_id(layout.row_key) + str(check_id(number)))


def uuid_of_id_sql(source: RowKeySource, number: str) -> str:
    """The same in SQL; `number` is an expression. NULL for NULL."""
    prefix = (NAMESPACE.bytes + _name_before_id(source).encode()).hex()
    digest = (
        # No backslash: whether it escapes is up to the inserting session.
        f"pg_catalog.md5(pg_catalog.decode('{prefix}', 'hex')"
        f" || pg_catalog.convert_to((({number})::pg_catalog.int8)::pg_catalog.text, 'UTF8'))"
    )
    # Version 3 is the 13th hex digit; the 17th keeps its lower two bits under the variant.
    return (
        "(SELECT (pg_catalog.substr(h, 1, 12) || '3' || pg_catalog.substr(h, 14, 3)"
        " || pg_catalog.translate(pg_catalog.substr(h, 17, 1), '0123456789abcdef', '89ab89ab89ab89ab')"
        f" || pg_catalog.substr(h, 18))::pg_catalog.uuid FROM (SELECT {digest}) AS digest(h))"
    )


def legacy_id_body(number: int) -> Json:
    """The body of the one cell of `_LEGACY_ID` that a row has."""
    return {"id": number}


class Ids:
    """Pairs of id and UUID as the legacy tables hold them. What has no pair (yet) is None or missing.

    Where capture is installed, pairs of deleted rows are known, too.
    """

    def __init__(self, rows_of: RowsOf, layout: Layout, *, is_captured: bool = False) -> None:
        self._rows_of = rows_of
        self._is_captured = is_captured
        source = layout.row_key
        names = {"id": quoted(source.id), "uuid": quoted(source.uuid), "table": source.table.sql}
        self._names = {role: name.replace("%", "%%") for role, name in names.items()}  # the driver's own sign
        self._what = f"{source.table}.{source.uuid}"

    def resolve_id(self, number: int) -> UUID | None:
        return self.resolve_ids([number]).get(number)

    def legacy_id(self, row_key: UUID) -> int | None:
        return self.legacy_ids([row_key]).get(row_key)

    def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The UUIDs of many ids; an id without a row, or whose row has no UUID yet, is left out."""
        wanted = dict.fromkeys(check_id(number) for number in numbers)
        found = {int(number): UUID(uuid) for number, uuid in self._ask(_UUIDS, wanted)}
        bodies = [canonical_bytes(legacy_id_body(number)) for number in wanted if number not in found]
        return found | {int(number): UUID(uuid) for number, uuid in self._ask_deleted(_DELETED_UUIDS, bodies)}

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The ids of many UUIDs; one that no row has is left out."""
        wanted = dict.fromkeys(_uuid(row_key) for row_key in row_keys)
        found = {UUID(uuid): int(number) for number, uuid in self._ask(_IDS, wanted)}
        deleted = [str(row_key) for row_key in wanted if row_key not in found]
        return found | {UUID(uuid): int(number) for number, uuid in self._ask_deleted(_DELETED_IDS, deleted)}

    def _ask(self, question: str, wanted: Iterable[int | UUID]) -> list[tuple[Any, ...]]:
        values = "{" + ",".join(map(str, wanted)) + "}"
        if values == "{}":
            return []
        try:
            return self._rows_of(question.format(**self._names), (values,))
        except (postgres.UndefinedTable, postgres.UndefinedColumn) as error:
            raise InvalidLayout(f"There is no {self._what}.", hint="Run `tripstore schema apply`.") from error

    def _ask_deleted(self, question: str, wanted: list[Any]) -> list[tuple[Any, ...]]:
        return self._rows_of(question, (wanted,)) if wanted and self._is_captured else []


def _name_before_id(source: RowKeySource) -> str:
    return f"{source.table.schema}.{source.table.name}/"


def check_id(number: int) -> int:
    """Return it, if it can be one."""
    if type(number) is not int or not ID_MIN <= number <= ID_MAX:
        raise InvalidRequest(f"{shown(number)} is no legacy id.", hint="Give an integer of 64 bits.")
    return number


def _uuid(row_key: UUID) -> UUID:
    if not isinstance(row_key, UUID):
        raise InvalidRequest(f"{row_key!r} is no row key.", hint="A row key is a UUID.")
    return row_key
