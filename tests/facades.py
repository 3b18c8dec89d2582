"""Facades on real databases for tests: a captured company, a datastore beside it, and whatever carries between them."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.store import CellStore
from tests.databases import kept
from tests.indexing import catch_up
from tests.legacy import TABLES, Legacy, captured, layout
from tests.legacy_databases import FLAVOURS, UNUSED_TABLE, postgres_server, unused_layout
from tests.scale import SCALE
from tests.serving import serve
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.config import load_config
from tripstore.facade.facade import Duo, Facade
from tripstore.facade.flags import Comparing
from tripstore.facade.lag import BELIEVED_SECONDS
from tripstore.handover.authority import Backend
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.handover.switch import reverse, switch
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import Facts
from tripstore.migration.cutover.look import Looker
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import ReverseMirror, register_reverse
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

if TYPE_CHECKING:
    from tests.stores import Stores

#: Folders of datastores with their schema that are copied, by shards and indexes.
_TEMPLATES: dict[str, Path] = {}
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

    @cached_property
    def reverse_mirror(self) -> ReverseMirror:
        return Mirror(self.facade).reverse()

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
            serve(self.facade.store, self.reverse_mirror)

    def connect(self) -> TripStore:
        """Another process's facade, in this one."""
        return TripStore(build(load_config(self.document)))


#: As a role has them that ran `schema apply`. It is no superuser, and a member of none.
_RIGHTS = """
CREATE ROLE {role} LOGIN PASSWORD 'x';
GRANT USAGE, CREATE ON SCHEMA public, tripstore TO {role};
GRANT ALL ON ALL TABLES IN SCHEMA public, tripstore TO {role};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public, tripstore TO {role}
"""


@contextmanager
def as_other_role(made: Migration) -> Iterator[tuple[TripStore, str]]:
    """A facade whose role may read and write all tables and see no sessions but its own."""
    role = f"other_{uuid4().hex[:8]}"
    made.legacy.sql(_RIGHTS.format(role=role))
    url = re.sub(r"//[^@]*@", f"//{role}:x@", made.legacy.url)
    legacy = {**cast("dict[str, Any]", made.document["legacy"]), "postgres": url}
    with closing(replace(made, document={**made.document, "legacy": legacy}).connect()) as store:
        yield store, role


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
    is_copied = engine == "sqlite" and "clusters" not in options
    if engine == "sqlite":
        core["datastore"] = wanted.datastore  # its files are its own
    wanted = Layout(core["datastore"], wanted.row_key, wanted.columns)
    if engine == "sqlite":
        legacy = captured(server, wanted, tables or TABLES)
    else:
        legacy = Legacy(server, tables=tables or TABLES)
        legacy.install(wanted)
    legacy_options = {"postgres": legacy.url, "layout": wanted.to_document(), **PATIENT_LEGACY}
    document = {**core, "legacy": legacy_options, **options}
    if is_copied:
        _copy_template(core, legacy_options)
    store = TripStore(build(load_config(document)))
    try:
        if not is_copied:
            _create_schema(store)
        yield Migration(store, legacy, document)
    finally:
        store.close()


def folder_of(document: Mapping[str, Any]) -> Path:
    """Where the clusters' files of an embedded datastore are."""
    return Path(document["clusters"]["a"]["primary"].removeprefix("sqlite:///")).parent


def in_mirror(moving: Migration, statement: str, *values: object) -> None:
    """SQL of the test's own in the mirror's files; it changes one row of one of them."""
    changed = 0
    for cluster in ("a", "b"):
        file = folder_of(moving.document) / cluster / f"{moving.document['datastore']}.db"
        with closing(sqlite3.connect(file, timeout=20)) as connection, connection:
            changed += connection.execute(statement, values).rowcount
    assert changed == 1


def _copy_template(core: Mapping[str, Any], legacy: Mapping[str, Any]) -> None:
    """A datastore with its schema: the files of the first one like it."""
    folder, key = folder_of(core), repr((core["datastore"], core["shards"], core["indexes"]))
    if key not in _TEMPLATES:
        first = folder.with_name(f"{folder.name}_template")
        clusters = {name: {"primary": f"sqlite:///{first / name}"} for name in core["clusters"]}
        store = TripStore(build(load_config({**core, "clusters": clusters, "legacy": legacy})))
        _create_schema(store)
        store.close()
        _TEMPLATES[key] = first
    shutil.copytree(_TEMPLATES[key], folder)


def _create_schema(store: TripStore) -> None:
    store.facade.store.create_schema(status=ShardStatus.COPY)
    register_reverse(store.facade.store)


@dataclass
class _Carried:
    """What a test has put since all was carried, and when the mirror was looked at last."""

    is_carried: bool = False
    is_indexed: bool = False
    looked_at: float = field(default_factory=time.monotonic)


class Carrying:
    """A cell store whose mirror has what is read there: all that was put is carried before such a read.

    There is no thread that watches: a test that reads looks.
    """

    def __init__(
        self,
        migration: Migration,
        before: Collection[str],
        store: TripStore | None = None,
        carried: _Carried | None = None,
    ) -> None:
        self.migration = migration
        self._before = before
        self._store = store or migration.store
        self._carried = carried or _Carried()

    def using(self, **habits: Any) -> Carrying:
        return Carrying(self.migration, self._before, self._store.using(**habits), self._carried)

    def settle(self) -> None:
        """All that was put is carried, and indexed."""
        self._carry()
        if not self._carried.is_indexed:
            catch_up(self.migration.facade.store)
            self._carried.is_indexed = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in WRITES:
            self._carried.is_carried = self._carried.is_indexed = False
        elif name in self._before:
            self.settle() if name == "query_index" else self._carry()
            if time.monotonic() - self._carried.looked_at > BELIEVED_SECONDS / 2:
                self._look()
        return method

    def _carry(self) -> None:
        if not self._carried.is_carried:
            self.migration.carry()
            self._look()
            self._carried.is_carried = True

    def _look(self) -> None:
        self.migration.duo.watch.look()
        self._carried.looked_at = time.monotonic()


WRITES = ("put_cell", "put_cells", "append_cell")
LOG_READS = ("get_cells_for_shard", "get_cells_for_shards")
READS = (*LOG_READS, "query_index", "get_cell", "get_cell_latest", "get_cells", "get_cells_latest", "get_row")


class Kind(NamedTuple):
    """A facade of the contract suite: its phase, how many per cent of the reads go to the mirror, and on what."""

    phase: Phase
    cohort: float = 0.0
    engine: str = "sqlite"
    postgres: str = "postgres"

    @property
    def name(self) -> str:
        servers = [server for server in (self.engine, self.postgres) if server not in ("sqlite", "postgres")]
        return " ".join(["facade", self.phase, *(["cohort"] if self.cohort else []), *servers])


_COHORTS = (Kind(Phase.SHADOW, 100.0), Kind(Phase.LIVE, 100.0))
#: What the servers do differently shows at full scale.
_SERVERS = [
    kind._replace(engine=engine, postgres=postgres)
    for engine, postgres in (("mariadb", "postgres18"), ("mysql", "postgres"))
    for kind in (Kind(Phase.SHADOW), Kind(Phase.LIVE), *_COHORTS)
]
FACADES = {kind.name: kind for kind in [*map(Kind, Phase), *_COHORTS, *(_SERVERS if SCALE >= 1 else [])]}
#: Each backend as the authority, and one as the mirror: the other phases call the same ones.
FACADES_IN_SHORT = tuple(FACADES) if SCALE >= 1 else ("facade off", "facade live cohort")


def as_cell_store(migration: Migration, kind: Kind) -> CellStore:
    """The migration's store in a phase. Shard logs are Schemaless' own; a cohort's reads as well."""
    not_compared = Comparing(share=0.0)
    migration.facade.flags.change(lambda flags: replace(flags, comparing=not_compared), "test.not_compared")
    migration.phase(kind.phase, kind.cohort)
    migration.facade.begin()
    migration.duo.watch.close()
    if kind.phase is Phase.OFF:
        return migration.store
    before = (*READS, "get_history") if kind.cohort else LOG_READS
    return cast(CellStore, Carrying(migration, before))


class Facades:
    """Facades of cells that no table holds. An embedded one that was lent is emptied, and lent again."""

    def __init__(self, servers: LocalServers, stores: Stores) -> None:
        self._servers = servers
        self._stores = stores
        self._exits = ExitStack()
        self._spare: dict[str, list[_Emptied]] = defaultdict(list)

    def fresh(self, name: str, shards: int, indexes: Sequence[Json] = ()) -> CellStore:
        """One that is there until the end of the run."""
        return self._exits.enter_context(self._made(FACADES[name], shards, indexes))

    @contextmanager
    def lent(self, name: str, shards: int) -> Iterator[CellStore]:
        """One for a test."""
        kind = FACADES[name]
        if kind.engine != "sqlite":
            with self._made(kind, shards) as store:
                yield store
            return
        spare = self._spare[name]
        emptied = spare.pop() if spare else self._emptied(kind, shards)
        with emptied.opened() as migration:
            yield as_cell_store(migration, kind)
        spare.append(emptied)

    def close(self) -> None:
        self._exits.close()

    @contextmanager
    def _made(self, kind: Kind, shards: int, indexes: Sequence[Json] = ()) -> Iterator[CellStore]:
        with migration(
            self._servers,
            self._stores,
            postgres=kind.postgres,
            engine=kind.engine,
            wanted=unused_layout(),
            tables=UNUSED_TABLE,
            shards=shards,
            indexes=indexes,
        ) as made:
            yield as_cell_store(made, kind)

    def _emptied(self, kind: Kind, shards: int) -> _Emptied:
        options: dict[str, Any] = {"wanted": unused_layout(), "tables": UNUSED_TABLE, "shards": shards}
        with kept(), migration(self._servers, self._stores, postgres=kind.postgres, **options) as made:
            made.phase(kind.phase, kind.cohort)
        return _Emptied(made)


_EMPTY = """
SET tripstore.origin = 'reverse';
DELETE FROM tripstore.cell; DELETE FROM tripstore.queue; DELETE FROM tripstore.log; DELETE FROM tripstore.numbered
"""


class _Emptied:
    """Databases without a cell: Postgres' is emptied before each use, Schemaless' files are copied."""

    def __init__(self, made: Migration) -> None:
        self._made = made
        self._folder = folder_of(made.document)
        self._kept = self._folder.with_name(f"{self._folder.name}_kept")
        shutil.copytree(self._folder, self._kept)

    @contextmanager
    def opened(self) -> Iterator[Migration]:
        self._made.legacy.sql(_EMPTY)
        shutil.rmtree(self._folder)
        shutil.copytree(self._kept, self._folder)
        with self._made.connect() as store:
            yield replace(self._made, store=store)


def facts_of(made: Migration, later: timedelta = timedelta()) -> Facts:
    """What the gates look at, now or `later`."""
    config = made.facade.config
    assert config.legacy is not None
    control, flags, settings = made.duo.ports.control, made.facade.flags, config.cutover

    def now() -> datetime:
        return datetime.now(UTC) + later

    return Looker(config.legacy, made.duo.legacy, made.facade.store, control, flags, settings, now).facts()
