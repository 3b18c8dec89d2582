"""Who is at work while Postgres is lost: services that write, a relay or reverse mirror, the process that accepts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg2

from schemaless_core.errors import SchemalessError
from tests.chaos.actors import wait_until
from tests.facades import Migration
from tests.serving import serve
from tests.standbys import FailingOver
from tripstore.errors import TripstoreError
from tripstore.handover import accept
from tripstore.handover.authority import Backend
from tripstore.handover.relay import drain
from tripstore.handover.steps import run

FAULTS = (SchemalessError, TripstoreError)
UPDATE = "UPDATE trips SET fare = fare + 1 WHERE trip_uuid = %s"
#: Of the rows of others, too: one that was copied or repaired is changed, one is deleted with its children.
TRIPS = """\
INSERT INTO trips (trip_uuid, status) VALUES (%(key)s, 'new');
UPDATE trips SET status = status || '?' WHERE trip_uuid IN (SELECT trip_uuid FROM trips ORDER BY random() LIMIT 3);
UPDATE notes SET text = text || '?' WHERE trip_uuid IN (SELECT trip_uuid FROM notes ORDER BY random() LIMIT 3);
DELETE FROM trips WHERE %(deletes)s AND trip_uuid IN (SELECT trip_uuid FROM trips ORDER BY random() LIMIT 1)"""


@dataclass
class Writer:
    """Puts cells of its own, one after the other, and remembers which were acknowledged, and when."""

    failing_over: FailingOver
    acknowledged: dict[UUID, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        while not self.ended.is_set():
            key = uuid4()
            with suppress(*FAULTS):
                self.failing_over.store.put_cell(key, "FREE", 1, "mine")
                self.acknowledged[key] = time.monotonic()
            self.ended.wait(0.005)


@dataclass(frozen=True)
class Carrying:
    """Carries what the mirror lacks, in the direction of the moment, until it is over."""

    hands: Migration
    begins: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        ports = self.hands.duo.ports
        self.begins.wait()
        while not self.ended.wait(0.01):
            with suppress(*FAULTS):
                if ports.control.authority().backend is Backend.LEGACY:
                    run(drain(ports))
                else:
                    serve(self.hands.facade.store, self.hands.reverse_mirror)


@dataclass
class Company:
    """A program of the company that writes by SQL all the time, at the address that leads to either server."""

    failing_over: FailingOver
    statements: int = 0
    #: How many of them were let in while Schemaless was open, before and after, at one epoch.
    second_owners: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        url = f"{self.failing_over.proxy.url}/{self.failing_over.pair.legacy.name}"
        while not self.ended.wait(0.01):
            self.second_owners += has_two_owners(self.failing_over, url)
            self.statements += 1


def is_open_to_sql(failing_over: FailingOver, url: str) -> bool:
    """Whether a program of the company can write there."""
    with suppress(psycopg2.Error), closing(psycopg2.connect(url)) as connection, connection:
        connection.cursor().execute(UPDATE, (str(failing_over.pair.row_key),))
        return True
    return False


def is_open_to_owners(hands: Migration) -> bool:
    seen = hands.facade.store.authority.find()
    assert seen is not None
    return seen.is_open


def has_two_owners(failing_over: FailingOver, url: str) -> bool:
    """Schemaless is open, then SQL is let in, and Schemaless is still open at the same epoch."""
    store = failing_over.hands.facade.store
    before = store.authority.find()
    is_open = is_open_to_sql(failing_over, url)
    after = store.authority.find()
    return before is not None and before.is_open and is_open and after == before


def settled(hands: Migration) -> None:
    """The watch where nothing was lost, else the operator."""

    def is_settled() -> bool:
        with suppress(*FAULTS):
            run(accept.accept(hands.duo.ports, settles=True))
            row = hands.duo.ports.control.authority()
            hands.duo.watch.look()
            return row.is_open
        return False

    wait_until("the promoted Postgres is accepted", is_settled)


@dataclass
class Trips:
    """A service that inserts, changes and deletes trips by SQL, and remembers which transactions were acknowledged."""

    failing_over: FailingOver
    acknowledged: dict[UUID, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        url = f"{self.failing_over.proxy.url}/{self.failing_over.pair.legacy.name}"
        turns = 0
        while not self.ended.wait(0.01):
            key, turns = uuid4(), turns + 1
            with suppress(psycopg2.Error):
                with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
                    cursor.execute(TRIPS, {"key": str(key), "deletes": turns % 8 == 0})
                self.acknowledged[key] = time.monotonic()


@dataclass
class Watching:
    """Looks as the watch of a process does, more often."""

    hands: Migration
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        while not self.ended.wait(0.05):
            self.hands.duo.watch.look()


@contextmanager
def at_work(*actors: Writer | Carrying | Company | Trips | Watching) -> Iterator[None]:
    """Each in a thread of its own. The first to begin is the first to end."""
    threads = [threading.Thread(target=actor) for actor in actors]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for actor, thread in zip(actors, threads, strict=True):
            actor.ended.set()
            thread.join()
