"""A standby that comes to lead, beside puts, another promoter, kills and silences; and the one that led comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.explorer.explorer import Found, explore
from tests.explorer.standby import StandbyModel, promoter, returner
from tests.explorer.standby_world import FIRST, SECOND, THIRD, StandbyBudget, StandbyRules
from tests.explorer.test_explorer import story
from tests.explorer.world import Violation

#: More than there are.
WORLDS_MAX = 500_000

TWO = (promoter(SECOND), promoter(SECOND))
SCENES: dict[str, tuple[tuple[Any, ...], StandbyBudget, frozenset[int]]] = {
    "planned, by two": (TWO, StandbyBudget(), frozenset()),
    "planned, beside a promotion": ((promoter(SECOND),), StandbyBudget(promotions=1), frozenset()),
    "planned and forced": ((promoter(SECOND), promoter(SECOND, is_forced=True)), StandbyBudget(), frozenset()),
    "forced, and back": (
        (promoter(SECOND, is_forced=True), returner(FIRST)),
        StandbyBudget(puts=3, promotions=1),
        frozenset({FIRST}),
    ),
    "there and back, beside one that slept": (
        (promoter(SECOND), promoter(SECOND), returner(FIRST), promoter(FIRST)),
        StandbyBudget(puts=1, kills=0, silences=0),
        frozenset({FIRST}),
    ),
    "planned, and its primary is lost": ((promoter(SECOND),), StandbyBudget(puts=1, servers=1), frozenset()),
    "two standbys": ((promoter(SECOND), promoter(THIRD)), StandbyBudget(puts=1), frozenset()),
    "given, and the one that takes it is lost": (
        (promoter(SECOND), promoter(FIRST, is_forced=True)),
        StandbyBudget(puts=1, losses=1),
        frozenset(),
    ),
    "back, and the one that leads is lost": (
        (promoter(SECOND), returner(FIRST), promoter(FIRST, is_forced=True)),
        StandbyBudget(puts=1, silences=0, losses=1),
        frozenset({FIRST}),
    ),
}
#: Which scene misses a rule that only one of them does; others are looked for in all.
MISSED_BY = {
    "names_taker": "two standbys",
    "closes_own": "given, and the one that takes it is lost",
    "copies_below_epoch": "given, and the one that takes it is lost",
    "waits_for_replicas": "planned, and its primary is lost",
    "looks_again": "planned, and its primary is lost",
    "opens_as_placed": "planned, and its primary is lost",
}


def explored(scene: str, rules: StandbyRules) -> Found:
    actors, budget, returns = SCENES[scene]
    standbys = max(site for site, _kind, _code in actors)
    return explore(StandbyModel(rules, actors, budget, returns=returns, standbys=standbys), Violation, WORLDS_MAX)


@pytest.mark.parametrize("scene", SCENES)
def test_i1_i9_in_every_order_one_datastore_leads_and_nothing_acknowledged_is_lost(scene: str) -> None:
    found = explored(scene, StandbyRules())

    assert not found.violation, story(found)
    assert found.is_complete
    print(f"explorer: {scene}: {found.worlds:,} worlds, complete: {found.is_complete}")


@pytest.mark.parametrize("rule", StandbyRules.__dataclass_fields__)
def test_control_a_rule_of_standbys_that_is_taken_away_is_missed(rule: str) -> None:
    broken = replace(StandbyRules(), **{rule: False})

    scenes = (MISSED_BY[rule],) if rule in MISSED_BY else SCENES

    assert any(explored(scene, broken).violation for scene in scenes), f"{rule} is not missed"
