"""Documents in the control database: small bodies under a name, changed by compare-and-set and never in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.tables import document as table
from schemaless_core.errors import DocumentConflict


class Document(NamedTuple):
    """A body as one version of it was."""

    name: str
    version: int
    body: dict[str, Json]


DOCUMENTS = sa.select(table.c.name, table.c.version, table.c.body).order_by(table.c.name)


class Documents:
    """The documents of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control
        self._audit = AuditLog(control)

    def find(self, name: str) -> Document | None:
        """Return a document as it is now, None if there is none."""
        with self._control.begin() as connection:
            found = connection.execute(DOCUMENTS.where(table.c.name == name)).first()
        return _document(*found) if found else None

    def all(self, prefix: str) -> list[Document]:
        """Return the documents whose names begin so, in the order of their names."""
        with self._control.begin() as connection:
            return all_within(connection, prefix)

    def put(
        self,
        name: str,
        body: dict[str, Json],
        *,
        expected_version: int,
        action: str,
        detail: Mapping[str, object],
        version: int | None = None,
    ) -> Document:
        """Store the next version and its line of the audit log; `DocumentConflict` if another version is there.

        An `expected_version` of 0 says that there is no such document yet. `version`: the next one, where a later one
        is known elsewhere. After a `ControlUnavailable` the version may have been stored: find the document, then
        decide again.
        """
        next_version = version or expected_version + 1

        def work(connection: sa.Connection) -> bool:
            if not put_within(connection, name, body, expected_version, next_version):
                return False
            self._audit.add_within(connection, action, detail)
            return True

        try:
            is_stored = make_change(self._control, work)
        except sa.exc.IntegrityError:
            is_stored = False
        if not is_stored:
            raise DocumentConflict(name, expected_version)
        return Document(name, next_version, body)


def all_within(connection: sa.Connection, prefix: str) -> list[Document]:
    """Return those whose names begin so, as a transaction sees them."""
    begins = sa.func.substr(table.c.name, 1, len(prefix)) == prefix  # LIKE would not mind capitals on SQLite
    return [_document(*row) for row in connection.execute(DOCUMENTS.where(begins))]


def put_within(
    connection: sa.Connection, name: str, body: dict[str, Json], expected_version: int, version: int | None = None
) -> bool:
    """Store the next version within a transaction; False, or an `IntegrityError`: another version is there."""
    row = {"name": name, "version": version or expected_version + 1, "body": canonical_bytes(body).decode()}
    if expected_version:
        is_it = (table.c.name == name) & (table.c.version == expected_version)
        return bool(connection.execute(sa.update(table).where(is_it).values(row)).rowcount)
    connection.execute(sa.insert(table).values(row))
    return True


def _document(name: str, version: int, body: str) -> Document:
    return Document(name, version, json.loads(body))
