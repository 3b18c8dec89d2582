"""Buffered writes, in every order with a hand-over, outages, packets that come late, and kills: I1, I2, I4, I5, I9.

What runs is the production code of keeping and replaying, and of the hand-over. Every rule that is taken away is
missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from schemaless_core.buffers import steps
from tests.explorer.actors import AT_POSTGRES, AT_SCHEMALESS, OLD_LAYOUT, helper, mirror, old
from tests.explorer.buffering import (
    caller,
    reader,
    replay_at_the_old_epoch,
    replay_that_drops_conflicts,
    replay_that_removes_first,
    replayer,
    reverse_with,
)
from tests.explorer.explorer import Found, explore
from tests.explorer.model import Model
from tests.explorer.programs import SERVERS, Tools
from tests.explorer.rules import Actor, BufferRules, Scenario
from tests.explorer.scenarios import PRESENT_R, PRESENT_S, PRESENT_Y, R, back, forward, relaid
from tests.explorer.test_explorer import story
from tests.explorer.world import Violation
from tests.scale import scaled
from tripstore.handover import switch
from tripstore.handover.steps import Step, Steps

ENOUGH = 400_000

H, M1 = helper("H"), mirror("M1", 1)
F, G4 = caller("F", 1, 3), caller("G", 1, 4)
P, P2 = replayer("P", 0), replayer("P2", 0)


def late(scene: Scenario, lates: int = 1, **changes: object) -> Scenario:
    return replace(scene, lates=lates, **changes)  # type: ignore[arg-type]  # fields of a scenario


def three(scene: Scenario, *fails: int, **changes: object) -> Scenario:
    """Of three servers."""
    return replace(scene, servers=3, fails=fails, **changes)  # type: ignore[arg-type]  # fields of a scenario


F3 = caller("F", 1, 3, servers=3)
X, Y = caller("X", 1, 3, servers=3), caller("Y", 1, 3, servers=3)
X2, Y2 = caller("X", 1, 3), caller("Y", 1, 3)
P0, P02 = replayer("P0", 0), replayer("P2", 2)
#: A process that knows Postgres as the authority, before a switch.
EARLY_F = caller("F", 1, 3, knows=AT_POSTGRES)
LATE_OLD_F = old(caller("F", 1, 3, knows=replace(AT_SCHEMALESS, layout=OLD_LAYOUT)))

#: Walked to their ends in every run.
SMALL = [
    back("kept, replayed", F, P, outages=1, kills=1),
    late(back("kept, late packets", F, P, outages=1), 2),
    late(back("kept, two replayers", F, P, P2, outages=1, kills=1)),
    late(back("kept, two callers", F, G4, P, outages=1)),
    late(back("kept, read", F, P, reader("G", 1), outages=1)),
    late(back("kept, back", PRESENT_R, F, P, M1)),
    late(forward("kept, switched", PRESENT_S, EARLY_F, P), 2),
    relaid(late(back("kept, layout", PRESENT_Y, LATE_OLD_F, P))),
    late(three(back("kept, three servers", F3, P0, P02, outages=2), 1, 2), 2),
    late(three(back("kept, conflicts", X, Y, P0, P02, outages=2), 1, 2, has_conflicts=True)),
    late(three(back("kept, three servers, read", F3, P0, P02, reader("G", 1, servers=3), outages=1), 1)),
    late(replace(back("kept, one buffer's conflict", X2, Y2, P, outages=1, kills=1), has_conflicts=True)),
]
#: Walked as far as the scale allows.
LARGE = [
    late(back("large: kept, undone", PRESENT_R, H, F, P)),
    replace(
        relaid(late(back("large: kept, layout, incompatible", PRESENT_Y, H, LATE_OLD_F, P))),
        is_copied=False,
        is_empty=True,
        is_incompatible=True,
    ),
    late(back("large: kept, back, two replayers, present", PRESENT_R, F, P, P2, M1)),
    back("large: kept, back, outage", PRESENT_R, H, F, P, M1, outages=1),
    back("large: kept, back, killed", R, H, F, P, M1, kills=1, outages=1),
    late(forward("large: kept, switched", PRESENT_S, H, EARLY_F, P, outages=1)),
    relaid(late(back("large: kept, layout", PRESENT_Y, H, LATE_OLD_F, P, outages=1))),
    late(back("large: kept, back", R, H, F, P, M1, outages=1, kills=1)),
    late(back("large: kept, back, two callers", R, H, F, G4, P, M1, outages=1)),
    late(back("large: kept, back, two replayers", R, H, F, P, P2, M1, outages=1), 2),
    late(back("large: kept, round", PRESENT_R, PRESENT_S, F, P, M1, outages=1)),
    late(forward("large: kept, switched and back", PRESENT_S, PRESENT_R, EARLY_F, P, M1, outages=1)),
    late(three(back("large: kept, back, three servers", R, H, F3, P0, P02, M1, outages=1), 1)),
]
SCENARIOS = {scene.name: scene for scene in [*SMALL, *LARGE]}


def walked(scene: Scenario, *, limit: int = ENOUGH) -> Found:
    return explore(Model(scene), Violation, limit)


@cache
def walk(name: str) -> tuple[Found, set[Step]]:
    """Through a small scenario, and the steps that were taken there."""
    model = Model(SCENARIOS[name])
    return explore(model, Violation, ENOUGH), model.steps_taken()


@pytest.mark.parametrize("scene", SMALL, ids=lambda scene: scene.name)
def test_every_order_of_keeping_and_replaying_keeps_the_invariants(scene: Scenario) -> None:
    found, _ = walk(scene.name)

    assert not found.violation, story(found)
    assert found.is_complete


@pytest.mark.parametrize("scene", LARGE, ids=lambda scene: scene.name)
def test_larger_casts_keep_the_invariants_as_far_as_they_are_followed(scene: Scenario) -> None:
    limit = scaled(420_000, short=4_000)

    found = walked(scene, limit=limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {scene.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


#: What is taken away, where it is missed, and what breaks.
RULES = {
    "are_gated": ("kept, back", "I"),
    "have_epoch": ("kept, layout", "I9: "),
    "lock_gate": ("kept, back", "I"),
    "compare": ("kept, one buffer's conflict", "I1: acknowledged"),
    "objects_to_buffered": ("large: kept, layout, incompatible", "I2"),
    "settles_at_once": ("kept, one buffer's conflict", "I1: acknowledged"),
}


@pytest.mark.parametrize("rule", RULES)
def test_control_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    name, invariant = RULES[rule]

    found = walked(replace(SCENARIOS[name], buffer_rules=replace(BufferRules(), **{rule: False})))

    assert found.violation.startswith(invariant), story(found)


def test_every_rule_has_its_control() -> None:
    assert set(RULES) == set(BufferRules.__dataclass_fields__)


def wrong(name: str, code: Callable[[Tools, str], Steps[None]]) -> Actor:
    """A replayer with a mistake."""
    return replace(replayer(name, 0), code=lambda tools: code(tools, SERVERS[0]))


#: Procedures with one mistake each, in whose stead, and what breaks.
MISTAKES: dict[str, tuple[str, Actor, str]] = {
    "removes first": ("kept, replayed", wrong("P", replay_that_removes_first), "I1: acknowledged"),
    "at the old epoch": ("large: kept, undone", wrong("P", replay_at_the_old_epoch), "liveness"),
    "drops conflicts": ("kept, conflicts", wrong("P0", replay_that_drops_conflicts), "I1: acknowledged"),
    "reads the shard first": ("kept, read", reader("G", 1, is_wrong=True), "I9: actor"),
    "does not count buffers": ("kept, back", reverse_with("R", counts=False), "I1: Postgres is the authority"),
    "counts buffers last": ("kept, back", reverse_with("R", buffers_last=True), "I1: Postgres is the authority"),
    "counts buffers, then closes": ("kept, back", reverse_with("R", closes_last=True), "I1: Postgres is the authority"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_control_steps_in_the_wrong_order_are_caught(mistake: str) -> None:
    name, actor, invariant = MISTAKES[mistake]
    scene = SCENARIOS[name]
    cast = tuple(actor if one.name == actor.name else one for one in scene.cast)
    assert cast != scene.cast

    found = walked(replace(scene, cast=cast))

    assert found.violation.startswith(invariant), story(found)


def test_every_step_of_keeping_and_replaying_is_taken_somewhere() -> None:
    _, taken = walk("kept, back")

    assert {steps.KEEP, *steps.REPLAY, switch.BACK_REPLAY} <= taken
