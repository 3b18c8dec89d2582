"""A process learns where shards are at its first use; who has not answered yet has not said that there are none."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Datastore, InvalidRequest, SchemaMissing, Unavailable
from schemaless_core.deadline import Deadline
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.places import Places
from tests.factories import make_cell
from tests.stores import Stores

#: Sources are asked and not waited for: over before any of them can answer.
NO_TIME = 1e-9
TIME = 10.0
#: Enough for a server that answers.
SOME_TIME = 1.0


def places(store: Datastore, first_look_seconds: float) -> Places:
    return Places(store.config.shards, store.clusters, store.control, first_look_seconds)


def test_who_is_silent_at_the_first_look_has_the_calls_own_time(datastore_engine: str, stores: Stores) -> None:
    store = stores.fresh(datastore_engine)

    assert places(store, NO_TIME).get(0, Deadline(TIME)).cluster == "a"


def test_no_server_is_asked_again_once_the_shard_is_known(
    datastore_engine: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although one of several is silent: a fleet that begins anew does not look twice."""
    store = stores.fresh(datastore_engine)
    silent, other = (store.clusters[name].primary.node for name in "ba")
    counted, is_over, asked = other.shard_count, threading.Event(), list[Deadline]()

    def be_silent(_deadline: Deadline) -> None:
        is_over.wait(TIME)

    def answer(deadline: Deadline) -> int | None:
        asked.append(deadline)
        return counted(deadline)

    monkeypatch.setattr(silent, "shard_count", be_silent)
    monkeypatch.setattr(other, "shard_count", answer)
    try:
        assert places(store, SOME_TIME).get(0, Deadline(TIME)).cluster == "a"
    finally:
        is_over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("schemaless-look"):
            thread.join(TIME)  # a look that was asked for is made, at the latest now

    assert len(asked) == 1


def test_silence_is_not_taken_for_a_datastore_without_shards(datastore_engine: str, stores: Stores) -> None:
    store = stores.fresh(datastore_engine)

    with pytest.raises(Unavailable, match="It is unknown where shard 0 is"):
        places(store, NO_TIME).get(0, Deadline(NO_TIME))


def test_a_server_that_is_down_is_named_with_its_reason(tmp_path: Path) -> None:
    config = {
        "datastore": "trips",
        "shards": 1,
        "clusters": {"a": {"primary": "mysql://root:secret@127.0.0.1:1"}},
        "control": f"sqlite:///{tmp_path}",
    }
    with Datastore.open(config) as store, pytest.raises(Unavailable) as refused:
        store.get_cell(UUID(int=7), "BASE", 1)

    assert re.search(r"shard 0 is: .*127\.0\.0\.1:1 is unavailable: .*refused", str(refused.value))
    assert "secret" not in str(refused.value)


def test_a_mapping_is_opened_and_not_constructed_from() -> None:
    with pytest.raises(InvalidRequest, match=r"DatastoreConfig, and was given a dict\. Datastore\.open\(\) takes"):
        Datastore({"datastore": "trips"})  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("is_batch", [False, True])
def test_i3_a_call_that_is_refused_while_another_thread_learns_is_made_again(
    datastore_engine: str, stores: Stores, monkeypatch: pytest.MonkeyPatch, *, is_batch: bool
) -> None:
    """It compares with the place that it went by. What is known by then is right already, and was no reason to end."""
    store, cell = stores.fresh(datastore_engine), make_cell()
    store.get_cell(*cell.key)
    asked, write = list[str](), Cluster.write

    def raised_meanwhile(cluster: Cluster, *call: Any) -> Any:
        asked.append(cluster.name)
        if len(asked) == 1:
            before = {shard: store._places.get(shard, Deadline(TIME)) for shard in range(store.config.shards)}
            for each in store.clusters.values():
                each.primary.node.open_to_owners(1, Deadline(TIME))
            assert store._places.learn(before, Deadline(TIME)) == before.keys()
        return write(cluster, *call)

    monkeypatch.setattr(Cluster, "write", raised_meanwhile)
    put = store.put_cells([cell])[0] if is_batch else store.put_cell(*cell.key, cell.body)

    assert put.status == "CREATED"
    assert len(asked) == 2, "it was refused once"


@pytest.mark.parametrize("first_look_seconds", [TIME, NO_TIME])
def test_a_datastore_without_shards_is_said_to_have_none(
    datastore_engine: str, stores: Stores, first_look_seconds: float
) -> None:
    with Datastore.open(stores.config(datastore_engine)) as store:
        asked = places(store, first_look_seconds)

        for _first_and_later in range(2):
            with pytest.raises(SchemaMissing, match="no shards yet"):
                asked.get(0, Deadline(TIME))
