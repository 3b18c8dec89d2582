"""How a service makes an experiment: what it may say of one, and that each is known, called or not (I12)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tripstore
from schemaless_core import Datastore
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.pruning.old_rows import count_portions
from schemaless_core.errors import InvalidRequest
from tests.chaos.actors import wait_until
from tests.experiments import Lab, lab, rewritten
from tripstore.errors import StaleLayout
from tripstore.facade.experiments import experiments as experiments_module
from tripstore.facade.experiments.roll import LEDGER
from tripstore.facade.home import Home
from tripstore.migration.rewrites.standings import Standings
from tripstore.store import TripStore

AT_ONCE_SECONDS = 10.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as opened:
        yield opened


def connected(folder: Path) -> TripStore:
    config = {"datastore": "trips", "shards": 1, "clusters": {"a": {"primary": f"sqlite:///{folder / 'a'}"}}}
    with Datastore.open(config) as store:
        store.create_schema()
    return tripstore.connect(config)


# ------------------------------------------------------------------------------------------------ what may be said


@pytest.mark.parametrize("raises", [[KeyError], KeyError, {KeyError}], ids=["list", "class", "set"])
def test_i10_raises_may_be_given_as_python_takes_it(made: Lab, raises: Any) -> None:
    """What no `except` takes would be raised in place of the control's own exception."""

    def no_trip() -> int:
        raise KeyError("trip")

    with pytest.raises(KeyError, match="trip"):
        rewritten(made.experiment(raises=raises), no_trip, no_trip)()
    assert made.outcomes() == {("equal", ""): 1}


@pytest.mark.parametrize(
    "option",
    [
        {"raises": ("KeyError",)},
        {"raises": (KeyError("trip"),)},
        {"raises": (SystemExit,)},
        {"deadline": 0},
        {"deadline": -1},
        {"deadline": float("nan")},
        {"deadline": 1e9},
        {"normalise": "fare"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_where_an_experiment_is_made(made: Lab, option: dict[str, Any]) -> None:
    """A deadline of -1 would be none: one candidate that hangs would keep a thread of the shadow for ever."""
    with pytest.raises(InvalidRequest):
        made.experiment(**option)
    made.experiment(deadline=0.5, raises=(KeyError,), normalise=list)  # control


def test_a_coroutine_is_refused_in_a_context_as_in_a_decorator(made: Lab) -> None:
    async def asked(_driver: int) -> int:
        return 1

    for query in (asked, functools.partial(asked, 7)):
        with pytest.raises(InvalidRequest, match="coroutine"):
            made.experiment()(query)
        for side in ("control", "candidate", "again"):
            with pytest.raises(InvalidRequest, match="coroutine"), made.experiment() as trial:
                getattr(trial, side)(query, 7)


def test_i10_one_experiment_is_the_context_of_many_callers_at_once(made: Lab) -> None:
    """A service makes it once, at the head of a module."""
    shared, both = made.experiment(), threading.Barrier(2)

    def asked(driver: int) -> int:
        with shared as trial:
            both.wait(AT_ONCE_SECONDS)
            trial.control(lambda: driver)
            trial.candidate(lambda: driver)
            both.wait(AT_ONCE_SECONDS)
        answer: int = trial.answer
        return answer

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(asked, (1, 2))) == [1, 2]
    assert made.outcomes() == {("equal", ""): 2}


def test_a_control_may_be_under_two_experiments(made: Lab) -> None:
    inner = rewritten(made.experiment("inner"), lambda: 1, lambda: 1)
    assert rewritten(made.experiment("outer"), inner, lambda: 2)() == 1
    assert {each.verdict.read.name for each in made.mismatches()} == {"experiment:outer"}


class User:
    """As an ORM makes them: its text says where it is in memory."""


@pytest.mark.parametrize("key", [User(), (1, User()), ("driver", User)], ids=["object", "in a tuple", "a class"])
def test_a_key_that_is_another_one_in_each_process_turns_no_caller_over(
    made: Lab, key: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Some processes would give a caller the one side, some the other. A class has the same text everywhere."""
    made.set(percent=100)
    answered = rewritten(made.experiment(key=key), lambda: "old", lambda: "new")()
    is_stable = "object at" not in str(key)
    assert answered == ("new" if is_stable else "old")
    assert ("whose text is another one" in caplog.text) is not is_stable


@pytest.mark.parametrize("key", [7, "7", uuid4(), ("a", 7), datetime.now(UTC), 7.5], ids=lambda each: str(type(each)))
def test_control_a_key_that_says_who_asks_does(made: Lab, key: Any) -> None:
    made.set(percent=100)
    assert rewritten(made.experiment(key=key), lambda: "old", lambda: "new")() == "new"


# ------------------------------------------------------------------------------------------------ what is known


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_i12_an_experiment_that_is_never_called_is_known_to_the_gates(tmp_path: Path, is_first: bool) -> None:
    """Declared before the first call of the process, or after it. Control: what a `with` does not come to is not."""
    with connected(tmp_path) as store:

        def call() -> None:
            store.get_cell_latest(uuid4(), "BASE")

        if not is_first:
            call()
        store.experiment("billing.monthly")(len)
        store.experiment("billing.yearly")
        if is_first:
            assert not store.facade.has_begun, "what a module declares starts no thread"
            call()
        known = Standings(store.facade.store.control)
        wait_until("it is known", lambda: [each.name for each in known.all()] == ["billing.monthly"])


def test_i12_a_facade_of_another_layout_goes_on_telling_of_what_was_declared(tmp_path: Path) -> None:
    with connected(tmp_path) as one, connected(tmp_path) as other:
        home = Home(one.facade, lambda: other.facade, grace_seconds=0.0)
        one.facade.experiments.declare("billing.monthly")
        renewed = home.renewed(one.facade, StaleLayout("one", "other"))
        assert renewed.experiments.declared == {"billing.monthly"}
        home.close()


def test_i12_an_experiment_is_known_when_all_that_was_counted_of_it_is_pruned(made: Lab) -> None:
    """That of a query that runs once a quarter. Control: its hours are gone."""
    made.experiment("billing.quarterly")(lambda: 1)()
    made.experiments.look()
    (seen,) = made.roll.seen().values()
    assert seen is not None

    assert sum(count_portions(made.control, 90, datetime.now(UTC) + timedelta(days=91))) > 0

    assert Ledgers(made.control).hours(LEDGER) == {}
    assert made.roll.seen() == {"billing.quarterly": None}


@pytest.mark.parametrize("is_called", [True, False], ids=["called", "declared"])
def test_i10_names_that_are_made_of_what_callers_ask_for_come_to_an_end(
    made: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_called: bool
) -> None:
    """Control: an experiment that was there before goes on."""
    monkeypatch.setattr(experiments_module, "EXPERIMENTS_MAX", 3)
    for number in (*range(9), 0):
        if is_called:
            assert rewritten(made.experiment(f"of.{number}"), lambda: 1, lambda: 1)() == 1
        else:
            made.experiments.declare(f"of.{number}")
    made.experiments.look()
    assert list(made.roll.seen()) == ["of.0", "of.1", "of.2"]
    assert [vars(each).get("event") for each in caplog.records].count("experiment.too_many") == 1
    assert made.outcomes()["equal", ""] == (4 if is_called else 0)
