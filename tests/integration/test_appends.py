"""An append whose answer is lost: it may be stored, and a repeat is another event."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import Datastore, NodeUnavailable
from tests.stores import Stores


def test_an_append_that_ran_out_of_time_is_not_advised_to_be_repeated(
    datastore_engine: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a repeat does store the event twice, and a put at a ref key of its own may be repeated."""
    store, row_key, is_lossy = stores.fresh(datastore_engine, shards=2), uuid4(), True
    lose_answers(store, monkeypatch, lambda: is_lossy)

    with pytest.raises(NodeUnavailable) as lost:
        store.append_cell(row_key, "NOTES", "an event")
    with pytest.raises(NodeUnavailable) as of_put:
        store.put_cell(row_key, "BASE", 1, "a body")
    is_lossy = False

    assert "It may be stored: look at the column's history first" in str(lost.value)
    assert of_put.value.hint == "Repeat the call."
    assert store.put_cell(row_key, "BASE", 1, "a body").status == "EXISTS"
    store.append_cell(row_key, "NOTES", "an event")
    assert [cell.body for cell in store.get_history(row_key, "NOTES")] == ["an event", "an event"]


def lose_answers(store: Datastore, monkeypatch: pytest.MonkeyPatch, is_lossy: Any) -> None:
    """Puts do their work; their answers are lost on the way."""
    for cluster in store.clusters.values():
        node = cluster.primary.node
        real = node.put

        def put(*arguments: Any, real: Any = real) -> Any:
            answer = real(*arguments)
            if is_lossy():
                raise NodeUnavailable("a node", "it did not answer in time", hint="Repeat the call.", is_timeout=True)
            return answer

        monkeypatch.setattr(node, "put", put)
