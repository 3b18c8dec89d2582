"""The written module of a small company, imported once."""

from __future__ import annotations

from types import ModuleType

import pytest

from schemaless_core import MemoryStore
from schemaless_core.definitions.index import IndexDefinition
from tests.layouts import document
from tests.models import imported, written
from tripstore.backends.postgres.layout.reading import load_layout

_FIELDS = {
    "BASE": [{"field": "driver_uuid", "type": "UUID"}, {"field": "fare", "type": "decimal"}],
    "RATING": [{"field": "class", "type": "string"}, {"field": "stars", "type": "int"}],
}
_COLUMNS = [{"column_key": column, "fields": fields} for column, fields in _FIELDS.items()]
DRIVERS = IndexDefinition.from_document({"table": "driver_index", "column_defs": _COLUMNS}, "the test", "trips")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return imported(written(load_layout(document()), [DRIVERS]), tmp_path_factory.mktemp("models"))


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(shards=4, indexes=[DRIVERS], lagging_indexes=False)
