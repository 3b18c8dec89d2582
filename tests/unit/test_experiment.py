"""Experiments in one process: who answers, what is compared, and that no candidate harms a caller (I10, I12)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import ControlUnavailable
from schemaless_core.errors import InvalidRequest, StoreClosed
from tests.chaos.actors import wait_until
from tests.experiments import Lab, lab
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.experiment import bench as bench_module
from tripstore.engines.validation.experiment.bench import STUCK_MAX, Bench
from tripstore.engines.validation.ignores import Ignore
from tripstore.engines.validation.shadow.shadow import Shadow
from tripstore.facade.experiments import experiments as experiments_module
from tripstore.facade.experiments.experiment import Experiment, ExperimentOptions, RewrittenQuery
from tripstore.facade.experiments.experiments import TIMED
from tripstore.facade.experiments.flags import ExperimentBook
from tripstore.facade.writes import _check_may_write, only_reading

#: How long callers wait at most, on a machine that does much else; a candidate that they waited for takes far longer.
AT_ONCE_SECONDS = 10.0
HANG_SECONDS = 60.0
CALLERS = [f"driver {n}" for n in range(400)]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as opened:
        yield opened


def rewritten(
    experiment: Experiment, control: Callable[..., Any], candidate: Callable[..., Any]
) -> RewrittenQuery[..., Any]:
    found = experiment(control)
    found.candidate(candidate)
    return found


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


def test_what_the_control_raises_reaches_its_caller_and_is_not_compared(made: Lab) -> None:
    def control() -> int:
        raise LookupError("no such trip")

    with pytest.raises(LookupError, match="no such trip"):
        rewritten(made.experiment(), control, lambda: 1)()
    assert made.outcomes() == {}


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


def test_a_candidate_that_is_behind_for_a_moment_is_in_flight(made: Lab) -> None:
    """Control: one that stays behind is a mismatch."""
    looks = iter([[1]])
    rewritten(made.experiment(), lambda: [1, 2], lambda: next(looks, [1, 2]))()
    assert made.outcomes() == {("in_flight", ""): 1}
    rewritten(made.experiment("stale"), lambda: [1, 2], lambda: [1])()
    assert made.outcomes() == {("in_flight", ""): 1, ("mismatch", "missing"): 1}


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


# ------------------------------------------------------------------------------------------------ I10: what harms none


def hang(gate: threading.Event) -> None:
    gate.wait(HANG_SECONDS)


class Mute(Exception):
    """One that cannot even say what it is."""

    def __str__(self) -> str:
        raise ValueError


def raising(error: BaseException) -> int:
    raise error


ERRORS = [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), Mute()]


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
def test_i10_whatever_a_candidate_raises_stays_on_its_thread(made: Lab, error: BaseException) -> None:
    unpaid = rewritten(made.experiment(), lambda: "old", lambda: raising(error))

    assert [unpaid() for _ in range(3)] == ["old"] * 3

    assert made.outcomes() == {("mismatch", "error"): 3}
    made.experiment("after")(lambda: 1)()
    assert rewritten(made.experiment("after"), lambda: 1, lambda: 1)() == 1
    assert made.outcomes()["equal", ""] == 1, "the threads that compare live on"


def test_i10_no_caller_waits_for_a_candidate(tmp_path: Path) -> None:
    """Control: it hangs for longer than all of them are given, and so does its deadline."""
    gate = threading.Event()
    with lab(tmp_path, deadline=HANG_SECONDS) as made:
        unpaid = rewritten(made.experiment("hangs"), lambda: 1, lambda: hang(gate))
        begun = time.perf_counter()
        assert [unpaid() for _ in range(20)] == [1] * 20
        assert time.perf_counter() - begun < AT_ONCE_SECONDS
        wait_until("it is asked", lambda: stuck_threads() > 0)
        assert not made.shadow.drain(0.0)
        gate.set()
        made.outcomes()


def test_i10_candidates_that_hang_keep_a_few_threads_and_no_caller(tmp_path: Path) -> None:
    """Each is given up at its deadline; of one experiment none is tried again beside it."""
    gate = threading.Event()
    with lab(tmp_path, deadline=0.05) as made:
        slow = {f"hangs.{n}": rewritten(made.experiment(f"hangs.{n}"), lambda: 1, lambda: hang(gate)) for n in range(8)}
        well = rewritten(made.experiment("well"), lambda: 1, lambda: 1)
        for unpaid in slow.values():
            unpaid()  # the first one begins the threads
        for _ in range(5):
            assert {unpaid() for unpaid in slow.values()} == {1}
        found = made.outcomes()

        assert stuck_threads() <= STUCK_MAX + 2, "two shadow threads may have begun one at once"
        assert found["mismatch", "timeout"] <= STUCK_MAX + 2
        assert found["not_compared", "stuck"] == 48 - found["mismatch", "timeout"]
        gate.set()
        wait_until("all have come back", lambda: not stuck_threads())
        well()
        assert made.outcomes()["equal", ""] == 1, "an experiment is tried again when its candidate has come back"


def test_control_without_the_limit_a_hanging_candidate_takes_thread_after_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(bench_module, "STUCK_OF_ONE", 1000)
    monkeypatch.setattr(bench_module, "STUCK_MAX", 1000)
    with lab(tmp_path, deadline=0.01) as made:
        unpaid = rewritten(made.experiment("hangs"), lambda: 1, lambda: hang(gate))
        for _ in range(STUCK_MAX + 4):
            unpaid()
            made.outcomes()
        assert stuck_threads() > STUCK_MAX + 2
        gate.set()
        wait_until("all have come back", lambda: not stuck_threads())


def test_i10_a_candidate_that_never_stops_computing_is_tried_once(tmp_path: Path) -> None:
    """It cannot be ended, and shares the interpreter with callers: they are slower, and there is one of it."""
    gate = threading.Event()

    def spin() -> int:
        while not gate.is_set():
            pass
        return 1

    with lab(tmp_path, deadline=0.05) as made:
        unpaid = rewritten(made.experiment("hangs"), lambda: 1, spin)
        unpaid()
        wait_until("it is given up", lambda: made.bench.objection("hangs") is not None)
        assert [unpaid() for _ in range(5)] == [1] * 5
        assert stuck_threads() == 1
        assert made.outcomes() == {("mismatch", "timeout"): 1, ("not_compared", "stuck"): 5}
        gate.set()
        wait_until("it has come back", lambda: not stuck_threads())


def stuck_threads() -> int:
    return sum(thread.name.startswith("experiment hangs") for thread in threading.enumerate())


def test_i10_a_candidate_that_forks_leaves_no_second_process_of_ours(made: Lab, tmp_path: Path) -> None:
    """Its child ends where it comes back, whether by an answer or an exception; the parent's is compared."""
    children = tmp_path / "children"

    def forking(is_broken: bool) -> int:
        child = os.fork()
        if child == 0:
            with children.open("a") as file:
                file.write(f"{os.getpid()}\n")
            if is_broken:
                raise SystemExit(9)
            return 2
        _pid, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "it came back as a child, and ended"
        return 1

    for is_broken in (False, True):
        assert rewritten(made.experiment(), lambda _: 1, forking)(is_broken) == 1
    assert made.outcomes() == {("equal", ""): 2}
    assert len(children.read_text().split()) == 2


def test_i10_a_candidate_that_grows_the_process_is_tried_no_more(tmp_path: Path) -> None:
    """Until a flag of it is set anew. Control: one that takes little goes on."""
    kept: list[bytes] = []
    with lab(tmp_path, bench=Bench(memory_bytes_max=16 * 1024**2, cpu_share=float("inf"))) as made:

        def growing() -> int:
            kept.append(b"x" * 32 * 1024**2)
            return 1

        big = rewritten(made.experiment("big"), lambda: 1, growing)
        small = rewritten(made.experiment("small"), lambda: 1, lambda: 1)
        for _ in range(3):
            assert (big(), small()) == (1, 1)
            made.outcomes()
        assert made.outcomes() == {("equal", ""): 4, ("not_compared", "halted"): 2}
        made.set("big", percent=1)
        made.set("big", percent=0)
        big()
        made.outcomes()
        assert len(kept) == 2


@pytest.mark.parametrize(("share", "tried"), [(0.1, 10), (float("inf"), 30)])
def test_i10_what_candidates_compute_is_bounded(tmp_path: Path, share: float, tried: int) -> None:
    """A burst of a second, then nothing until more has come in. Control: without a bound all are tried."""
    computed = threading.local()

    def thread_time() -> float:
        """Each query takes a tenth of a second of a core."""
        computed.seconds = getattr(computed, "seconds", 0.0) + 0.1
        return float(computed.seconds)

    now = [0.0]
    with lab(tmp_path, bench=Bench(cpu_share=share, clock=lambda: now[0], computed=thread_time)) as made:
        unpaid = rewritten(made.experiment(), lambda: 1, lambda: 1)
        for _ in range(30):
            unpaid()
            made.outcomes()
        assert made.outcomes()["equal", ""] == pytest.approx(tried, abs=1 if share < 1 else 0)
        now[0] += 5.0  # half a second of a core is there again
        before = made.outcomes()["equal", ""]
        unpaid()
        assert made.outcomes()["equal", ""] == before + 1


def test_i10_a_fault_of_ours_reaches_no_caller(made: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> int:
        raise ValueError("x")

    unpaid = rewritten(made.experiment(key=broken, normalise=broken), lambda: "old", lambda: "new")
    made.set(percent=100)
    assert unpaid() == "old"
    monkeypatch.setattr(Shadow, "takes", broken)
    assert unpaid() == "old"


def test_i10_a_closed_store_leaves_the_control(made: Lab) -> None:
    def closed() -> Any:
        raise StoreClosed("store", "open another one")

    unpaid = rewritten(Experiment("billing.unpaid", closed, ExperimentOptions()), lambda: "old", lambda: "new")
    assert unpaid() == "old"
    assert made.outcomes() == {}


def test_i10_a_session_of_the_callers_is_used_by_no_other_thread(made: Lab) -> None:
    """Neither by the control, which is asked again, nor by the candidate; `again` brings its own."""
    with closing(sqlite3.connect(":memory:")) as session:
        held = made.experiment("held")

        def asked(connection: sqlite3.Connection) -> Any:
            return connection.execute("SELECT 1").fetchone()

        def alone(_connection: sqlite3.Connection) -> Any:
            return (1,)

        unpaid = rewritten(held, asked, alone)
        assert unpaid(session) == (1,)
        assert made.outcomes() == {("not_compared", "session"): 1}

        unpaid.again(alone)
        assert unpaid(session) == (1,)
        assert made.outcomes() == {("not_compared", "session"): 1, ("equal", ""): 1}

        unpaid.candidate(asked)
        assert unpaid(session) == (1,)
        (mismatch,) = made.mismatches()
        assert "is the caller's" in mismatch.verdict.differences[0].path
        with made.experiment("closure") as trial:
            trial.control(lambda: 1)
            trial.candidate(lambda: session.execute("SELECT 1"))
        assert made.outcomes()["not_compared", "session"] == 2


def test_i10_what_a_candidate_puts_is_refused(tmp_path: Path) -> None:
    """Control: the same is taken on a caller's thread."""
    with lab(tmp_path, bench=Bench(only_reading)) as made:
        unpaid = rewritten(made.experiment(), lambda: None, _check_may_write)
        unpaid()
        (mismatch,) = made.mismatches()
        assert mismatch.verdict.differences[0].path.startswith("A query under experiment may only read.")
        made.set(percent=100)
        assert unpaid() is None


def test_i10_a_fork_of_a_service_experiments_by_itself(made: Lab) -> None:
    """It has the flags that its parent knew, threads of its own, and counts of its own."""
    unpaid = rewritten(made.experiment(), lambda: "old", lambda: "new")
    unpaid()
    assert made.outcomes() == {("mismatch", "field"): 1}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made.shadow.after_fork()
            made.experiments.after_fork()
            code = int(not (unpaid() == "old" and made.outcomes() == {("mismatch", "field"): 1}))
        finally:
            os._exit(code)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert made.outcomes() == {("mismatch", "field"): 1}
