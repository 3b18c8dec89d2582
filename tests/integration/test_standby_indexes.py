"""Indexes of a datastore that leads again: their answers are refused or right, and never those of before (I6)."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore, Unavailable
from schemaless_core.errors import SchemaMissing
from schemaless_core.failpoints import FailpointReached
from schemaless_core.indexes.indexes import Indexes
from tests.backups import INDEX, empty, expire
from tests.chaos.actors import wait_until
from tests.following import Follower, begun, dying_at, following, promoted, wait_until_whole
from tests.fscks import row_of
from tests.indexing import catch_up, only_maintained
from tests.integration.test_moves import purge
from tests.integration.test_replication import filled
from tests.stores import ServerEngine, Stores

SHARDS = 4
NAME = "trips_of_driver"


def found(store: Datastore) -> set[UUID]:
    """The rows of a driver, as the entries have them."""
    return {entry.row_key for entry in store.query_index(NAME, "driver 0", limit=100).entries}


def right(store: Datastore, rows: list[UUID]) -> set[UUID]:
    """The same, as the cells have them."""
    cells = {row: store.get_cell_latest(row, "BASE") for row in rows}
    return {row for row, cell in cells.items() if cell is not None and cell.body["driver"] == "driver 0"}  # type: ignore[index,call-overload]  # all are objects


def refused(store: Datastore) -> bool:
    try:
        found(store)
    except (Unavailable, SchemaMissing):
        return True
    return False


def indexed(stores: Stores, engine: str) -> Datastore:
    """One whose index answers."""
    return stores.fresh(engine, shards=SHARDS, indexes=[INDEX])


def filled_again(store: Datastore) -> None:
    """What `worker run`, `index verify` and `index promote` do."""
    catch_up(store)
    (index,) = store.indexes.status()
    number = index.versions[-1].record.version.number
    assert store.indexes.verify(NAME, number).verified.is_clean
    store.indexes.promote(NAME, number)


def there(store: Datastore, standby: Datastore) -> list[UUID]:
    """The standby leads, has rows that the first one has not, and purges one that it has; all rows."""
    rows = filled(store)
    catch_up(store)
    assert found(store) == right(store, rows) != set()
    with following(standby, store):
        wait_until_whole(standby, store)
    promoted(standby, store)
    rows += filled(standby, 12)
    purge(standby, 0, rows[0], None)
    return rows


def test_i6_there_and_back_an_index_is_refused_until_it_is_right(server_engine: ServerEngine, stores: Stores) -> None:
    store = indexed(stores, server_engine)
    only_maintained(store)
    with (
        Datastore(store.config) as another,
        empty(stores, server_engine, shards=SHARDS, clusters="b", indexes=[INDEX]) as standby,
    ):
        assert found(another) == set()
        rows = there(store, standby)
        of_before = store.indexes.there()
        assert refused(standby)
        filled_again(standby)
        assert found(standby) == right(standby, rows)

        with following(store, standby):
            wait_until_whole(store, standby)
        assert promoted(store, standby) == 2000

        assert (refused(store), refused(another)) == (True, True), "another process had known the alias, too"
        filled_again(store)
        assert found(store) == found(another) == right(store, rows)
        assert rows[0] not in found(store), "purged meanwhile"
        assert rows[-12] in found(store), "put meanwhile"
        its = store.replication(standby)
        assert its._bringing(its._own, its._other).leave() is True  # one that slept before it looked,
        store.indexes.leave(of_before)  # and one that slept behind that
        assert found(store) == right(store, rows)


def test_i6_control_with_its_alias_of_before_it_lacks_rows_and_has_one_that_was_purged(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = indexed(stores, server_engine)
    only_maintained(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b", indexes=[INDEX]) as standby:
        rows = there(store, standby)
        with patch.object(Indexes, "leave", lambda self, there: None), following(store, standby):
            wait_until_whole(store, standby)
        promoted(store, standby)

        assert not refused(store)
        assert rows[0] in found(store)
        assert right(store, rows) - found(store), "rows that were put meanwhile are missing"


@pytest.mark.parametrize("point", ["index.leave_begun", "index.entries_left", "replicate.follow"])
def test_i6_a_return_that_died_as_it_left_its_indexes_is_gone_on_with(
    point: str, server_engine: ServerEngine, stores: Stores
) -> None:
    store = indexed(stores, server_engine)
    only_maintained(store)
    with empty(stores, server_engine, shards=SHARDS, clusters="b", indexes=[INDEX]) as standby:
        rows = there(store, standby)
        job = begun(store, standby)
        with dying_at(point), Follower(store.replication(standby), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        assert isinstance(first.ended, FailpointReached)
        expire(store)
        with Follower(store.replication(standby), job, "second"):
            wait_until_whole(store, standby)
        promoted(store, standby)

        assert refused(store)
        filled_again(store)
        assert found(store) == right(store, rows)


def test_i6_an_index_that_was_left_has_no_entry_and_is_made_anew_under_another_number(
    datastore_engine: str, stores: Stores
) -> None:
    """On files too, which follow nothing yet: whatever a datastore becomes, this is what it forgets."""
    store = indexed(stores, datastore_engine)
    only_maintained(store)
    rows = [row_of(store, n % SHARDS) for n in range(8)]
    store.put_cells([Cell(row, "BASE", 1, {"driver": "driver 0"}) for row in rows])
    catch_up(store)
    (before,) = store.indexes.status()
    purge(store, 0, rows[0], None)

    of_before = store.indexes.there()
    store.indexes.leave(of_before)
    store.indexes.leave(of_before)

    assert refused(store)
    assert store.indexes.status()[0].versions == ()
    assert store.indexes.create_missing() == [(NAME, before.versions[-1].record.version.number + 1)]
    assert refused(store)
    filled_again(store)
    assert found(store) == set(rows[1:])
