"""The emulated shard log: dense, in an order that never changes, and nothing is ever skipped (I3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Position
from tests.factories import keys_in
from tests.legacy_backends import SHARDS, Company, company, status
from tests.legacy_databases import postgres_server
from tests.scale import scaled
from tripstore.backends.postgres.cells import log, log_days
from tripstore.backends.postgres.cells.log_days import KeptLog, keep_log_days
from tripstore.backends.postgres.ddl.ddl import Patience
from tripstore.backends.postgres.errors import LogPurged
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers


@pytest.fixture(scope="module")
def server(servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, "machine")


@pytest.fixture
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


def logged(trips: Company, shard: int, location: int | Position = 0) -> list[Cell]:
    return trips.store.get_cells_for_shard(shard, location, 100_000).cells


def test_changes_of_services_and_cells_of_the_facade_are_one_log(trips: Company) -> None:
    (row_key,) = islice(keys_in(trips.store, 3), 1)
    trips.store.put_cell(row_key, "BASE", 1, status("put"))
    trips.legacy.sql("UPDATE trips SET status = 'changed' WHERE trip_uuid = %s", str(row_key))
    trips.store.put_cell(row_key, "FREE", 1, {"any": "thing"})
    trips.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))

    assert logged(trips, 3) == [
        Cell(row_key, "BASE", 1, status("put")),
        Cell(row_key, "BASE", 2, status("changed")),
        Cell(row_key, "FREE", 1, {"any": "thing"}),
        Cell(row_key, "BASE", 3, None),
    ]
    assert [cell.added_id for cell in logged(trips, 3)] == [1, 2, 3, 4]


def test_a_transaction_that_is_still_open_holds_later_ones_back_and_is_not_skipped(trips: Company) -> None:
    first, second, third = islice(keys_in(trips.store, 1), 3)
    with closing(trips.legacy.connect()) as slow:
        slow.cursor().execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'slow')", (str(first),))
        trips.base(1, row_key=second)
        held_back = trips.store.get_cells_for_shard(1, 0, 10)
        # The control: a reader that tails the ids of the queue has passed the slow one by now.
        tailed = [row for (row,) in trips.legacy.sql("SELECT row_key::text FROM tripstore.queue ORDER BY id")]
        slow.commit()
    trips.base(1, row_key=third)

    assert (held_back.cells, held_back.head, held_back.next_location) == ([], 0, 0)
    assert tailed == [str(second)]
    assert [cell.row_key for cell in logged(trips, 1)] == [first, second, third]


def test_the_order_of_an_id_once_given_never_changes(trips: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the bound, what commits late comes after what a reader has seen, out of its place."""
    first, second = islice(keys_in(trips.store, 1), 2)
    bound = "q.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())"
    assert bound in log._NUMBER
    monkeypatch.setattr(log, "_NUMBER", log._NUMBER.replace(bound, "true"))
    with closing(trips.legacy.connect()) as slow:
        slow.cursor().execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'slow')", (str(first),))
        trips.base(1, row_key=second)
        assert [cell.row_key for cell in logged(trips, 1)] == [second]
        slow.commit()

    assert [cell.row_key for cell in logged(trips, 1)] == [second, first]
    xids = [
        xid
        for (xid,) in trips.legacy.sql(
            "SELECT q.xid::text::bigint FROM tripstore.numbered AS n JOIN tripstore.queue AS q "
            "USING (row_key, column_name, ref_key) ORDER BY n.added_id"
        )
    ]
    assert xids != sorted(xids)


def test_writers_and_readers_at_once_lose_and_repeat_nothing(trips: Company) -> None:
    """I3: a reader that has seen n never finds a cell at or below it later; all readers see the same."""
    each, stop = scaled(600, least=25), threading.Event()
    failures: list[Exception] = []
    written: list[Cell] = []
    seen: list[dict[int, list[Cell]]] = [{shard: [] for shard in range(SHARDS)} for _ in range(2)]

    def guarded(work: object, *arguments: object) -> None:
        try:
            work(*arguments)  # type: ignore[operator]  # one of the functions below
        except Exception as error:  # noqa: BLE001  # the test looks at them
            failures.append(error)

    def put(number: int) -> None:
        for _ in range(each):
            cell = Cell(uuid4(), "FREE", number, {"by": number})
            trips.store.put_cells([cell, Cell(cell.row_key, "BASE", 1, status(number))])
            written.extend([cell, Cell(cell.row_key, "BASE", 1, status(number))])

    def use_sql() -> None:
        with closing(trips.legacy.connect()) as connection, connection.cursor() as cursor:
            for number in range(each):
                keys = [uuid4() for _ in range(3)]
                for key in keys:
                    cursor.execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, %s)", (str(key), str(number)))
                connection.commit()
                written.extend(Cell(key, "BASE", 1, status(number)) for key in keys)

    def tail(mine: dict[int, list[Cell]]) -> None:
        locations: dict[int, int | datetime | Position] = dict.fromkeys(range(SHARDS), 0)
        while True:
            is_last = stop.is_set()
            pages = trips.store.get_cells_for_shards(locations, 7)
            for shard, page in pages.items():
                mine[shard] += page.cells
                locations[shard] = page.position
            if is_last and not any(page.cells for page in pages.values()):
                return

    writers = [threading.Thread(target=guarded, args=(put, number)) for number in (1, 2)]
    writers.append(threading.Thread(target=guarded, args=(use_sql,)))
    tailers = [threading.Thread(target=guarded, args=(tail, mine)) for mine in seen]
    for thread in (*writers, *tailers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in tailers:
        thread.join()

    assert failures == []
    assert seen[0] == seen[1]
    for cells in seen[0].values():
        assert [cell.added_id for cell in cells] == list(range(1, len(cells) + 1))
        times = [cell.created_at for cell in cells if cell.created_at]
        assert times == sorted(times)
    found = [cell for cells in seen[0].values() for cell in cells]
    assert sorted(cell.key for cell in found) == sorted(cell.key for cell in written)
    assert {cell.key: cell for cell in found} == {cell.key: cell for cell in written}


def test_delivery_moves_changes_without_a_trace_in_the_log(trips: Company) -> None:
    (row_key,) = islice(keys_in(trips.store, 2), 1)
    trips.store.put_cell(row_key, "BASE", 1, status(1))
    before = logged(trips, 2)
    trips.legacy.deliver()
    trips.store.put_cell(row_key, "BASE", 2, status(2))
    trips.legacy.deliver()

    after = logged(trips, 2)

    assert after[:1] == before
    assert [cell.ref_key for cell in after] == [1, 2]
    assert [cell.added_id for cell in after] == [1, 2]


def test_what_was_purged_is_said_to_be(trips: Company) -> None:
    (row_key,) = islice(keys_in(trips.store, 5), 1)
    for number in range(1, 6):
        trips.store.put_cell(row_key, "BASE", number, status(number))
    trips.store.get_cells_for_shard(5, 0, 10)
    trips.legacy.deliver()
    trips.legacy.sql("DELETE FROM tripstore.log WHERE ref_key < 4")

    for location in (0, 2):
        with pytest.raises(LogPurged):
            trips.store.get_cells_for_shard(5, location, 10)
    page = trips.store.get_cells_for_shard(5, 3, 10)

    assert [cell.ref_key for cell in page.cells] == [4, 5]
    assert page.next_location == page.head == 5


TODAY = date(2020, 5, 20)
OLD = datetime(2020, 5, 11, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def keep(trips: Company, today: date = TODAY) -> KeptLog:
    with trips.legacy.ours() as connection:
        return keep_log_days(connection, 7, today, shards=SHARDS, patience=Patience(lock_timeout_seconds=5.0))


def deliver_as_of(trips: Company, moment: datetime) -> None:
    """Deliver what is queued, all of it made and delivered at one moment, after capture began."""
    trips.legacy.sql("UPDATE tripstore.capture SET since = %s", OLD - DAY)
    trips.legacy.sql("UPDATE tripstore.queue SET at = %s", moment)
    trips.legacy.deliver()
    trips.legacy.sql("UPDATE tripstore.log SET delivered_at = at WHERE at = %s", moment)


def put(trips: Company, row_key: UUID, *refs: int) -> None:
    for ref in refs:
        trips.store.put_cell(row_key, "BASE", ref, status(ref))


@pytest.mark.parametrize("has_day", [True, False], ids=["a-day", "the-rest"])
def test_a_reader_who_has_read_all_of_what_was_dropped_goes_on(trips: Company, has_day: bool) -> None:
    (row_key,) = islice(keys_in(trips.store, 5), 1)
    if has_day:
        keep(trips, OLD.date())
    put(trips, row_key, 1, 2)
    deliver_as_of(trips, OLD)
    seen = trips.store.get_cells_for_shard(5, 0, 10)

    assert keep(trips).rows == 2
    put(trips, row_key, 3)

    page = trips.store.get_cells_for_shard(5, seen.position, 10)
    assert [(cell.added_id, cell.ref_key) for cell in page.cells] == [(3, 3)]
    with pytest.raises(LogPurged):
        trips.store.get_cells_for_shard(5, 0, 10)


@pytest.mark.parametrize("has_day", [True, False], ids=["a-day", "the-rest"])
def test_a_reader_who_has_missed_what_was_dropped_is_told(trips: Company, has_day: bool) -> None:
    """I3: nothing that a reader has not seen is skipped without a word, and no other shard's readers hear of it."""
    (row_key,), (other,) = islice(keys_in(trips.store, 5), 1), islice(keys_in(trips.store, 6), 1)
    if has_day:
        keep(trips, OLD.date())
    put(trips, row_key, 1)
    put(trips, other, 1)
    deliver_as_of(trips, OLD)
    seen = {shard: trips.store.get_cells_for_shard(shard, 0, 10).position for shard in (5, 6)}
    put(trips, row_key, 2, 3)
    deliver_as_of(trips, OLD)
    assert keep(trips).rows == 4
    put(trips, row_key, 4)
    put(trips, other, 2)

    with pytest.raises(LogPurged, match="shard 5"):
        trips.store.get_cells_for_shard(5, seen[5], 10)
    page = trips.store.get_cells_for_shard(5, OLD + DAY, 10)
    assert [cell.ref_key for cell in page.cells] == [4]
    assert trips.store.get_cells_for_shard(5, page.position, 10).cells == []
    assert [cell.ref_key for cell in trips.store.get_cells_for_shard(6, seen[6], 10).cells] == [2]


def test_without_the_gap_he_would_skip_it_in_silence(trips: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the one above."""
    monkeypatch.setattr(log_days, "leave_gaps", lambda *_arguments: None)
    (row_key,) = islice(keys_in(trips.store, 5), 1)
    put(trips, row_key, 1)
    seen = trips.store.get_cells_for_shard(5, 0, 10).position
    put(trips, row_key, 2, 3)
    deliver_as_of(trips, OLD)
    keep(trips)
    put(trips, row_key, 4)

    assert [cell.ref_key for cell in trips.store.get_cells_for_shard(5, seen, 10).cells] == [4]


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_ids_are_kept_for_what_is_kept(trips: Company, is_read: bool) -> None:
    """However many changes there were: one row for each shard, those of the last days, and no more."""
    keys = [key for shard in (5, 6) for key in islice(keys_in(trips.store, shard), 1)]
    for number in range(1, 4):
        keep(trips, OLD.date() + number * DAY)
        for key in keys:
            put(trips, key, 2 * number - 1, 2 * number)
        deliver_as_of(trips, OLD + number * DAY)
        if is_read:
            trips.store.get_cells_for_shards(dict.fromkeys((5, 6), datetime.now(UTC)), 10)
    for number in range(1, 4):
        assert keep(trips, TODAY + number * DAY).rows == 4

    assert trips.legacy.sql("SELECT shard, count(*) FROM tripstore.numbered GROUP BY 1 ORDER BY 1") == [(5, 1), (6, 1)]
    put(trips, keys[0], 7)
    head = trips.store.get_cells_for_shard(5, datetime.now(UTC) - DAY, 10)
    assert [cell.ref_key for cell in head.cells] == [7]
    with pytest.raises(LogPurged):
        trips.store.get_cells_for_shard(5, 0, 10)


def test_a_change_that_is_still_there_keeps_its_id(trips: Company) -> None:
    """I3: else it would come a second time, under a new one."""
    (row_key,) = islice(keys_in(trips.store, 5), 1)
    put(trips, row_key, 1)
    deliver_as_of(trips, OLD)
    put(trips, row_key, 2)
    trips.legacy.sql("UPDATE tripstore.queue SET at = %s", OLD)
    put(trips, row_key, 3)
    assert [cell.ref_key for cell in logged(trips, 5)] == [1, 2, 3]

    assert keep(trips).rows == 1

    assert [(cell.added_id, cell.ref_key) for cell in logged(trips, 5, 1)] == [(2, 2), (3, 3)]


def test_the_log_begins_with_capture(trips: Company) -> None:
    ((since,),) = trips.legacy.sql("SELECT since FROM tripstore.capture")
    row_key = trips.base(1)
    shard = trips.store.shard_of(row_key)

    with pytest.raises(LogPurged, match="begins at"):
        trips.store.get_cells_for_shard(shard, since - timedelta(seconds=1), 10)

    assert len(trips.store.get_cells_for_shard(shard, since, 10).cells) == 1
    assert trips.store.get_cells_for_shard(shard, datetime.now(UTC) + timedelta(days=1), 10).cells == []


def test_children_that_moved_to_their_table_keep_their_id(trips: Company) -> None:
    (row_key,) = islice(keys_in(trips.store, 6), 1)
    trips.store.put_cell(row_key, "STATUS", 1, {"result": "early"})
    before = logged(trips, 6)
    trips.legacy.deliver()
    trips.base(1, row_key=row_key)
    trips.legacy.deliver()

    assert logged(trips, 6) == [*before, Cell(row_key, "BASE", 1, status(1))]
