"""What repair does to each class of damage while Postgres is the authority, and what its plan says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from schemaless_core import Cell, CellKey
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.engine.mending import Mended
from schemaless_core.mends import Mends
from tests.damage import lose, spoil
from tests.facades import PATIENT_LEGACY, Migration
from tests.mirrors import missing
from tests.repairs import STATUS_INDEX, base, done, foreign, in_shadow, mended, plan, refreshed, repair, stored, trip
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.put.unmapped import lock_sql
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.engines.validation.repair import Action
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.forward import HELD_MAX, ForwardRepair
from tripstore.migration.repair.repair import counted
from tripstore.migration.repair.sides import GaveWay
from tripstore.migration.repair.targets import Target

ENGINES = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]
CI_ENGINES = ENGINES if SCALE >= 1 else ENGINES[:2]


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    return refreshed(shared)


@pytest.fixture(params=CI_ENGINES, ids=["-".join(pair) for pair in CI_ENGINES])
def everywhere(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with in_shadow(servers, stores, postgres=postgres, engine=engine) as made:
        yield made


def test_rows_that_are_lifted_together_wait_for_no_service(moving: Migration) -> None:
    """I10: one of them is held: none is lifted, and each is left to be lifted alone."""
    held, free = trip(moving), trip(moving)
    owner = moving.duo.legacy.as_owner(moving.duo.ports.control.authority().epoch)
    wanted = [CellKey(key, "BASE", 9) for key in (free, held)]
    service = moving.legacy.connect()
    service.cursor().execute("SELECT 1 FROM trips WHERE trip_uuid = %s FOR UPDATE", (str(held),))

    with pytest.raises(LockTimeout):
        owner.lift_many(wanted)
    service.rollback()
    service.close()

    assert owner.lift_many(wanted) == {
        key: canonical_bytes(cell.body) for key in wanted if (cell := owner.get_cell(*key))
    }
    assert owner.lift_many(wanted) == {}, "they stand there already"


@pytest.fixture
def hurried(servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[Migration]:
    """Its repairs give a row up soon that another session holds."""
    monkeypatch.setitem(PATIENT_LEGACY, "lock_seconds", 1.0)
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        yield made


def test_i11_rows_that_a_service_holds_keep_no_other_from_its_repair(hurried: Migration) -> None:
    """They are not compared, and the next repair has them. Control: a lift that waits for them ends the whole."""
    held, others = trip(hurried), [trip(hurried) for _ in range(2)]
    for key in (held, *others):
        foreign(hurried, key, 5)
    targets = [base(key) for key in (others[0], held, others[1])]
    with closing(hurried.legacy.connect()) as service:
        service.cursor().execute("SELECT 1 FROM trips WHERE trip_uuid = %s FOR UPDATE", (str(held),))
        with (
            patch.object(ForwardRepair, "_lifted", lambda _self, _keys: {}),
            patch.object(ForwardRepair, "_lifted_alone", ForwardRepair._lift_one),
            pytest.raises(LockTimeout),
        ):
            repair(hurried, base(held))
        before, outcome, after = repair(hurried, *targets)

    assert (before.is_equal, after.is_equal) == (True, True)
    assert isinstance(outcome.refusal, GaveWay)
    assert counted([before, outcome, after]) == {"rows": 3, "equal": 2, "not_compared": 1}
    assert done(repair(hurried, *targets))[1] == (Action.LIFT, Action.PUT)


def test_i10_a_cell_beside_the_tables_that_a_put_holds_is_left_for_the_next_repair(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the process: such a cell is put anew, and another put holds its advisory lock."""
    monkeypatch.setitem(PATIENT_LEGACY, "lock_seconds", 0.1)
    with in_shadow(servers, stores) as made:
        key = trip(made)
        made.store.put_cell(key, "PHOTO", 1, {"status": "own"})
        made.carry()
        foreign(made, key, 5, "PHOTO")
        target = Target(key, "PHOTO")
        with closing(made.legacy.connect()) as put:
            put.cursor().execute(lock_sql(key, "PHOTO"))
            (outcome,) = repair(made, target)

        assert isinstance(outcome.refusal, GaveWay)
        assert "tripstore.cell is held" in outcome.refusal.message
        (outcome,) = repair(made, target)
        assert outcome.is_equal


@pytest.mark.parametrize("most", [1, HELD_MAX])
def test_of_many_rows_that_are_held_few_are_waited_for(
    moving: Migration, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Each that is waited for costs the same time; with a table that is locked all of them are held."""
    monkeypatch.setattr("tripstore.migration.repair.forward.HELD_MAX", most)
    tries, lift_many = list[int](), PostgresBackend.lift_many
    keys = [trip(moving) for _ in range(3)]
    for key in keys:
        foreign(moving, key, 5)

    def counted_lifts(backend: PostgresBackend, targets: Sequence[CellKey]) -> dict[CellKey, bytes | None]:
        tries.append(len(targets))
        return lift_many(backend, targets)

    monkeypatch.setattr(PostgresBackend, "lift_many", counted_lifts)
    monkeypatch.setattr("tripstore.migration.repair.repair.ROUNDS", 2)
    with closing(moving.legacy.connect()) as service:
        service.cursor().execute("SELECT 1 FROM trips FOR UPDATE")
        outcomes = repair(moving, *map(base, keys))

    assert tries == [3, *[1] * min(most, 3)]
    assert all(isinstance(each.refusal, GaveWay) for each in outcomes)


def test_a_plan_changes_nothing(moving: Migration) -> None:
    key, cell = trip(moving), foreign(moving, uuid4(), 1)
    lost = stored(moving, trip(moving))
    lose(moving.facade.store, lost)
    foreign(moving, key, 4)

    targets = base(key), base(cell.row_key), base(lost.row_key)
    assert plan(moving, *targets) == plan(moving, *targets) == [Action.LIFT, Action.PURGE, Action.PUT]

    assert moving.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(key)) == [(1,)]
    assert moving.facade.store.get_cell(*cell.key) == cell
    assert moving.facade.store.get_cell(*lost.key) is None
    assert mended(moving) == []

    assert [actions[0] for actions in done(repair(moving, *targets))] == [Action.LIFT, Action.PURGE, Action.PUT]


def test_other_bytes_are_answered_by_a_lift_and_no_cell_is_touched(everywhere: Migration) -> None:
    key = trip(everywhere)
    cell = stored(everywhere, key)
    spoil(everywhere.facade.store, cell, b'{"status":"foreign"}')
    assert plan(everywhere, base(key)) == [Action.LIFT]

    assert done(repair(everywhere, base(key))) == [(Action.LIFT, Action.PUT)]

    assert everywhere.legacy.sql("SELECT status, base_version FROM trips WHERE trip_uuid = %s", str(key)) == [
        ("requested", 2)
    ]
    assert stored(everywhere, key) == Cell(key, "BASE", 2, cell.body)
    assert everywhere.facade.store.get_cell(key, "BASE", 1) == Cell(key, "BASE", 1, {"status": "foreign"})  # I2
    assert mended(everywhere) == []
    everywhere.carry()
    assert missing(everywhere) == [CellKey(key, "BASE", 1)]


def test_a_version_that_postgres_never_had_is_lifted_over(moving: Migration) -> None:
    key = trip(moving)
    foreign(moving, key, 7)

    assert done(repair(moving, base(key))) == [(Action.LIFT, Action.PUT)]

    assert stored(moving, key).ref_key == 8
    moving.legacy.sql("UPDATE trips SET status = 'done' WHERE trip_uuid = %s", str(key))
    moving.carry()
    assert stored(moving, key).ref_key == 9
    assert moving.store.get_cell_latest(key, "BASE") == moving.facade.store.get_cell_latest(key, "BASE")


def test_missing_cells_are_put_and_readers_pass_the_holes_that_they_left(everywhere: Migration) -> None:
    keys = [trip(everywhere) for _ in range(6)]
    cells = [stored(everywhere, key) for key in keys]
    store = everywhere.facade.store
    lost = sorted((store.shard_of(cell.row_key), lose(store, cell)) for cell in cells[::2])
    assert plan(everywhere, *map(base, keys)) == [Action.PUT, Action.NOTHING] * 3

    assert done(repair(everywhere, *map(base, keys))) == [(Action.PUT,), ()] * 3

    assert missing(everywhere) == []
    for shard in range(everywhere.facade.config.core.shards):
        page = store.get_cells_for_shard(shard, 0, 100)  # no LogHole
        assert page.next_location == page.head
    lines = store.mends.lines()
    assert sorted(line[:2] for line in lines if line.action is Mended.CLOSE) == lost
    assert sorted(line[0] for line in lines if line.action is Mended.PUT) == [shard for shard, _added_id in lost]


def test_i1_what_postgres_could_still_lose_is_not_put(moving: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """An asynchronous commit is seen before it is durable."""
    gone, broken = trip(moving), trip(moving)
    store, ours, put, mend = moving.facade.store, ForwardRepair.ours, Mends.put_encoded_beside, Mends.mend_all
    lose(store, stored(moving, gone))
    spoil(store, stored(moving, broken), b"{")
    written, seen = ["0/0"], list[bool]()
    with closing(moving.legacy.connect(autocommit=True)) as service, service.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")

        def ours_after_a_commit(self: ForwardRepair, columns: Any) -> Any:
            cursor.execute("UPDATE users SET user_uuid = user_uuid")
            cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
            written[0] = cursor.fetchall()[0][0]
            return ours(self, columns)

        def looked(verb: Callable[..., Any]) -> Callable[..., Any]:
            def look(*given: Any) -> Any:
                cursor.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", (written[0],))
                seen.extend(is_durable for (is_durable,) in cursor.fetchall())
                return verb(*given)

            return look

        monkeypatch.setattr(ForwardRepair, "ours", ours_after_a_commit)
        monkeypatch.setattr(Mends, "put_encoded_beside", looked(put))
        monkeypatch.setattr(Mends, "mend_all", looked(mend))
        assert done(repair(moving, base(gone))) == [(Action.PUT,)]
        assert done(repair(moving, base(broken))) == [(Action.MEND,)]

    assert seen == [True, True]


def test_bytes_that_are_no_json_are_replaced_where_they_stand(everywhere: Migration) -> None:
    key = trip(everywhere)
    cell = stored(everywhere, key)
    spoil(everywhere.facade.store, cell, b"\xfe torn")
    assert plan(everywhere, base(key)) == [Action.MEND]

    assert done(repair(everywhere, base(key))) == [(Action.MEND,)]

    assert stored(everywhere, key) == cell
    assert everywhere.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(key)) == [(1,)]
    ((action, old, new),) = mended(everywhere)
    assert (action, old) == (Mended.MEND, b"\xfe torn")
    assert new is not None


def test_a_cell_that_postgres_knows_nothing_of_is_purged(everywhere: Migration) -> None:
    cell = foreign(everywhere, uuid4(), 1)
    key = trip(everywhere)
    assert plan(everywhere, base(cell.row_key)) == [Action.PURGE]

    assert done(repair(everywhere, base(cell.row_key), base(key))) == [(Action.PURGE,), ()]

    assert everywhere.facade.store.get_row(cell.row_key) == {}
    assert missing(everywhere) == []
    shard = everywhere.store.shard_of(cell.row_key)
    page = everywhere.facade.store.get_cells_for_shard(shard, 0, 100)
    assert page.next_location == page.head


def test_versions_above_a_tombstone_are_purged_one_after_the_other(moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    moving.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    moving.carry()
    for ref_key in (5, 6, 7):
        foreign(moving, key, ref_key)

    assert done(repair(moving, base(key))) == [(Action.PURGE,) * 3]

    assert stored(moving, key) == Cell(key, "BASE", 2, None)
    assert moving.legacy.sql("SELECT 1 FROM trips WHERE trip_uuid = %s", str(key)) == []  # nothing came back


def test_facts_children_ids_and_free_columns(moving: Migration) -> None:
    """No version to lift: mended. A child's version: lifted within its number. A free column: put higher."""
    id_, key = moving.legacy.trip()
    moving.legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, 1, 'paid')", id_)
    moving.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 3, 'hello')", id_)
    moving.store.put_cell(key, "FREE", 4, {"of": "no table"})
    moving.carry()
    store, columns = moving.facade.store, ("STATUS", "NOTES", "FREE", "_LEGACY_ID")
    before = {column: stored(moving, key, column) for column in columns}
    for cell in before.values():
        spoil(store, cell, b'{"is":"foreign"}')

    outcomes = repair(moving, *(Target(key, column) for column in columns))

    assert done(outcomes) == [(Action.MEND,), (Action.LIFT, Action.PUT), (Action.LIFT, Action.PUT), (Action.MEND,)]
    assert [stored(moving, key, column).ref_key for column in columns] == [1, (3 << 20) + 1, 5, 0]
    assert [stored(moving, key, column).body for column in columns] == [before[column].body for column in columns]
    moving.carry()
    assert moving.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]


def test_older_versions_are_mended_where_they_stand(moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    for status in ("a", "b"):
        moving.legacy.sql("UPDATE trips SET status = %s WHERE id = %s", status, id_)
    moving.carry()
    store = moving.facade.store
    first, second = (store.get_cell(key, "BASE", ref_key) for ref_key in (1, 2))
    assert first is not None
    assert second is not None
    spoil(store, first, b'{"status":"foreign"}')
    lose(store, second)
    foreign(moving, key, -3)

    assert done(repair(moving, *(base(key, ref_key) for ref_key in (1, 2, -3)))) == [
        (Action.MEND,),
        (Action.PUT,),
        (Action.PURGE,),
    ]

    assert store.get_history(key, "BASE") == moving.duo.legacy.get_history(key, "BASE")
    assert [cell.ref_key for cell in store.get_history(key, "BASE")] == [3, 2, 1]
