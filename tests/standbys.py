"""A primary and its standby, with a company on both of them: for tests of an address that leads to the wrong one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Json, ShardStatus
from tests.chaos.actors import wait_until
from tests.facades import PATIENT_LEGACY, Migration
from tests.legacy import FLAVOURS, Legacy, captured, layout
from tests.legacy_backends import SHARDS
from tests.mirrors import QUICK
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.config import load_config
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.proxy import Proxy
from tripstore.local.servers import LocalServers
from tripstore.local.standby import StandbyServer
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort
from tripstore.store import TripStore
from tripstore.wiring import build

OLD, TRUE = "1.00", "4711.00"
#: What Postgres does when it is promoted is the same in both: CI sees it in one.
FAILING_OVER = FLAVOURS if SCALE >= 1 else FLAVOURS[:1]


@dataclass(frozen=True)
class Pair:
    """A primary and the standby that follows it; a trip whose fare has changed since the standby paused."""

    primary: PostgresServer
    standby: StandbyServer
    legacy: Legacy
    row_key: UUID

    @property
    def url(self) -> str:
        """The company's database on the standby."""
        return f"{self.standby.url}/{self.legacy.name}"

    def set_fare(self, fare: str) -> None:
        self.legacy.sql("UPDATE trips SET fare = %s WHERE trip_uuid = %s", fare, str(self.row_key))


def cut_off(standby: StandbyServer) -> None:
    """It gets nothing any more: whatever the primary writes from now on it lacks when it is promoted."""
    standby.query("ALTER SYSTEM SET primary_conninfo = ''")
    standby.query("SELECT pg_reload_conf()")
    wait_until("nothing is received", lambda: not standby.query("SELECT 1 FROM pg_stat_wal_receiver"))


def pair(servers: LocalServers, flavour: Flavour, name: str) -> Pair:
    try:
        primary = servers.postgres(f"{name}-{flavour}", flavour=flavour, settings={"fsync": "off"})
    except LocalServerError as error:
        pytest.fail(str(error)) if os.environ.get("CI") else pytest.skip(str(error))
    legacy = captured(primary)
    _, row_key = legacy.trip()
    made = Pair(primary, servers.standby(f"{name}-{flavour}-standby", primary), legacy, row_key)
    made.set_fare(OLD)
    made.standby.catch_up()
    made.standby.query("SELECT pg_wal_replay_pause()")
    made.set_fare(TRUE)
    return made


def restore(backup: StandbyServer, primary: PostgresServer, point: str) -> None:
    """Start a base backup, never started before, and have it recover up to a restore point from the primary's WAL.

    That stands for the archive: nothing is recycled in a test. Postgres then begins a timeline of its own.
    """
    settings = {
        "restore_command": f"cp {primary.place.data}/pg_wal/%f %p",
        "recovery_target_name": point,
        "recovery_target_action": "promote",
    }
    data = backup.place.data
    with open(data / "postgresql.conf", "a", encoding="utf-8") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    (data / "standby.signal").rename(data / "recovery.signal")
    backup.start()
    wait_until("the restore is over", lambda: not backup.query("SELECT pg_is_in_recovery() AS r")[0]["r"])


#: A pair of its own for each test: what is promoted follows no primary any more.
NUMBERS = count()


@dataclass(frozen=True)
class FailingOver:
    """A pair, the address that may lead to either, and a facade that knows the address alone."""

    pair: Pair
    proxy: Proxy
    store: TripStore
    document: Mapping[str, Any]

    @property
    def hands(self) -> Migration:
        return Migration(self.store, self.pair.legacy, self.document)

    def fare(self) -> object:
        cell = self.store.get_cell_latest(self.pair.row_key, "BASE")
        assert cell is not None
        assert isinstance(cell.body, dict)
        return cell.body["fare"]

    def relay(self) -> bool:
        """Carry all changes."""
        assert self.store.facade.duo is not None
        return run(drain(self.store.facade.duo.ports))

    def mirrored(self) -> object:
        cell = self.store.facade.store.get_cell_latest(self.pair.row_key, "BASE")
        return cell and isinstance(cell.body, dict) and cell.body["fare"]

    def follow(self) -> None:
        """Have the standby replay all that is written, and go on with that."""
        self.pair.standby.query("SELECT pg_wal_replay_resume()")
        self.pair.standby.catch_up()

    def shadowed(self, *, guards: bool = True) -> Migration:
        """In the phase shadow; the standby follows, and has the guard if there is one."""
        hands = self.hands
        self.follow()
        control = hands.duo.ports.control
        assert isinstance(control, RealControlPort)
        if guards:
            assert control.guard() == []
        hands.phase(Phase.SHADOW)
        hands.duo.watch.close()
        self.pair.standby.catch_up()
        return hands

    def make_durable(self) -> None:
        """Nothing is copied from a server that may forget what it has committed."""
        for ask in (self.pair.primary.query, self.pair.standby.query):
            ask("ALTER SYSTEM SET fsync = on")
            ask("SELECT pg_reload_conf()")

    def lose_the_primary(self) -> None:
        """What the standby lacks is gone with it."""
        self.proxy.lead_to(self.pair.standby.port)
        self.pair.primary.kill()
        self.pair.standby.promote()


@contextmanager
def fail_over(
    servers: LocalServers, stores: Stores, flavour: Flavour, *, indexes: Sequence[Json] = (), **options: Any
) -> Iterator[FailingOver]:
    """A facade whose address is a proxy's: it leads to the primary at first."""
    name = f"lost{next(NUMBERS)}"
    made = pair(servers, flavour, name)
    proxy = made.primary.proxy()
    core = stores.config("sqlite", shards=SHARDS, indexes=list(indexes)) | {"datastore": "trips"}
    url = f"{proxy.url}/{made.legacy.name}"
    legacy = {"postgres": url, "layout": layout().to_document(), **PATIENT_LEGACY}
    document = {**core, "legacy": legacy, "triggers": QUICK, **options}
    try:
        with TripStore(build(load_config(document))) as store:
            store.facade.store.create_schema(status=ShardStatus.COPY)
            register_reverse(store.facade.store)
            yield FailingOver(made, proxy, store, document)
    finally:
        # A soak makes hundreds of them, and what a test adds has their name, too.
        for server in servers.servers:
            if server.name.startswith(f"{name}-"):
                server.close()
                shutil.rmtree(server.place.data, ignore_errors=True)
