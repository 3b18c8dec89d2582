"""What callers may rely on for indexes, whichever store stands behind them. A store earns its place by passing it."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    CellStore,
)
from schemaless_core.indexes import lookup
from tests.contract.query_index.asking import DEFINITIONS, Indexed
from tests.stores import Stores
from tripstore.backends.postgres.queries import queries


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries look at so few entries, cells and rows at once that they must come back for more."""
    monkeypatch.setattr(lookup, "ENTRIES_PER_PAGE", 2)
    monkeypatch.setattr(lookup, "CELLS_PER_PAGE", 3)
    monkeypatch.setattr(queries, "ROWS_PER_PORTION", 3)


@pytest.fixture(scope="module")
def indexed_stores(stores: Stores) -> Indexed:
    """Stores with the first indexes above, for most tests of this file."""
    return Indexed(stores, DEFINITIONS)


@pytest.fixture
def store(cell_store: str, indexed_stores: Indexed) -> CellStore:
    return indexed_stores[cell_store]


@pytest.fixture
def driver() -> UUID:
    return uuid4()
