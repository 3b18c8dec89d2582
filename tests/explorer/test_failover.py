"""A Postgres that goes back to an earlier state, at every point of the hand-over: I1, I2, I9 (decision 0044).

A standby is cut off at some point and promoted at a later one. The first tests walk production as it is, and find what
is to be mended. The others walk production's acceptance, and the reverse mirror's positions. Each rule that is taken
away from them is missed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explorer.actors import AT_SCHEMALESS, copier, get, helper, new, old, put, service, sql
from tests.explorer.explorer import Found, explore
from tests.explorer.failover import keeper, mirror, reverser, switcher_that_puts
from tests.explorer.model import Model
from tests.explorer.rules import Mends, Scenario
from tests.explorer.scenarios import (
    LATE_OLD_F,
    M0,
    NEW_L,
    OLD_F,
    OLD_L,
    PRESENT_S,
    PRESENT_Y,
    UPDATE_0,
    L,
    R,
    S,
    Y,
    back,
    forward,
    late_reader,
    late_writer,
    relaid,
    writer,
)
from tests.explorer.world import Violation
from tests.scale import scaled

#: More than a small scenario has.
ENOUGH = 100_000

K, K2, AUTO = keeper(), keeper("K2"), keeper("A", settles=False)
FR, FM0, FM1 = replace(reverser("R"), may_stop=False), mirror("M0", 0), mirror("M1", 0)
SP, H = switcher_that_puts("S", 0), helper("H")
TWO_PUTS = service("F", put("F", 0, 3), put("F", 0, 4), knows=AT_SCHEMALESS)
PUT_AND_GET = service("F", put("F", 0, 3), get(0))
ONE_SECOND_SQL = sql("V", ("update", 0))


def losing(scene: Scenario) -> Scenario:
    return replace(scene, losses=1)


def mended(scene: Scenario) -> Scenario:
    return replace(scene, losses=1, mends=Mends())


#: What happens without the mends, and what breaks. Of them production has the reverse mirror's positions: the first.
WITHOUT = {
    "live, then back": (
        losing(back("live, then back", R, M0, late_writer("F", 0))),
        "I1: Postgres is the authority and lacks what Schemaless acknowledged",
    ),
    "right after a switch": (
        losing(forward("right after a switch", S, writer("F", 0))),
        "I9: the gate of Postgres is open and a shard is RW",
    ),
    "mirror phases": (losing(forward("mirror phases", UPDATE_0, ONE_SECOND_SQL, L)), "I2: two bodies under one key"),
}

#: Walked to their ends in every run.
SMALL = [
    mended(back("live", K, FM0, late_writer("F", 0), late_reader("G", 0))),
    mended(back("live, two puts", K, FM0, TWO_PUTS)),
    # By the timeline of a page nothing is claimed of a Postgres that is gone; then that it compares is one reason more.
    replace(losing(back("live, no timelines", K, FM0, TWO_PUTS)), mends=Mends(positions_have_timeline=False)),
    replace(losing(back("live, not guarded", FM0, TWO_PUTS)), mends=Mends(is_guarded=False)),
    mended(forward("switched", SP, K)),
    mended(back("live, two keepers", K, K2)),
    mended(relaid(forward("layout", PRESENT_Y, K))),
    mended(relaid(forward("layout, killed", Y, K, kills=1))),
    # What is copied and then lost is in the mirror alone: SQL beside that is what `cutover lost` is for.
    mended(replace(forward("past", copier("B", 0), copier("C", 1), K), is_copied=False)),
]
#: Postgres goes back twice.
TWICE = [
    replace(mended(forward("siblings", S, K)), losses=2, has_siblings=True),
    replace(mended(forward("old primary", S, K)), losses=2, returns=True),
    replace(mended(back("live, twice", K, FM0, late_writer("F", 0))), losses=2),
    replace(mended(forward("switch, twice", S, K, FM0, writer("F", 0))), losses=2),
    replace(mended(forward("switched, twice", SP, K, FM0)), losses=2),
    replace(mended(back("back, twice", FR, K, FM0, late_writer("F", 0))), losses=2),
    replace(mended(forward("siblings, sql", S, K, UPDATE_0, writer("F", 1))), losses=2, has_siblings=True),
    replace(mended(forward("siblings, killed", S, K, kills=1)), losses=2, has_siblings=True),
    replace(mended(forward("siblings, two keepers", S, K, K2)), losses=2, has_siblings=True),
    replace(mended(back("siblings, back", FR, K, FM0, late_writer("F", 0))), losses=2, has_siblings=True),
    replace(mended(forward("old primary, killed", S, K, kills=1)), losses=2, returns=True),
    replace(mended(forward("old primary, two keepers", S, K, K2)), losses=2, returns=True),
    replace(mended(back("old primary, back", FR, K, FM0, late_writer("F", 0))), losses=2, returns=True),
]
#: Walked as far as the scale allows.
LARGE = [
    mended(forward("switched, mirror", SP, K, FM0)),
    mended(forward("switched, killed", SP, K, kills=1)),
    mended(back("back", FR, K, FM0, late_writer("F", 0))),
    mended(back("back, killed", FR, K, FM0, late_writer("F", 0), kills=1)),
    mended(back("back, reading", FR, K, FM0, late_writer("F", 0), late_reader("G", 0))),
    mended(back("back, sql", FR, K, FM0, L, late_writer("F", 0), UPDATE_0)),
    mended(forward("switch", S, K, FM0, writer("F", 0))),
    mended(forward("switch, sql", S, K, L, UPDATE_0)),
    mended(forward("switch, killed", S, K, writer("F", 0), kills=1)),
    mended(forward("switch, outage", S, K, writer("F", 1), outages=1)),
    mended(forward("switch, two puts", S, K, PUT_AND_GET)),
    mended(forward("switched, two keepers", SP, K, K2)),
    mended(forward("switched, helper", SP, K, H)),
    mended(forward("switched, by itself", SP, AUTO, K)),
    # A decision that was lost waits for the operator, K.
    mended(forward("switch, by itself", S, AUTO, K, writer("F", 0), UPDATE_0)),
    mended(forward("round", PRESENT_S, FR, K, FM0, writer("F", 0))),
    mended(relaid(forward("layout, put", PRESENT_Y, OLD_F, K))),
    mended(relaid(forward("layout, relay", PRESENT_Y, OLD_L, NEW_L, UPDATE_0, K))),
    # A change of layout that a promotion ends is not begun again here: the former mirror goes on.
    mended(relaid(back("layout, live", PRESENT_Y, K, old(FM1), new(FM0), LATE_OLD_F))),
    mended(replace(forward("past, switch", S, copier("B", 0), copier("C", 1), K), is_copied=False)),
]
SCENARIOS = {scene.name: scene for scene in [*SMALL, *LARGE, *TWICE]}


def story(found: Found) -> str:
    lines = [f"{found.violation}, after", *(f"  {n:2} {what}" for n, what in enumerate(found.schedule, 1))]
    return "\n".join(lines)


@pytest.mark.parametrize("moment", WITHOUT)
def test_without_the_mends_a_postgres_that_goes_back_breaks_an_invariant(moment: str) -> None:
    """The shards' offsets say how far the reverse mirror is, and no epoch has a timeline."""
    scene, broken = WITHOUT[moment]

    found = explore(Model(scene), Violation, ENOUGH)

    assert found.violation.startswith(broken), story(found)
    assert "Postgres is lost, the standby is promoted" in found.schedule


@pytest.mark.parametrize("scene", SMALL, ids=lambda scene: scene.name)
def test_with_the_mends_every_order_keeps_the_invariants(scene: Scenario) -> None:
    found = explore(Model(scene), Violation, ENOUGH)

    assert not found.violation, story(found)
    assert found.is_complete


@pytest.mark.parametrize("scene", [*LARGE, *TWICE], ids=lambda scene: scene.name)
def test_with_the_mends_larger_casts_keep_them_as_far_as_they_are_followed(scene: Scenario) -> None:
    limit = scaled(1_000_000, short=1_500 if scene in TWICE else 4_000)

    found = explore(Model(scene), Violation, limit)

    assert not found.violation, story(found)
    assert found.is_complete or found.worlds >= limit
    print(f"explorer: {scene.name}: {found.worlds:,} worlds, {'all' if found.is_complete else 'not all'}")


#: What is taken away, where it is missed, and what breaks.
CONTROLS = {
    "is_guarded": ("switched", "I9: the gate of Postgres is open"),
    "gate_has_timeline": ("switched", "I9: the gate of Postgres is open"),
    "row_has_timeline": ("switched, helper", "I1: Postgres is the authority and lacks"),
    "fences_shards": ("switched", "I9"),
    "shards_remember": ("switched, killed", "I1: Postgres is the authority and lacks"),
    "shards_are_proof": ("switched", "I1: Postgres is the authority and lacks"),
    "positions_compare": ("live, no timelines", "I1: Postgres says that it has what it lacks"),
    "positions_have_timeline": ("live, not guarded", "I1: Postgres says that it has what it lacks"),
    "positions_have_row": ("switched, mirror", "I1: Postgres says that it has what it lacks"),
    "reaches_above": ("siblings", "I9: the gate of Postgres is open and a shard is RW"),
    "reservation_compares": ("live, two keepers", "liveness"),
}


@pytest.mark.parametrize("mend", CONTROLS)
def test_control_a_mend_that_is_taken_away_is_missed(mend: str) -> None:
    name, broken = CONTROLS[mend]
    scene = SCENARIOS[name]
    assert scene.mends is not None
    without = replace(scene, mends=replace(scene.mends, **{mend: False}))

    found = explore(Model(without), Violation, ENOUGH)

    assert found.violation.startswith(broken), story(found)


def test_every_mend_has_its_control() -> None:
    assert set(CONTROLS) == set(Mends.__dataclass_fields__)
