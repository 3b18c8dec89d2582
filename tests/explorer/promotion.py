"""A standby of Postgres that lacks the last commits is promoted, and what both sides are asked about it."""

from __future__ import annotations

from typing import Any

from tests.explorer.control import set_row
from tests.explorer.postgres import Handler, crash
from tests.explorer.programs import SERVERS, Page, Told
from tests.explorer.rules import Rules, Scenario
from tests.explorer.world import KEYS, Done, Outcomes, World, cell, is_accepted, latest, replaced
from tripstore.backends.postgres.capture.timeline import NO_TIMELINE
from tripstore.handover.ports import StatedAuthority


def cut_off(w: World) -> World:
    """The standby gets nothing from now on. It has a prefix of what was written, in the order of writing."""
    return w._replace(standby=_server(w, timeline=w.timeline + 1))


def promote(w: World, scene: Scenario) -> World:
    """The primary is gone. What only it had acknowledged is lost with it; Schemaless has all that it ever had.

    A restore to a point in time is the same. What may become Postgres after that, the scenario says.
    """
    assert w.standby is not None
    (*has, timeline) = w.standby
    tables, queue, row, gate, applied, given, accepted = has
    standby = w.standby if scene.has_siblings else None
    if scene.returns:
        standby = _server(w._replace(given=NO_TIMELINE, accepted=NO_TIMELINE), timeline=w.timeline)
    after = crash(w, loses=False)._replace(tables=tables, queue=queue, row=row, gate=gate, applied=applied)
    after = after._replace(given=given, accepted=accepted, timeline=timeline, standby=standby)
    budget = w.budget._replace(losses=w.budget.losses - 1)
    kept = {
        (key, version, body)
        for key, version, body in w.acknowledged
        if body in (tables[key].bodies[version], w.cells[key][version])
    }
    floor = tuple(_floor(after, key, w.floor[key]) for key in KEYS)
    return after._replace(budget=budget, acknowledged=frozenset(kept), floor=floor)


def _server(w: World, timeline: int) -> tuple[Any, ...]:
    return w.tables, w.queue, w.row, w.gate, w.applied, w.given, w.accepted, timeline


def _floor(w: World, key: int, told: int) -> int:
    """What a caller was told and has to be told again: what Postgres has, and what is Schemaless' own."""
    own = (version for owner, version in w.owned if owner == key and version <= told)
    return max(min(told, latest(w.tables[key].bodies)), *own, 0)


# ---- how far the reverse mirror is -----------------------------------------------------------------------------------


def find(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (key,) = arguments
    yield f"is told {w.applied[key]} for shard {key}", w, Done(Told(w.applied[key], w.timeline))


def read(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    key, start, limit = arguments
    versions = w.log[key][start : start + limit]
    if w.shards[key].up and versions:
        found = tuple(cell(key, version, str(w.cells[key][version])) for version in versions)
        yield f"reads {len(found)} of shard {key} after {start}", w, Done(Page(found, start + len(found)))
    elif w.applied[key] != start:
        yield "finds nothing, and asks again", w, Done(Page((), start))


def move(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    key, start, end, row = arguments
    assert scene.mends is not None
    is_there = w.applied[key] == start.position or not scene.mends.positions_compare
    is_now = w.timeline == start.timeline or not scene.mends.positions_have_timeline
    is_row = w.row == row and is_accepted(w, scene)
    if is_there and is_now and (is_row or not scene.mends.positions_have_row):
        yield f"moves shard {key} to {end}", w._replace(applied=replaced(w.applied, key, end)), Done(True)
    else:
        yield f"does not move shard {key}", w, Done(False)


def all_(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    yield f"is told {w.applied}", w, Done(w.applied)


def unmirrored(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    server, applied = arguments
    key = SERVERS.index(server)
    if w.shards[key].up:
        count = len(w.log[key]) - applied[key]
        yield f"counts {count} cells to mirror back", w, Done(count)


# ---- which Postgres it is --------------------------------------------------------------------------------------------


def stated_authority(
    w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario
) -> Outcomes:
    found = StatedAuthority(w.row, w.timeline, w.given)
    yield f"reads the row, epoch {w.row.epoch}, on timeline {w.timeline}", w, Done(found)


def reserve(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    found, reserving = arguments
    if w.row_lock is not None:
        return
    if _is_found(w, found, scene):
        reserved = w._replace(given=reserving.given)
        yield f"reserves generation {reserving.reserved.generation}", reserved, Done(True)
    else:
        yield "finds the row changed", w, Done(False)


def accept(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    found, accepted = arguments
    if w.row_lock is not None:
        return
    if _is_found(w, found, scene):
        after = set_row(w, accepted, rules)._replace(given=w.timeline)
        yield f"accepts it for {accepted.backend.value}", after, Done(True)
    else:
        yield "finds the row changed", w, Done(False)


def _is_found(w: World, found: StatedAuthority, scene: Scenario) -> bool:
    assert scene.mends is not None
    is_same = w.given == found.given or not scene.mends.reservation_compares
    return w.row == found.row and w.timeline == found.timeline and is_same and w.given != w.timeline


HANDLERS: dict[str, Handler] = {
    "positions.find": find,
    "positions.read": read,
    "positions.move": move,
    "positions.all": all_,
    "positions.unmirrored": unmirrored,
    "control.stated_authority": stated_authority,
    "control.reserve": reserve,
    "control.accept": accept,
}
