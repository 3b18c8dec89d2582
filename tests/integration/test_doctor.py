"""What the doctor finds on real servers."""

import pytest

from schemaless_core.engine.base import Fact
from tests.stores import SERVER_ENGINES, Stores


@pytest.mark.parametrize("engine", SERVER_ENGINES)
def test_a_table_cache_that_is_divided_too_finely_is_named(engine: str, stores: Stores) -> None:
    node = stores.fresh(engine).clusters["a"].primary.node

    def found(shards: int) -> list[Fact]:
        facts = node.facts(is_replica=False, shards=shards)
        return [fact for fact in facts if fact.name == "table_open_cache_instances"]

    if engine == "mariadb":
        assert found(8) == []  # it divides its cache only under contention
    else:
        assert [fact.is_fine for fact in found(8) + found(10_000_000)] == [True, False]
