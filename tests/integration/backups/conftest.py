"""A datastore on real servers to back up."""

from __future__ import annotations

import pytest

from schemaless_core import Datastore
from tests.backups import SHARDS
from tests.stores import ServerEngine, Stores


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=SHARDS)
