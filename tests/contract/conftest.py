"""Fixtures of the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemaless_core import CellStore
from tests.stores import Stores


@pytest.fixture
def fresh_store(cell_store: str, stores: Stores) -> Iterator[CellStore]:
    """A store of this test's own."""
    with stores.lent(cell_store) as store:
        yield store
