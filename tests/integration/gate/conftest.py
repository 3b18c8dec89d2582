"""A company behind the gate."""

from __future__ import annotations

import pytest

from tests.legacy import FLAVOURS, Legacy, captured, layout, legacy_server
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.capture.install import GateFunctions
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = captured(legacy_server(servers, flavour))
    id_, _ = made.trip("before")
    made.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'before')", id_)
    return made


@pytest.fixture
def warned(legacy: Legacy) -> Legacy:
    """Direct writers are only warned."""
    with legacy.ours() as connection:
        GateFunctions(layout(), warns=True).apply(connection, lambda _done, _total: None)
        assert [each for each in verify(connection, layout(), warns=True) if each.is_error] == []
        assert [each for each in verify(connection, layout()) if each.is_error] != []
    return legacy
