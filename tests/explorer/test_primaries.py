"""Promotions, in every order with puts, hand-overs, servers that die and come back, kills and lost answers: I1, I9.

What runs is the production code of a promotion. Every rule that is taken away is missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemaless_core.promotion.ports import PromotionOrder
from tests.explorer.primaries import COPY, Budget, PrimaryRules, PrimaryScene
from tests.explorer.primary_actors import hand_over, name_of, operator, switch, worker, writer
from tests.explorer.primary_walks import walk, walked
from tests.explorer.test_explorer import story
from tests.scale import scaled

#: Planned; after a death; to a server that is named; and back to the old one.
P, P2 = operator("P"), operator("P2")
#: One may be stopped for ever where another one goes on.
TO_1 = PromotionOrder(to=name_of(1))
Q, Q2 = operator("Q", TO_1, may_stop=True), operator("Q2", TO_1)
DEAD = PromotionOrder(given_up=(name_of(0),))
D, D2 = operator("D", DEAD), operator("D2", DEAD)
TO1 = operator("T", TO_1)
TO2 = operator("U", PromotionOrder(to=name_of(2)))
STAY = operator("S", PromotionOrder(to=name_of(0)))
DEAD_BOTH = operator("E", PromotionOrder(given_up=(name_of(0), name_of(1))))
W, X = writer("W", 1), writer("X", 2)
ONCE = writer("W", 1, repeats=False)
H, SWITCH, OBEYING = hand_over("H"), switch("S"), worker("O")
TO_2, TO_2_TOO = (operator(name, DEAD._replace(to=name_of(2))) for name in ("D", "D2"))


def scene(name: str, *cast: Any, servers: int = 2, fails: tuple[int, ...] = (), **budget: int) -> PrimaryScene:
    return PrimaryScene(name, cast, servers, Budget(**budget), fails)


def led(made: PrimaryScene) -> PrimaryScene:
    """With an authority row."""
    return replace(made, has_authority=True)


#: Walked to their ends in every run.
SMALL = [
    scene("planned", P, W, X, kills=1, lates=1),
    scene("planned, sessions end", P, W, kills=1, breaks=1),
    scene("planned, put late", P, W, X, lates=2),
    scene("planned, a server dies", P, W, fails=(0,), crashes=1),
    scene("dead", D, W, X, fails=(0,), crashes=1, kills=1),
    scene("dead, late", D, W, fails=(0,), crashes=1, lates=1),
    scene("dead, two at once", D, D2, W, fails=(0,), crashes=1),
    scene("three, the next one dies", D, DEAD_BOTH, servers=3, fails=(0, 1), crashes=2),
    led(scene("handed over", P, W, H, OBEYING)),
    replace(led(scene("switched", P, SWITCH, OBEYING)), begins=COPY),
    led(scene("handed over, dead", D, W, H, OBEYING, fails=(0,), crashes=1)),
]
#: Walked as far as the scale allows.
LARGE = [
    scene("large: planned, then dead", P, D, W, fails=(0,), crashes=1),
    scene("large: three, dead, two at once", TO_2, TO_2_TOO, ONCE, servers=3, fails=(0,), crashes=1),
    scene("large: planned, two at once", Q, Q2, W),
    scene("large: planned, and stay", P, STAY, W),
    scene("large: three, two at once", TO1, TO2, servers=3),
    scene("large: three, planned", TO1, W, X, servers=3, kills=1),
    scene("large: three, two targets", TO1, TO2, W, servers=3, kills=1),
    scene("large: three, dead", D, W, X, servers=3, fails=(0,), crashes=1, kills=1),
    scene("large: three, the next one dies", D, DEAD_BOTH, W, servers=3, fails=(0, 1), crashes=2),
    led(scene("large: handed over, killed", P, W, X, H, OBEYING, kills=1, lates=1)),
    led(scene("large: handed over, three", D, W, H, OBEYING, servers=3, fails=(0,), crashes=1, lates=1)),
]
SCENES = {each.name: each for each in [*SMALL, *LARGE]}


@pytest.mark.parametrize("made", SMALL, ids=lambda made: made.name)
def test_every_order_of_a_promotion_keeps_the_invariants(made: PrimaryScene) -> None:
    found, _ = walk(made)

    assert not found.violation, story(found)
    assert found.is_complete
    print(f"explorer: {made.name}: {found.worlds:,} worlds")


@pytest.mark.parametrize("made", LARGE, ids=lambda made: made.name)
def test_larger_casts_around_a_promotion_keep_the_invariants_as_far_as_they_are_followed(made: PrimaryScene) -> None:
    limit = scaled(1_000_000, short=10_000)

    found = walked(made, limit=limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {made.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


class _Wrapped:
    """A port of which one verb does something else."""

    def __init__(self, port: Any, **verbs: Callable[..., Any]) -> None:
        self._port = port
        self.__dict__.update(verbs)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._port, verb)


#: What is taken away, where it is missed, and what breaks.
RULES = {
    "fences": ("planned", "I"),
    "has_one_holder": ("large: three, dead, two at once", "I9: "),
    "keeps_session": ("three, the next one dies", "I9: "),
    "compares_record": ("large: three, two at once", "I9: "),
    "returns_shut": ("dead", "I9: "),
    "raises_epoch": ("planned, put late", "I1: "),
    "compares_authority": ("switched", "liveness: "),
    "fenced_is_not_closed": ("handed over", "I9: "),
    "only_leader_closes": ("handed over", "I9: "),
    "waits_for_hand_over": ("handed over, dead", "I9: "),
    "waits_for_changes": ("planned", "I1: "),
}


@pytest.mark.parametrize("rule", RULES)
def test_control_a_rule_of_promotions_that_is_taken_away_is_missed(rule: str) -> None:
    name, invariant = RULES[rule]

    found = walked(replace(SCENES[name], rules=replace(PrimaryRules(), **{rule: False})))

    assert found.violation.startswith(invariant), story(found)


def test_every_rule_of_promotions_has_its_control() -> None:
    assert set(RULES) == set(PrimaryRules.__dataclass_fields__)
