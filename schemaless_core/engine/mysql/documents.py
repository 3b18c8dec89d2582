"""A server's copies of documents of the control database: the highest version that it was told."""

from __future__ import annotations

from schemaless_core.engine.base import StoredDocument
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.transactions import write

# The version comes last: MySQL assigns from left to right, and the condition is about the one that was stored.
PUT = """\
INSERT INTO {document} (name, version, body) VALUES (%s, %s, %s)
ON DUPLICATE KEY UPDATE body = IF(VALUES(version) > version, VALUES(body), body),
 version = GREATEST(VALUES(version), version)"""
FIND = "SELECT name, version, body FROM {document} WHERE LEFT(name, %s) = %s ORDER BY name"


def put(connection: DeadlineConnection, names: Names, document: StoredDocument) -> None:
    values = (document.name.encode(), document.version, document.body)
    write(connection, (PUT.format(document=names.document), values))


def find(connection: DeadlineConnection, names: Names, prefix: str) -> list[StoredDocument]:
    start = prefix.encode()
    with connection.cursor() as cursor:
        cursor.execute(FIND.format(document=names.document), (len(start), start))
        return [StoredDocument(name.decode(), version, body) for name, version, body in cursor.fetchall()]
