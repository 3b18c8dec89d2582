"""For pytest: the fixture `tripstore` is a store of the test's own. Each run loads this, so it imports late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from schemaless_core.store import CellStore

CONFIG = "--tripstore-config"
INDEXES = "tripstore_indexes"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tripstore")
    group.addoption(CONFIG, metavar="FILE", help="the fixture `tripstore` opens the stores of this configuration")
    parser.addini(INDEXES, "folder of the index definitions that the fixture `tripstore` has while it is a MemoryStore")


@pytest.fixture
def tripstore(pytestconfig: pytest.Config) -> Iterator[CellStore]:
    """A store: a `MemoryStore`, empty for each test, or, with --tripstore-config, what that file names."""
    file = pytestconfig.getoption(CONFIG)
    with _stores_of(Path(file)) if file else _in_memory(pytestconfig) as store:
        yield store


def _stores_of(file: Path) -> CellStore:
    from tripstore.wiring import connect

    return connect(file)


def _in_memory(pytestconfig: pytest.Config) -> CellStore:
    from schemaless_core.definitions.index import load_definitions
    from schemaless_core.memory import MemoryStore

    folder = pytestconfig.getini(INDEXES)
    return MemoryStore(indexes=load_definitions(folder or None, pytestconfig.rootpath, "trips"))
