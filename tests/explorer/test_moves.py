"""Moves of a shard, in every order with puts, readers, triggers, index writers, promotions and kills.

I1, I3, I6, I7, I9. What runs is the production code of a move. Every rule that is taken away is missed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from schemaless_core.moves import steps
from schemaless_core.steps import Step
from tests.explorer.explorer import Found, explore
from tests.explorer.moving import SOURCE, Budget, MoveRules, MoveScene
from tests.explorer.moving_actors import hand_over, indexer, mover, reader, sleeper, trigger, undoer, worker, writer
from tests.explorer.moving_model import MoveModel
from tests.explorer.test_explorer import story
from tests.explorer.world import Violation
from tests.scale import scaled

M, N, BACK, U = mover("M"), mover("N"), mover("B", SOURCE), undoer("U")
STOPPED = mover("M", may_stop=True)
W, X, R, E, T = writer("W", 1), writer("X", 2), reader("R"), indexer("I", 7), trigger("T")
Z = sleeper("Z")
F = indexer("F", 8, hears_first=True)
H, OBEYING = hand_over("H"), worker("O")
A, B = 0, 1
#: More worlds than any scene has that is walked to its end.
ENOUGH = 1_000_000


def scene(name: str, *cast: Any, promotes: tuple[int, ...] = (), impatient: bool = False, **budget: int) -> MoveScene:
    return MoveScene(name, cast, Budget(**budget), promotes, impatient)


def empty(made: MoveScene) -> MoveScene:
    """With no cell in the log when it begins."""
    return replace(made, log=())


def led(made: MoveScene) -> MoveScene:
    """With an authority row."""
    return replace(made, has_authority=True)


#: Walked to their ends in every run.
SMALL = [
    scene("killed", M, W, X, kills=1),
    scene("read", M, W, R),
    scene("read, source cut off", M, W, R, silences=1),
    scene("indexed", M, E, kills=1),
    scene("triggered", M, W, T),
    scene("silences", M, W, silences=1, impatient=True),
    scene("there and back", M, BACK, W, lates=1),
    scene("source promoted", M, W, promotes=(A,), promotions=1),
    scene("target promoted", M, W, promotes=(B,), promotions=1),
    scene("source dies", M, W, promotes=(A,), deaths=1),
    scene("target dies", M, W, promotes=(B,), deaths=1),
    empty(scene("target dies, indexed", M, E, promotes=(B,), deaths=1)),
    scene("target dies, idle", M, promotes=(B,), deaths=1),
    scene("one sleeps", M, Z, F),
    led(scene("handed over", M, W, H, OBEYING)),
    led(scene("handed over, killed", M, H, OBEYING, kills=1)),
]
#: Walked as far as the scale allows.
LARGE = [
    scene("large: two at once", STOPPED, N, W),
    empty(scene("large: read, source promoted", M, W, R, promotes=(A,), promotions=1, silences=1)),
    empty(scene("large: two at once, indexed", M, N, F)),
    scene("large: given up", M, U, W, lates=1),
    scene("large: two at once, late", M, N, W, lates=1),
    scene("large: source promoted, late", M, W, promotes=(A,), promotions=1, lates=1),
    scene("large: target promoted, late", M, W, promotes=(B,), promotions=1, lates=1),
    scene("large: both promoted", M, W, promotes=(A, B), promotions=2),
    scene("large: target dies, late", M, W, promotes=(B,), deaths=1, lates=1),
    scene("large: triggered, indexed", M, W, T, E, kills=1),
    scene("large: there and back, triggered", M, BACK, W, T, kills=1),
    led(scene("large: handed over, given up", M, U, W, H, OBEYING)),
]
SCENES = {each.name: each for each in [*SMALL, *LARGE]}


@cache
def walk(made: MoveScene) -> tuple[Found, frozenset[Step]]:
    """To its end, once for all tests; and the steps that were taken."""
    model = MoveModel(made)
    return explore(model, Violation, ENOUGH), frozenset(model.steps_taken())


@pytest.mark.parametrize("made", SMALL, ids=lambda made: made.name)
def test_every_order_of_a_move_keeps_the_invariants(made: MoveScene) -> None:
    found, _ = walk(made)

    assert not found.violation, story(found)
    assert found.is_complete
    print(f"explorer: {made.name}: {found.worlds:,} worlds")


@pytest.mark.parametrize("made", LARGE, ids=lambda made: made.name)
def test_larger_casts_around_a_move_keep_the_invariants_as_far_as_they_are_followed(made: MoveScene) -> None:
    limit = scaled(1_000_000, short=4_000)

    found = explore(MoveModel(made), Violation, limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {made.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


def test_every_step_of_a_move_is_taken() -> None:
    taken = {step for made in SMALL for step in walk(made)[1]}

    assert {*steps.MOVE, steps.CUT, steps.HOLD, steps.RETURN, steps.GIVE_UP} <= taken


#: What is taken away, where it is missed, and what breaks.
RULES = {
    "leaves": ("killed", "I1: "),
    "leaves_at_epoch": ("there and back", "liveness: "),
    "compares_topology": ("source promoted", "liveness: "),
    "ends_at_topology": ("target promoted", "liveness: "),
    "staying_raises_epoch": ("there and back", "I1: "),
    "writes_in_place": ("one sleeps", "I"),
    "claims": ("one sleeps", "I6: "),
    "cuts": ("source dies", "liveness: "),
    "arrives_with_beside": ("target dies, indexed", "I6: "),
    "waits_for_replicas": ("target dies, idle", "liveness: "),
    "arrives_unfenced": ("target promoted", "I1: "),
    "opens_in_place": ("target promoted", "I1: "),
    "raises_epoch": ("there and back", "liveness: "),
    "copies_beside": ("indexed", "I6: "),
    "beside_copies_alone": ("one sleeps", "I6: "),
    "looks_beside": ("indexed", "I6: "),
    "promotion_fences_moves": ("target promoted", "I1: "),
    "promotion_closes_strays": ("source dies", "I1: "),
    "closes_first": ("read", "I9: "),
    "confirms_going": ("read, source cut off", "I9: "),
    "confirms_fenced": ("large: read, source promoted", "I9: "),
    "compares_authority": ("large: handed over, given up", "I9: "),
}
#: Second nets: what is missed only where the first one is gone.
SECOND_NETS = {
    "closes_first": "confirms_going",
    "writes_in_place": "claims",
    "arrives_with_beside": "waits_for_replicas",
}


@pytest.mark.parametrize("rule", RULES)
def test_control_a_rule_of_moves_that_is_taken_away_is_missed(rule: str) -> None:
    name, invariant = RULES[rule]
    away = {rule, *([SECOND_NETS[rule]] if rule in SECOND_NETS else [])}

    rules = replace(MoveRules(), **dict.fromkeys(away, False))
    found = explore(MoveModel(replace(SCENES[name], rules=rules)), Violation, ENOUGH)

    assert found.violation.startswith(invariant), story(found)


def test_every_rule_of_moves_has_its_control() -> None:
    assert set(RULES) == set(MoveRules.__dataclass_fields__)
