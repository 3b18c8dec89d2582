"""Experiments over both stores: each class of a wrong rewrite is found by its own, and a right one shows nothing.

The control is SQL on the company's tables, the candidate the store's API, as a service would write them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg2.extras
import pytest

from schemaless_core import Json
from schemaless_core.control.ledgers.ledgers import Ledgers
from tests.facades import Migration, facts_of
from tests.indexing import catch_up, only_maintained
from tests.shadow_traffic import comparing
from tests.stores import Stores
from tripstore.engines.validation.shadow.ledger import ShadowLedger
from tripstore.facade.experiments.flags import ExperimentBook
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import Unknown
from tripstore.migration.rewrites.standings import Standings
from tripstore.phase import Phase
from tripstore.store import TripStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRIPS = 5


@dataclass(frozen=True)
class Driver:
    """Who has five trips: an hour apart, one of them without a status."""

    key: UUID
    trips: list[UUID]


@pytest.fixture(scope="module")
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with comparing(servers, stores) as opened:
        only_maintained(opened.facade.store)
        opened.legacy.sql("SET timezone = 'Europe/Vienna'")
        yield opened


@pytest.fixture
def driver(moving: Migration) -> Driver:
    made = Driver(uuid4(), [uuid4() for _ in range(TRIPS)])
    ((number,),) = moving.legacy.sql("SELECT max(id) + 1 FROM users")
    moving.legacy.sql("INSERT INTO users VALUES (%s, %s, 'x')", number, str(made.key))
    for n, trip in enumerate(made.trips):
        body: dict[str, Json] = {
            "driver_uuid": str(made.key),
            "fare": f"{n}.50",
            "request_at": f"{NOON + timedelta(hours=n):%FT%T.%fZ}",
        }
        moving.store.put_cell(trip, "BASE", 1, body | ({} if n == 2 else {"status": "paid"}))
    moving.carry()
    catch_up(moving.facade.store)
    return made


SQL = """
SELECT trip_uuid::text AS trip, status, fare, request_at FROM trips JOIN users ON users.id = trips.driver_id
WHERE user_uuid = %s AND request_at >= %s ORDER BY request_at LIMIT %s
"""


def of_sql(moving: Migration, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    """The old query, with a session of its own."""
    connected = psycopg2.connect(moving.legacy.url, cursor_factory=psycopg2.extras.RealDictCursor)
    with closing(connected) as session, session.cursor() as cursor:
        cursor.execute(SQL, (str(driver), since, limit))
        return [dict(row) for row in cursor.fetchall()]


def of_cells(
    store: TripStore,
    driver: UUID,
    since: datetime,
    limit: int,
    *,
    operator: Literal[">=", ">"] = ">=",
    descending: bool = False,
) -> list[dict[str, Any]]:
    """The rewrite."""
    found = store.query_index(
        "trips_of_driver",
        driver,
        where=[("request_at", operator, since)],
        columns=["BASE"],
        order_by="request_at",
        descending=descending,
        limit=limit,
    )
    return [row(str(entry.row_key), (entry.cells or {})["BASE"].body) for entry in found.entries]


def row(trip: str, body: Any) -> dict[str, Any]:
    return {
        "trip": trip,
        "status": body.get("status"),
        "fare": Decimal(body["fare"]),
        "request_at": datetime.fromisoformat(body["request_at"]),
    }


Rewrite = Callable[[TripStore, UUID, datetime, int], list[dict[str, Any]]]


def one_too_late(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return of_cells(store, driver, since, limit, operator=">")


def one_too_few(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return of_cells(store, driver, since, limit - 1)


def newest_first(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return of_cells(store, driver, since, limit, descending=True)


def without_null(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return [each for each in of_cells(store, driver, since, limit) if each["status"] != "cancelled" and each["status"]]


def null_as_text(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return [{**each, "status": each["status"] or ""} for each in of_cells(store, driver, since, limit)]


def zone_lost(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    return [
        {**each, "request_at": each["request_at"].replace(tzinfo=None)}
        for each in of_cells(store, driver, since, limit)
    ]


def another_zone(store: TripStore, driver: UUID, since: datetime, limit: int) -> list[dict[str, Any]]:
    """The clock on the wall of one zone, taken for that of another."""
    late = timedelta(hours=1)
    return [{**each, "request_at": each["request_at"] + late} for each in of_cells(store, driver, since, limit)]


WRONG: dict[str, tuple[Rewrite, str, str]] = {
    "off by one, at the edge": (one_too_late, "missing", "row 1"),
    "off by one, of the limit": (one_too_few, "missing", "row 5"),
    "other order": (newest_first, "order", "the answer"),
    "lost NULL, with its row": (without_null, "missing", "row 3"),
    "lost NULL, as a text": (null_as_text, "field", "row 3"),
    "wrong time zone, none": (zone_lost, "field", "row 1"),
    "wrong time zone, another": (another_zone, "field", "row 1"),
}


def told(moving: Migration, name: str) -> list[tuple[str, str]]:
    """The first difference of each mismatch of an experiment."""
    assert moving.duo.shadow.drain(60)
    found = [each.verdict for each in moving.duo.tally.mismatches() if each.verdict.read.name == f"experiment:{name}"]
    return [(str(each.differences[0].kind), each.differences[0].entry) for each in found]


def counted(moving: Migration, name: str) -> dict[tuple[str, str], int]:
    assert moving.duo.shadow.drain(60)
    return {
        (str(outcome), label): count
        for (operation, outcome, label), count in moving.duo.tally.counts().items()
        if operation == f"experiment:{name}"
    }


def ask(moving: Migration, name: str, control: Callable[[], Any], candidate: Callable[[], Any]) -> Any:
    with moving.store.experiment(name, deadline=20) as trial:
        trial.control(control)
        trial.candidate(candidate)
    return trial.answer


def test_each_wrong_rewrite_is_found_by_its_experiment(moving: Migration, driver: Driver) -> None:
    """The control answers all the same."""
    asked = driver.key, NOON, TRIPS
    control = functools.partial(of_sql, moving, *asked)
    names = {kind: kind.replace(", ", ".").replace(" ", "_") for kind in WRONG}

    for kind, (rewrite, _difference, _entry) in WRONG.items():
        assert ask(moving, names[kind], control, functools.partial(rewrite, moving.store, *asked)) == control(), kind

    found = {kind: told(moving, name) for kind, name in names.items()}
    assert found == {kind: [(difference, entry)] for kind, (_rewrite, difference, entry) in WRONG.items()}


def test_control_the_right_rewrite_shows_nothing(moving: Migration, driver: Driver) -> None:
    """Of the same rows, for each of the questions that the wrong ones get wrong."""
    for since, limit in ((NOON, TRIPS), (NOON + timedelta(hours=1), 2), (NOON + timedelta(days=9), 3), (NOON, 1)):
        right = functools.partial(of_cells, moving.store, driver.key, since, limit)
        assert ask(moving, "right", functools.partial(of_sql, moving, driver.key, since, limit), right) == right()
    assert counted(moving, "right") == {("equal", ""): 4}


def test_a_stale_read_is_found_also_when_the_next_one_is_right(moving: Migration, driver: Driver) -> None:
    """Control: a rewrite that reads what is there now shows nothing, also while it is written."""
    asked = driver.key, NOON, TRIPS
    kept = functools.cache(lambda: of_cells(moving.store, *asked))
    late, before = iter([kept()]), iter([kept()])
    control = functools.partial(of_sql, moving, *asked)

    moving.store.put_cell(
        driver.trips[0],
        "BASE",
        2,
        {"driver_uuid": str(driver.key), "fare": "9.50", "status": "x", "request_at": f"{NOON:%FT%T.%fZ}"},
    )

    moving.carry()  # reads of the candidates are compared, too
    catch_up(moving.facade.store)

    ask(moving, "stale", control, kept)
    ask(moving, "late", control, lambda: next(late, None) or of_cells(moving.store, *asked))
    ask(moving, "moved", lambda: next(before, None) or control(), functools.partial(of_cells, moving.store, *asked))
    ask(moving, "fresh", control, functools.partial(of_cells, moving.store, *asked))

    assert told(moving, "stale") == [("field", "row 1")]
    assert told(moving, "late") == [("field", "row 1")]
    assert counted(moving, "moved") == {("in_flight", ""): 1}
    assert counted(moving, "fresh") == {("equal", ""): 1}


def test_i10_a_candidate_writes_nothing(moving: Migration, driver: Driver) -> None:
    """Control: the caller's thread may."""
    free = uuid4()

    ask(moving, "writes", lambda: None, lambda: moving.store.put_cell(free, "FREE", 1, {"n": 1}))

    assert told(moving, "writes") == [("error", "InvalidRequest")]
    assert moving.store.get_cell_latest(free, "FREE") is None
    moving.store.put_cell(free, "FREE", 1, {"n": 1})
    assert moving.store.get_cell_latest(free, "FREE") is not None


def test_i12_a_store_that_closes_has_what_waits_compared_and_calls_nothing_a_mismatch(
    moving: Migration, driver: Driver
) -> None:
    """Control: what is asked after it has closed is counted as that."""
    asked = driver.key, NOON, TRIPS
    with moving.connect() as store:
        store.get_cell_latest(driver.trips[0], "BASE")
        duo = store.facade.duo
        assert duo is not None
        rewritten = store.experiment("closing", deadline=20)(functools.partial(of_sql, moving, *asked))
        rewritten.candidate(functools.partial(of_cells, store, *asked))
        rewritten()
    late = store.experiment("late", deadline=20)
    found = {(name, str(outcome)): count for (name, outcome, _label), count in duo.tally.counts().items()}
    assert found["experiment:closing", "equal"] == 1
    assert duo.tally.mismatches() == []
    assert late(list)() == []

    ask(moving, "closed", functools.partial(of_sql, moving, *asked), functools.partial(of_cells, store, *asked))
    assert counted(moving, "closed") == {("not_compared", "closed"): 1}


def test_what_was_compared_stands_in_the_ledger_of_shadow_reads_and_in_the_gates_of_a_switch(
    moving: Migration, driver: Driver
) -> None:
    asked = driver.key, NOON, TRIPS
    moving.store.get_cell_latest(driver.trips[0], "BASE")
    ask(moving, "told.wrong", functools.partial(of_sql, moving, *asked), list)
    ask(
        moving,
        "told.right",
        functools.partial(of_sql, moving, *asked),
        functools.partial(of_cells, moving.store, *asked),
    )
    assert moving.duo.shadow.drain(60)
    moving.facade.experiments.look()
    for flushing in moving.duo.flushing:
        flushing._flush()
    control = moving.facade.store.control

    ledger = ShadowLedger(Ledgers(control))
    counts = {each.operation: (each.equal, each.mismatches) for each in ledger.experiments()}
    assert (counts["told.right"], counts["told.wrong"]) == ((1, 0), (0, 1))
    assert all(not each.operation.startswith("experiment") for each in ledger.operations())
    (standing,) = [each for each in Standings(control).all() if each.name == "told.right"]
    assert (standing.calls, standing.calls_by_control, standing.candidate_beside.answered) == (1, 1, 1)

    facts = facts_of(moving)
    assert not isinstance(facts.experiments, Unknown)
    found = {each.operation: (each.compared, each.mismatches, each.calls) for each in facts.experiments}
    assert (found["told.right"], found["told.wrong"]) == ((1, 0, 1), (1, 1, 1))
    ExperimentBook(control).change(lambda flags: flags.with_changes("told.wrong", is_retired=True), "test.retired")
    retired = facts_of(moving).experiments
    assert not isinstance(retired, Unknown)
    assert "told.wrong" not in {each.operation for each in retired}


def test_after_the_switch_the_tables_that_lag_are_waited_for(servers: LocalServers, stores: Stores) -> None:
    """The control reads a mirror then: what it has not got yet is no mismatch, and not equal before it has (I12)."""
    with comparing(servers, stores) as moving:
        key = uuid4()

        def of_table() -> Any:
            return [
                status for (status,) in moving.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(key))
            ]

        def of_cell() -> Any:
            found = moving.store.get_cell_latest(key, "BASE")
            body: Any = None if found is None else found.body
            return [] if body is None else [body["status"]]

        moving.phase(Phase.LIVE)
        moving.store.put_cell(key, "BASE", 1, {"status": "paid"})
        assert ask(moving, "lagging", of_table, of_cell) == []
        assert counted(moving, "lagging") == {("not_compared", "busy"): 1}
        moving.carry()
        assert ask(moving, "lagging", of_table, of_cell) == ["paid"]
        assert counted(moving, "lagging") == {("not_compared", "busy"): 1, ("equal", ""): 1}
