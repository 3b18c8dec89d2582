"""Casts for the explorer: who takes part, and which accidents may happen."""

from __future__ import annotations

from dataclasses import replace

from tests.explorer import broken
from tests.explorer.actors import (
    AT_POSTGRES,
    AT_SCHEMALESS,
    NEW,
    NOWHERE,
    OLD_LAYOUT,
    copier,
    get,
    helper,
    mirror,
    new,
    old,
    put,
    relay_,
    relayer,
    reverser,
    service,
    sql,
    switcher,
)
from tests.explorer.programs import Code
from tests.explorer.rules import Actor, Scenario
from tests.explorer.world import OLD
from tripstore.handover.authority import Authority, Backend

S, R, H, L = switcher("S"), reverser("R"), helper("H"), relay_("L")
M0, M1 = mirror("M0", 0), mirror("M1", 1)
#: Who is stopped goes on at last; callers alone undo what takes too long.
PRESENT_S, PRESENT_R = replace(S, may_stop=False), replace(R, may_stop=False)
PRESENT_S2 = replace(switcher("S2"), may_stop=False)
#: Knows Postgres as the authority of an epoch that is gone.
OUTDATED = Authority(0, Backend.LEGACY)


def forward(name: str, *cast: Actor, kills: int = 0, crashes: int = 0, outages: int = 0, breaks: int = 0) -> Scenario:
    return Scenario(name, cast, Backend.LEGACY, kills, crashes, outages, breaks)


def back(name: str, *cast: Actor, kills: int = 0, crashes: int = 0, outages: int = 0) -> Scenario:
    return Scenario(name, cast, Backend.STORE, kills, crashes, outages)


def writer(name: str, key: int) -> Actor:
    """Puts a cell of its own, above what others put, by whichever store is the authority."""
    return service(name, put(name, key, 3))


def late_writer(name: str, key: int) -> Actor:
    return service(name, put(name, key, 3), knows=AT_SCHEMALESS)


def late_reader(name: str, key: int) -> Actor:
    return service(name, get(key), knows=AT_SCHEMALESS)


UPDATE_0, UPDATE_BOTH = sql("W", ("update", 0)), sql("W", ("update", 0), ("update", 1))
DELETE_0 = sql("W", ("delete", 0))

Y = relayer("Y")
PRESENT_Y = replace(Y, may_stop=False)
#: Who goes by the layout in force at the beginning, and who goes by the new one.
OLD_L, NEW_L = old(relay_("L")), new(relay_("L2"))
OLD_M, NEW_M = old(mirror("M", 0)), new(mirror("M0", 0))
OLD_F, LATE_OLD_F = (
    old(service("F", put("F", 0, 3), knows=replace(row, layout=OLD_LAYOUT))) for row in (AT_POSTGRES, AT_SCHEMALESS)
)
NEW_G = new(service("G", put("G", 1, 3), knows=NOWHERE))
OLD_B, NEW_B, NEW_C = old(copier("B", 0)), new(copier("C", 0)), new(copier("D", 1))


def relaid(scene: Scenario) -> Scenario:
    """A scenario in which another layout is put in force."""
    return replace(scene, layout=OLD_LAYOUT)


#: Walked to their ends in every run.
LAYOUTS = [
    relaid(scene)
    for scene in (
        forward("layout: postgres", Y, H, OLD_F, kills=1),
        forward("layout: postgres, both", PRESENT_Y, OLD_F, NEW_G),
        forward("layout: postgres, queue", Y, H, OLD_L, NEW_L, UPDATE_0, kills=1),
        forward("layout: postgres, outage", Y, H, OLD_L, NEW_L, UPDATE_0, outages=1),
        forward("layout: postgres, crash", Y, H, OLD_F, crashes=1),
        forward("layout: postgres, broken off", Y, H, OLD_F, breaks=1),
        replace(forward("layout: past", PRESENT_Y, OLD_B, NEW_B, NEW_C), is_copied=False),
        back("layout: schemaless", PRESENT_Y, OLD_M, NEW_M, LATE_OLD_F),
        back("layout: schemaless, killed", Y, H, OLD_M, LATE_OLD_F, kills=1),
        back("layout: schemaless, both", PRESENT_Y, LATE_OLD_F, NEW_G),
        back("layout: schemaless, outage", PRESENT_Y, H, OLD_M, NEW_G, outages=1),
        back("layout: schemaless, crash", Y, H, OLD_M, crashes=1),
        forward("layout: while one switches", Y, old(S), new(switcher("S2")), H),
        back("layout: while one goes back", Y, old(R), H, OLD_M, NEW_M),
        forward("layout: two at once", Y, relayer("Z", "C"), H),
        replace(
            forward("layout: incompatible", PRESENT_Y, OLD_F, H, kills=1),
            is_copied=False,
            is_empty=True,
            is_incompatible=True,
        ),
    )
]
SMALL = [
    *LAYOUTS,
    forward("forward", S, H, UPDATE_0, writer("F", 1), kills=1),
    forward("forward, killed", S, H, UPDATE_0, L, kills=3),
    forward("forward, one row", S, H, UPDATE_0, writer("F", 0)),
    forward("forward, reading", PRESENT_S, writer("F", 0), service("G", get(0))),
    forward("forward, crash", S, H, UPDATE_0, L, kills=1, crashes=1),
    forward("forward, outage", S, H, writer("F", 1), L, outages=1),
    # No other actor is there to help the switcher.
    forward("forward, broken off", PRESENT_S, UPDATE_0, breaks=1),
    forward("forward, broken off, begun again", PRESENT_S, PRESENT_S2, UPDATE_0, breaks=1),
    forward("forward, rehearsed", PRESENT_S, M0, writer("F", 0)),
    forward("two switchers", S, switcher("S2"), H, UPDATE_0),
    forward("two relays", S, H, UPDATE_0, L, relay_("L2")),
    forward("batches", S, H, UPDATE_BOTH, relay_("L", 2), outages=1),
    replace(forward("asynchronous", S, H, UPDATE_0, L, crashes=1), asynchronous=True),
    replace(forward("asynchronous, again", H, UPDATE_0, sql("V", ("update", 0)), L, crashes=1), asynchronous=True),
    replace(forward("backfill", S, H, copier("B", 0), copier("C", 1), DELETE_0), is_copied=False),
    replace(
        forward("backfill, asynchronous", UPDATE_0, copier("B", 0), copier("C", 1), L, crashes=1),
        is_copied=False,
        asynchronous=True,
    ),
    replace(forward("backfill, killed", copier("B", 0), copier("C", 1), DELETE_0, L, kills=1), is_copied=False),
    back("back", R, H, M0, L, late_writer("F", 0), UPDATE_0),
    back("back, killed", R, H, M0, L, late_writer("F", 0), kills=1),
    back("back, reading", PRESENT_R, M0, late_writer("F", 0), late_reader("G", 0)),
    back("back, old reader", PRESENT_R, M0, late_writer("F", 0), service("G", get(0), knows=OUTDATED)),
    back("back, outage", R, H, M1, late_writer("F", 1), kills=1, outages=1),
    back("back, crash", R, H, M1, late_writer("F", 1), kills=1, crashes=1),
    back("back, late backfill", R, H, M0, L, copier("B", 0), late_writer("F", 0)),
    back("deleted", PRESENT_R, M0, mirror("M", 0), late_writer("F", 0), DELETE_0),
    forward("deleted, put again", DELETE_0, service("F", put(OLD, 0, 1)), L),
    back("two reversers", R, reverser("R2"), H, M0),
]

#: Walked as far as the scale allows.
LARGE = [
    back("large: back, both rows", R, H, M0, M1, late_writer("F", 0), late_writer("G", 1)),
    forward("large: helped", S, H, UPDATE_0, writer("F", 1), kills=1, breaks=1),
    forward("large: forward", S, H, L, UPDATE_0, writer("F", 0), kills=1),
    forward("large: two statements", S, H, UPDATE_BOTH, writer("F", 0), kills=1),
    forward("large: forward, reading", S, H, L, writer("F", 0), service("G", get(0), get(0)), kills=1),
    forward("large: crash", S, H, L, UPDATE_0, writer("F", 1), crashes=1),
    forward("large: two switchers", S, switcher("S2"), H, L, UPDATE_0, kills=1),
    back(
        "large: back",
        *(R, H, M0, M1, L, late_writer("F", 0)),
        service("G", get(0), put("G", 1, 3), knows=AT_SCHEMALESS),
        kills=1,
    ),
    back("large: two reversers", R, reverser("R2"), H, M0, late_writer("F", 0)),
    forward("large: round", PRESENT_S, PRESENT_R, M0, L, service("F", put("F", 0, 2)), service("G", get(0))),
    forward("large: broken off", S, switcher("S2"), H, UPDATE_0, kills=1, breaks=1),
    forward("large: late step", S, switcher("S2"), R, H),
]

SCENARIOS = {scene.name: scene for scene in [*SMALL, *LARGE]}


def with_mistake(scene: str, actor: str) -> Scenario:
    """A scenario in which one actor does it the wrong way."""
    codes: dict[str, Code] = {
        "relayout_that_fences_afterwards": lambda tools: broken.relayout_that_fences_afterwards(tools.ports, NEW),
        "relayout_that_fences_too_low": lambda tools: broken.relayout_that_fences_too_low(tools.ports, NEW),
        "relayout_that_leaves_the_gate": lambda tools: broken.relayout_that_leaves_the_gate(tools.ports, NEW),
        "relayout_that_checks_first": lambda tools: broken.relayout_that_checks_first(
            tools.ports, NEW, tools.cells.objection
        ),
        "relay_that_marks_first": lambda tools: broken.relay_that_marks_first(tools.ports),
        "mirror_that_saves_first": lambda tools: broken.mirror_that_saves_first(tools, 0),
        "mirror_that_looks_first": lambda tools: broken.mirror_that_looks_first(tools, 0),
        "switch_that_drains_first": lambda tools: broken.switch_that_drains_first(tools.ports, "S"),
        "switch_that_leaves_it_closing": lambda tools: broken.switch_that_leaves_it_closing(tools.ports, "S"),
        "switch_that_opens_first": lambda tools: broken.switch_that_opens_first(tools.ports, "S"),
        "reverse_that_counts_first": lambda tools: broken.reverse_that_counts_first(tools.ports, "R"),
        "reverse_that_needs_no_answer": lambda tools: broken.reverse_that_needs_no_answer(tools.ports, "R"),
    }
    found = SCENARIOS[scene]
    name = {"relay": "L", "mirror": "M0", "switch": "S", "reverse": "R", "relayout": "Y"}[actor.partition("_")[0]]
    cast = tuple(replace(one, code=codes[actor]) if one.name == name else one for one in found.cast)
    return replace(found, name=f"{scene}, {actor}", cast=cast)
