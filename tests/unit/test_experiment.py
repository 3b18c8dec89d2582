"""Experiments in one process: who answers, and what is compared (I12)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import ControlUnavailable
from schemaless_core.errors import InvalidRequest
from tests.chaos.actors import wait_until
from tests.experiments import Lab, lab, rewritten
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.ignores import Ignore
from tripstore.facade.experiments import experiments as experiments_module
from tripstore.facade.experiments.experiments import TIMED
from tripstore.facade.experiments.flags import ExperimentBook

#: How long callers wait at most, on a machine that does much else; a candidate that they waited for takes far longer.
AT_ONCE_SECONDS = 10.0
CALLERS = [f"driver {n}" for n in range(400)]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as opened:
        yield opened


# ------------------------------------------------------------------------------------------------ who answers


def test_a_context_answers_with_the_control_and_compares_the_candidate(made: Lab) -> None:
    with made.experiment() as trial:
        trial.control(lambda driver: [driver], 7)
        trial.candidate(lambda driver: [driver, driver], 7)

    assert trial.answer == [7]
    (mismatch,) = made.mismatches()
    assert mismatch.verdict.read.name == "experiment:billing.unpaid"
    assert [str(each.kind) for each in mismatch.verdict.differences] == ["extra"]


def test_a_decorator_leaves_a_function_what_it_was(made: Lab) -> None:
    @made.experiment()
    def unpaid(driver: int, *, limit: int = 2) -> list[int]:
        """The unpaid trips."""
        return [driver] * limit

    @unpaid.candidate
    def of_cells(driver: int, *, limit: int = 2) -> list[int]:
        return [driver] * limit

    assert unpaid(7, limit=3) == of_cells(7, limit=3) == [7, 7, 7]
    assert (vars(unpaid)["__name__"], unpaid.__doc__) == ("unpaid", "The unpaid trips.")
    assert made.outcomes() == {("equal", ""): 1}


def test_a_method_may_be_under_experiment(made: Lab) -> None:
    class Bills:
        owed = 5

        @made.experiment()
        def unpaid(self, more: int) -> int:
            return self.owed + more

        unpaid.candidate(lambda self, more: self.owed + more)

    assert Bills().unpaid(2) == 7
    assert made.outcomes() == {("equal", ""): 1}


def test_without_a_candidate_nothing_is_compared(made: Lab) -> None:
    assert made.experiment()(lambda: 1)() == 1
    assert made.outcomes() == {}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a..b", ".a", "x" * 101, "ä"])
def test_a_name_that_no_ledger_could_hold_is_refused(made: Lab, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of an experiment"):
        made.experiment(name)


def test_what_is_misused_says_how_it_is_used(made: Lab) -> None:
    async def asked() -> int:
        return 1

    with pytest.raises(InvalidRequest, match="coroutine"):
        made.experiment()(asked)
    with pytest.raises(InvalidRequest, match="no control"), made.experiment() as trial:
        trial.candidate(lambda: 1)
    with pytest.raises(InvalidRequest, match="not asked yet"), made.experiment() as trial:
        trial.control(lambda: trial.answer)
    shared = made.experiment()
    with pytest.raises(InvalidRequest, match="inside a `with` already"), shared, shared:
        pass


def test_a_block_that_fails_asks_nothing(made: Lab) -> None:
    asked: list[int] = []

    def fail() -> None:
        with made.experiment() as trial:
            trial.control(lambda: asked.append(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert asked == []


def test_i12_what_the_control_raises_reaches_its_caller_and_is_counted_as_not_compared(made: Lab) -> None:
    def control() -> int:
        raise LookupError("no such trip")

    with pytest.raises(LookupError, match="no such trip"):
        rewritten(made.experiment(), control, lambda: 1)()
    assert made.outcomes() == {("not_compared", "authority_failed"): 1}


@pytest.mark.parametrize(("candidate", "outcome"), [(KeyError, ("equal", "")), (None, ("mismatch", "extra"))])
def test_an_exception_may_be_an_answer(made: Lab, candidate: type[Exception] | None, outcome: tuple[str, str]) -> None:
    def asked(error: type[Exception] | None) -> int:
        if error is not None:
            raise error
        return 1

    with pytest.raises(KeyError):
        rewritten(made.experiment(raises=(KeyError,)), lambda: asked(KeyError), lambda: asked(candidate))()
    assert set(made.outcomes()) == {outcome if outcome[0] == "equal" else ("mismatch", "field")}


# ------------------------------------------------------------------------------------------------ turning over


def test_the_same_callers_get_the_candidate_in_every_process(made: Lab, tmp_path: Path) -> None:
    def asked(process: Lab) -> list[str]:
        unpaid = rewritten(process.experiment(key=lambda driver: driver), lambda _: "old", lambda _: "new")
        return [unpaid(driver) for driver in CALLERS]

    with lab(tmp_path) as other:
        assert set(asked(made)) == {"old"}
        made.set(percent=25)
        other.experiments.look()

        first = asked(made)

        assert first == asked(other)
        assert 0.15 < first.count("new") / len(CALLERS) < 0.35
        made.set(percent=50)
        assert all(now == "new" for was, now in zip(first, asked(made), strict=True) if was == "new")
        made.set(percent=0)
        assert set(asked(made)) == {"old"}
        made.set(percent=100)
        assert set(asked(made)) == {"new"}


def test_a_running_process_follows_a_flag_by_itself(made: Lab) -> None:
    unpaid = rewritten(made.experiment(), lambda: "old", lambda: "new")
    assert unpaid() == "old"

    made.book.change(lambda found: found.with_changes("billing.unpaid", percent=100), "test.set")
    wait_until("turned over", lambda: unpaid() == "new")
    made.book.change(lambda found: found.with_changes("billing.unpaid", percent=0), "test.set")
    wait_until("turned back", lambda: unpaid() == "old")


def test_the_first_call_of_a_process_goes_by_the_flag(made: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables may be an archive by then: the control would be refused."""
    monkeypatch.setattr(experiments_module, "FIRST_LOOK_SECONDS", AT_ONCE_SECONDS)  # the machine does much else
    made.book.change(lambda found: found.with_changes("billing.unpaid", percent=100), "test.set")

    assert rewritten(made.experiment(), lambda: "old", lambda: "new")() == "new"


def test_control_database_down_the_control_answers(made: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_book: ExperimentBook) -> None:
        raise ControlUnavailable("gone")

    monkeypatch.setattr(ExperimentBook, "find", down)
    begun = time.perf_counter()
    assert rewritten(made.experiment(), lambda: "old", lambda: "new")() == "old"
    assert time.perf_counter() - begun < AT_ONCE_SECONDS


def test_a_candidate_that_fails_before_a_caller_gives_way_to_the_control(made: Lab) -> None:
    asked: list[int] = []

    def broken() -> str:
        asked.append(1)
        raise ValueError("broken")

    made.set(percent=100)
    unpaid = rewritten(made.experiment(), lambda: "old", broken)
    assert [unpaid() for _ in range(50)] == ["old"] * 50
    made.outcomes()
    assert len(asked) < 50, "the breaker spares callers a candidate that never answers"


def test_what_a_turned_over_candidate_answers_is_held_against_the_control(made: Lab) -> None:
    made.set(percent=100)
    assert rewritten(made.experiment(), lambda: [1, None], lambda: [1])() == [1]
    (mismatch,) = made.mismatches()
    assert [str(each) for each in mismatch.verdict.differences[:1]] == [str(mismatch.verdict.differences[0])]
    assert mismatch.verdict.differences[0].kind is DifferenceClass.MISSING  # of what the control has


def test_both_sides_are_timed_by_who_answered(made: Lab) -> None:
    unpaid = rewritten(made.experiment(), lambda: "old", lambda: "new")
    unpaid()
    made.set(percent=100)
    unpaid()
    unpaid()
    made.experiments.look()
    made.timings.flush()

    found = made.timings.total()
    assert {words[2]: timing.answered for words, timing in found.items() if words[0] == TIMED} == {
        "control": 1,
        "candidate": 2,
    }


def test_i12_an_experiment_that_was_never_called_with_anything_to_compare_is_known(made: Lab, tmp_path: Path) -> None:
    made.experiment("billing.monthly")(lambda: 1)()
    made.experiments.close()
    with lab(tmp_path) as other:
        assert list(other.roll.seen()) == ["billing.monthly"]


# ------------------------------------------------------------------------------------------------ what is compared


def test_what_a_rule_ignores_is_counted_apart(tmp_path: Path) -> None:
    rule = Ignore("rounded", "fares", date(2999, 1, 1), operation="experiment:billing.*", path="fare")
    with lab(tmp_path, ignores=(rule,)) as made:
        rewritten(made.experiment(), lambda: [{"fare": 1}], lambda: [{"fare": 2}])()
        rewritten(made.experiment(), lambda: [{"tip": 1}], lambda: [{"tip": 2}])()  # control
        assert made.outcomes() == {("ignored", "2999-01-01"): 1, ("mismatch", "field"): 1}


def test_what_moved_between_the_two_questions_is_in_flight(made: Lab) -> None:
    """Control: one that stays behind is a mismatch."""
    rows = iter([[1]])
    rewritten(made.experiment(), lambda: next(rows, [1, 2]), lambda: [1, 2])()
    assert made.outcomes() == {("in_flight", ""): 1}
    rewritten(made.experiment("stale"), lambda: [1, 2], lambda: [1])()
    assert made.outcomes() == {("in_flight", ""): 1, ("mismatch", "missing"): 1}


@pytest.mark.parametrize(
    ("may_lag", "outcome"), [(False, ("mismatch", "missing")), (True, ("in_flight", ""))], ids=["held", "may lag"]
)
def test_i12_a_candidate_that_is_right_only_when_asked_again_was_wrong(
    made: Lab, may_lag: bool, outcome: tuple[str, str]
) -> None:
    """The control answered the same before and after it, so nothing had moved. Control: one that may be late."""
    looks = iter([[1]])
    rewritten(made.experiment(may_lag=may_lag), lambda: [1, 2], lambda: next(looks, [1, 2]))()
    assert made.outcomes() == {outcome: 1}


def test_a_rule_that_explains_a_mirror_explains_no_rewrite(tmp_path: Path) -> None:
    rule = Ignore("a trigger sets it", "fares", date(2999, 1, 1), path="fare")
    with lab(tmp_path, ignores=(rule,)) as made:
        rewritten(made.experiment(), lambda: [{"fare": 1}], lambda: [{"fare": 2}])()
        assert made.outcomes() == {("mismatch", "field"): 1}


def test_i12_a_normalise_that_cannot_read_some_answers_makes_none_of_them_equal(made: Lab) -> None:
    """Control: those that it can read are compared."""
    fares = made.experiment(normalise=lambda rows: [row["fare"] + 0 for row in rows])
    asked = rewritten(fares, lambda fare: [{"fare": fare}], lambda _fare: [{"fare": 0}])
    for fare in (0, None):
        assert asked(fare) == [{"fare": fare}]
    assert made.outcomes() == {("equal", ""): 1, ("not_compared", "broken"): 1}


def test_the_second_thread_of_a_process_waits_for_the_flags_as_the_first_does(
    made: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the switch the tables may be an archive: the control would be refused."""
    monkeypatch.setattr(experiments_module, "FIRST_LOOK_SECONDS", AT_ONCE_SECONDS)
    made.book.change(lambda found: found.with_changes("billing.unpaid", percent=100), "test.set")
    find, looking, gate = ExperimentBook.find, threading.Event(), threading.Event()

    def slow(book: ExperimentBook) -> Any:
        looking.set()
        gate.wait(AT_ONCE_SECONDS)
        return find(book)

    monkeypatch.setattr(ExperimentBook, "find", slow)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(rewritten(made.experiment(), lambda: "old", lambda: "new"))]
        assert looking.wait(AT_ONCE_SECONDS)
        calls.append(threads.submit(rewritten(made.experiment(), lambda: "old", lambda: "new")))
        wait_until("the second one has asked or waits", lambda: calls[1].done() or waiting(made) == 2)
        gate.set()
        assert [call.result() for call in calls] == ["new", "new"]


def waiting(made: Lab) -> int:
    """How many callers wait for the first look."""
    return len(vars(vars(made.experiments)["_has_looked"])["_cond"]._waiters)


def test_data_that_never_rests_is_no_mismatch(made: Lab) -> None:
    ticks = iter(range(1000))
    rewritten(made.experiment(), lambda: next(ticks), lambda: -1)()
    assert made.outcomes() == {("not_compared", "busy"): 1}


def test_what_cannot_be_taken_down_is_not_compared_and_said_once(made: Lab, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert rewritten(made.experiment(), object, object)() is not None
    assert made.outcomes() == {("not_compared", "incomparable"): 3}
    assert len([each for each in caplog.records if vars(each).get("event") == "experiment.incomparable"]) == 1


def test_objects_are_compared_by_what_normalise_makes_of_them(made: Lab) -> None:
    class Row:
        def __init__(self, fare: int) -> None:
            self.fare = fare

    for fare, name in ((1, "right"), (2, "wrong")):
        options: dict[str, Any] = {"normalise": lambda rows: [row.fare for row in rows]}
        rewritten(made.experiment(name, **options), lambda: [Row(1)], lambda fare=fare: [Row(fare)])()
    assert made.outcomes() == {("equal", ""): 1, ("mismatch", "field"): 1}


def test_an_experiment_that_is_not_to_be_compared_is_not(made: Lab) -> None:
    made.set(is_compared=False)
    unpaid = rewritten(made.experiment(), lambda: 1, lambda: 2)
    unpaid()
    assert made.outcomes() == {}
    made.set(is_compared=True)
    unpaid()
    assert made.outcomes() == {("mismatch", "field"): 1}
