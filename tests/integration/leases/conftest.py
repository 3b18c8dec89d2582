"""Control databases of every engine, and leases in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.leases import Leases
from tests.integration.leases.groups import Opener, opener
from tests.stores import Stores


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    return opener(datastore_engine, stores)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    with closing(open_control()) as opened:
        yield opened


@pytest.fixture
def leases(control: ControlDatabase) -> Leases:
    return Leases(control)
