"""A primary and its standby, with a company on both of them: for tests of an address that leads to the wrong one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from uuid import UUID

import pytest

from tests.chaos.actors import wait_until
from tests.legacy import Legacy, captured
from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.local.standby import StandbyServer

OLD, TRUE = "1.00", "4711.00"


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
