"""Promotions of primaries that may be alive, in every order with leases that are extended, puts and hand-overs: I1, I9.

What runs is the production code of a promotion and of a lease. Every rule that is taken away is missed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemaless_core.promotion import lease, steps
from schemaless_core.promotion.ports import PromotionOrder
from tests.explorer.primaries import Budget, LeaseRules, PrimaryScene
from tests.explorer.primary_actors import (
    hand_over,
    heir,
    name_of,
    operator,
    reader,
    renewer,
    rival,
    worker,
    writer,
)
from tests.explorer.primary_walks import walk, walked
from tests.explorer.test_explorer import story
from tests.scale import scaled

LOST = PromotionOrder(given_up=(name_of(0),), outlasts=True)
A, B = operator("A", LOST), operator("B", LOST)
P = operator("P")
NEXT = operator("N", PromotionOrder(given_up=(name_of(1),), outlasts=True))
W, R, R2, V, H, OBEYING = writer("W", 1), renewer("R"), renewer("R2"), heir("V"), hand_over("H"), worker("O")
READS, RIVAL = reader("X"), rival("Y")


def scene(name: str, *cast: Any, servers: int = 2, fails: tuple[int, ...] = (), **budget: int) -> PrimaryScene:
    return PrimaryScene(name, cast, servers, Budget(**budget), fails, has_leases=True)


SMALL = [
    scene("lost", A, W, R),
    scene("lost, a voter fails over", A, W, R, V),
    scene("lost, read", A, W, R, READS),
    scene("lost, dies and is back", A, W, R, fails=(0,), crashes=1),
    scene("two clusters lost", A, R, RIVAL),
]
LARGE = [
    scene("large: lost, killed", A, W, R, kills=1),
    replace(scene("large: lost, handed over", A, W, R, H, OBEYING), has_authority=True),
    scene("large: lost, two at once", A, B, W, R),
    scene("large: lost, and planned", A, P, W, R),
    scene("large: lost, two extend", A, W, R, R2),
    scene("large: lost, and back", A, NEXT, W, R),
    scene("large: two clusters lost", A, W, R, RIVAL),
    scene("large: two clusters lost, killed", A, R, RIVAL, kills=1),
]
#: For a control alone: no process extends a lease.
INHERITED = scene("inherited", A, NEXT, W)
SCENES = {each.name: each for each in [*SMALL, *LARGE, INHERITED]}


@pytest.mark.parametrize("made", SMALL, ids=lambda made: made.name)
def test_every_order_of_a_promotion_that_outlasts_a_lease_keeps_the_invariants(made: PrimaryScene) -> None:
    found, _ = walk(made)

    assert not found.violation, story(found)
    assert found.is_complete
    print(f"explorer: {made.name}: {found.worlds:,} worlds")


@pytest.mark.parametrize("made", LARGE, ids=lambda made: made.name)
def test_larger_casts_around_a_lease_keep_the_invariants_as_far_as_they_are_followed(made: PrimaryScene) -> None:
    limit = scaled(1_000_000, short=10_000)

    found = walked(made, limit=limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {made.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


def test_the_scenes_take_every_step_of_a_lease() -> None:
    taken = walk(SCENES["lost"])[1]

    assert {lease.CLOCK, lease.ASK, lease.EXTEND, steps.BLOCK, steps.OUTLAST} <= taken


#: What is taken away, where it is missed, and what breaks.
RULES = {
    "wants_lease": ("lost", "I9: "),
    "reads_want_lease": ("lost, read", "I9: "),
    "asks_voter": ("lost", "I9: "),
    "reads_clock_first": ("lost", "I9: "),
    "blocks_all": ("lost", "I9: "),
    "outlasts": ("lost", "I9: "),
    "bounds_answers": ("lost", "I9: "),
    "voter_is_leased": ("lost, a voter fails over", "I9: "),
    "carries_notes": ("lost, a voter fails over", "I9: "),
    "control_first": ("lost, a voter fails over", "I9: "),
    "only_leased_closes": ("large: lost, handed over", "I9: "),
    "keeps_outlasts": ("large: lost, and planned", "I9: "),
    "lease_is_of_one_server": ("inherited", "I9: "),
    "one_at_a_time": ("two clusters lost", "liveness: "),
}


@pytest.mark.parametrize("rule", RULES)
def test_control_a_rule_of_leases_that_is_taken_away_is_missed(rule: str) -> None:
    name, invariant = RULES[rule]

    found = walked(replace(SCENES[name], lease_rules=_without(rule)))

    assert found.violation.startswith(invariant), story(found)


def test_every_rule_of_leases_has_its_control() -> None:
    assert set(RULES) == set(LeaseRules.__dataclass_fields__)


def _without(rule: str) -> LeaseRules:
    return replace(LeaseRules(), **{rule: False})
