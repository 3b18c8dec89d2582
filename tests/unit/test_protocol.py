"""Every store has the verbs of `CellStore`, with the same parameters: for mypy, and once more at runtime."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import CellStore, Datastore, MemoryStore

VERBS = [
    "append_cell", "checksum", "close", "get_cell", "get_cell_latest", "get_cells", "get_cells_for_shard",
    "get_cells_for_shards", "get_cells_latest", "get_history", "get_row", "put_cell", "put_cells", "query_index",
    "scan_rows", "shard_of", "using",
]  # fmt: skip


def parameters(method: Callable[..., Any]) -> list[tuple[str, inspect._ParameterKind]]:
    return [(name, parameter.kind) for name, parameter in inspect.signature(method).parameters.items()]


def defaults(method: Callable[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(method).parameters.items()}


def test_the_protocol_has_the_promised_verbs() -> None:
    assert sorted(name for name in vars(CellStore) if not name.startswith("_")) == VERBS


@pytest.mark.parametrize("store", [Datastore, MemoryStore])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_parameters_of_the_protocol(store: type, verb: str) -> None:
    assert parameters(getattr(store, verb)) == parameters(getattr(CellStore, verb))


@pytest.mark.parametrize("store", [Datastore, MemoryStore])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "using"])  # it keeps what is not named
def test_a_verb_has_the_defaults_of_the_protocol(store: type, verb: str) -> None:
    assert defaults(getattr(store, verb)) == defaults(getattr(CellStore, verb))


def test_stores_are_cell_stores_for_the_type_checker(tmp_path: Path) -> None:
    """What mypy checks here is that both assignments are allowed."""
    url = f"sqlite:///{tmp_path}"
    with Datastore.open({"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": url}}}) as datastore:
        stores: list[CellStore] = [datastore, MemoryStore(shards=2)]
        others: list[CellStore] = [store.using(deadline=1.0) for store in stores]

    assert [type(store) for store in others] == [Datastore, MemoryStore]
