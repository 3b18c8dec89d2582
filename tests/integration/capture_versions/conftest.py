"""Companies with capture installed, one per layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.legacy import (
    FLAVOURS,
    Legacy,
    captured,
    legacy_server,
)
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.fixture(params=FLAVOURS)
def make(request: pytest.FixtureRequest, servers: LocalServers) -> Callable[..., Legacy]:
    """Databases on one flavour of Postgres."""
    flavour: Flavour = request.param
    return lambda **options: Legacy(legacy_server(servers, flavour), **options)


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    return captured(legacy_server(servers, flavour))
