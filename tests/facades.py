"""Facades on real databases for tests: a captured company, a datastore beside it, and whatever carries between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from schemaless_core.canonical import Json
from schemaless_core.standing import ShardStatus
from schemaless_core.store import CellStore
from tests.indexing import catch_up
from tests.legacy import TABLES, Legacy, captured, layout
from tests.legacy_databases import FLAVOURS, postgres_server
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.config import load_config
from tripstore.facade.facade import Duo, Facade
from tripstore.handover.authority import Backend
from tripstore.handover.relay import drain
from tripstore.handover.reverse import mirror_back
from tripstore.handover.steps import run
from tripstore.handover.switch import reverse, switch
from tripstore.local.servers import LocalServers
from tripstore.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

if TYPE_CHECKING:
    from tests.stores import Stores

#: Two cores carry everything.
PATIENT_LEGACY = {"put_seconds": 20, "read_seconds": 20, "pool_seconds": 20, "connect_seconds": 10, "lock_seconds": 10}


@dataclass(frozen=True)
class Migration:
    """A facade, the company's database, and hands that move it along."""

    store: TripStore
    legacy: Legacy
    document: Mapping[str, Any]

    @property
    def facade(self) -> Facade:
        return self.store.facade

    @property
    def duo(self) -> Duo:
        duo = self.facade.duo
        assert duo is not None
        return duo

    def phase(self, phase: Phase, cohort: float = 0.0) -> None:
        """Into a phase, switching when it has another authority; this process sees it at once."""
        if self.duo.ports.control.authority().backend is not phase.authority:
            self.switch() if phase.authority is Backend.STORE else self.reverse()
        cohorts = {"*": cohort}
        self.facade.flags.change(
            lambda flags: flags.with_phase(phase).with_cohorts(phase.authority, cohorts), "test.phase"
        )
        self.duo.watch.look()

    def switch(self) -> None:
        outcome = run(switch(self.duo.ports, "to schemaless"))
        assert outcome.is_decided, outcome.reason
        self.duo.watch.look()

    def reverse(self) -> None:
        self.carry()
        outcome = run(reverse(self.duo.ports, "to postgres"))
        assert outcome.is_decided, outcome.reason
        self.duo.watch.look()

    def carry(self) -> None:
        """All that the mirror lacks, in the direction of the authority."""
        ports = self.duo.ports
        if ports.control.authority().backend is Backend.LEGACY:
            assert run(drain(ports)), "a change cannot be delivered"
        else:
            for shard in range(self.facade.config.core.shards):
                while run(mirror_back(ports, shard)):
                    pass

    def connect(self) -> TripStore:
        """Another process's facade, in this one."""
        return TripStore(build(load_config(self.document)))


@contextmanager
def migration(
    servers: LocalServers,
    stores: Stores,
    *,
    postgres: str = "postgres",
    engine: str = "sqlite",
    wanted: Layout | None = None,
    tables: str | None = None,
    shards: int = 8,
    indexes: Sequence[Json] = (),
    **options: Any,
) -> Iterator[Migration]:
    """A company with capture on this flavour of Postgres, and a datastore that mirrors nothing yet."""
    wanted = wanted or layout()
    server = postgres_server(servers, FLAVOURS[postgres])
    core = stores.config(engine, shards=shards, indexes=list(indexes))
    if engine == "sqlite":
        core["datastore"] = wanted.datastore  # its files are its own
    wanted = Layout(core["datastore"], wanted.row_key, wanted.columns)
    if tables is None and engine == "sqlite":
        legacy = captured(server, wanted)
    else:
        legacy = Legacy(server, tables=tables or TABLES)
        legacy.install(wanted)
    legacy_options = {"postgres": legacy.url, "layout": wanted.to_document(), **PATIENT_LEGACY}
    document = {**core, "legacy": legacy_options, **options}
    store = TripStore(build(load_config(document)))
    try:
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        yield Migration(store, legacy, document)
    finally:
        store.close()


class Carrying:
    """A cell store whose mirror has what is read there: all that was put is carried before such a read."""

    def __init__(self, migration: Migration, before: Collection[str], store: TripStore | None = None) -> None:
        self._migration = migration
        self._before = before
        self._store = store or migration.store

    def using(self, **habits: Any) -> Carrying:
        return Carrying(self._migration, self._before, self._store.using(**habits))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in self._before:
            self._migration.carry()
            self._migration.duo.watch.look()
            catch_up(self._migration.facade.store)
        return method


LOG_READS = ("get_cells_for_shard", "get_cells_for_shards")
READS = (*LOG_READS, "query_index", "get_cell", "get_cell_latest", "get_cells", "get_cells_latest", "get_row")
#: Facades of the contract suite: the phase, and of the reads how many per cent go to the mirror.
FACADES = {f"facade {phase}": (phase, 0.0) for phase in Phase if phase is not Phase.COMPLETE} | {
    f"facade {phase} cohort": (phase, 100.0) for phase in (Phase.SHADOW, Phase.LIVE)
}


def as_cell_store(migration: Migration, facade: str) -> CellStore:
    """The migration's store in a phase of `FACADES`. Shard logs are Schemaless' own; a cohort's reads as well."""
    phase, cohort = FACADES[facade]
    migration.phase(phase, cohort)
    if phase is Phase.OFF:
        return migration.store
    return cast(CellStore, Carrying(migration, (*READS, "get_history") if cohort else LOG_READS))
