"""A server's copies of documents of the control database: the highest version that it was told."""

from __future__ import annotations

from pymysql import err

from schemaless_core.deadline import Deadline
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, Login, connect
from schemaless_core.engine.mysql.wire.transactions import write
from schemaless_core.engine.mysql.wire.translation import translate, translate_connect

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


def find_alone(login: Login, names: Names, prefix: str, deadline: Deadline) -> list[StoredDocument]:
    """The same on a connection of its own: for a call that is in the midst of an answer on another one."""
    try:
        connection = connect(login, deadline)
    except (err.Error, OSError) as error:
        raise translate_connect(error, str(login.url), deadline) from error
    try:
        connection.deadline = deadline
        return find(connection, names, prefix)
    except (err.Error, OSError) as error:
        raise translate(error, str(login.url), deadline) from error
    finally:
        connection.forget()
