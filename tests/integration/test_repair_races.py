"""Repair while others write the same cells: services, the mirror, a backfill, another repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import CellKey
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.engine.mending import Mended
from schemaless_core.failpoints import FailpointReached, reach
from tests.damage import lose, spoil
from tests.facades import Migration
from tests.mirrors import different, missing
from tests.repairs import (
    STATUS_INDEX,
    base,
    doing_at,
    done,
    failing_at,
    foreign,
    in_shadow,
    mended,
    refreshed,
    repair,
    stored,
    trip,
)
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.engines.validation.repair import Action
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.forward import ForwardRepair
from tripstore.migration.repair.opening import Repairs


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    return refreshed(shared)


@pytest.fixture
def apart(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """For one test alone, which may leave it in another phase."""
    with in_shadow(servers, stores) as made:
        yield made


def test_a_row_that_comes_while_its_extra_cell_is_purged_is_there_afterwards(moving: Migration) -> None:
    """I8: the mirror answered that it has the cell, and then repair took it: the look afterwards puts it back."""
    key = uuid4()
    # An extra cell that is exactly what the company is about to insert.
    moving.facade.store.as_copier().put_cell(key, "BASE", 1, stored(moving, trip(moving)).body)

    def insert() -> None:
        moving.legacy.trip(row_key=key)
        moving.carry()

    with doing_at("mends.before_purge", insert):
        outcomes = repair(moving, base(key))

    assert done(outcomes) == [(Action.PURGE, Action.PUT)]
    assert missing(moving) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_i8_a_version_that_was_carried_just_before_its_purge_is_put_back(moving: Migration, is_killed: bool) -> None:
    """The row has moved on by the time of the next look, which sees the latest only; a kill comes in between."""
    key = uuid4()
    moving.facade.store.as_copier().put_cell(key, "BASE", 1, stored(moving, trip(moving)).body)

    def insert_and_move() -> None:
        moving.legacy.trip(row_key=key)
        moving.legacy.sql("UPDATE trips SET status = 'moved' WHERE trip_uuid = %s", str(key))
        moving.carry()

    if is_killed:
        killed = failing_at("mending.answered")
        with pytest.raises(FailpointReached), doing_at("mends.before_purge", insert_and_move), killed:
            repair(moving, base(key))
        assert missing(moving) == [CellKey(key, "BASE", 1)]
    else:
        with doing_at("mends.before_purge", insert_and_move):
            repair(moving, base(key))
    repair(moving, base(key))

    assert missing(moving) == []


def test_a_row_that_comes_between_the_two_looks_is_not_taken_for_extra(moving: Migration) -> None:
    key = uuid4()

    def insert() -> None:
        moving.legacy.trip(row_key=key)
        moving.carry()

    with doing_at("repair.mirror_read", insert):
        outcomes = repair(moving, base(key))

    assert [(each.is_equal, Action.PURGE in each.done) for each in outcomes] == [(True, False)]
    assert mended(moving) == []


def test_control_a_repair_that_asks_the_authority_first_purges_that_row(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its legacy id was looked for before the row came, too: a cell without a row is purged."""
    _authority_first(monkeypatch)
    monkeypatch.setattr(ForwardRepair, "_were_rows", lambda _self, _columns: set())
    key = uuid4()
    with doing_at("test.between", lambda: _carried(moving, key)):
        (outcome,) = repair(moving, base(key))

    assert Action.PURGE in outcome.done
    assert [action for action, _old, _new in mended(moving)] == [Mended.PURGE]


def test_postgres_buries_no_row_that_is_there_whichever_store_was_asked_first(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror has its legacy id, so a tombstone is tried: Postgres writes none beside a row."""
    _authority_first(monkeypatch)
    key, tried = uuid4(), list[Action]()
    coming = doing_at("test.between", lambda: _carried(moving, key))
    with coming, doing_at("repair.before_bury", lambda: tried.append(Action.BURY)):
        (outcome,) = repair(moving, base(key))

    assert (tried, outcome.is_equal, outcome.done) == ([Action.BURY], True, ())
    assert mended(moving) == []
    assert missing(moving) == []


def _carried(moving: Migration, key: UUID) -> None:
    moving.legacy.trip(row_key=key)
    moving.carry()


def _authority_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look asks the authority, and then the mirror."""
    ask_ours, ask_theirs = ForwardRepair.ours, ForwardRepair.theirs
    answers: list[Any] = []

    def theirs(self: ForwardRepair, rows: Any) -> Any:
        answers.append(ask_ours(self, rows))
        reach("test.between")
        return ask_theirs(self, rows)

    monkeypatch.setattr(ForwardRepair, "theirs", theirs)
    monkeypatch.setattr(ForwardRepair, "ours", lambda _self, _rows: answers.pop())
    monkeypatch.setattr(ForwardRepair, "ours_at", lambda _self, keys: [None] * len(keys))


def test_a_row_that_moves_while_it_is_lifted_keeps_the_writers_version(moving: Migration) -> None:
    key = trip(moving)
    foreign(moving, key, 5)

    def write() -> None:
        moving.legacy.sql("UPDATE trips SET status = 'written' WHERE trip_uuid = %s", str(key))

    with doing_at("repair.before_lift", write):
        assert repair(moving, base(key))[0].is_equal

    assert moving.legacy.sql("SELECT status, base_version FROM trips WHERE trip_uuid = %s", str(key)) == [
        ("written", 6)
    ]
    moving.carry()
    assert stored(moving, key).ref_key == 6
    assert moving.store.get_cell_latest(key, "BASE") == moving.facade.store.get_cell_latest(key, "BASE")


def test_i2_control_bytes_of_before_the_lift_are_another_body_under_a_key_of_the_authoritys(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if what the look had seen were put under the lifted key: the row moved in between, and has to rise again."""
    key, lift_many = trip(moving), PostgresBackend.lift_many
    before = canonical_bytes(stored(moving, key).body)
    foreign(moving, key, 5)
    monkeypatch.setattr(PostgresBackend, "lift_many", lambda *given: dict.fromkeys(lift_many(*given), before))

    def write() -> None:
        moving.legacy.sql("UPDATE trips SET status = 'written' WHERE trip_uuid = %s", str(key))

    with doing_at("repair.before_lift", write):
        repair(moving, base(key))

    assert moving.legacy.sql("SELECT base_version > 6 FROM trips WHERE trip_uuid = %s", str(key)) == [(True,)]


def test_i4_a_row_that_moves_right_after_its_lift_ends_equal(moving: Migration) -> None:
    key = trip(moving)
    foreign(moving, key, 5)

    def write() -> None:
        moving.legacy.sql("UPDATE trips SET status = 'written' WHERE trip_uuid = %s", str(key))

    with doing_at("lift.committed", write):
        (outcome,) = repair(moving, base(key))

    assert (outcome.is_equal, outcome.done) == (True, (Action.LIFT, Action.PUT, Action.PUT))
    moving.carry()
    found = stored(moving, key)
    assert (found.ref_key, found) == (7, moving.store.get_cell_latest(key, "BASE"))
    assert moving.facade.store.get_cell(key, "BASE", 6) is not None


def test_two_repairs_at_once_come_to_the_same(moving: Migration) -> None:
    """I4: the second does everything between the first's look and its change."""
    torn, extra, behind = trip(moving), foreign(moving, uuid4(), 1), trip(moving)
    spoil(moving.facade.store, stored(moving, torn), b"torn")
    foreign(moving, behind, 5)
    targets = base(torn), base(extra.row_key), base(behind)

    with doing_at("repair.looked", lambda: done(repair(moving, *targets))):
        outcomes = repair(moving, *targets)

    assert all(each.is_equal for each in outcomes)
    assert moving.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(behind)) == [(6,)]
    assert {action for action, _old, _new in mended(moving)} == {Mended.MEND, Mended.PURGE}
    assert len(mended(moving)) == 2


def test_a_backfill_that_puts_the_same_cell_is_no_conflict(apart: Migration) -> None:
    cell = stored(apart, trip(apart))
    lose(apart.facade.store, cell)
    copier = apart.facade.store.as_copier()

    with doing_at("mends.before_put", lambda: copier.put_cell(*cell.key, cell.body)):
        outcomes = repair(apart, base(cell.row_key))

    assert [each.is_equal for each in outcomes] == [True]
    assert missing(apart) == []
    assert Repairs(apart.facade).holes() != {}  # no store knows any more what stood there
    Repairs(apart.facade).close(Repairs(apart.facade).holes())
    assert different(apart) == []
