"""Whatever a candidate does, and whatever breaks around it: no caller is harmed (I10), nor told to be equal (I12)."""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import sqlalchemy.orm as sa_orm

from schemaless_core.errors import StoreClosed
from tests.chaos.actors import wait_until
from tests.experiments import Lab, lab, rewritten
from tripstore.engines.validation.experiment import bench as bench_module
from tripstore.engines.validation.experiment.bench import STUCK_MAX, Bench
from tripstore.engines.validation.reads import Failed
from tripstore.engines.validation.shadow.shadow import Shadow
from tripstore.facade.experiments.experiment import Experiment
from tripstore.facade.experiments.options import ExperimentOptions
from tripstore.facade.home import Home
from tripstore.facade.writes import check_may_change, only_reading

#: How long callers wait at most, on a machine that does much else; a candidate that they waited for takes far longer.
AT_ONCE_SECONDS = 10.0
HANG_SECONDS = 60.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as opened:
        yield opened


def hang(gate: threading.Event) -> None:
    gate.wait(HANG_SECONDS)


class Mute(Exception):
    """One that cannot even say what it is."""

    def __str__(self) -> str:
        raise ValueError


class Muted(Exception):
    """One that ends its thread when it is asked."""

    def __str__(self) -> str:
        raise SystemExit


def raising(error: BaseException) -> int:
    raise error


ERRORS = [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), Mute(), Muted()]


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
        asked = rewritten(made.experiment(f"broken.{is_broken}"), lambda _: 1, forking)
        for _ in range(2):
            assert asked(is_broken) == 1
            made.outcomes()
    assert made.outcomes() == {("equal", ""): 2, ("not_compared", "halted"): 2}
    assert len(children.read_text().split()) == 2, "one that forks is tried no more: its children might stay"


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
    assert unpaid() == rewritten(made.experiment("other"), lambda: "old", lambda: "new")() == "old"


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


# ------------------------------------------------------------------------------------------------ what both are given


def spoil(wanted: dict[str, Any]) -> list[int]:
    """A query that uses up what it is asked with."""
    return [wanted["ids"].pop() for _ in range(len(wanted["ids"]))]


def test_i10_what_a_candidate_does_to_its_arguments_no_other_sees(made: Lab) -> None:
    """Neither its caller, nor the control that is asked again, nor the next candidate."""
    mine = {"ids": [1, 2]}
    asked = rewritten(made.experiment(), lambda wanted: list(wanted["ids"]), spoil)
    for _ in range(2):
        assert asked(mine) == [1, 2]
        assert {str(each.verdict.differences[0].kind) for each in made.mismatches()} == {"order"}
        assert mine == {"ids": [1, 2]}


def test_a_control_that_uses_up_its_arguments_leaves_the_candidate_its_own(made: Lab) -> None:
    mine = {"ids": [1, 2]}
    assert rewritten(made.experiment(), spoil, lambda wanted: list(reversed(wanted["ids"])))(mine) == [2, 1]
    assert (mine, made.outcomes()) == ({"ids": []}, {("equal", ""): 1})


def test_i10_a_candidate_that_fails_before_a_caller_leaves_the_control_its_arguments(made: Lab) -> None:
    def broken(wanted: dict[str, Any]) -> Any:
        spoil(wanted)
        raise ValueError("broken")

    made.set(percent=100)
    assert rewritten(made.experiment(), lambda wanted: list(wanted["ids"]), broken)({"ids": [1, 2]}) == [1, 2]


def test_i10_an_iterator_is_left_to_the_control(made: Lab) -> None:
    """Asked with one, a candidate would leave it empty; so it answers no such caller, and is not compared (I12)."""
    asked = rewritten(made.experiment(), list, lambda numbers: [*numbers, 3])
    assert asked(iter([1, 2])) == [1, 2]
    made.set(percent=100)
    assert asked(iter([1, 2])) == [1, 2]
    assert asked([1, 2]) == [1, 2, 3]  # control
    assert made.outcomes()["not_compared", "incomparable"] == 2


@pytest.mark.parametrize("percent", [0, 100])
def test_i10_an_answer_that_can_be_read_once_is_left_to_its_caller(made: Lab, percent: int) -> None:
    """`normalise` would leave the caller an empty one."""
    made.set(percent=percent)

    def numbers() -> Iterator[int]:
        yield from (1, 2)

    for answer in (numbers, lambda: ("two", numbers())):
        asked = rewritten(made.experiment(normalise=read), answer, answer)
        assert read(asked()) == read(answer())
    assert made.outcomes() == {("not_compared", "incomparable"): 2}


def read(answer: Any) -> list[Any]:
    return [*answer[1]] if isinstance(answer, tuple) else [*answer]


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda each: str(type(each))
)
def test_i10_what_a_candidate_raises_before_its_caller_stays_there(made: Lab, error: BaseException) -> None:
    """Control: on the main thread a signal's handler raises two of them, and they end the process."""
    made.set(percent=100)
    asked = rewritten(made.experiment(), lambda: "old", lambda: raising(error))
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(asked).result() == "old"
    if isinstance(error, GeneratorExit):
        assert asked() == "old"
        return
    with pytest.raises(type(error)):
        asked()


def test_i10_a_session_that_a_container_a_default_or_a_wrapped_query_brings_is_found(made: Lab) -> None:
    with closing(sqlite3.connect(":memory:")) as session:

        def by_default(_given: Any = None, held: Any = session) -> Any:
            return held.execute("SELECT 1").fetchall()

        def inner() -> Any:
            return session.execute("SELECT 1").fetchall()

        @functools.wraps(inner)
        def wrapping(_given: Any = None) -> Any:
            return inner()

        for control, given in ((by_default, None), (wrapping, None), (len, [session]), (len, {"in": (session,)})):
            rewritten(made.experiment(), control, lambda _given: None)(given)
        assert made.outcomes() == {("not_compared", "session"): 4}


def test_i10_no_value_of_the_callers_context_is_a_candidates(made: Lab) -> None:
    """A context variable often holds a session."""
    request: ContextVar[str] = ContextVar("request", default="none")

    def candidate() -> str:
        found = request.get()
        request.set("the candidate's")
        return found

    request.set("mine")
    rewritten(made.experiment(), lambda: "none", candidate)()
    assert made.outcomes() == {("equal", ""): 1}
    assert request.get() == "mine"


def test_a_row_of_a_model_is_no_session(made: Lab) -> None:
    """Its caller may keep it; `normalise` reads it on the caller's thread."""
    engine = sa.create_engine("sqlite://")
    base = sa_orm.declarative_base()
    kind = type("Trip", (base,), {"__tablename__": "trips", "id": sa.Column(sa.Integer, primary_key=True)})
    asked = rewritten(made.experiment(normalise=lambda trip: trip.id), lambda: kind(id=7), lambda: kind(id=7))
    assert asked().id == 7
    assert made.outcomes() == {("equal", ""): 1}
    engine.dispose()


def test_i10_what_a_candidate_puts_is_refused(tmp_path: Path) -> None:
    """Control: the same is taken on a caller's thread."""
    with lab(tmp_path, bench=Bench(only_reading)) as made:
        unpaid = rewritten(made.experiment(), lambda: None, check_may_change)
        unpaid()
        (mismatch,) = made.mismatches()
        assert mismatch.verdict.differences[0].path.startswith("A query under experiment may only read.")
        made.set(percent=100)
        assert unpaid() is None


def test_i10_a_candidate_leaves_the_store_of_its_callers_open() -> None:
    """Control: it closes what it opened itself."""

    class Opened:
        def finish(self) -> None: ...

        def close(self) -> None: ...

    def closing_its_own() -> bool:
        own = Home(Opened(), None)  # type: ignore[arg-type]  # no call goes through it
        own.close()
        return own.has_replaced(own.facade)

    shared = Home(Opened(), None)  # type: ignore[arg-type]  # no call goes through it
    bench, outcomes = Bench(only_reading), list[Any]()
    for close in (shared.close, closing_its_own):
        asked: Any = close  # it gives no answer
        outcomes.append(bench.run("closes", asked, AT_ONCE_SECONDS))
    assert isinstance(outcomes[0], Failed)
    assert outcomes[1] is False
    shared.open_facade()
    shared.close()


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
