"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from schemaless_core import Datastore
from schemaless_core.engine.base import IndexTable
from tests.integration.indexed import Indexed, IndexedFactory, indexed
from tests.stores import Stores


@pytest.fixture(scope="session")
def index_stores(stores: Stores) -> dict[str, Datastore]:
    """One datastore per engine for all tests of index tables: each test has tables of its own."""

    class OnDemand(dict[str, Datastore]):
        def __missing__(self, engine: str) -> Datastore:
            self[engine] = stores.fresh(engine)
            return self[engine]

    return OnDemand()


@pytest.fixture
def new_index(index_stores: dict[str, Datastore]) -> Iterator[IndexedFactory]:
    """Makes indexes on an engine, with a table of its own unless one is given."""
    with ExitStack() as opened:

        def fresh(engine: str, table: IndexTable | None = None) -> Indexed:
            made = indexed(index_stores[engine], table)
            opened.enter_context(closing(made.node))
            return made

        yield fresh


@pytest.fixture
def index(datastore_engine: str, new_index: IndexedFactory) -> Indexed:
    """An index on every engine of `Datastore`."""
    return new_index(datastore_engine)


@pytest.fixture
def server_index(server_engine: str, new_index: IndexedFactory) -> Indexed:
    """An index on every engine with a server."""
    return new_index(server_engine)
