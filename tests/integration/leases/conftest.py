"""Control databases of every engine, and coordinators over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.coordinator import (
    Coordinator,
)
from schemaless_core.triggers.leases.leases import Leases
from tests.integration.leases.groups import Opener, opener
from tests.stores import Stores
from tests.unit.coordinators import MemoryCoordinator


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    return opener(datastore_engine, stores)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    with closing(open_control()) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def leases(control: ControlDatabase) -> Leases:
    return Leases(control)


@pytest.fixture
def coordinator(store_engine: str, stores: Stores) -> Iterator[Coordinator]:
    if store_engine == "memory":
        yield MemoryCoordinator()
        return
    with closing(opener(store_engine, stores)()) as control:
        control.migrate()
        yield Leases(control)
