"""A process learns where shards are at its first use; who has not answered yet has not said that there are none."""

from __future__ import annotations

import pytest

from schemaless_core import Datastore, SchemaMissing, Unavailable
from schemaless_core.deadline import Deadline
from schemaless_core.places import Places
from tests.stores import Stores

#: Sources are asked and not waited for: over before any of them can answer.
NO_TIME = 1e-9
TIME = 10.0


def places(store: Datastore, first_look_seconds: float) -> Places:
    return Places(store.config.shards, store.clusters, store.control, first_look_seconds)


def test_who_is_silent_at_the_first_look_has_the_calls_own_time(datastore_engine: str, stores: Stores) -> None:
    store = stores.fresh(datastore_engine)

    assert places(store, NO_TIME).get(0, Deadline(TIME)).cluster == "a"


def test_silence_is_not_taken_for_a_datastore_without_shards(datastore_engine: str, stores: Stores) -> None:
    store = stores.fresh(datastore_engine)

    with pytest.raises(Unavailable, match="Nobody can say where shard 0 is"):
        places(store, NO_TIME).get(0, Deadline(NO_TIME))


@pytest.mark.parametrize("first_look_seconds", [TIME, NO_TIME])
def test_a_datastore_without_shards_is_said_to_have_none(
    datastore_engine: str, stores: Stores, first_look_seconds: float
) -> None:
    with Datastore.open(stores.config(datastore_engine)) as store:
        asked = places(store, first_look_seconds)

        for _first_and_later in range(2):
            with pytest.raises(SchemaMissing, match="no shards yet"):
                asked.get(0, Deadline(TIME))
