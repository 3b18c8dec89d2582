"""Second copies of cells whose row was purged leave the buffers: no replica ever has such a cell (I2, I5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Datastore, PutStatus
from schemaless_core.buffers import replayer
from schemaless_core.buffers.ports import Differs, Fate
from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.base import Stored
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import FailpointReached
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.integration.test_second_copies import carry, copies
from tests.promoted import DEADLINES
from tests.purges import purge
from tests.repairs import doing_at, failing_at
from tests.stores import ServerEngine
from tripstore.local.binlog import BinlogServer
from tripstore.local.servers import LocalServers

_FATE = replayer._fate


class Doubled(NamedTuple):
    """Cluster a has a replica; b and c keep second copies of its cells."""

    store: Datastore
    primary: BinlogServer


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Doubled]:
    with LocalServers() as servers:
        a = servers.cluster(server_engine, "a", replicas=1)
        others = {name: servers.cluster(server_engine, name, replicas=0).primary for name in "bc"}
        document = {
            "datastore": "trips",
            "shards": 6,
            "clusters": {
                "a": {"primary": a.primary.url, "replicas": [each.url for each in a.replicas]},
                **{name: {"primary": server.url} for name, server in others.items()},
            },
            "control": f"sqlite:///{tmp_path}/control",
            "deadlines": DEADLINES,
            "buffer": {"put_seconds": 5.0},
        }
        with Datastore.open(document) as store:
            store.create_schema()
            a.wait_for_replicas()
            yield Doubled(store, a.primary)


def as_if_it_were_there(stored: Stored, cell: NewCell) -> Fate | Differs:
    """The rule is broken: a purged cell waits for its replicas. For the controls."""
    found = _FATE(stored, cell)
    return Fate.THERE if found is Fate.PURGED else found


def check_left(store: Datastore, row_key: UUID, count: int) -> None:
    """So many copies wait; each round that asks replicas leaves them. Then none does."""
    assert sum(copies(store).values()) == count
    with patch.object(replayer, "_fate", as_if_it_were_there):
        assert carry(store) == 0, "control: they wait for ever"
    assert sum(copies(store).values()) == count
    with failing_at("replay.settle"), pytest.raises(FailpointReached):
        carry(store)
    assert sum(copies(store).values()) == count

    assert carry(store) == count

    assert copies(store) == {}
    assert store.using(include_buffered=True).get_row(row_key) == {}, "its body is readable nowhere"
    assert store.replayer().columns() == set()


def test_i2_i5_a_cell_that_two_buffers_kept_of_a_purged_row_is_dropped(made: Doubled) -> None:
    """Its cluster was down, so it was not told that the row is purged."""
    store = made.store
    (row_key,) = rows_on(store, "a", 1)
    store.put_cell(row_key, "BASE", 1, "forgotten")
    purge(store, row_key)
    made.primary.kill()
    late = store.using(durability="double", deadline=5.0).put_cell(row_key, "BASE", 2, "late")
    assert late.status is PutStatus.BUFFERED
    made.primary.start()
    wait_until("the primary is there again", lambda: answers(store, row_key), 20.0)

    check_left(store, row_key, 2)


def test_i2_i5_a_second_copy_that_comes_after_the_purge_is_dropped(made: Doubled) -> None:
    """The put is stored, and pauses before its second copy is kept; meanwhile its row is purged."""
    store = made.store
    (row_key,) = rows_on(store, "a", 1)

    with doing_at("buffer.keep", lambda: purge(store, row_key)):
        put = store.using(durability="double", deadline=60.0).put_cell(row_key, "BASE", 1, "forgotten")

    assert put.status is PutStatus.CREATED
    check_left(store, row_key, 1)


def answers(store: Datastore, row_key: UUID) -> bool:
    try:
        return store.get_row(row_key) == {}
    except SchemalessError:
        return False
