"""A company's Postgres with the row and the gate, and control and barrier over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.handovers import refreshed
from tests.legacy import FLAVOURS, legacy_server
from tests.legacy_backends import Company, company
from tripstore.backends.postgres.handover import barrier as barriers
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


@pytest.fixture
def trips(shared: Company) -> Iterator[Company]:
    yield refreshed(shared)
    barriers.barrier_of(shared.store.database, "trips").release()


@pytest.fixture
def control(trips: Company) -> RealControlPort:
    return RealControlPort(trips.store.database, "trips")


@pytest.fixture
def barrier(trips: Company, control: RealControlPort) -> barriers.Barrier:
    """Of this thread; the port decides on it."""
    return barriers.barrier_of(trips.store.database, "trips")
