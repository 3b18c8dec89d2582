"""Repair of a mirror that was damaged behind everybody's back: each class, both directions, races and accidents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, Json, failpoints
from schemaless_core.control.jobs import JobState
from schemaless_core.encoded import encode_cell
from schemaless_core.engine.mending import Mended
from schemaless_core.failpoints import FailpointReached, reach
from schemaless_core.mends import Mends
from tests.chaos.actors import wait_until
from tests.damage import execute, lose, spoil
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.mirrors import QUICK, different, missing, reversing, wait_until_mirrored_back
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.mirror.mirror import Mirror
from tripstore.phase import Phase
from tripstore.repairing.job import RepairRunner, begin
from tripstore.repairing.opening import Repairs
from tripstore.repairing.repairing import AuthorityMoved, Outcome, counted
from tripstore.repairing.sides import Forward
from tripstore.repairing.targets import Target
from validation.repair import Action

ENGINES = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]
CI_ENGINES = ENGINES if SCALE >= 1 else ENGINES[:2]

#: Of failpoints; CI takes the first.
ACCIDENTS = [
    "repair.mirror_read",
    "lift.committed",
    "mends.before_purge",
    "mends.before_rebuild",
    "mending.answered",
    "repair.settled",
    "jobs.saving",
    "repair.claimed",
    "repair.looked",
    "repair.before_lift",
    "lift.before_commit",
    "mends.before_mend",
    "mends.before_put",
    "mends.done",
    "mending.before_send",
    "repair.before_save",
    "repair.saved",
]

STATUS_INDEX: Json = {
    "table": "status_index",
    "datastore": "trips",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "status", "type": "string"}]}],
}


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, indexes=[STATUS_INDEX]) as made:
        made.phase(Phase.SHADOW)
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    """In the phase shadow: Postgres is the authority. What earlier tests did is forgotten; their rows stay."""
    shared.legacy.sql("DELETE FROM tripstore.queue; DELETE FROM tripstore.log")
    repairs = Repairs(shared.facade)
    repairs.close(repairs.holes())
    for shard in range(shared.facade.config.core.shards):
        execute(shared.facade.store, shard, "DELETE FROM mended")
    return shared


@pytest.fixture
def apart(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """The same for one test alone, which may leave it in another phase."""
    with migration(servers, stores) as made:
        made.phase(Phase.SHADOW)
        yield made


@pytest.fixture(params=CI_ENGINES, ids=["-".join(pair) for pair in CI_ENGINES])
def everywhere(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine) as made:
        made.phase(Phase.SHADOW)
        yield made


def base(row_key: UUID, older: int | None = None) -> Target:
    return Target(row_key, "BASE", older)


def repair(moving: Migration, *targets: Target, wanted: Backend = Backend.LEGACY) -> list[Outcome]:
    return Repairs(moving.facade).repairing(wanted, job="repair-t").repair(targets)


def plan(moving: Migration, *targets: Target) -> list[Action]:
    backend = moving.duo.ports.control.authority().backend
    return [seen.step.action for seen in Repairs(moving.facade).repairing(backend).plan(targets)]


def done(outcomes: list[Outcome]) -> list[tuple[Action, ...]]:
    assert all(each.is_equal for each in outcomes), outcomes
    return [each.done for each in outcomes]


def stored(moving: Migration, row_key: UUID, column: str = "BASE") -> Cell:
    found = moving.facade.store.get_cell_latest(row_key, column)
    assert found is not None
    return found


def trip(moving: Migration, status: str = "requested") -> UUID:
    _id, key = moving.legacy.trip(status)
    moving.carry()
    return key


def foreign(moving: Migration, row_key: UUID, ref_key: int, column: str = "BASE", body: str = "foreign") -> Cell:
    """A cell that is nobody's. No thread writes its index entry behind the test's back: `catch_up` does."""
    cell = Cell(row_key, column, ref_key, {"status": body})
    assert moving.facade.store.as_copier().put_encoded([encode_cell(cell, 1000)]).created == 1
    return cell


def mended(moving: Migration) -> list[tuple[str, bytes | None, bytes | None]]:
    lines = moving.facade.store.mends.lines()
    return [(line.action, line.old_body, line.new_body) for line in reversed(lines)]


@contextmanager
def _doing_at(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Once, when this thread comes to a failpoint."""
    pending, thread, others = [act], threading.get_ident(), failpoints._look

    def look(folder: Path, name: str) -> None:
        others(folder, name)
        if name == point and pending and threading.get_ident() == thread:
            pending.pop()()

    with patch.object(failpoints, "_look", look), patch.object(failpoints, "_folder", Path()):
        yield
    assert not pending, f"{point} was not reached"


@contextmanager
def _capture_off(moving: Migration) -> Iterator[None]:
    """The company's tables as they are without us: neither gate nor capture."""
    moving.legacy.sql("ALTER TABLE trips DISABLE TRIGGER ALL")
    yield
    moving.legacy.sql("ALTER TABLE trips ENABLE TRIGGER ALL")
    ours = "NOT tgisinternal AND tgname LIKE '%%tripstore%%'"
    for (name,) in moving.legacy.sql(f"SELECT tgname FROM pg_trigger WHERE tgrelid = 'trips'::regclass AND {ours}"):
        moving.legacy.sql(f'ALTER TABLE trips ENABLE ALWAYS TRIGGER "{name}"')


# Each class, while Postgres is the authority.


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
    store, ours, put, mend = moving.facade.store, Forward.ours, Mends.put_beside, Mends.mend
    lose(store, stored(moving, gone))
    spoil(store, stored(moving, broken), b"{")
    written, seen = ["0/0"], list[bool]()
    with closing(moving.legacy.connect(autocommit=True)) as somebody, somebody.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")

        def ours_after_a_commit(self: Forward, columns: Any) -> Any:
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

        monkeypatch.setattr(Forward, "ours", ours_after_a_commit)
        monkeypatch.setattr(Mends, "put_beside", looked(put))
        monkeypatch.setattr(Mends, "mend", looked(mend))
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
    """No version to lift: mended. A child's version: lifted within its number. A column of nobody's: put higher."""
    id_, key = moving.legacy.trip()
    moving.legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, 1, 'paid')", id_)
    moving.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 3, 'hello')", id_)
    moving.store.put_cell(key, "FREE", 4, {"of": "nobody"})
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
    # Of bytes that are gone nobody knows which entry they had left: that is for the index's own repair.
    Repairs(moving.facade).rebuild_index("status_index")


def test_foreign_cells_that_the_rehearsal_set_aside_are_purged_and_forgotten(
    servers: LocalServers, stores: Stores
) -> None:
    """A lift over them leaves them in the log, and no switch is possible while one is parked."""
    with migration(servers, stores, triggers=QUICK) as apart:
        apart.phase(Phase.SHADOW)
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
            # The last cell of a log, and one that nobody has met yet: the group passes both.
            for purged in (foreign(apart, uuid4(), 1), foreign(apart, uuid4(), 1)):
                done(repair(apart, base(purged.row_key)))
            apart.carry()
            wait_until_mirrored_back(apart)
        assert missing(apart) == []


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


# Schemaless is the authority.


def test_postgres_as_the_mirror_is_repaired_without_touching_a_row_of_the_company_in_place(apart: Migration) -> None:
    key, lost, extra = trip(apart), trip(apart), trip(apart)
    apart.phase(Phase.LIVE)
    with _capture_off(apart):
        apart.legacy.sql("UPDATE trips SET status = 'foreign' WHERE trip_uuid = %s", str(key))
        apart.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(lost))
    lose(apart.facade.store, stored(apart, extra))
    targets = base(key), base(lost), base(extra)
    assert plan(apart, *targets) == [Action.LIFT, Action.PUT, Action.LEAVE]

    outcomes = repair(apart, *targets, wanted=Backend.STORE)

    assert [each.is_equal for each in outcomes] == [True, True, False]
    assert "use SQL" in outcomes[2].last.why
    assert counted(outcomes) == {"rows": 3, "equal": 2, "left": 1}
    assert apart.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(key)) == [("requested",)]
    assert apart.store.get_cell_latest(key, "BASE").ref_key == 2  # type: ignore[union-attr]  # it is there
    assert apart.legacy.sql("SELECT count(*) FROM trips WHERE trip_uuid = %s", str(extra)) == [(1,)]
    assert mended(apart) == []


def test_the_authoritys_own_bytes_are_mended_only_when_that_is_meant(apart: Migration) -> None:
    key = trip(apart)
    cell = stored(apart, key)
    apart.phase(Phase.LIVE)
    spoil(apart.facade.store, cell, b"torn")
    repairs = Repairs(apart.facade)

    (left,) = repairs.repairing(Backend.STORE).repair([base(key)])
    assert (left.is_equal, left.last.action) == (False, Action.LEAVE)
    assert mended(apart) == []

    (outcome,) = repairs.repairing(Backend.STORE, may_mend_authority=True).repair([base(key)])
    assert outcome.done == (Action.MEND,)
    assert outcome.is_equal
    assert apart.store.get_cell_latest(key, "BASE") == cell


def test_i9_a_repair_of_a_mirror_that_is_the_authority_by_now_is_refused(apart: Migration) -> None:
    cell, key = foreign(apart, uuid4(), 1), trip(apart)
    foreign(apart, key, 5)
    repairing = Repairs(apart.facade).repairing(Backend.LEGACY)
    apart.phase(Phase.LIVE)
    changes = apart.legacy.changes()

    with pytest.raises(AuthorityMoved):
        repairing.repair([base(cell.row_key), base(key)])

    assert apart.facade.store.get_cell(*cell.key) == cell
    assert apart.legacy.changes() == changes


@pytest.mark.parametrize("point", ["repair.looked", "mends.before_purge", "repair.before_lift"])
def test_i9_a_switch_in_the_middle_of_a_repair_stops_it(apart: Migration, point: str) -> None:
    """The look is over and the change is about to be made: the stores themselves refuse it."""
    cell, key = foreign(apart, uuid4(), 1), trip(apart)
    foreign(apart, key, 5)
    repairs = Repairs(apart.facade)
    order = [base(key), base(cell.row_key)] if point == "repair.before_lift" else [base(cell.row_key), base(key)]

    with _doing_at(point, lambda: apart.phase(Phase.LIVE)), pytest.raises(AuthorityMoved):
        repairs.repairing(Backend.LEGACY).repair(order)

    assert mended(apart) == []
    assert apart.facade.store.get_cell(*cell.key) == cell
    assert apart.facade.store.get_cell_latest(key, "BASE").ref_key == 5  # type: ignore[union-attr]  # it is there


def test_a_switch_that_was_given_up_does_not_stop_it(apart: Migration) -> None:
    key = trip(apart)
    foreign(apart, key, 5)

    def close_and_undo() -> None:
        control = apart.duo.ports.control
        row = control.authority()
        closing = row.closing("given up", "test")
        assert control.close(row, closing)
        assert control.undo(closing, closing.undone("test"))
        control.obey()

    with _doing_at("repair.looked", close_and_undo):
        outcomes = repair(apart, base(key))

    assert [each.is_equal for each in outcomes] == [True]


# Races.


def test_a_row_that_comes_while_its_extra_cell_is_purged_is_there_afterwards(moving: Migration) -> None:
    """I8: the mirror answered that it has the cell, and then repair took it: the look afterwards puts it back."""
    key = uuid4()
    # An extra cell that is exactly what the company is about to insert.
    moving.facade.store.as_copier().put_cell(key, "BASE", 1, stored(moving, trip(moving)).body)

    def insert() -> None:
        moving.legacy.trip(row_key=key)
        moving.carry()

    with _doing_at("mends.before_purge", insert):
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
        killed = _doing_at("mending.answered", lambda: _raise("mending.answered"))
        with pytest.raises(FailpointReached), _doing_at("mends.before_purge", insert_and_move), killed:
            repair(moving, base(key))
        assert missing(moving) == [CellKey(key, "BASE", 1)]
    else:
        with _doing_at("mends.before_purge", insert_and_move):
            repair(moving, base(key))
    repair(moving, base(key))

    assert missing(moving) == []


def test_a_row_that_comes_between_the_two_looks_is_not_taken_for_extra(moving: Migration) -> None:
    key = uuid4()

    def insert() -> None:
        moving.legacy.trip(row_key=key)
        moving.carry()

    with _doing_at("repair.mirror_read", insert):
        outcomes = repair(moving, base(key))

    assert [(each.is_equal, Action.PURGE in each.done) for each in outcomes] == [(True, False)]
    assert mended(moving) == []


def test_control_whoever_asks_the_authority_first_purges_that_row(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = uuid4()

    def insert() -> None:
        moving.legacy.trip(row_key=key)
        moving.carry()

    first = [Forward.ours, Forward.theirs]
    answers: dict[str, Any] = {}

    def theirs(self: Forward, columns: Any) -> Any:
        answers["ours"] = first[0](self, columns)
        reach("test.between")
        return first[1](self, columns)

    monkeypatch.setattr(Forward, "theirs", theirs)
    monkeypatch.setattr(Forward, "ours", lambda _self, _columns: answers["ours"])
    monkeypatch.setattr(Forward, "ours_at", lambda _self, _key: None)
    with _doing_at("test.between", insert):
        (outcome,) = repair(moving, base(key))

    assert Action.PURGE in outcome.done
    assert [action for action, _old, _new in mended(moving)] == [Mended.PURGE]


def test_control_entries_of_cells_that_are_gone_stay_unless_they_are_rebuilt(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, extra = moving.facade.store, foreign(moving, uuid4(), 1, body="entry of nobody")
    catch_up(store)
    monkeypatch.setattr(Mends, "rebuild", lambda *_arguments: None)

    repair(moving, base(extra.row_key))
    assert [entry.row_key for entry in store.query_index("status_index", "entry of nobody").entries] == [extra.row_key]

    monkeypatch.undo()
    repair(moving, base(extra.row_key))
    assert store.query_index("status_index", "entry of nobody").entries == []


def test_a_row_that_moves_while_it_is_lifted_keeps_the_writers_version(moving: Migration) -> None:
    key = trip(moving)
    foreign(moving, key, 5)

    def write() -> None:
        moving.legacy.sql("UPDATE trips SET status = 'written' WHERE trip_uuid = %s", str(key))

    with _doing_at("repair.before_lift", write):
        assert repair(moving, base(key))[0].is_equal

    assert moving.legacy.sql("SELECT status, base_version FROM trips WHERE trip_uuid = %s", str(key)) == [
        ("written", 6)
    ]
    moving.carry()
    assert stored(moving, key).ref_key == 6
    assert moving.store.get_cell_latest(key, "BASE") == moving.facade.store.get_cell_latest(key, "BASE")


def test_two_repairs_at_once_come_to_the_same(moving: Migration) -> None:
    """I4: the second does everything between the first's look and its change."""
    torn, extra, behind = trip(moving), foreign(moving, uuid4(), 1), trip(moving)
    spoil(moving.facade.store, stored(moving, torn), b"torn")
    foreign(moving, behind, 5)
    targets = base(torn), base(extra.row_key), base(behind)

    with _doing_at("repair.looked", lambda: done(repair(moving, *targets))):
        outcomes = repair(moving, *targets)

    assert all(each.is_equal for each in outcomes)
    assert moving.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(behind)) == [(6,)]
    assert {action for action, _old, _new in mended(moving)} == {Mended.MEND, Mended.PURGE}
    assert len(mended(moving)) == 2


def test_a_backfill_that_puts_the_same_cell_is_no_conflict(apart: Migration) -> None:
    cell = stored(apart, trip(apart))
    lose(apart.facade.store, cell)
    copier = apart.facade.store.as_copier()

    with _doing_at("mends.before_put", lambda: copier.put_cell(*cell.key, cell.body)):
        outcomes = repair(apart, base(cell.row_key))

    assert [each.is_equal for each in outcomes] == [True]
    assert missing(apart) == []
    assert Repairs(apart.facade).holes() != {}  # nobody knows of it any more what stood there
    Repairs(apart.facade).close(Repairs(apart.facade).holes())
    assert different(apart) == []


# The job.


def test_a_job_counts_what_its_last_look_found(moving: Migration) -> None:
    """I11: equal, left to a person, and nothing twice."""
    keys = [trip(moving) for _ in range(7)]
    for key in keys[:3]:
        foreign(moving, key, 3)
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [base(key) for key in keys], authority=Backend.LEGACY, source="diff-x")
    runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job))

    assert runner.serve_part()
    assert not runner.serve_part()

    seen = repairs.jobs.progress(job.id)
    assert seen.job.state is JobState.DONE
    assert seen.counts == {"rows": 7, "equal": 7}
    assert runner.actions == {Action.LIFT: 3, Action.PUT: 3}
    assert repairs.jobs.findings(job.id) == []


def _raise(point: str) -> None:
    raise FailpointReached(point)


@pytest.mark.parametrize("point", ACCIDENTS if SCALE >= 1 else ACCIDENTS[:7])
def test_an_accident_anywhere_leaves_what_the_next_one_finishes(moving: Migration, point: str) -> None:
    """I4, I6, I11: entries, cells and counts are what they are without the accident."""
    store = moving.facade.store
    torn, lost, ahead, extra = trip(moving, "t"), trip(moving, "l"), trip(moving, "a"), foreign(moving, uuid4(), 1)
    catch_up(store)
    spoil(store, stored(moving, torn), b'{"status":"foreign" }')
    lose(store, stored(moving, lost))
    foreign(moving, ahead, 4)
    targets = [base(torn), base(lost), base(ahead), base(extra.row_key)]
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, targets, authority=Backend.LEGACY, source="diff-x")

    with _doing_at(point, lambda: _raise(point)), pytest.raises(FailpointReached):
        RepairRunner(repairs.jobs, job.id, repairs.of_job(job)).serve_part()
    again = Repairs(moving.facade)
    RepairRunner(again.jobs, job.id, again.of_job(job)).serve_part()

    assert again.jobs.progress(job.id).counts == {"rows": 4, "equal": 4}
    assert again.jobs.state(job.id) is JobState.DONE
    moving.carry()
    catch_up(store)
    foreigners = {entry.row_key for entry in store.query_index("status_index", "foreign").entries}
    assert foreigners.isdisjoint(target.row_key for target in targets)
    assert store.indexes.verify("status_index", patience_seconds=5).is_clean
    for key in (torn, lost, ahead):
        assert moving.store.get_cell_latest(key, "BASE") == store.get_cell_latest(key, "BASE")
    assert store.get_row(extra.row_key) == {}
    actions = [action for action, _old, _new in mended(moving)]
    assert sorted(actions, key=str) == sorted(set(actions), key=str)  # nothing was done twice
    assert again.holes() == {}
    assert all(store.get_cells_for_shard(shard, 0, 1000) for shard in range(store.config.shards))
