"""Processes that write the legacy tables as services do, and a journal of what each of them said and heard.

Each change carries a token, and a table of witnesses gets it in the same transaction, under the same savepoints: what
the witnesses hold was committed, whatever the writer lived to hear.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from tests.forking import FORK_SERVER

#: Few, so that the writers meet.
KEYS = [UUID(int=n + 1) for n in range(24)]
NUMBERS = (1, 2, 3)
ISOLATIONS = ["READ COMMITTED"] * 4 + ["REPEATABLE READ", "SERIALIZABLE"]

#: The xid of a witness is that of the change in the queue.
WITNESS = """
CREATE TABLE witness (row_key uuid, column_name text, token text, xid xid8 DEFAULT pg_current_xact_id(),
    at timestamptz DEFAULT clock_timestamp());
CREATE SEQUENCE numbers
"""
WITNESSED = "INSERT INTO witness (row_key, column_name, token) VALUES (%s, %s, %s)"

#: A row that comes back under its UUID has its id again, as services have it whose ids mean something.
SAME_IDS = f"""
CREATE FUNCTION same_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.id := -('x' || right(NEW.trip_uuid::text, 8))::bit(32)::int; RETURN NEW; END $$;
CREATE TRIGGER "0_same_id" BEFORE INSERT ON trips FOR EACH ROW
WHEN (NEW.trip_uuid <= '{KEYS[-1]}') EXECUTE FUNCTION same_id()
"""

UNIQUE = "23505"
#: Postgres says so, as an internal error, to who updates a row while another, who had locked and then deleted it, rolls
#: back: his transaction has ended for one of its looks, and not yet for the next. Nothing is written.
ROLLING_BACK = "new multixact has more than one updating member"


class Entry(NamedTuple):
    """One line of a journal. What a writer did not live to hear is missing in it."""

    at: float
    writer: str
    pid: int  #: The server's process.
    transaction: int  #: The writer's own count.
    event: str  #: begin, an operation, rows, savepoint, rollback to, commit, committed, rollback, error
    detail: str = ""
    key: str = ""


class Journal:
    """A file per writer. It outlives a kill -9: what the kernel was given, it keeps."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._file = (folder / f"{writer}.journal").open("a", buffering=1)
        self._writer = writer
        self.pid = self.transaction = 0

    def note(self, event: str, detail: str = "", key: UUID | None = None) -> None:
        entry = Entry(time.time(), self._writer, self.pid, self.transaction, event, detail, str(key or ""))
        self._file.write(json.dumps(entry) + "\n")

    @staticmethod
    def entries(folder: Path, containing: str = "") -> Iterator[Entry]:
        """What all writers wrote, each writer's in its order. The last line of a killed writer may be torn."""
        for path in folder.glob("*.journal"):
            with path.open() as file:
                yield from (Entry(*json.loads(line)) for line in file if containing in line and line.endswith("]\n"))


class Writer:
    """One service."""

    def __init__(self, url: str, folder: Path, seed: str) -> None:
        self._url = url
        self._choose = random.Random(seed)
        self._name = f"{seed}-{os.getpid()}"
        self._journal = Journal(folder, self._name)
        self._number = 0

    def write_for_ever(self) -> None:
        while True:
            with suppress(psycopg2.OperationalError, psycopg2.InterfaceError):  # our backend was terminated
                connection = psycopg2.connect(self._url, application_name="writer")
                self._journal.pid = connection.info.backend_pid
                while True:
                    self._transaction(connection)

    def _transaction(self, connection: Connection) -> None:
        isolation = self._choose.choice(ISOLATIONS)
        connection.set_session(isolation_level=isolation)
        self._journal.transaction += 1
        self._journal.note("begin", isolation)
        try:
            with connection.cursor() as cursor:
                for _ in range(self._choose.randrange(1, 5)):
                    self._piece(cursor)
            if self._choose.random() < 0.15:
                self._journal.note("rollback")
                connection.rollback()
            else:
                self._journal.note("commit")
                connection.commit()
                self._journal.note("committed")
        except psycopg2.Error as error:
            self._journal.note("error", f"{isolation}|{_what(error)}")
            if error.pgcode is None or error.pgcode.startswith("57"):
                raise psycopg2.OperationalError from error
            connection.rollback()

    def _piece(self, cursor: Cursor) -> None:
        """One change, or one that a savepoint takes back."""
        operation = self._choose.choice(self._operations())
        if self._choose.random() > 0.25:
            operation(cursor, self._choose.choice(KEYS))
            return
        self._journal.note("savepoint")
        cursor.execute("SAVEPOINT s")
        operation(cursor, self._choose.choice(KEYS))
        if self._choose.random() < 0.6:
            self._journal.note("rollback to")
            cursor.execute("ROLLBACK TO SAVEPOINT s")

    def _operations(self) -> list[Callable[[Cursor, UUID], None]]:
        often = [self._insert, self._update, self._upsert, self._delete]
        return [*often, *often, self._plain_insert, self._again, self._several, self._memo, *self._children()]

    def _children(self) -> list[Callable[[Cursor, UUID], None]]:
        return [self._note_insert, self._note_insert, self._note_update, self._note_delete, self._fact]

    def _insert(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(
            cursor, "BASE", "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) ON CONFLICT DO NOTHING", key
        )

    def _plain_insert(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(cursor, "BASE", "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s)", key)

    def _upsert(self, cursor: Cursor, key: UUID) -> None:
        upsert = (
            "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) ON CONFLICT (trip_uuid)"
            " DO UPDATE SET status = EXCLUDED.status, base_version = EXCLUDED.base_version"
        )
        self._witnessed(cursor, "BASE", upsert, key)

    def _update(self, cursor: Cursor, key: UUID) -> None:
        self._witnessed(
            cursor,
            "BASE",
            "UPDATE trips AS t SET status = v.s FROM (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k",
            key,
        )

    def _memo(self, cursor: Cursor, key: UUID) -> None:
        self._said(cursor, "UPDATE trips SET memo = 'm' WHERE trip_uuid = %s", key)

    def _delete(self, cursor: Cursor, key: UUID) -> None:
        self._said(cursor, "DELETE FROM trips WHERE trip_uuid = %s", key)

    def _again(self, cursor: Cursor, key: UUID) -> None:
        self._delete(cursor, key)
        self._insert(cursor, key)

    def _several(self, cursor: Cursor, key: UUID) -> None:
        """Rows in an order that others do not keep."""
        token = self._token()
        keys = self._choose.sample(KEYS, 3)
        for each in keys:
            self._journal.note("several", token, each)
        cursor.execute(
            "UPDATE trips SET status = %s || trip_uuid WHERE trip_uuid = ANY (%s::uuid[]) RETURNING trip_uuid, status",
            (token, [str(key) for key in keys]),
        )
        for row_key, status in cursor.fetchall():
            self._journal.note("rows", status, UUID(row_key))
            cursor.execute(WITNESSED, (row_key, "BASE", status))

    def _note_insert(self, cursor: Cursor, key: UUID) -> None:
        insert = (
            f"INSERT INTO notes (trip_id, n, text) SELECT id, {self._choose.choice(NUMBERS)}, v.s"
            " FROM trips t, (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k ON CONFLICT DO NOTHING"
        )
        self._witnessed(cursor, "NOTES", insert, key)

    def _note_update(self, cursor: Cursor, key: UUID) -> None:
        update = (
            "UPDATE notes AS t SET text = v.s FROM (VALUES (%s::uuid, %s)) AS v (k, s)"
            f" WHERE t.trip_uuid = v.k AND t.n = {self._choose.choice(NUMBERS)}"
        )
        self._witnessed(cursor, "NOTES", update, key)

    def _note_delete(self, cursor: Cursor, key: UUID) -> None:
        self._said(cursor, f"DELETE FROM notes WHERE trip_uuid = %s AND n = {self._choose.choice(NUMBERS)}", key)

    def _fact(self, cursor: Cursor, key: UUID) -> None:
        insert = (
            "INSERT INTO attempts (trip_id, attempt_no, result) SELECT id, nextval('numbers'), v.s"
            " FROM trips t, (VALUES (%s::uuid, %s)) AS v (k, s) WHERE t.trip_uuid = v.k"
        )
        self._witnessed(cursor, "STATUS", insert, key)

    def _witnessed(self, cursor: Cursor, column: str, statement: str, key: UUID) -> None:
        token = self._token()
        if self._said(cursor, statement, key, token):
            cursor.execute(WITNESSED, (str(key), column, token))

    def _said(self, cursor: Cursor, statement: str, key: UUID, *token: str) -> int:
        self._journal.note(" ".join([*token, statement[:60]]), key=key)
        cursor.execute(statement, (str(key), *token))
        self._journal.note("rows", str(cursor.rowcount), key)
        return cursor.rowcount

    def _token(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number} "


def _what(error: psycopg2.Error) -> str:
    if ROLLING_BACK in str(error):
        return ROLLING_BACK
    if error.pgcode != UNIQUE:
        return str(error.pgcode)
    name = error.diag.constraint_name or ""
    return "attempts" if name.startswith("attempts") else "notes_pkey" if name.startswith("notes") else name


def errors_in(folder: Path) -> Counter[tuple[str, str]]:
    """What writers met, by isolation: an SQLSTATE, or the constraint. Not the ends of their backends."""
    met = [entry.detail.split("|") for entry in Journal.entries(folder, '"error"') if entry.event == "error"]
    return Counter((isolation, what) for isolation, what in met if what != "None" and not what.startswith("57"))


def seeds() -> Iterator[str]:
    """Other ones in every run."""
    run = random.randrange(1_000_000)
    for number in range(1_000_000):
        yield f"{run}-{number}"


def writer(url: str, folder: Path, seed: str) -> BaseProcess:
    """A process, not started."""
    process: BaseProcess = FORK_SERVER.Process(target=_write, args=(url, str(folder), seed))
    return process


def _write(url: str, folder: str, seed: str) -> None:
    Writer(url, Path(folder), seed).write_for_ever()
