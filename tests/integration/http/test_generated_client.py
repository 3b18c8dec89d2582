"""A client that was generated from the OpenAPI document passes the contract suite of cells."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import cast

import pytest

from schemaless_core import CellStore
from tests.contract import test_cells
from tests.generated_clients import GeneratedStore, generate
from tests.http_clients import Served
from tests.stores import Stores

#: Those that need one store, and no cells of megabytes.
CONTRACT = {
    name: test
    for name, test in vars(test_cells).items()
    if name.startswith("test_")
    and list(inspect.signature(test).parameters) == ["store"]
    and not any(word in name for word in ("mebibytes", "packet", "thousands"))
}


@pytest.fixture(scope="module")
def generated(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedStore]:
    folder = tmp_path_factory.mktemp("client")
    generate(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        below = stores.fresh("sqlite")
        served = Served(below)
        with closing(served), closing(GeneratedStore(served, below)) as store:
            yield store


@pytest.mark.parametrize("test", CONTRACT.values(), ids=CONTRACT)
def test_it_keeps_the_contract(generated: GeneratedStore, test: Callable[[CellStore], None]) -> None:
    test(cast(CellStore, generated))
