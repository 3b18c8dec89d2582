"""A datastore that was never closed says so when it is collected, and says by its repr which one it is."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import Datastore


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    clusters = {name: {"primary": f"sqlite:///{tmp_path / name}"} for name in ("a", "b")}
    return {"datastore": "trips", "shards": 4, "control": f"sqlite:///{tmp_path / 'control.db'}", "clusters": clusters}


def told() -> list[str]:
    """What a collection says of stores."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    return [str(each.message) for each in caught if "never closed" in str(each.message)]


def test_a_store_that_was_never_closed_says_so_once_the_last_of_its_kind_is_gone(config: dict[str, Any]) -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        store = Datastore.open(config)
        other = store.using(deadline=1.0)
        del store
        gc.collect()
        assert [each for each in caught if "never closed" in str(each.message)] == []
        del other
        gc.collect()
    [warning] = [each for each in caught if "never closed" in str(each.message)]
    assert str(warning.message).startswith("<Datastore trips: 4 shards on a, b> was never closed.")
    assert warning.category is ResourceWarning


def test_control_a_store_that_was_closed_says_nothing(config: dict[str, Any]) -> None:
    told()
    with Datastore.open(config) as store:
        other = store.using(deadline=1.0)
    del store, other
    assert told() == []


def test_the_repr_of_a_store_tells_no_password(config: dict[str, Any]) -> None:
    config["clusters"]["b"] = {"primary": "mysql://me:secret@127.0.0.1:1/"}
    with Datastore.open(config) as store:
        assert repr(store) == repr(store.using(deadline=1.0)) == "<Datastore trips: 4 shards on a, b>"
