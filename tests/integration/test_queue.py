"""The queue: what relays claim, deliver and set aside. No change is lost (I8), and twice does no harm (I4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from uuid import UUID, uuid4

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core import Json
from schemaless_core.cell.cell import Cell, CellKey
from tests.handovers import refreshed
from tests.legacy import FLAVOURS, legacy_server
from tests.legacy_backends import SHARDS, Company, company, status
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState, set_gate
from tripstore.backends.postgres.cells.log_days import keep_log_days
from tripstore.backends.postgres.errors import ChangesParked
from tripstore.backends.postgres.handover.walk import NEAR_IDS, SHARE, WHOLE_SECONDS, QueueWalk
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.ports.legacy import RealLegacyPort

DRIVER = "11111111-1111-1111-1111-111111111111"


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


@pytest.fixture
def trips(shared: Company) -> Company:
    return refreshed(shared)


@pytest.fixture
def port(trips: Company) -> RealLegacyPort:
    return RealLegacyPort(trips.store, claimed_by="one")


@pytest.fixture
def other(trips: Company) -> RealLegacyPort:
    return RealLegacyPort(trips.store, claimed_by="other")


def keys(cells: tuple[Cell, ...]) -> list[tuple[str, int]]:
    return [(cell.column_name, cell.ref_key) for cell in cells]


def end_leases(trips: Company) -> None:
    """As if the time of all leases had passed."""
    trips.legacy.sql(
        "UPDATE tripstore.queue SET claimed_until = now() - interval '1 s' WHERE claimed_until IS NOT NULL"
    )


@contextmanager
def session(trips: Company) -> Iterator[Connection]:
    with closing(trips.legacy.connect()) as connection:
        yield connection


# --------------------------------------------------------------------------------------------------------- claims


def test_a_claim_has_the_cells_that_a_reader_is_told_in_the_order_of_the_changes(
    trips: Company, port: RealLegacyPort
) -> None:
    body: Json = {"status": "requested", "fare": "12.50", "distance": 0.1, "driver_uuid": DRIVER, "more": [1, None]}
    row_key = uuid4()
    trips.store.put_cell(row_key, "BASE", 1, body)
    trips.store.put_cell(row_key, "NOTES", 1 << 20, {"text": "ä\u2028"})
    trips.store.put_cell(row_key, "FREE", -5, [None])
    trips.legacy.sql("UPDATE trips SET fare = 13.10 WHERE trip_uuid = %s", str(row_key))
    trips.legacy.sql("DELETE FROM notes WHERE trip_uuid = %s", str(row_key))

    copies = port.claim(10)

    assert keys(copies.cells[1:]) == [
        ("BASE", 1),
        ("NOTES", 1 << 20),
        ("FREE", -5),
        ("BASE", 2),
        ("NOTES", (1 << 20) + 1),
    ]
    assert list(copies.cells) == [trips.store.get_cell(*cell.key) for cell in copies.cells]
    assert copies.cells[1].body == body
    assert copies.cells[-1].is_tombstone
    assert copies.epoch == 0


def test_nothing_to_claim_has_an_epoch_too(port: RealLegacyPort) -> None:
    assert port.claim(10) == ((), 0)
    assert port.claim(10, from_others=True) == ((), 0)


def test_what_one_relay_has_claimed_no_other_claims(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    row_key = trips.base(*range(1, 8))

    first, second, third = port.claim(3), other.claim(3), port.claim(3)

    claimed = [cell.ref_key for copies in (first, second, third) for cell in copies.cells if cell.column_name == "BASE"]
    assert claimed == [1, 2, 3, 4, 5, 6, 1, 2, 7]  # with what room is left its own, which it has not delivered
    assert other.claim(10).cells[-1].ref_key == 6
    assert trips.versions(row_key) == list(range(7, 0, -1))


def test_the_claims_of_a_relay_that_was_killed_are_taken_over(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    trips.base(1, 2)
    port.claim(10)
    assert other.claim(10).cells == ()

    end_leases(trips)

    assert keys(other.claim(10).cells) == [(LEGACY_ID, 0), ("BASE", 1), ("BASE", 2)]


def test_a_switcher_takes_whatever_others_have_claimed(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    trips.base(1, 2)
    port.claim(10)

    assert keys(other.claim(10, from_others=True).cells) == [(LEGACY_ID, 0), ("BASE", 1), ("BASE", 2)]


def test_threads_of_one_port_claim_each_for_itself(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1, 2)
    port.claim(10)
    found: list[tuple[Cell, ...]] = []
    thread = threading.Thread(target=lambda: found.append(port.claim(10).cells))
    thread.start()
    thread.join(20)

    assert found == [()]


def test_a_claim_waits_for_no_lock_and_the_count_leaves_nothing_out(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    trips.base(1, 2, 3)
    other.claim(1)
    with session(trips) as holder:
        rows(holder, "SELECT 1 FROM tripstore.queue WHERE ref_key = 2 FOR UPDATE")

        assert keys(port.claim(10, from_others=True).cells)[1:] == [("BASE", 1), ("BASE", 3)]
        assert port.queued() == 3


def test_one_that_fails_again_and_again_is_left_for_longer(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1)
    leases = []
    for _ in range(6):
        port.claim(1)
        lease = "SELECT extract(epoch FROM claimed_until - now())::int, attempts FROM tripstore.queue"
        leases += trips.legacy.sql(lease)

    assert leases == [(2, 1), (4, 2), (8, 3), (16, 4), (32, 5), (64, 6)]


def test_the_epoch_of_a_claim_is_that_of_the_row(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1)
    trips.legacy.sql("UPDATE tripstore.authority SET epoch = 7")

    assert port.claim(10).epoch == 7


def test_a_walk_begins_where_the_last_one_found_something_and_now_and_then_at_the_beginning() -> None:
    now = [100.0]
    walk = QueueWalk(lambda: now[0])
    assert walk.begin() == 0
    walk.found(0, 50_000, 60_000, 0.001)
    assert walk.begin() == 50_000

    walk.found(50_000, None, 70_000, 0.001)
    assert walk.begin() == 70_000 - NEAR_IDS  # others may have lower ids and commit later

    now[0] += WHOLE_SECONDS
    assert walk.begin() == 0
    walk.found(0, None, 70_000, 10.0)
    now[0] += 10.0 / SHARE - 1
    assert walk.begin() == 70_000 - NEAR_IDS
    now[0] += 1
    assert walk.begin() == 0


def test_a_change_that_is_committed_late_is_found_behind_those_that_were_delivered(
    trips: Company, port: RealLegacyPort
) -> None:
    with session(trips) as late:
        rows(late, "INSERT INTO trips (status) VALUES ('late')")
        trips.legacy.sql("SELECT setval('tripstore.queue_id_seq', 1000000)")
        trips.base(1)
        port.mark_delivered(port.claim(10).cells)
        late.commit()
    found = next(copies.cells for _ in range(100_000) if (copies := port.claim(10)).cells)

    assert [cell.body for cell in found[1:]] == [{"status": "late"}]


# ------------------------------------------------------------------------------------------------------ legacy ids


def test_the_first_change_of_a_row_goes_with_its_legacy_id_or_stays(trips: Company, port: RealLegacyPort) -> None:
    id_, row_key = trips.legacy.trip()
    trips.legacy.sql("UPDATE trips SET status = 'later' WHERE id = %s", id_)
    copies = port.claim(10)
    pair, first, second = copies.cells
    assert pair == Cell(row_key, LEGACY_ID, 0, {"id": id_})

    port.mark_delivered([first, second])
    assert keys(port.claim(10).cells) == [(LEGACY_ID, 0), ("BASE", 1)]

    port.mark_delivered([pair])
    assert port.queued() == 1
    port.mark_delivered([pair, first])
    assert port.queued() == 0


def test_a_port_that_did_not_claim_keeps_to_that_as_well(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    trips.base(1)
    copies = port.claim(10)

    other.mark_delivered(copies.cells[1:])
    assert other.queued() == 1
    other.mark_delivered(copies.cells)
    assert other.queued() == 0

    # The log has no key that would refuse a second one: what moves it there finds it gone from the queue.
    port.mark_delivered(copies.cells)
    assert trips.legacy.sql("SELECT column_name, ref_key FROM tripstore.log") == [("BASE", 1)]


def test_the_legacy_id_of_a_row_that_is_gone_is_carried(trips: Company, port: RealLegacyPort) -> None:
    id_, row_key = trips.legacy.trip()
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", id_)

    cells = port.claim(10).cells

    assert cells[0] == Cell(row_key, LEGACY_ID, 0, {"id": id_})
    assert keys(cells) == [(LEGACY_ID, 0), ("BASE", 1), ("BASE", 2)]


def test_a_row_whose_legacy_id_is_unknown_is_carried_without(trips: Company, port: RealLegacyPort) -> None:
    id_, _ = trips.legacy.trip()
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    trips.legacy.sql("DELETE FROM tripstore.cell")

    copies = port.claim(10)
    port.mark_delivered(copies.cells)

    assert keys(copies.cells) == [("BASE", 1), ("BASE", 2)]
    assert port.queued() == 0


def test_a_legacy_id_that_is_refused_parks_the_first_change_of_its_row(trips: Company, port: RealLegacyPort) -> None:
    row_key = trips.base(1, 2)
    pair = port.claim(10).cells[0]

    port.park([pair], "conflict", "another id")

    assert [change.key for change in port.parked(10)] == [CellKey(row_key, "BASE", 1)]
    assert keys(port.claim(10).cells) == [("BASE", 2)]


# -------------------------------------------------------------------------------------------------------- delivery


def test_what_is_delivered_stands_in_the_log_as_it_stood_in_the_queue(trips: Company, port: RealLegacyPort) -> None:
    row_key = trips.base(1, 2)
    columns = (
        "row_key, column_name, ref_key, id, xid::text, at, layout, row, previous, origin, application, role, epoch"
    )
    queued = trips.legacy.sql(f"SELECT {columns} FROM tripstore.queue ORDER BY id")

    port.mark_delivered(port.claim(10).cells)

    assert trips.legacy.sql(f"SELECT {columns} FROM tripstore.log ORDER BY id") == queued
    assert trips.legacy.sql("SELECT count(*) FROM tripstore.log WHERE delivered_at >= at") == [(2,)]
    assert trips.versions(row_key) == [2, 1]


def test_a_change_that_another_relay_has_marked_is_no_error(
    trips: Company, port: RealLegacyPort, other: RealLegacyPort
) -> None:
    trips.base(1, 2)
    copies = port.claim(10)
    other.mark_delivered(other.claim(10, from_others=True).cells)

    port.mark_delivered(copies.cells)

    assert trips.legacy.sql("SELECT count(*) FROM tripstore.log") == [(2,)]


def test_two_who_mark_the_same_never_wait_for_each_other(trips: Company) -> None:
    for _ in range(10):
        trips.base(*range(1, 31))
    cells = RealLegacyPort(trips.store).claim(1000).cells
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = trips.legacy.sql(deadlocks)

    def mark(order: int) -> None:
        port = RealLegacyPort(trips.store)
        for first in range(0, len(cells), 60):
            port.mark_delivered([*cells[:1], *cells[first : first + 60][::order], *pairs])

    pairs = [cell for cell in cells if cell.column_name == LEGACY_ID]
    threads = [threading.Thread(target=mark, args=(order,)) for order in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert trips.legacy.sql("SELECT count(*), (SELECT count(*) FROM tripstore.queue) FROM tripstore.log") == [(300, 0)]
    assert trips.legacy.sql(deadlocks) == before


def test_relays_that_claim_and_fail_at_random_lose_no_change(trips: Company) -> None:
    """I8: a relay gives up in the middle of its work again and again; others write all the time."""
    delivered: set[CellKey] = set()
    row_keys = [trips.base(1) for _ in range(4)]
    stop = threading.Event()

    def relay(number: int) -> None:
        turn = 0
        while not (stop.is_set() and port_of(number).queued() == 0):
            turn += 1
            port = RealLegacyPort(trips.store, claimed_by=f"{number}.{turn % 3}", lease_seconds=0.02)
            copies = port.claim(7)
            sent = copies.cells[: len(copies.cells) // 2] if turn % 2 else copies.cells
            delivered.update(cell.key for cell in sent)
            if turn % 5:
                port.mark_delivered(sent)

    def port_of(number: int) -> RealLegacyPort:
        return RealLegacyPort(trips.store, claimed_by=str(number))

    relays = [threading.Thread(target=relay, args=(number,)) for number in range(3)]
    for thread in relays:
        thread.start()
    for ref in range(2, 20):
        for row_key in row_keys:
            trips.store.put_cell(row_key, "BASE", ref, status(ref))
    stop.set()
    for thread in relays:
        thread.join(60)

    wanted = {CellKey(row_key, "BASE", ref) for row_key in row_keys for ref in range(1, 20)}
    assert {key for key in delivered if key.column_name == "BASE"} == wanted
    assert trips.legacy.sql("SELECT count(*), count(DISTINCT (row_key, ref_key)) FROM tripstore.log") == [(76, 76)]


# ------------------------------------------------------------------------------------------------------------ epochs


def test_a_change_carries_the_epoch_of_the_authority_that_made_it(trips: Company) -> None:
    with trips.legacy.ours() as ours, session(trips) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('at 0')")
        set_gate(ours, GateReading(1, GateState.CLOSING))
        rows(writer, "INSERT INTO trips (status) VALUES ('still at 0')")
        writer.commit()
        set_gate(ours, GateReading(2, GateState.OPEN))
        trips.legacy.trip("at 2")

    assert trips.legacy.sql("SELECT epoch FROM tripstore.queue ORDER BY id") == [(0,), (0,), (2,)]


def test_a_change_that_goes_to_the_log_at_once_carries_it_in_every_partition(trips: Company) -> None:
    today = trips.legacy.sql("SELECT (now() AT TIME ZONE 'UTC')::date")[0][0]
    with trips.legacy.ours() as ours:
        set_gate(ours, GateReading(3, GateState.OPEN))
        for _ in range(2):
            rows(
                ours,
                "BEGIN; SET LOCAL tripstore.origin = 'reverse'; INSERT INTO public.trips (status) VALUES ('x'); COMMIT",
            )
            keep_log_days(ours, 7, date.fromisoformat(str(today)), shards=SHARDS)
        found = rows(ours, "SELECT tableoid::regclass::text LIKE '%%log_2%%', epoch FROM tripstore.log ORDER BY id")

    assert found == [(True, 3), (True, 3)]


# ------------------------------------------------------------------------------------------------------------ parking


def spoilt(trips: Company) -> UUID:
    """A row that no body can hold."""
    row_key = uuid4()
    trips.legacy.sql(
        "INSERT INTO trips (trip_uuid, status, base_extra) VALUES (%s, 'x', %s)", str(row_key), '{"n": 1e999}'
    )
    return row_key


def test_a_row_that_no_body_can_hold_is_parked_at_once_and_holds_no_other_up(
    trips: Company, port: RealLegacyPort
) -> None:
    row_key = spoilt(trips)
    trips.base(1)

    copies = port.claim(10)

    assert keys(copies.cells) == [(LEGACY_ID, 0), ("BASE", 1)]
    (parked,) = port.parked(10)
    assert (parked.key, parked.kind, parked.attempts) == (CellKey(row_key, "BASE", 1), "unreadable", 1)
    assert "base_extra" in parked.because or "n" in parked.because
    assert port.find_parked(parked.key) == parked
    assert port.claim(10, from_others=True).cells == copies.cells
    assert port.oldest()[:2] == (2, 1)


def test_a_change_by_an_unknown_layout_is_parked(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1)
    trips.legacy.sql("UPDATE tripstore.queue SET layout = 99")

    assert port.claim(10).cells == ()
    assert [change.kind for change in port.parked(10)] == ["unreadable"]


def test_a_parked_change_stays_in_history_and_is_tried_again_when_asked(trips: Company, port: RealLegacyPort) -> None:
    row_key = trips.base(1, 2, 3)
    cells = port.claim(10).cells
    port.park([cells[2]], "conflict", "another body is there")
    port.mark_delivered([each for each in cells if each is not cells[2]])

    assert trips.versions(row_key) == [3, 2, 1]
    assert (port.queued(), port.oldest()) == (1, (1, 1, 0.0))
    assert port.claim(10).cells == ()
    end_leases(trips)
    assert port.claim(10).cells == ()

    assert port.unpark([CellKey(row_key, "BASE", 9)]) == 0
    assert port.unpark([cells[2].key]) == 1
    assert port.parked(10) == []
    assert port.claim(10).cells == (cells[2],)


def test_all_parked_changes_can_be_tried_again(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1, 2, 3)
    port.park(port.claim(10).cells[1:], "refused", "too large")
    assert [change.key.ref_key for change in port.parked(2)] == [1, 2]

    assert port.unpark() == 3
    assert port.find_parked(CellKey(uuid4(), "BASE", 1)) is None
    assert len(port.claim(10).cells) == 4


def test_a_switcher_hears_that_only_parked_changes_are_left(trips: Company, port: RealLegacyPort) -> None:
    trips.base(1, 2)
    cells = port.claim(10).cells
    port.park([cells[2]], "conflict", "another body is there")

    assert keys(port.claim(10, from_others=True).cells) == [(LEGACY_ID, 0), ("BASE", 1)]
    port.mark_delivered(cells[:2])
    with pytest.raises(ChangesParked, match=r"1 change is parked") as caught:
        port.claim(10, from_others=True)
    assert caught.value.changes == 1
    assert port.claim(10).cells == ()


def test_the_age_is_that_of_the_oldest_change_that_is_not_parked(trips: Company, port: RealLegacyPort) -> None:
    row_key = trips.base(1, 2, 3)
    trips.legacy.sql("UPDATE tripstore.queue SET at = now() - (4 - ref_key) * interval '1 h' WHERE ref_key < 3")
    port.park([Cell(row_key, "BASE", 1, None)], "refused", "x")

    queued, parked, seconds = port.oldest()

    assert (queued, parked) == (3, 1)
    assert 7200 <= seconds < 7260
