"""What both sides are given: values of their own, and no session of their caller's, wherever it stands (I10)."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
import sqlalchemy.orm as sa_orm
from sqlalchemy.pool import QueuePool

from tests.chaos.actors import wait_until
from tests.experiments import Lab, lab, rewritten
from tripstore.engines.validation.experiment.room import Room
from tripstore.engines.validation.verdicts import Outcome
from tripstore.facade.experiments.apart import QueryCall, Withheld, apart
from tripstore.facade.writes import check_may_change

SQL = "SELECT 1"
HANG_SECONDS = 60.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as opened:
        yield opened


@pytest.fixture
def session() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        yield opened


class Unit(NamedTuple):
    """Of work, as services pass it about."""

    session: Any
    driver: int = 7


@dataclass(frozen=True, slots=True)
class Slotted:
    session: Any


class NoSession:
    def execute(self, _sql: str) -> list[int]:
        return []


class Bills:
    """A repository: its queries are methods, and its session is an attribute."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.more = [1]

    def in_sql(self, driver: int) -> list[int]:
        return [driver for _ in self.session.execute(SQL)]

    def in_cells(self, driver: int) -> list[int]:
        return [driver for _ in self.more]


def by_itself(*given: Any) -> list[int]:
    """The control, with a session of its own."""
    return [given[-1]]


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("mine", "change"),
    [
        ([[[[[[1]]]]]], lambda given: given[0][0][0][0].append(2)),
        ({"and": [{"or": [{"in": {"ids": [1]}}]}]}, lambda given: given["and"][0]["or"][0]["in"]["ids"].pop()),
        (OrderedDict(a=1), lambda given: given.update(a=2)),
        (defaultdict(list, a=[1]), lambda given: given["a"].append(2)),
        (Counter(a=1), lambda given: given.update("a")),
        (deque([1], 3), lambda given: given.append(2)),
        (Unit(None, 7)._replace(session=[1]), lambda given: given.session.append(2)),
    ],
    ids=["deep list", "filter", "ordered", "default", "counter", "deque", "named tuple"],
)
def test_i10_no_container_that_a_candidate_changes_is_its_callers(
    made: Lab, mine: Any, change: Callable[[Any], object]
) -> None:
    before, kept = repr(mine), list[Any]()

    def candidate(given: Any) -> int:
        kept.append((type(given), repr(given)))
        change(given)
        return 1

    asked = rewritten(made.experiment(), lambda _given: 1, candidate)
    for _ in range(2):
        assert asked(mine) == 1
        assert made.outcomes()["mismatch", "error"] == 0
    assert repr(mine) == before
    assert kept == [(type(mine), before)] * 2


def test_an_argument_may_hold_itself_and_stand_in_two_places() -> None:
    mine: list[Any] = [1]
    mine.append(mine)
    one, other = apart(QueryCall(list, (mine, mine))).args
    assert one is other is one[1]
    assert one is not mine


# ------------------------------------------------------------------------------------------------ sessions


def brought(session: sqlite3.Connection) -> dict[str, QueryCall]:
    """A control that would use its caller's session, in each way in which services bring one."""
    bills = Bills(session)
    execute, in_sql = session.execute, bills.in_sql
    held = {"of": [session]}

    @lru_cache
    def kept() -> Any:
        return session.execute(SQL)

    return {
        "self of a closure": QueryCall(lambda: bills.session.execute(SQL)),
        "method of a closure": QueryCall(lambda: in_sql(7)),
        "method of a session": QueryCall(lambda: execute(SQL)),
        "container of a closure": QueryCall(lambda: held["of"][0].execute(SQL)),
        "behind a cache": QueryCall(kept),
        "partial of a method": QueryCall(partial(partial(in_sql), 7)),
        "container of a partial": QueryCall(partial(len, [session])),
        "object": QueryCall(Bills.in_sql, (bills, 7)),
        "namespace": QueryCall(len, (SimpleNamespace(session=session),)),
        "slots": QueryCall(len, (Slotted(session),)),
        "named tuple": QueryCall(len, (Unit(session),)),
        "deep container": QueryCall(len, ([[[[[session]]]]],)),
        "set": QueryCall(len, ({Unit(session)},)),
    }


@pytest.mark.parametrize("how", list(brought(sqlite3.connect(":memory:"))))
def test_i10_a_session_is_found_wherever_a_service_brings_it(session: sqlite3.Connection, how: str) -> None:
    """Control: the same without a session may be asked by any thread."""
    assert not brought(session)[how].is_shareable
    assert brought(NoSession())[how].is_shareable  # type: ignore[arg-type]  # that is the point


def test_i10_a_connection_of_a_pool_is_one_threads() -> None:
    """Control: what makes sessions is everybody's."""
    engine = sa.create_engine("sqlite://")
    with closing(engine.raw_connection()) as raw:
        assert not QueryCall(len, (raw,)).is_shareable
        assert isinstance(apart(QueryCall(len, (raw,))).args[0], Withheld)
    with engine.connect() as connection, connection.begin() as transaction:
        assert not QueryCall(len, (transaction,)).is_shareable
    scoped = sa_orm.scoped_session(sa_orm.sessionmaker(engine))
    scoped().connection()
    assert QueryCall(lambda: (scoped, engine), (scoped, SimpleNamespace(session=scoped, engine=engine))).is_shareable
    scoped.remove()
    engine.dispose()


def test_i10_a_method_gets_its_object_without_the_session(made: Lab, session: sqlite3.Connection) -> None:
    """The control is not asked again without `again`, and the candidate may use the rest of the object."""
    unpaid = rewritten(made.experiment(), Bills.in_sql, Bills.in_cells)
    bills = Bills(session)
    assert unpaid(bills, 7) == [7]
    assert made.outcomes() == {("not_compared", "session"): 1}

    unpaid.again(by_itself)
    assert unpaid(bills, 7) == [7]
    assert made.outcomes() == {("not_compared", "session"): 1, ("equal", ""): 1}

    unpaid.candidate(Bills.in_sql)
    assert unpaid(bills, 7) == [7]
    (mismatch,) = made.mismatches()
    assert "is the caller's" in mismatch.verdict.differences[0].path
    assert bills.session is session


@pytest.mark.parametrize("percent", [0, 100])
def test_i10_an_object_that_cannot_be_had_without_its_session_is_the_controls_alone(
    made: Lab, session: sqlite3.Connection, percent: int
) -> None:
    def control(given: Slotted) -> list[int]:
        return [number for (number,) in given.session.execute(SQL)]

    made.set(percent=percent)
    unpaid = rewritten(made.experiment(), control, lambda _given: 2)
    unpaid.again(by_itself)
    assert unpaid(Slotted(session)) == [1]
    assert made.outcomes() == {("not_compared", "session"): 1}


# ------------------------------------------------------------------------------------------------ answers


class Page(NamedTuple):
    rows: Any


@pytest.mark.parametrize(
    ("wrap", "rows"),
    [
        (lambda rows: {"rows": rows}, lambda answer: answer["rows"]),
        (Page, lambda answer: answer.rows),
        (lambda rows: [{"rows": rows}], lambda answer: answer[0]["rows"]),
    ],
    ids=["dict", "named tuple", "list"],
)
def test_i10_what_can_be_read_once_is_left_to_the_caller_wherever_it_stands(
    made: Lab, wrap: Callable[[Any], Any], rows: Callable[[Any], Any]
) -> None:
    asked = rewritten(made.experiment(normalise=lambda answer: list(rows(answer))), lambda: wrap(iter([1])), list)
    assert list(rows(asked())) == [1]
    assert made.outcomes() == {("not_compared", "incomparable"): 1}


def test_i12_a_candidate_whose_answer_can_be_read_once_is_no_equal_of_a_list(made: Lab) -> None:
    """`normalise` reads both to their ends, and hides it. Control: one that gives a list."""
    for answer in (iter, list):
        rewritten(made.experiment(normalise=list), lambda: [1], lambda answer=answer: answer([1]))()
    assert made.outcomes() == {("not_compared", "incomparable"): 1, ("equal", ""): 1}


def test_i12_a_normalise_that_fails_gives_no_answer_whatever_may_be_raised(made: Lab) -> None:
    """The control found no such trip, the candidate a row that `normalise` cannot read."""

    def no_trip() -> Any:
        raise KeyError("trip")

    fare = made.experiment(raises=(KeyError,), normalise=lambda row: row["fare"])
    with pytest.raises(KeyError):
        rewritten(fare, no_trip, lambda: {"tip": 1})()
    assert made.outcomes() == {("mismatch", "error"): 1}
    with pytest.raises(KeyError):
        rewritten(fare, no_trip, no_trip)()  # control
    assert made.outcomes() == {("mismatch", "error"): 1, ("equal", ""): 1}


@pytest.mark.parametrize(("room", "kept"), [(8 * 1024**2, 8), (float("inf"), 40)], ids=["bounded", "control"])
def test_i10_answers_that_wait_take_so_much_memory_and_no_more(tmp_path: Path, room: float, kept: int) -> None:
    """Forty of a megabyte each, while the candidate hangs. When they have their verdicts, there is room again."""
    gate = threading.Event()

    def candidate() -> str:
        gate.wait(HANG_SECONDS)
        return "x" * 1024**2

    with lab(tmp_path, deadline=HANG_SECONDS) as made:
        made.experiments.room = Room(room)
        asked = rewritten(made.experiment(), lambda: "x" * 1024**2, candidate)
        for _ in range(40):
            asked()
        assert made.tally.total(Outcome.NOT_COMPARED) == pytest.approx(40 - kept, abs=1)
        gate.set()
        found = made.outcomes()
        assert sum(found.values()) == 40
        wait_until("the last one is gone", lambda: bool(asked()) and made.outcomes()["equal", ""] > found["equal", ""])


# ------------------------------------------------------------------------------------------------ what is left behind


def test_i10_a_session_that_a_query_leaves_open_takes_no_connection_from_callers(made: Lab, tmp_path: Path) -> None:
    """Nor a transaction: until the garbage collector comes, session and transaction hold each other.

    Control: what a caller itself has out stays out.
    """
    url, shared = f"sqlite:///{tmp_path / 'company'}", {"check_same_thread": False}
    engine = sa.create_engine(url, poolclass=QueuePool, pool_size=2, max_overflow=0, connect_args=shared)
    sessions = sa_orm.scoped_session(sa_orm.sessionmaker(engine))

    def query() -> list[int]:
        return list(sessions.scalars(sa.text(SQL)))

    asked = rewritten(made.experiment(), query, query)
    gc.disable()
    try:
        for number in range(4):
            assert asked() == [1]
            assert made.outcomes() == {("equal", ""): number + 1}
        wait_until("only the caller's is out", lambda: engine.pool.checkedout() == 1)  # type: ignore[attr-defined]  # of a QueuePool
        assert sessions().in_transaction()
        assert asked() == [1]
    finally:
        gc.enable()
        sessions.remove()
        engine.dispose()


def test_i10_what_acts_for_a_candidate_on_another_thread_puts_nothing_either(made: Lab) -> None:
    """Control: on a caller's thread it may."""

    def put() -> None:
        asyncio.run(asyncio.to_thread(check_may_change))

    rewritten(made.experiment(), lambda: None, put)()
    (mismatch,) = made.mismatches()
    assert mismatch.verdict.differences[0].path.startswith("A query under experiment may only read.")
    put()
