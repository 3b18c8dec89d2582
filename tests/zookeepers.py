"""Leases in a ZooKeeper: the run's, or one of a test's own that may be killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.zookeeper.ensemble import Ensemble
from schemaless_core.triggers.zookeeper.leases import ZooKeeperLeases
from schemaless_core.urls import parse_zookeeper_url
from tripstore.local.servers import LocalServers
from tripstore.local.zookeeper import ZooKeeperServer

ZOOKEEPER = "zookeeper"
#: So long that a busy machine ends no connection; and so short that one is given up within a test.
SESSION_SECONDS, SHORT_SESSION_SECONDS = 30.0, 4.0
CALL_SECONDS = 20.0
#: Of a group whose leases are made anew.
SHARDS = 8

_numbers = itertools.count(1)


def zookeeper_of(request: pytest.FixtureRequest) -> ZooKeeperServer:
    """The run's. Only a test that needs it starts it."""
    found = request.getfixturevalue(ZOOKEEPER)
    assert isinstance(found, ZooKeeperServer), f"a fixture of another kind: {found}"
    return found


def new_datastore() -> str:
    """A name that no other test has."""
    return f"t{next(_numbers)}"


@contextmanager
def another_zookeeper(servers: LocalServers) -> Iterator[ZooKeeperServer]:
    """One that no other test uses."""
    server = servers.zookeeper(f"zookeeper-{next(_numbers)}")
    try:
        yield server
    finally:
        server.close()


def ensemble_at(
    url: str,
    datastore: str | None = None,
    *,
    session_seconds: float = SESSION_SECONDS,
    call_seconds: float = CALL_SECONDS,
) -> Ensemble:
    """A connection of its own, as another process has it; without a name for a datastore that no other test has."""
    return Ensemble(parse_zookeeper_url("url", url), datastore or new_datastore(), session_seconds, call_seconds)


@contextmanager
def leases_in(
    server: ZooKeeperServer,
    control: ControlDatabase,
    datastore: str | None = None,
    *,
    session_seconds: float = SESSION_SECONDS,
) -> Iterator[ZooKeeperLeases]:
    with closing(ensemble_at(server.url, datastore, session_seconds=session_seconds)) as ensemble:
        yield ZooKeeperLeases(ensemble, Leases(control), SHARDS)
