"""The reverse mirror: rehearses while Postgres is the authority, writes into the legacy tables while Schemaless is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, Datastore, Json
from schemaless_core.errors import Conflict, Unavailable
from tests.chaos.actors import running, wait_until
from tests.facades import Migration, migration
from tests.mirrors import (
    QUICK,
    counted,
    different,
    log_of,
    process,
    relaying,
    reverse_for_ever,
    reversing,
    rows_of,
    wait_until_delivered,
    wait_until_mirrored_back,
)
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import ControlPort
from tripstore.handover.steps import run
from tripstore.handover.switch import reverse, switch
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror import budget
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.parked import Parked
from tripstore.migration.mirror.reverse import ReverseMirror
from tripstore.phase import Phase

ENGINES = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]
CI_ENGINES = ENGINES if SCALE >= 1 else ENGINES[:2]
DRIVER = "11111111-1111-1111-1111-111111111111"


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase shadow: Postgres is the authority."""
    with migration(servers, stores, triggers=QUICK) as made:
        made.phase(Phase.SHADOW)
        yield made


@pytest.fixture
def live(moving: Migration) -> Migration:
    """Schemaless is the authority."""
    moving.phase(Phase.LIVE)
    return moving


@pytest.fixture(params=CI_ENGINES, ids=["-".join(pair) for pair in CI_ENGINES])
def live_everywhere(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, triggers=QUICK) as made:
        made.phase(Phase.SHADOW)
        made.phase(Phase.LIVE)
        yield made


def parked(moving: Migration) -> list[tuple[tuple[Any, ...], str]]:
    return [(tuple(each.key), each.kind) for each in Mirror(moving.facade).parked(is_reverse=True).listed(100)]


def outcomes(mode: str) -> dict[str, float]:
    names = ("equal", "stored", "different", "absent", "not_compared", "refused")
    return {name: counted("tripstore_reverse_cells_total", mode=mode, outcome=name) for name in names}


def since(before: dict[str, float], mode: str) -> dict[str, float]:
    """What was counted since, without what was not."""
    return {name: count - before[name] for name, count in outcomes(mode).items() if count > before[name]}


def put_foreign(moving: Migration, key: UUID, ref_key: int = 1, body: Json = "foreign", column: str = "BASE") -> None:
    moving.facade.store.as_copier().put_cell(key, column, ref_key, body)


# The rehearsal.


def test_cells_that_came_from_postgres_are_counted_as_equal_and_nothing_is_written(moving: Migration) -> None:
    id_, _key = moving.legacy.trip()
    moving.legacy.sql("UPDATE trips SET status = 'completed' WHERE id = %s", id_)
    moving.store.put_cell(uuid4(), "FREE", 1, {"no": "table"})
    before, changes = outcomes("rehearsal"), moving.legacy.changes()
    with relaying(moving), reversing(moving):
        wait_until_delivered(moving)
        wait_until_mirrored_back(moving)

    assert since(before, "rehearsal") == {"equal": 4.0}
    assert moving.legacy.changes() == changes
    assert parked(moving) == []


def test_i12_what_is_not_known_any_more_is_passed_and_not_counted_as_equal(moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    moving.legacy.sql("UPDATE trips SET status = 'completed' WHERE id = %s", id_)
    with relaying(moving):
        wait_until_delivered(moving)
    moving.legacy.sql("DELETE FROM tripstore.log WHERE row_key = %s", str(key))
    before = outcomes("rehearsal")
    with reversing(moving):
        wait_until_mirrored_back(moving)

    assert since(before, "rehearsal") == {"not_compared": 1.0, "equal": 2.0}
    assert parked(moving) == []


def test_a_cell_that_postgres_does_not_have_is_parked_with_its_row_and_passed_after_mending(moving: Migration) -> None:
    key, other = uuid4(), uuid4()
    put_foreign(moving, key, body={"status": "foreign"})
    put_foreign(moving, key, 2, {"status": "its successor"})
    before = outcomes("rehearsal")
    with relaying(moving), reversing(moving):
        wait_until("it is parked", lambda: len(parked(moving)) == 2)
        moving.legacy.trip(row_key=other)
        wait_until_delivered(moving)
        wait_until_mirrored_back(moving)

        assert parked(moving) == [((key, "BASE", 1), "failed"), ((key, "BASE", 2), "waiting")]
        assert since(before, "rehearsal")["absent"] >= 3

        moving.store.put_cell(key, "BASE", 1, {"status": "foreign"})
        moving.store.put_cell(key, "BASE", 2, {"status": "its successor"})
        assert Mirror(moving.facade).parked(is_reverse=True).retry(lambda change: change == (key, "BASE", 2)) == 2
        wait_until("both went", lambda: parked(moving) == [])


def test_i2_another_body_in_postgres_is_parked_and_names_no_body(moving: Migration) -> None:
    key = uuid4()
    put_foreign(moving, key, body={"status": "of schemaless"})
    moving.store.put_cell(key, "BASE", 1, {"status": "of postgres"})
    before = outcomes("rehearsal")
    with reversing(moving):
        wait_until("it is parked", lambda: len(parked(moving)) == 1)

    [found] = Mirror(moving.facade).parked(is_reverse=True).listed(10)
    assert "has another body under this key" in found.because
    assert "of schemaless" not in found.because
    assert since(before, "rehearsal")["different"] >= 3


def test_in_dualwrite_cells_are_passed_and_what_is_parked_is_still_compared(moving: Migration) -> None:
    key = uuid4()
    put_foreign(moving, key)
    with reversing(moving):
        wait_until("it is parked", lambda: len(parked(moving)) == 1)
        moving.phase(Phase.DUALWRITE)
        before = outcomes("rehearsal")
        put_foreign(moving, uuid4())
        wait_until_mirrored_back(moving)
        Mirror(moving.facade).parked(is_reverse=True).retry(lambda change: True)
        wait_until("it was tried again", lambda: since(before, "rehearsal").get("absent", 0) > 0)

    assert parked(moving) == [((key, "BASE", 1), "failed")]


def test_i10_of_many_cells_the_rehearsal_compares_no_more_than_its_budget_and_nothing_that_failed_is_left_out(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "CELLS_PER_SECOND", 1e-6)
    group = Mirror(moving.facade).reverse()
    keys = [uuid4() for _ in range(3)]
    runs = {shard: [Cell(key, "BASE", 1, "foreign", added_id=1)] for shard, key in enumerate(keys)}
    before = outcomes("rehearsal")

    first = group.deliver(runs)

    [failed] = [shard for shard, outcome in first.items() if outcome.error]
    assert {shard: outcome.done for shard, outcome in first.items()} == {shard: shard != failed for shard in runs}
    for _ in range(3):
        again = group.deliver(runs)
        assert [shard for shard, outcome in again.items() if outcome.error] == [failed]
    assert since(before, "rehearsal") == {"absent": 4.0}


# The mirror.


def test_whatever_is_put_into_schemaless_arrives_in_the_tables_and_nothing_comes_back(
    live_everywhere: Migration,
) -> None:
    live, trip, early = live_everywhere, uuid4(), uuid4()
    store = live.store
    store.put_cell(trip, "BASE", 1, {"status": "requested", "driver_uuid": DRIVER, "extra": [1, 2]})
    store.put_cell(trip, "STATUS", 1, {"result": "declined"})
    store.put_cell(trip, "NOTES", 1 << 20, {"text": "hello"})
    store.put_cell(early, "STATUS", 1, {"result": "before its parent"})
    store.put_cell(trip, "BASE", 5, {"status": "completed", "fare": "12.5"})
    store.put_cell(trip, "BASE", 3, {"status": "late"})
    store.put_cell(trip, "NOTES", (1 << 20) + 1, None)
    store.put_cell(early, "BASE", 1, {"status": "parent"})
    store.put_cell(early, "FREE", 1, ["no table"])
    with reversing(live), relaying(live):
        wait_until_mirrored_back(live)

    assert rows_of(live, trip) == [("completed", 5)]
    assert rows_of(live, trip, "attempts") == [("declined", 1)]
    assert rows_of(live, trip, "notes") == []
    assert rows_of(live, early, "attempts") == [("before its parent", 1)]
    assert different(live) == []
    assert live.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]
    assert {change.origin for change in live.legacy.changes()} == {"reverse"}


def test_a_row_made_in_schemaless_gets_its_legacy_id(live: Migration) -> None:
    key = uuid4()
    live.store.put_cell(key, "BASE", 1, {"status": "requested"})
    assert live.store.legacy_id(key) is None
    with reversing(live):
        wait_until_mirrored_back(live)
        wait_until("its id came", lambda: live.facade.store.get_cell(key, LEGACY_ID, 0) is not None)
        wait_until_mirrored_back(live)

    ((id_,),) = live.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(key))
    assert live.store.legacy_id(key) == id_
    assert different(live) == []


def test_a_trip_that_is_deleted_goes_from_the_tables_and_stays_away(live: Migration) -> None:
    key = uuid4()
    live.store.put_cell(key, "BASE", 1, {"status": "requested"})
    with reversing(live):
        wait_until_mirrored_back(live)
        assert rows_of(live, key) == [("requested", 1)]
        live.store.put_cell(key, "BASE", 2, None)
        live.store.put_cell(key, "BASE", 1, {"status": "requested"})
        wait_until_mirrored_back(live)

    assert rows_of(live, key) == []
    assert different(live) == []


def test_what_the_tables_cannot_hold_is_parked_with_its_row_in_order_and_carried_after_mending(
    live: Migration,
) -> None:
    live.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    owner = live.facade.store.as_owner(live.duo.ports.control.authority().epoch)
    key, other = uuid4(), uuid4()
    owner.put_cell(key, "BASE", 1, {"status": "much too long"})
    owner.put_cell(key, "BASE", 2, {"status": "short"})
    owner.put_cell(other, "BASE", 1, {"status": "short"})
    with reversing(live):
        wait_until("they are parked", lambda: len(parked(live)) == 2)
        wait_until_mirrored_back(live)
        assert parked(live) == [((key, "BASE", 1), "failed"), ((key, "BASE", 2), "waiting")]
        assert (rows_of(live, key), rows_of(live, other)) == ([], [("short", 1)])

        live.legacy.sql("ALTER TABLE trips DROP CONSTRAINT short")
        assert Mirror(live.facade).parked(is_reverse=True).retry(None) == 2
        wait_until("both went", lambda: parked(live) == [])

    assert rows_of(live, key) == [("short", 2)]
    assert live.duo.legacy.get_cell(key, "BASE", 1) == Cell(key, "BASE", 1, {"status": "much too long"})


def as_owner(live: Migration) -> Datastore:
    """A caller that asks no layout."""
    return live.facade.store.as_owner(live.duo.ports.control.authority().epoch)


def retried(live: Migration, parked_after: int) -> None:
    """Everything that is parked is tried again, with all that waits behind it."""
    wait_until_mirrored_back(live)
    tried = {each.key: each.attempts for each in listed(live)}
    Mirror(live.facade).parked(is_reverse=True).retry(None)

    def is_so() -> bool:
        found = listed(live)
        return len(found) == parked_after and all(each.attempts > tried[each.key] for each in found[:1])

    wait_until("all were tried again", is_so)


def wait_until_its_id_came(live: Migration, key: UUID) -> None:
    """A cell of its own, put when Postgres has the row."""
    wait_until("its id came", lambda: live.facade.store.get_cell(key, LEGACY_ID, 0) is not None)
    wait_until_mirrored_back(live)


def listed(live: Migration) -> list[Parked]:
    return Mirror(live.facade).parked(is_reverse=True).listed(100)


@pytest.mark.parametrize("refused", [{"status": "much too long"}, {"status": 5}], ids=["by Postgres", "by the layout"])
def test_a_later_version_goes_before_those_that_the_tables_cannot_hold(
    live_everywhere: Migration, refused: dict[str, Json]
) -> None:
    live, key = live_everywhere, uuid4()
    live.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    with reversing(live):
        for ref_key in (1, 2):
            as_owner(live).put_cell(key, "BASE", ref_key, refused)
        live.store.append_cell(key, "NOTES", {"text": "hello"})
        wait_until("it is parked", lambda: len(parked(live)) == 3)
        retried(live, 3)  # there is nothing that could go before it
        live.store.put_cell(key, "BASE", 3, {"status": "short"})
        wait_until("it waits", lambda: len(parked(live)) == 4)
        retried(live, 0)
        wait_until_mirrored_back(live)

    assert (rows_of(live, key), rows_of(live, key, "notes")) == ([("short", 3)], [("hello", 1)])
    assert live.duo.legacy.get_cell(key, "BASE", 1) == Cell(key, "BASE", 1, refused)
    assert different(live) == []
    assert {change.origin for change in live.legacy.changes(key)} == {"reverse"}


def test_a_version_that_is_the_latest_again_holds_up_its_row(live_everywhere: Migration) -> None:
    live, key = live_everywhere, uuid4()
    live.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    with reversing(live):
        live.store.put_cell(key, "BASE", 1, {"status": "short"})
        wait_until_its_id_came(live, key)  # or it waits behind the others some time later
        for ref_key, text in enumerate(["much too long", "shorter", "again too long"], 2):
            as_owner(live).put_cell(key, "BASE", ref_key, {"status": text})
        live.store.append_cell(key, "STATUS", {"result": "ok"})
        wait_until("they are parked", lambda: len(parked(live)) == 4)
        retried(live, 2)

        assert parked(live) == [((key, "BASE", 4), "failed"), ((key, "STATUS", 1), "waiting")]
    assert rows_of(live, key) == [("shorter", 3)]


def test_tombstones_on_children_go_before_the_deletion_that_they_are_in_the_way_of(live_everywhere: Migration) -> None:
    """A child that came while a tombstone was checked: what is refused says to put one on it first."""
    live, key = live_everywhere, uuid4()
    with reversing(live):
        live.store.put_cell(key, "BASE", 1, {"status": "a"})
        note = live.store.append_cell(key, "NOTES", {"text": "it came in between"}).ref_key
        wait_until_its_id_came(live, key)
        as_owner(live).put_cell(key, "BASE", 2, None)
        wait_until("it is parked", lambda: len(parked(live)) == 1)
        live.store.put_cell(key, "NOTES", note + 1, None)
        live.store.put_cell(key, "BASE", 3, {"status": "next life"})
        live.store.put_cell(key, "FREE", 1, "waits as well")
        wait_until("they wait", lambda: len(parked(live)) == 4)
        retried(live, 0)
        wait_until_mirrored_back(live)

    assert (rows_of(live, key), rows_of(live, key, "notes")) == ([("next life", 3)], [])
    assert different(live) == []


def test_a_deletion_that_is_refused_once_more_keeps_all_but_those_tombstones_behind_it(
    live_everywhere: Migration,
) -> None:
    live, key = live_everywhere, uuid4()
    live.legacy.sql("CREATE TABLE invoices (trip uuid REFERENCES trips (trip_uuid))")
    with reversing(live):
        live.store.put_cell(key, "BASE", 1, {"status": "a"})
        note = live.store.append_cell(key, "NOTES", {"text": "a"}).ref_key
        wait_until_its_id_came(live, key)
        live.legacy.sql("INSERT INTO invoices VALUES (%s)", str(key))
        as_owner(live).put_cell(key, "BASE", 2, None)
        wait_until("it is parked", lambda: len(parked(live)) == 1)
        live.store.put_cell(key, "NOTES", note + 1, None)
        live.store.put_cell(key, "BASE", 3, {"status": "next life"})
        live.store.append_cell(key, "NOTES", {"text": "b"})
        wait_until("they wait", lambda: len(parked(live)) == 4)
        retried(live, 3)

        assert [kind for _key, kind in parked(live)] == ["failed", "waiting", "waiting"]
        assert (rows_of(live, key), rows_of(live, key, "notes")) == ([("a", 1)], [])

        live.legacy.sql("DELETE FROM invoices")
        retried(live, 0)
        wait_until_mirrored_back(live)
    assert (rows_of(live, key), rows_of(live, key, "notes")) == ([("next life", 3)], [("b", 2)])
    assert different(live) == []


def test_a_parked_cell_closes_the_way_back(live: Migration) -> None:
    live.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    epoch = live.duo.ports.control.authority().epoch
    live.facade.store.as_owner(epoch).put_cell(uuid4(), "BASE", 1, {"status": "much too long"})
    with reversing(live):
        wait_until("it is parked", lambda: len(parked(live)) == 1)
        wait_until_mirrored_back(live)

    assert sum(live.duo.ports.store.unmirrored(server) for server in live.duo.ports.store.servers) > 0


def test_cells_wait_while_postgres_is_away_and_none_is_parked(live: Migration) -> None:
    key = uuid4()
    live.store.put_cell(key, "BASE", 1, {"status": "requested"})
    group = Mirror(live.facade).reverse()

    def away() -> Authority:
        raise LegacyUnavailable("Postgres is away.")

    group._control = control_of(away)

    assert isinstance(delivered(live, group, key), Unavailable)
    assert rows_of(live, key) == []


def test_i2_another_legacy_id_in_schemaless_is_parked_with_the_row_that_has_it(live: Migration) -> None:
    key = uuid4()
    put_foreign(live, key, 0, {"id": -1}, LEGACY_ID)
    live.store.put_cell(key, "BASE", 1, {"status": "requested"})
    with reversing(live):
        wait_until("they are parked", lambda: len(parked(live)) == 2)

    assert {kind for _key, kind in parked(live)} == {"failed", "waiting"}


POINTS = [
    "reverse.write",
    "put.before_commit",
    "put.committed",
    "reverse.applied",
    "triggers.before_advance",
    "reverse.moved",
]


@pytest.mark.parametrize("point", POINTS)
def test_i1_a_reverse_mirror_that_is_killed_loses_nothing_and_another_takes_over(
    live: Migration, failpoints: Path, point: str
) -> None:
    (failpoints / point).write_text("kill")
    keys = [uuid4() for _ in range(20)]
    for key in keys:
        live.store.put_cell(key, "BASE", 1, {"status": "requested"})
    with running([process(reverse_for_ever, live, failpoints)]):
        wait_until(f"it died at {point}", (failpoints / f"{point}.hit").exists)
        with reversing(live):
            wait_until_mirrored_back(live)
            wait_until("ids came", lambda: len(log_of(live)) == 40)
            wait_until_mirrored_back(live)

    assert [rows_of(live, key) for key in keys] == [[("requested", 1)]] * 20
    assert different(live) == []


def test_a_group_that_rehearsed_a_moment_ago_mirrors_as_soon_as_schemaless_is_the_authority(
    moving: Migration,
) -> None:
    group = Mirror(moving.facade).reverse()
    _id, before = moving.legacy.trip()
    moving.carry()
    assert delivered(moving, group, before) is None
    moving.phase(Phase.LIVE)
    key = uuid4()
    moving.store.put_cell(key, "BASE", 1, {"status": "requested"})

    assert delivered(moving, group, key) is None
    assert rows_of(moving, key) == [("requested", 1)]


def control_of(authority: Callable[[], Authority]) -> ControlPort:
    """One that tells the row like this, and nothing else."""
    return cast(ControlPort, SimpleNamespace(authority=authority))


def delivered(moving: Migration, group: ReverseMirror, key: UUID) -> Exception | None:
    """Hand the first cell of a row to the group; what came of it."""
    cell = moving.facade.store.get_cell(key, "BASE", 1)
    assert cell is not None
    shard = moving.facade.store.shard_of(key)
    return group.deliver({shard: [cell]})[shard].error


@pytest.mark.parametrize("is_looked_at_again", [True, False], ids=["again", "control"])
def test_a_row_that_was_read_too_early_sets_no_cell_aside(moving: Migration, is_looked_at_again: bool) -> None:
    old = moving.duo.ports.control.authority()
    moving.phase(Phase.LIVE)
    rows = [old, moving.duo.ports.control.authority() if is_looked_at_again else old]
    put = moving.store.put_cell(uuid4(), "BASE", 1, {"status": "requested"})
    assert put.added_id is not None
    cells = moving.facade.store.get_cells_for_shard(put.shard, put.added_id - 1, 1).cells
    group = Mirror(moving.facade).reverse()
    group._control = group._rehearsal._control = control_of(lambda: rows.pop(0))

    error = group.deliver({put.shard: cells})[put.shard].error

    assert isinstance(error, Unavailable if is_looked_at_again else Conflict)


def test_a_whole_migration_forth_and_back_under_writes_leaves_both_stores_equal(moving: Migration) -> None:
    """I1, I8, I9: a facade writes all the time, in whichever phase; relays and the reverse mirror carry."""
    ended, keys, failures = threading.Event(), list[UUID](), list[BaseException]()

    def write() -> None:
        try:
            while not ended.is_set():
                keys.append(uuid4())
                moving.store.put_cell(keys[-1], "BASE", 1, {"status": "requested"})
                moving.store.put_cell(keys[-1], "STATUS", 1, {"result": "captured"})
                moving.store.put_cell(keys[-1], "BASE", 2, {"status": "completed"})
        except BaseException as error:  # noqa: BLE001  # raised by the test below
            failures.append(error)

    def wait_for_writes(number: int) -> None:
        wanted = len(keys) + number
        wait_until("writes go on", lambda: len(keys) >= wanted or failures)

    writer = threading.Thread(target=write)
    with relaying(moving), reversing(moving):
        writer.start()
        for name, step in (("forth", switch), ("back", reverse), ("forth again", switch)):
            wait_for_writes(20)
            outcome = run(step(moving.duo.ports, name))
            assert outcome.is_decided, outcome.reason
        wait_for_writes(20)
        ended.set()
        writer.join(60)
        wait_until_mirrored_back(moving)
        wait_until_delivered(moving)

    assert failures == []
    assert moving.duo.ports.control.authority().is_open_for(Backend.STORE)
    wanted = [CellKey(key, column, ref) for key in keys for column, ref in (("BASE", 1), ("STATUS", 1), ("BASE", 2))]
    assert None not in moving.facade.store.get_cells(wanted)
    assert different(moving) == []


def test_the_group_is_created_once_and_begins_at_now(moving: Migration) -> None:
    record = moving.facade.store.triggers.coordinator.find_group(REVERSE_GROUP)

    assert record is not None
    assert record.start == "now"
