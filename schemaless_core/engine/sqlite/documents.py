"""The copies of documents of the control database in a file: the highest version that it was told."""

from __future__ import annotations

import sqlite3

from schemaless_core.engine.documents import StoredDocument

PUT = """\
INSERT INTO document (name, version, body) VALUES (?, ?, ?)
 ON CONFLICT (name) DO UPDATE SET version = excluded.version, body = excluded.body
 WHERE excluded.version > document.version"""
FIND = "SELECT name, version, body FROM document WHERE SUBSTR(name, 1, ?) = ? ORDER BY name"


def put(connection: sqlite3.Connection, document: StoredDocument) -> None:
    connection.execute(PUT, document)


def find(connection: sqlite3.Connection, prefix: str) -> list[StoredDocument]:
    return [StoredDocument(*found) for found in connection.execute(FIND, (len(prefix), prefix))]
