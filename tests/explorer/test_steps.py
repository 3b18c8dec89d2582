"""Procedures as generators: what the plan shows is what is done, and the explorer may take them apart at each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tripstore.handover
from schemaless_core import failpoints
from tests.explorer.actors import OLD_LAYOUT, relayer, reverser, sql, switcher
from tests.explorer.model import Model
from tests.explorer.rules import Scenario
from tripstore.handover import relayout, settle, switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.steps import Step, Steps, run

FILES = sorted(Path(tripstore.handover.__file__).parent.glob("*.py"))


def steps_of(scene: Scenario) -> list[Step]:
    """What the last actor does after all others are through, each step once."""
    model, steps = Model(scene), dict[Step, None]()
    world = model.first()
    for me in range(len(scene.cast)):
        while (node := model.node(world, me)).call is not None:
            if me == len(scene.cast) - 1 and node.step is not None and world.places[me].phase is None:
                steps[node.step] = None
            world = next(after for mover, _, after in model.moves_of(world, me))
    return list(steps)


def test_a_switch_does_what_its_plan_shows_in_that_order() -> None:
    assert steps_of(Scenario("forward", (sql("W", ("update", 0)), switcher("S")))) == list(switch.FORWARD)


def test_the_way_back_does_what_its_plan_shows_in_that_order() -> None:
    assert steps_of(Scenario("back", (reverser("R"),), start=Backend.STORE)) == list(switch.BACK)


@pytest.mark.parametrize("backend", Backend)
def test_a_layout_is_put_in_force_as_its_plan_shows(backend: Backend) -> None:
    """Only a store that is the authority is opened again."""
    wanted = [step for step in relayout.STEPS if backend is Backend.STORE or step is not settle.OPEN]

    assert steps_of(Scenario("layout", (relayer("Y"),), start=backend, layout=OLD_LAYOUT)) == wanted


LOOK, WAIT = Step("one.look", "look"), Step("one.wait", "wait", pause_seconds=3)


def some_steps(answers: list[str]) -> Steps[str]:
    yield Step("one.begin", "begin")
    answers.append("begun")
    yield WAIT
    yield LOOK
    yield WAIT
    answers.append("waited")
    return "done"


def test_a_run_tells_each_step_before_it_is_done_and_waits_when_one_is_done_again() -> None:
    done: list[str] = []
    slept: list[float] = []

    answer = run(some_steps(done), lambda step: done.append(step.name), slept.append)

    assert answer == "done"
    assert done == ["one.begin", "begun", "one.wait", "one.look", "one.wait", "waited"]
    assert slept == [3]


def test_each_step_is_a_failpoint(tmp_path: Path) -> None:
    (tmp_path / "one.wait").write_text("raise")
    done: list[str] = []
    failpoints.use_folder(tmp_path)
    try:
        with pytest.raises(failpoints.FailpointReached, match=r"one\.wait"):
            run(some_steps(done))
    finally:
        failpoints.use_folder(None)

    assert done == ["begun"]


def test_names_of_steps_are_theirs_alone() -> None:
    steps = {step.name: step for step in (*switch.FORWARD, *switch.BACK, *relayout.STEPS)}

    assert len(steps) == len({*switch.FORWARD, *switch.BACK, *relayout.STEPS})


def test_every_change_of_the_row_has_an_epoch_of_its_own() -> None:
    row = Authority(7, Backend.LEGACY)
    closing = row.closing("a")

    assert (closing.epoch, closing.decided().epoch, closing.undone().epoch) == (8, 9, 9)
    assert closing.decided().is_open_for(Backend.STORE)
    assert closing.undone().is_open_for(Backend.LEGACY)
    assert not closing.is_open
    assert closing.decided() != closing.undone()


def functions() -> Iterator[ast.FunctionDef]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and any(_yields(each) for each in ast.walk(node)):
                yield node


def _yields(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom)


def test_a_procedure_keeps_all_that_it_knows_in_its_variables() -> None:
    """Or the explorer could not tell two of its points apart: it does not see an iterator."""
    checked = 0
    for function in functions():
        for node in ast.walk(function):
            inside = any(_yields(each) for each in ast.walk(node))
            if isinstance(node, ast.For) and inside:
                assert isinstance(node.iter, ast.Name), f"{function.name}: a loop over something without a name"
            assert not (isinstance(node, ast.Try | ast.With | ast.GeneratorExp | ast.Lambda) and inside), function.name
            if isinstance(node, ast.expr) and not _yields(node):
                assert not inside, f"{function.name}: a step in the middle of an expression"
        checked += 1

    assert checked >= 10
