"""Who writes the rows of a case: a service by its SQL, the facade by puts, the reverse mirror by SQL of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.canonical import from_canonical
from tests.corpus import Case, Row
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.wire.connections import rows


class Writing(Protocol):
    """Writes one row of a case at a time, by the number that it has within its parent. Versions are 0, 1, 2."""

    #: What the changes say of who wrote them.
    origin: str | None

    def insert(self, key: UUID, n: int, row: Row) -> None: ...

    def update(self, key: UUID, n: int, row: Row) -> None: ...

    def delete(self, key: UUID, n: int) -> None: ...


class ServiceWriting:
    """A service's own statements, in whatever session."""

    origin: str | None = None

    def __init__(self, case: Case, session: Connection) -> None:
        self._table = case.table
        self._session = session

    def insert(self, key: UUID, n: int, row: Row) -> None:
        rows(
            self._session,
            f"INSERT INTO {self._table} (parent, n, value)"
            f" SELECT id, {n}, {row.sql} FROM corpus.parents WHERE uuid = '{key}'",
        )

    def update(self, key: UUID, n: int, row: Row) -> None:
        rows(self._session, f"UPDATE {self._table} SET value = {row.sql} WHERE uuid = '{key}' AND n = {n}")

    def delete(self, key: UUID, n: int) -> None:
        rows(self._session, f"DELETE FROM {self._table} WHERE uuid = '{key}' AND n = {n}")


class FacadeWriting:
    """Puts of bodies through a store."""

    origin: str | None = "facade"

    def __init__(self, case: Case, store: PostgresBackend) -> None:
        self._case = case
        self._store = store
        self._compose = store.layout.columns[case.name].compose

    def insert(self, key: UUID, n: int, row: Row) -> None:
        self._put(key, n, 0, row.body)

    def update(self, key: UUID, n: int, row: Row) -> None:
        self._put(key, n, 1, row.body)

    def delete(self, key: UUID, n: int) -> None:
        self._put(key, n, 2, b"null")

    def _put(self, key: UUID, n: int, version: int, body: bytes | None) -> None:
        assert body is not None
        result = self._store.put_cell(key, self._case.name, self._compose(n, version), from_canonical(body))
        assert result.status == "CREATED"


class ReverseWriting:
    """What the reverse mirror does: it says its origin and the version, and compares the row that came of it."""

    origin: str | None = "reverse"

    def __init__(self, case: Case, session: Connection, codec: ColumnCodec) -> None:
        self._case = case
        self._session = session
        self._codec = codec

    def insert(self, key: UUID, n: int, row: Row) -> None:
        texts = self._texts(row)
        self._write(
            f"INSERT INTO {self._case.table} AS r (parent, uuid, n, version, {', '.join(map(quoted, texts))})"
            f" SELECT id, uuid, {n}, 0, {', '.join(['%s'] * len(texts))} FROM corpus.parents WHERE uuid = '{key}'",
            texts,
            row,
        )

    def update(self, key: UUID, n: int, row: Row) -> None:
        texts = self._texts(row)
        self._write(
            f"UPDATE {self._case.table} AS r SET version = 1, {', '.join(f'{quoted(name)} = %s' for name in texts)}"
            f" WHERE uuid = '{key}' AND n = {n}",
            texts,
            row,
        )

    def delete(self, key: UUID, n: int) -> None:
        ref_key = self._codec.column.compose(n, 2)
        rows(
            self._session,
            "SELECT set_config('tripstore.origin', 'reverse', true), set_config('tripstore.tombstone', %s, true);"
            f" DELETE FROM {self._case.table} WHERE uuid = '{key}' AND n = {n}",
            (f"{ref_key} {self._case.name}",),
        )

    def _texts(self, row: Row) -> Mapping[str, str | None]:
        assert row.body is not None
        return self._codec.row(from_canonical(row.body))

    def _write(self, statement: str, texts: Mapping[str, str | None], row: Row) -> None:
        """One packet is one transaction."""
        returning = self._codec.column.row_sql("r")
        ((written,),) = rows(
            self._session,
            f"SELECT set_config('tripstore.origin', 'reverse', true); {statement} RETURNING {returning}",
            list(texts.values()),
        )
        assert self._codec.canonical(written) == row.body
