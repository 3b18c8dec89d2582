"""The gate of a company's database, as a switcher sets it, and the company's writers before it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.actors import wait_until
from tests.facades import Migration
from tests.legacy import Legacy
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture.functions.gate import (
    DOOR,
    GateReading,
    GateState,
    lock_class,
    read_gate,
    set_gate,
)
from tripstore.backends.postgres.wire.connections import rows
from tripstore.handover import switch
from tripstore.handover.steps import Step, run

K = lock_class("trips")
UUID_0 = "00000000-0000-0000-0000-000000000000"
ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
WRITES = {
    "insert": "INSERT INTO trips (status) VALUES ('x')",
    "no row": "UPDATE trips SET status = 'x' WHERE false",
    "update": "UPDATE trips SET status = 'x'",
    "delete": "DELETE FROM trips",
    "upsert": "INSERT INTO trips (id, status) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET status = 'x'",
    "nothing": "INSERT INTO trips (id, status) VALUES (1, 'x') ON CONFLICT DO NOTHING",
    "cte": "WITH w AS (UPDATE trips SET status = 'x' RETURNING 1) SELECT * FROM w",
    "merge": "MERGE INTO trips t USING users u ON t.id = u.id WHEN MATCHED THEN UPDATE SET status = 'x'",
    "partition": "UPDATE notes_0 SET text = 'x'",
    "child": "DELETE FROM attempts",
    "replica": "SET LOCAL session_replication_role = replica; UPDATE trips SET status = 'x'",
}


@contextmanager
def session(legacy: Legacy, isolation: str | None = None) -> Iterator[Connection]:
    connection = legacy.connect(isolation=isolation)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def switcher(legacy: Legacy) -> Iterator[Connection]:
    """Holds the door; sets the gate on a connection of its own, as the switch does."""
    with session(legacy) as connection:
        rows(connection, f"SELECT pg_advisory_lock({K}, {DOOR})")
        yield connection


def set_to(legacy: Legacy, state: GateState, epoch: int = 1) -> None:
    with legacy.ours() as connection:
        set_gate(connection, GateReading(epoch, state))
        assert read_gate(connection) == GateReading(epoch, state), "it was not set"


def without_statement_gates(legacy: Legacy) -> None:
    """As for rows that logical apply writes, and for partitions made since."""
    for table in ("trips", "notes", "notes_0", "notes_1", "attempts"):
        legacy.sql(f'ALTER TABLE {table} DISABLE TRIGGER "0_tripstore_gate"')


class Writers:
    """Some of the company's services: short transactions, one after the other, whatever becomes of them."""

    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy
        self._stop = threading.Event()
        self.commits = list[float]()
        self.refusals = list[float]()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(self._write) for _ in range(3)]
            try:
                self.wait_for_more()
                yield
            finally:
                self._stop.set()
        for each in running:
            each.result()

    def wait_for_more(self) -> None:
        """Until they have been answered for a while."""
        before = len(self.commits) + len(self.refusals)
        wait_until("they were answered", lambda: len(self.commits) + len(self.refusals) > before + 20)

    def _write(self) -> None:
        with session(self._legacy) as connection:
            while not self._stop.is_set():
                try:
                    rows(connection, "INSERT INTO trips (status) VALUES ('a')")
                    rows(connection, "UPDATE trips SET status = 'b' WHERE id = currval('trips_id_seq')")
                    connection.commit()
                    self.commits.append(time.monotonic())
                except psycopg2.Error as error:
                    if error.pgcode != sqlstates.GATE_SHUT:
                        raise
                    self.refusals.append(time.monotonic())
                    connection.rollback()


def switched(migrated: Migration, writers: Writers) -> tuple[switch.HandoverOutcome, float]:
    """A switch whose tries are far enough apart for many to come in between; and when it came to shut the gate."""
    shut_at = [math.inf]

    def hear(step: Step) -> None:
        if step is switch.BARRIER:
            writers.wait_for_more()
        if step is switch.SHUT:
            shut_at[0] = time.monotonic()

    outcome = run(switch.switch(migrated.duo.ports, "x", tries=2), hear)
    return outcome, shut_at[0]
