"""What damage has left elsewhere and repair takes away: index entries of bytes that are gone, and parked changes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from schemaless_core.mends import Mends
from tests.chaos.actors import wait_until
from tests.damage import spoil
from tests.facades import Migration
from tests.indexing import catch_up
from tests.mirrors import QUICK, missing, reversing, wait_until_mirrored_back
from tests.repairs import STATUS_INDEX, base, done, foreign, in_shadow, refreshed, repair, stored, trip
from tests.stores import Stores
from tripstore.engines.validation.repair import Action
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.repair.opening import Repairs


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    return refreshed(shared)


def test_index_entries_follow_what_was_mended_and_purged(moving: Migration) -> None:
    """I6: the entries of the bytes that were wrong are gone, those of the right ones are there."""
    store = moving.facade.store
    key, other = trip(moving, "open"), foreign(moving, uuid4(), 1, body="open")
    cell = stored(moving, key)
    spoil(store, cell, b'{"status":"broken" }')
    catch_up(store)
    assert {entry.row_key for entry in store.query_index("status_index", "broken").entries} == {key}

    done(repair(moving, base(key), base(other.row_key)))

    for consistency in ("fast", "verified"):  # verified: over the purged added ids, which the group has not passed
        page = store.query_index("status_index", "open", consistency=consistency)
        assert [entry.row_key for entry in page.entries] == [key]
    assert store.query_index("status_index", "broken").entries == []
    report = store.indexes.verify("status_index", patience_seconds=0)
    assert report.differences == 0


def test_control_entries_of_cells_that_are_gone_stay_unless_they_are_rebuilt(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, extra = moving.facade.store, foreign(moving, uuid4(), 1, body="entry of no row")
    catch_up(store)
    monkeypatch.setattr(Mends, "rebuild", lambda *_arguments: None)

    repair(moving, base(extra.row_key))
    assert [entry.row_key for entry in store.query_index("status_index", "entry of no row").entries] == [extra.row_key]

    monkeypatch.undo()
    repair(moving, base(extra.row_key))
    assert store.query_index("status_index", "entry of no row").entries == []


@pytest.mark.parametrize("body", [b'{"status":"foreign"}', b"torn"])
def test_changes_that_were_parked_because_of_the_damage_are_carried(moving: Migration, body: bytes) -> None:
    """Bytes that are no JSON hinder the change of their own key, and no other."""
    key = uuid4()
    spoil(moving.facade.store, foreign(moving, key, 1), body)
    moving.legacy.trip(row_key=key)
    moving.legacy.trip()
    mirror = Mirror(moving.facade)
    mirror.carrier().carry(100)
    assert [parked.kind for parked in mirror.parked(is_reverse=False).listed(10)] == ["conflict"]

    assert Repairs(moving.facade).conflicts() == [base(key, 1)]

    assert done(repair(moving, base(key, 1))) == [(Action.MEND,)]

    moving.carry()
    assert missing(moving) == []
    assert moving.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]
    assert Repairs(moving.facade).conflicts() == []
    # No store knows which entry the lost bytes had left: that is for the index's own repair.
    Repairs(moving.facade).rebuild_index("status_index")


def test_foreign_cells_that_the_rehearsal_set_aside_are_purged_and_forgotten(
    servers: LocalServers, stores: Stores
) -> None:
    """A lift over them leaves them in the log, and no switch is possible while one is parked."""
    with in_shadow(servers, stores, triggers=QUICK) as apart:
        key = trip(apart)
        foreign(apart, key, 7)
        parked = Mirror(apart.facade).parked(is_reverse=True)
        with reversing(apart):
            wait_until("the rehearsal sets it aside", lambda: len(parked.listed(10)) == 1)
            assert Repairs(apart.facade).conflicts() == [base(key, 7)]

            outcomes = repair(apart, base(key), base(key, 7))

            assert all(each.is_equal for each in outcomes)
            assert Action.PURGE in outcomes[1].done
            wait_until("nothing is set aside", lambda: parked.listed(10) == [])
            # The last cell of a log, and one that the group has not met yet: it passes both.
            for purged in (foreign(apart, uuid4(), 1), foreign(apart, uuid4(), 1)):
                done(repair(apart, base(purged.row_key)))
            apart.carry()
            wait_until_mirrored_back(apart)
        assert missing(apart) == []
