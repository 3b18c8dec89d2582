"""The log by day: days are made ahead and dropped when they are old, and no writer or reader waits for that."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.chaos.actors import wait_until, with_failpoints
from tests.forking import FORK_SERVER
from tests.legacy_backends import SHARDS, company
from tests.legacy_databases import FLAVOURS, new_database, postgres_server, run
from tests.scale import SCALE
from tripstore.backends.postgres.cells import log_days
from tripstore.backends.postgres.cells.log_days import KeptLog, keep_log_days
from tripstore.backends.postgres.ddl.ddl import Patience
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TODAY = date(2020, 5, 20)
DAY = timedelta(days=1)
RETENTION = 7
#: Of a day that goes on TODAY, and of one that stays.
OLD, YOUNG = TODAY - (RETENTION + 2) * DAY, TODAY - RETENTION * DAY
#: Two cores carry everything: a try that is too short is a try in vain.
PATIENT = Patience(lock_timeout_seconds=5.0, pause_seconds=0.05)
HASTE = Patience(lock_timeout_seconds=0.05, pause_seconds=0.0, give_up_seconds=0.0)
AS_LONG_AS_IT_TAKES = Patience(lock_timeout_seconds=60.0, old_seconds=600.0)
AGAIN_AND_AGAIN = Patience(lock_timeout_seconds=0.5, pause_seconds=0.0, old_seconds=600.0)
POINTS = ("log.day_made", "log.gaps_left", "log.day_dropped", "log.rows_deleted")


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else ["postgres18"])
def url(request: pytest.FixtureRequest, servers: LocalServers) -> str:
    """A database with our tables, and nothing in them."""
    return new_database(servers, FLAVOURS[request.param])


def keep(url: str, today: date = TODAY, patience: Patience = PATIENT) -> KeptLog:
    with connected(url, "test") as connection:
        return keep_log_days(connection, RETENTION, today, shards=SHARDS, patience=patience)


def at(day: date, hour: int = 12) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


INSERT = """
INSERT INTO tripstore.log (row_key, column_name, ref_key, id, at, row, delivered_at)
VALUES (%s, 'FREE', 1, 1, %s, '{}', %s) RETURNING 1
"""


def log(url: str, made: datetime, delivered: datetime | None = None) -> str:
    """A change that was made and, if nothing else is said, delivered at once."""
    key = str(uuid4())
    run(url, INSERT, key, made, delivered or made)
    return key


def places(url: str) -> dict[Any, Any]:
    """Which partition each change is in."""
    return dict(run(url, "SELECT row_key::text, tableoid::regclass::text FROM tripstore.log"))  # type: ignore[arg-type]


def days(url: str) -> list[object]:
    partitions = (
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'tripstore.log'::regclass ORDER BY 1"
    )
    return [name for (name,) in run(url, partitions)]


def table(day: date) -> str:
    return f"tripstore.log_{day:%Y%m%d}"


def test_days_are_made_from_today_to_three_days_ahead_and_only_once(url: str) -> None:
    first, second, tomorrow = keep(url), keep(url), keep(url, TODAY + DAY)
    ahead = [TODAY + number * DAY for number in range(5)]

    assert first == KeptLog(created=tuple(ahead[:4]))
    assert second == KeptLog()
    assert tomorrow == KeptLog(created=tuple(ahead[4:]))
    assert days(url) == [*map(table, ahead), "tripstore.log_rest"]


def test_a_change_is_in_the_partition_of_its_day_in_utc_and_found_by_its_key(url: str) -> None:
    keep(url)
    midnight = datetime(TODAY.year, TODAY.month, TODAY.day, tzinfo=UTC)
    just = timedelta(microseconds=1)
    keys = [log(url, moment) for moment in (midnight - just, midnight, midnight + DAY - just, midnight + DAY)]

    assert [places(url)[key] for key in keys] == [
        "tripstore.log_rest",
        table(TODAY),
        table(TODAY),
        table(TODAY + DAY),
    ]
    indexes = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tripstore.log_key'::regclass"
    assert run(url, indexes) == [(5,)]


def test_changes_that_came_before_their_day_move_into_it(url: str) -> None:
    yesterday, today = log(url, at(TODAY - DAY)), log(url, at(TODAY))

    assert len(keep(url).created) == 4
    assert places(url) == {yesterday: "tripstore.log_rest", today: table(TODAY)}


def test_a_large_rest_is_looked_through_with_everybody_in_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: Postgres takes the constraint's word; a day that begins soon is left where it is."""
    monkeypatch.setattr(log_days, "SMALL_BLOCKS", 0)
    key = log(url, at(TODAY))
    with connected(url, "test") as connection:
        rows(connection, "SET client_min_messages = debug1")
        found = keep_log_days(connection, RETENTION, TODAY, shards=SHARDS, patience=PATIENT)
        said = "".join(connection.notices)

    assert (found.created, found.left) == ((TODAY + 3 * DAY,), ())
    assert 'default partition "log_rest" is implied by existing constraints' in said
    assert run(url, EXCLUDED) == [(0,)]
    assert keep(url, TODAY + DAY).created == (TODAY + 4 * DAY,)
    assert places(url) == {key: "tripstore.log_rest"}


EXCLUDED = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'tripstore.log_rest'::regclass AND contype = 'c'"


def test_a_large_rest_that_has_a_change_of_a_day_ahead_keeps_that_day(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_days, "SMALL_BLOCKS", 0)
    log(url, at(TODAY + 3 * DAY))

    assert keep(url) == KeptLog()
    key = log(url, at(TODAY + 3 * DAY))
    assert places(url)[key] == "tripstore.log_rest"


def test_what_a_killed_run_left_refuses_no_change(url: str, monkeypatch: pytest.MonkeyPatch, failpoints: Path) -> None:
    """I8: the day that it would refuse is days away, and the first call of tomorrow lets it in."""
    monkeypatch.setattr(log_days, "SMALL_BLOCKS", 0)
    log(url, at(TODAY))
    (failpoints / "log.day_excluded").write_text("raise")
    use_folder(failpoints)
    try:
        with pytest.raises(FailpointReached):
            keep(url)
    finally:
        use_folder(None)
    with pytest.raises(postgres.CheckViolation):
        log(url, at(TODAY + 3 * DAY))
    for day in (TODAY, TODAY + DAY, TODAY + 2 * DAY):
        log(url, at(day))

    assert keep(url, TODAY + DAY).created == (TODAY + 4 * DAY,)
    key = log(url, at(TODAY + 3 * DAY))
    assert places(url)[key] == "tripstore.log_rest"


def test_a_run_that_was_killed_before_it_attached_a_day_is_ended_by_the_next(
    url: str, monkeypatch: pytest.MonkeyPatch, failpoints: Path
) -> None:
    log(url, at(TODAY))
    kill_at(failpoints, "log.day_excluded", keep_beside_a_large_rest, url)
    with pytest.raises(postgres.CheckViolation):  # the control: it left its CHECK
        log(url, at(TODAY + 3 * DAY))

    monkeypatch.setattr(log_days, "SMALL_BLOCKS", 0)
    assert keep(url).created == (TODAY + 3 * DAY,)

    assert run(url, EXCLUDED) == [(0,)]
    key = log(url, at(TODAY + 3 * DAY))
    assert places(url)[key] == table(TODAY + 3 * DAY)


def keep_beside_a_large_rest(url: str) -> None:
    """In a process of its own."""
    log_days.SMALL_BLOCKS = 0
    keep(url)


def test_a_clock_that_is_ahead_of_the_database_drops_nothing(url: str) -> None:
    ((today,),) = run(url, "SELECT (now() AT TIME ZONE 'UTC')::date")
    assert isinstance(today, date)
    key = log(url, at(today - DAY))

    found = keep(url, today + 365 * DAY)

    assert found.created[-1] - today <= 4 * DAY
    assert key in places(url)


def test_a_day_is_dropped_when_all_of_it_was_delivered_long_ago(url: str) -> None:
    keep(url, OLD)
    old, young = log(url, at(OLD)), log(url, at(YOUNG))

    assert keep(url, TODAY - DAY).dropped == ()
    found = keep(url)

    assert (found.dropped, found.rows, found.left) == ((OLD,), 1, ())
    assert places(url) == {young: table(YOUNG)}
    assert old not in places(url)


@pytest.mark.parametrize("delivered", [None, at(TODAY - RETENTION * DAY, 0)])
def test_a_day_with_one_change_that_was_not_delivered_long_ago_stays(url: str, delivered: datetime | None) -> None:
    keep(url, OLD)
    key = log(url, at(OLD))
    run(url, "UPDATE tripstore.log SET delivered_at = %s", delivered)

    assert keep(url).dropped == ()
    assert places(url) == {key: table(OLD)}


def test_what_waits_in_the_queue_is_never_touched_and_keeps_its_day(url: str) -> None:
    """I8: else a change that is delivered while its day is being dropped would go with it."""
    keep(url, OLD - DAY)
    log(url, at(OLD - DAY))
    log(url, at(OLD))
    run(
        url,
        "INSERT INTO tripstore.queue (row_key, column_name, ref_key, at) VALUES (%s, 'FREE', 1, %s)",
        str(uuid4()),
        at(OLD),
    )

    assert keep(url).dropped == (OLD - DAY,)
    assert run(url, "SELECT at FROM tripstore.queue") == [(at(OLD),)]
    run(url, "DELETE FROM tripstore.queue")
    assert keep(url).dropped == (OLD,)


def test_old_changes_without_a_day_of_their_own_are_deleted_one_by_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_days, "BLOCKS_PER_DELETE", 1)
    run(
        url,
        "INSERT INTO tripstore.log (row_key, column_name, ref_key, id, at, row, delivered_at) "
        "SELECT gen_random_uuid(), 'FREE', 1, n, %s, repeat('x', 900), %s FROM generate_series(1, 50) AS n",
        at(OLD),
        at(OLD),
    )
    stay = {log(url, at(OLD), at(YOUNG)), log(url, at(YOUNG))}
    undelivered = log(url, at(OLD))
    run(url, "UPDATE tripstore.log SET delivered_at = NULL WHERE row_key = %s", undelivered)

    assert keep(url).rows == 50
    assert places(url).keys() == stay | {undelivered}


def test_a_partition_that_an_operator_detached_is_neither_dropped_nor_made_again(url: str) -> None:
    keep(url, OLD)
    for day in (OLD, TODAY + DAY):
        keep(url, day)
        run_ddl(url, f"ALTER TABLE tripstore.log DETACH PARTITION {table(day)}")
    run_ddl(url, "CREATE TABLE tripstore.log_99999999 ()")

    found = keep(url)

    assert OLD not in found.dropped
    assert table(TODAY + DAY) not in days(url)
    assert run(url, "SELECT to_regclass(%s) IS NOT NULL", table(OLD)) == [(True,)]


def run_ddl(url: str, statement: str) -> None:
    with connected(url, "test") as connection:
        rows(connection, statement)


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """A session that reads the log in a transaction that stays open."""
    with closing(psycopg2.connect(url)) as connection:
        connection.cursor().execute("SELECT count(*) FROM tripstore.log")
        yield connection


def waits(url: str, application: str) -> bool:
    found = run(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s "
        "AND wait_event_type = 'Lock'",
        application,
    )
    return found != [(0,)]


def test_what_an_open_transaction_is_in_the_way_of_is_left_to_the_next_call(url: str) -> None:
    overdue(url)
    with reading(url):
        found = keep(url, patience=HASTE)
    assert (found.created, found.dropped) == ((), ())
    assert found.left == (TODAY + 2 * DAY, TODAY + 3 * DAY, OLD)

    found = keep(url)
    assert (found.created, found.dropped, found.left) == ((TODAY + 2 * DAY, TODAY + 3 * DAY), (OLD,), ())


def overdue(url: str) -> None:
    """A day that is to be dropped, and two that are to be made."""
    keep(url, OLD)
    log(url, at(OLD))
    keep(url, TODAY - 2 * DAY)


@pytest.mark.parametrize("is_dropping", [False, True], ids=["making", "dropping"])
def test_a_session_that_comes_behind_a_lock_that_we_wait_for_passes_before_us(
    url: str, monkeypatch: pytest.MonkeyPatch, is_dropping: bool
) -> None:
    """I10: who writes to the log or reads it waits for a try of ours at most, not for whom we wait for."""
    overdue(url)
    if is_dropping:
        monkeypatch.setattr(log_days, "DAYS_AHEAD", 1)
    with reading(url) as reader, ThreadPoolExecutor(1) as pool:
        ours = pool.submit(keep, url, TODAY, AGAIN_AND_AGAIN)
        wait_until("we wait for the reader", lambda: waits(url, "tripstore test"))
        for statement in (INSERT, "SELECT count(*) FROM tripstore.log"):
            values = (str(uuid4()), at(YOUNG), at(YOUNG)) if statement == INSERT else ()
            assert run(url, f"SET lock_timeout = '20s'; {statement}", *values)
        assert not ours.done()
        reader.rollback()
        found = ours.result(120)

    assert found.dropped == (OLD,)
    assert found.created == (() if is_dropping else (TODAY + 2 * DAY, TODAY + 3 * DAY))


def test_without_our_limit_they_would_wait_as_long_as_the_reader_reads(url: str) -> None:
    """The control of the one above."""
    keep(url)
    with reading(url) as reader, connected(url, "maker") as maker, ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(rows, maker, f"DROP TABLE {table(TODAY)}")
        wait_until("the one without a limit waits", lambda: waits(url, "tripstore maker"))
        with pytest.raises(postgres.LockNotAvailable):
            run(url, f"SET lock_timeout = '300ms'; {INSERT}", str(uuid4()), at(YOUNG), at(YOUNG))
        reader.rollback()
        dropped.result(60)


def test_a_writer_who_comes_while_his_day_is_made_is_not_refused(url: str) -> None:
    """I8: a delivery that has chosen the rest is refused there once its day has a partition. So none gets so far."""
    assert isinstance(meet(url), str)

    assert TODAY in {date.fromisoformat(str(name).split("_")[-1]) for name in places(url).values()}


def test_without_our_lock_he_would_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the one above."""
    monkeypatch.setattr(log_days, "_KEEP_WRITERS_OUT", "SELECT 1")

    with pytest.raises(postgres.CheckViolation):
        meet(url)


def meet(url: str) -> str:
    """A writer whose day is being made, while a reader keeps us from the last step."""
    with reading(url) as reader, ThreadPoolExecutor(2) as pool:
        ours = pool.submit(keep, url, TODAY, AS_LONG_AS_IT_TAKES)
        wait_until("we wait for the reader", lambda: waits(url, "tripstore test"))
        written = pool.submit(log, f"{url}?application_name=writer", at(TODAY))
        wait_until("the writer waits for us", lambda: waits(url, "writer"))
        reader.rollback()
        assert TODAY in ours.result(60).created
        return written.result(60)


def test_two_at_once_do_not_meet(url: str, failpoints: Path) -> None:
    """While one is at it, the other has nothing to do, and does not wait either."""
    (failpoints / "log.day_made").write_text("wait")
    use_folder(failpoints)
    try:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(keep, url)
            wait_until("the first is in the middle", (failpoints / "log.day_made.hit").exists)
            second = keep(url)
            (failpoints / "log.day_made.go").touch()
            assert len(first.result(60).created) == 4
    finally:
        use_folder(None)

    assert second == keep(url) == KeptLog()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_ended_anywhere_is_ended_by_the_next(url: str, failpoints: Path, point: str) -> None:
    stays = much_to_do(url)
    (failpoints / point).write_text("raise")
    use_folder(failpoints)
    try:
        with pytest.raises(FailpointReached):
            keep(url)
    finally:
        use_folder(None)

    assert_done_by_the_next(url, stays)


def test_a_run_that_was_killed_keeps_no_other_out(url: str, failpoints: Path) -> None:
    stays = much_to_do(url)
    kill_at(failpoints, "log.gaps_left", keep, url)
    assert_done_by_the_next(url, stays)


def kill_at(failpoints: Path, point: str, work: Callable[[str], object], url: str) -> None:
    """Let a process die at a failpoint of its work."""
    (failpoints / point).write_text("kill")
    process = FORK_SERVER.Process(target=with_failpoints, args=(str(failpoints), work, url))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    wait_until("its session is over", lambda: run(url, AT_IT) == [(0,)])


def much_to_do(url: str) -> str:
    """An old change in the rest, another one in a day, and one that stays."""
    log(url, at(OLD - DAY))
    keep(url, OLD)
    log(url, at(OLD))
    return log(url, at(YOUNG))


def assert_done_by_the_next(url: str, stays: str) -> None:
    keep(url)
    assert places(url) == {stays: table(YOUNG)}
    ours = [*(OLD + number * DAY for number in range(1, 4)), *(TODAY + number * DAY for number in range(4))]
    assert days(url) == [*map(table, ours), "tripstore.log_rest"]


AT_IT = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.mark.parametrize("flavour", FLAVOURS.values())
def test_versions_whose_day_was_dropped_are_not_known_here_any_more(servers: LocalServers, flavour: Flavour) -> None:
    """I12: "not known any more" is another answer than "nothing was there"."""
    with company(postgres_server(servers, flavour)) as trips:
        row_key = trips.base(1, 2, 3)
        keep(trips.legacy.url, OLD)
        trips.legacy.sql("UPDATE tripstore.queue SET at = CASE ref_key WHEN 1 THEN %s ELSE %s END", at(OLD), at(YOUNG))
        trips.legacy.deliver()
        trips.legacy.sql("UPDATE tripstore.log SET delivered_at = at")
        assert trips.versions(row_key) == [3, 2, 1]

        assert keep(trips.legacy.url).dropped == (OLD,)

        for ask in (
            lambda: trips.store.get_cell(row_key, "BASE", 1),
            lambda: trips.store.get_history(row_key, "BASE"),
            lambda: trips.store.get_history(row_key, "BASE", before=2),
        ):
            with pytest.raises(HistoryTruncated):
                ask()
        assert [cell.ref_key for cell in trips.store.get_history(row_key, "BASE", limit=2)] == [3, 2]
        assert trips.store.get_cell(row_key, "BASE", 4) is None
