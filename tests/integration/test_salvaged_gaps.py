"""What is behind more purged ids than one look brings is salvaged, and brought by a datastore that comes back (I1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.errors import LogHole
from schemaless_core.promotion.salvage import Salvage
from tests.backups import empty
from tests.damage import execute
from tests.following import copied_logs, following, logs_of, promoted, wait_until_whole
from tests.fscks import row_of
from tests.stores import ServerEngine, Stores

#: Purged ids that one look brings. It is 10,000 elsewhere.
LOOK = 5
#: Where the constant is bound.
BOUND = ("schemaless_core.engine.purged", "schemaless_core.engine.mysql.log", "schemaless_core.engine.sqlite.reads")


@pytest.fixture(autouse=True)
def _few_per_look() -> Iterator[None]:
    with ExitStack() as patches:
        for module in BOUND:
            patches.enter_context(patch(f"{module}.PURGED_PER_LOOK", LOOK))
        yield


def purge_ids(store: Datastore, first: int, last: int) -> None:
    """As purge leaves the log of shard 0."""
    execute(store, 0, "DELETE FROM {cell} WHERE added_id BETWEEN %s AND %s AND {of}", first, last)
    for added_id in range(first, last + 1):
        execute(store, 0, "INSERT INTO {purged} (shard, added_id, at) VALUES (0, %s, '2026-01-01')", added_id)


def lost_behind(store: Datastore, fork: int) -> list[int]:
    """Ref keys of what a salvage finds in the log of shard 0."""
    salvage = Salvage.__new__(Salvage)  # it looks at the old primary alone
    salvage._old = store.clusters["a"].primary.node
    return [cell.ref_key for _shard, cells in salvage._lost({0: fork}) for cell in cells]


def logged(datastore_engine: str, stores: Stores) -> Datastore:
    """Added ids and ref keys from 1 to 40."""
    store = stores.fresh(datastore_engine, shards=1)
    row = row_of(store, 0)
    for n in range(1, 41):
        store.put_cell(row, "BASE", n, {})
    return store


@pytest.mark.parametrize("fork", [1, 11, 12])
def test_i1_what_is_behind_purged_ids_is_salvaged(fork: int, datastore_engine: str, stores: Stores) -> None:
    with logged(datastore_engine, stores) as store:
        purge_ids(store, 11, 30)
        purge_ids(store, 39, 40)

        found = lost_behind(store, fork)

    assert found == [n for n in range(fork, 39) if not 11 <= n <= 30]


def test_i12_a_hole_in_the_log_ends_a_salvage_aloud(datastore_engine: str, stores: Stores) -> None:
    with logged(datastore_engine, stores) as store:
        execute(store, 0, "DELETE FROM {cell} WHERE added_id > %s AND {of}", 30)

        with pytest.raises(LogHole, match="added id 31"):
            lost_behind(store, 11)


def test_i1_a_datastore_that_comes_back_brings_what_is_behind_purged_ids(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with (
        stores.fresh(server_engine, shards=1) as store,
        empty(stores, server_engine, shards=1, clusters="b") as standby,
    ):
        first = [row_of(store, 0) for _ in range(30)]
        store.put_cells([Cell(row, "BASE", 1, {}) for row in first[:10]])
        with following(standby, store):
            wait_until_whole(standby, store)
        store.put_cells([Cell(row, "BASE", 1, {}) for row in first[10:]])
        purge_ids(store, 11, 30)
        behind = [row_of(store, 0) for _ in range(8)]
        store.put_cells([Cell(row, "BASE", 1, {}) for row in behind])

        promoted(standby, store, is_forced=True)
        with following(store, standby):
            wait_until_whole(store, standby)

        assert all(standby.get_cell(row, "BASE", 1) is not None for row in behind)
        assert copied_logs(store) == logs_of(standby)
