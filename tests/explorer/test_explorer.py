"""The hand-over, in every order of its steps and of everybody else's, with accidents: I1, I2, I4, I8, I9.

What runs is the production code; what is in memory are the servers. A world is bad when an invariant does not hold in
it, or when from there no store would ever be open again. Every rule of the servers and of the procedures that is taken
away is missed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.explorer.explorer import Found, explore
from tests.explorer.model import Model
from tests.explorer.rules import Rules, Scenario
from tests.explorer.scenarios import LARGE, SCENARIOS, SMALL, with_mistake
from tests.explorer.world import Violation, World
from tests.scale import scaled
from tripstore.handover import backfill, call, relay, relayout, reverse, settle, switch
from tripstore.handover.authority import Authority
from tripstore.handover.steps import Step

#: Far more than a small scenario has.
ENOUGH = 300_000


def walked(scene: Scenario, rules: Rules | None = None, *, limit: int = ENOUGH) -> Found:
    return explore(Model(scene, rules), Violation, limit)


class Walk(NamedTuple):
    """What is left of the walk through a small scenario, for all tests that look at it."""

    found: Found
    values: set[Any]
    steps: set[Step]


@cache
def walk(name: str) -> Walk:
    model = Model(SCENARIOS[name])
    return Walk(explore(model, Violation, ENOUGH), model.values(), model.steps_taken())


def story(found: Found) -> str:
    lines = [f"{found.violation}, after", *(f"  {n:2} {what}" for n, what in enumerate(found.schedule, 1))]
    return "\n".join(lines)


@pytest.mark.parametrize("scene", SMALL, ids=lambda scene: scene.name)
def test_every_order_of_steps_and_accidents_keeps_the_invariants(scene: Scenario) -> None:
    found = walk(scene.name).found

    assert not found.violation, story(found)
    assert found.is_complete


@pytest.mark.parametrize("scene", LARGE, ids=lambda scene: scene.name)
def test_larger_casts_keep_the_invariants_as_far_as_they_are_followed(scene: Scenario) -> None:
    limit = scaled(420_000, short=8_000)

    found = walked(scene, limit=limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {scene.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


#: What is taken away, where it is missed, and what breaks.
RULES = {
    "decides_in_one_write": ("forward, killed", "I9"),
    "locks_before_gate": ("forward, killed", "I9"),
    "counts_claimed": ("forward, killed", "I8"),
    "undo_compares": ("forward, killed", "I9"),
    "late_decision_compares": ("forward, broken off, begun again", "I9"),
    "open_compares": ("two reversers", "I9"),
    "closes_at_row_epoch": ("two reversers", "I9"),
    "fences_reads": ("forward, reading", "I9"),
    "store_fences_reads": ("back, reading", "I9"),
    "store_fences_writes": ("back, reading", "I9"),
    "gate_has_epoch": ("back, old reader", "I9"),
    "gate_under_row": ("two switchers", "I9"),
    "closes_in_one_packet": ("forward, crash", "liveness"),
    "ends_barrier": ("forward, crash", "liveness"),
    "shuts_gate": ("forward, killed", "I9"),
    "barrier_waits": ("forward, killed", "I9"),
    "claims_durably": ("asynchronous", "I1"),
    "chunks_are_durable": ("backfill, asynchronous", "I1"),
    "chunks_fenced": ("backfill", "I9"),
    "applies_durably": ("back, crash", "I1"),
    "row_is_durable": ("back, crash", "liveness"),
    "obeys_tombs": ("deleted, put again", "I4"),
    "claims_look_at_layout": ("layout: postgres, queue", "I9"),
    "chunks_look_at_layout": ("layout: past", "I9"),
    "mirror_has_epoch": ("layout: schemaless", "I9"),
    "looks_at_layout": ("layout: postgres", "I9"),
}


@pytest.mark.parametrize("rule", RULES)
def test_control_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    scene, invariant = RULES[rule]

    found = walked(SCENARIOS[scene], Rules(**{rule: False}))

    assert found.violation.startswith(invariant), story(found)


def test_every_rule_has_its_control() -> None:
    assert set(RULES) == set(Rules.__dataclass_fields__)


#: Who makes a mistake, where, and what breaks.
MISTAKES = {
    "relay_that_marks_first": ("asynchronous, again", "I8"),
    "mirror_that_saves_first": ("back, killed", "I1"),
    "mirror_that_looks_first": ("forward, rehearsed", "I1"),
    "switch_that_drains_first": ("forward", "I8"),
    "switch_that_leaves_it_closing": ("forward, broken off", "liveness"),
    "switch_that_opens_first": ("forward, one row", "I9"),
    "reverse_that_counts_first": ("back", "I1"),
    "reverse_that_needs_no_answer": ("back, outage", "I9"),
    "relayout_that_fences_afterwards": ("layout: postgres, queue", "I9"),
    "relayout_that_fences_too_low": ("layout: postgres, queue", "I9"),
    "relayout_that_leaves_the_gate": ("layout: schemaless", "I9"),
    "relayout_that_checks_first": ("layout: incompatible", "I2"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_control_steps_in_the_wrong_order_are_caught(mistake: str) -> None:
    scene, invariant = MISTAKES[mistake]

    found = walked(with_mistake(scene, mistake))

    assert found.violation.startswith(invariant), story(found)


def test_control_an_undoing_at_the_epoch_of_the_closing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no process reopens what was closed at that epoch."""
    undone = Authority.undone
    monkeypatch.setattr(Authority, "undone", lambda closing: replace(undone(closing), epoch=closing.epoch))

    found = walked(SCENARIOS["back, killed"])

    assert found.violation.startswith("liveness"), story(found)


def test_control_an_actor_stopped_for_ever_is_missed_when_no_other_is_there_to_help() -> None:
    scene = SCENARIOS["back, killed"]
    alone = Scenario("alone", scene.cast[:1], start=scene.start, kills=1)

    found = walked(alone)

    assert found.violation.startswith("liveness")


def test_every_step_of_every_procedure_is_taken_somewhere() -> None:
    wanted = {*switch.FORWARD, *switch.BACK, settle.LOOK, settle.WAIT, settle.UNDO, call.ASK}
    wanted |= {reverse.LOOK, reverse.WRITE, reverse.PASS, backfill.READ, backfill.WRITE, relay.CLAIM, *relayout.STEPS}
    casts = (
        "layout: postgres",
        "layout: schemaless",
        "batches",
        "forward, reading",
        "forward, rehearsed",
        "back",
        "backfill",
    )
    taken = set[Step]().union(*(walk(name).steps for name in casts))

    assert wanted <= taken


#: How a hand-over may end: all of these, or the scenario says little.
ENDS = {
    "two switchers": {
        "",
        "Postgres is not the open authority",
        "another process changed the row first",
        "writers stay inside",
        "a change cannot be delivered",
    },
    "layout: two at once": {
        "",
        "a hand-over is under way",
        "another process changed the row first",
        "writers stay inside",
        "server 0 did not acknowledge",
        "server 1 did not acknowledge",
    },
    "layout: incompatible": {"", "there are cells", "another process changed the row first", "writers stay inside"},
    "forward, broken off": {"", "the barrier was lost", "writers stay inside"},
    "two reversers": {
        "",
        "Schemaless is not the open authority",
        "another process changed the row first",
        "server 0 did not acknowledge",
        "server 1 did not acknowledge",
    },
}


@pytest.mark.parametrize("name", ENDS)
def test_a_hand_over_ends_in_every_way_there_is(name: str) -> None:
    outcomes = {value for value in walk(name).values if isinstance(value, switch.HandoverOutcome)}

    assert {outcome.reason for outcome in outcomes} == ENDS[name]
    assert {outcome.is_decided for outcome in outcomes} == {True, False}


def stores_within(model: Model, moves: int) -> list[set[World]]:
    """All that the stores may come to by so many moves, whatever the processes are at then."""
    seen = {model.first()}
    last = seen
    stores = []
    for _ in range(moves):
        last = {after for world in last for _, _, after in model.moves(world)} - seen
        seen |= last
        stores.append({world._replace(places=()) for world in seen})
    return stores


@pytest.mark.parametrize("name", ["forward, one row", "batches", "backfill", "back, reading"])
def test_points_that_are_taken_for_one_lead_to_the_same(name: str) -> None:
    """The explorer knows a point by the variables of the code there; here it knows each by all that led to it."""
    scene = SCENARIOS[name]

    assert stores_within(Model(scene), 11) == stores_within(Model(scene, merges=False), 11)
