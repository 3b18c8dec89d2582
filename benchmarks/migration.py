"""A migration on real servers for benchmarks: both stores equal, a facade over them, the mirror in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.synchronize import Event
from random import Random
from typing import Any
from uuid import UUID

from benchmarks.cells import PATIENT, SPAWN, Config
from benchmarks.cores import Part, let_stay, stay
from benchmarks.legacy import People, known_people
from benchmarks.triggers import running
from schemaless_core import Cell, ShardStatus
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo import legacy
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.facade.facade import Duo
from tripstore.facade.flags import Comparing
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import connect

SHARDS = 64
CELLS_PER_PUT = 250
WAIT_SECONDS = 120.0
_QUEUED = "SELECT count(*) FROM tripstore.queue"


@dataclass(frozen=True)
class Migration:
    """Trips that stand in Postgres and in Schemaless alike, and what changes their phase."""

    config: Config
    store: TripStore
    #: The mirror.
    server: BinlogServer
    row_keys: list[UUID]
    people: People

    @property
    def duo(self) -> Duo:
        return duo_of(self.store)

    def phase(self, phase: Phase, share: float | None = None) -> None:
        """Go there; of the reads this share is compared. Who has seen it is another question."""
        self.store.facade.flags.change(
            lambda flags: replace(flags.with_phase(phase), comparing=Comparing(share)), "bench.phase"
        )
        self.duo.watch.look()

    def drained(self) -> None:
        """Return when the mirror has everything. A relay must be running."""
        wait(lambda: not self.ask(_QUEUED)[0][0])

    @contextmanager
    def stopped_dead(self) -> Iterator[None]:
        """The mirror as SIGSTOP leaves it: connections stay, and no answer comes."""
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()
            self.server.wait_until_ready()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with connected(self.config["legacy"]["postgres"], "benchmark") as connection:
            return rows(connection, sql)

    @contextmanager
    def mirrored(self, part: Part = "all") -> Iterator[None]:
        """One process that does what `worker run --only mirror` does: a relay, and the rehearsal of the way back.

        It and the mirror's server have machines of their own in a company: they may stay apart from services.
        """
        let_stay(self.server, part)
        serving, end = SPAWN.Event(), SPAWN.Event()
        process = SPAWN.Process(target=_mirror, args=(self.config, serving, end, part), daemon=True)
        process.start()
        try:
            assert serving.wait(WAIT_SECONDS)
            yield
        finally:
            end.set()
            process.join()


@contextmanager
def migrated(
    postgres: PostgresServer, mirror: BinlogServer, name: str, trips: int, shards: int = SHARDS
) -> Iterator[Migration]:
    """Named like its datastore: a company of so many trips with capture and gate, and a mirror that has all of them."""
    config = _company(postgres, mirror, name, shards)
    with connect(config) as store:
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        people = known_people(config["legacy"]["postgres"])
        random = Random(5)
        row_keys = [UUID(int=random.getrandbits(128), version=4) for _ in range(trips)]
        migration = Migration(config, store, mirror, row_keys, people)
        cells = [Cell(row_key, "BASE", 1, people.body(random)) for row_key in row_keys]
        for first in range(0, trips, CELLS_PER_PUT):
            store.put_cells(cells[first : first + CELLS_PER_PUT])
        migration.ask("ANALYZE; SELECT 1")
        yield migration


def duo_of(store: TripStore) -> Duo:
    duo = store.facade.duo
    assert duo is not None
    return duo


def wait(is_so: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    give_up_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def _company(postgres: PostgresServer, mirror: BinlogServer, name: str, shards: int) -> Config:
    postgres.query(f"CREATE DATABASE {name}")
    url = f"{postgres.url}/{name}"
    CompanySchema(url).upgrade()
    Seeds(url).plant(0)
    known = load_layout(legacy.LAYOUT)
    layout = Layout(name, known.row_key, known.columns)
    with connected(url, "benchmark") as connection:
        for _ in apply_all(schema_steps(layout), connection, lambda _step: lambda _done, _all: None):
            pass
    return {
        "datastore": name,
        "shards": shards,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
        "legacy": {"postgres": url, "layout": layout.to_document()},
    }


def _mirror(config: Config, serving: Event, end: Event, part: Part) -> None:  # a process' target
    stay(part)
    with connect(config) as store:
        store.facade.begin()
        mirror = Mirror(store.facade)
        with mirror.relay(), running(store.facade.store.triggers.worker(mirror.groups())):
            serving.set()
            benchmark = parent_process()
            assert benchmark is not None
            while not end.wait(1.0) and benchmark.is_alive():
                pass  # a benchmark that was killed asks for no end
