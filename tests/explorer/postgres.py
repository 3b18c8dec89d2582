"""What one call does to Postgres: its sessions, and its tables behind the gate.

A call is as many steps as the server takes that others could come between; each is an outcome. No outcome: it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from schemaless_core.errors import StaleEpoch
from tests.explorer.programs import Raised
from tests.explorer.rules import Rules, Scenario
from tests.explorer.world import (
    TOMBSTONE,
    At,
    Bodies,
    Done,
    Get,
    Outcomes,
    Put,
    Queued,
    Table,
    Violation,
    World,
    Write,
    acknowledge,
    body_of,
    check_layout,
    check_owner,
    key_of,
    latest,
    replaced,
    told,
)
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.handover.authority import Backend
from tripstore.handover.ports import REFUSED

OPEN, CLOSING, CLOSED = GateState.OPEN, GateState.CLOSING, GateState.CLOSED
#: One object: what an actor knows is compared.
REFUSES = Raised(StaleEpoch(0, "CLOSED", "it is not the authority", is_of_authority=True))
BEFORE_THE_LOCK = (None, "saw it open")
Handler = Callable[[World, int, Any, tuple[Any, ...], Rules, Scenario], Outcomes]


# ---- sessions ---------------------------------------------------------------------------------------------------


def roll_back(w: World, me: int) -> World:
    """The session of an actor is gone."""
    return w._replace(
        inside=w.inside - {me},
        writes=tuple(write for write in w.writes if write.actor != me),
        row_lock=None if w.row_lock == me else w.row_lock,
        barrier=None if w.barrier == me else w.barrier,
    )


def flush(w: World) -> World:
    return w if w.flushed is None else w._replace(flushed=None)


def unflushed(w: World) -> World:
    """Something is about to be committed that a crash may take back."""
    return w if w.flushed is not None else w._replace(flushed=(w.tables, w.queue, w.row, w.gate))


def crash(w: World, *, loses: bool) -> World:
    """Postgres starts again: no session, no lock, no transaction is left."""
    calm = w._replace(inside=frozenset(), writes=(), row_lock=None, barrier=None, flushed=None)
    if loses and w.flushed is not None:
        tables, queue, row, gate = w.flushed
        calm = calm._replace(tables=tables, queue=queue, row=row, gate=gate)
    return calm


# ---- the tables ---------------------------------------------------------------------------------------------------


def top(table: Table, rules: Rules) -> int:
    """What a version must be above to move the row, or to become one: its own, else that of the tomb."""
    return table.version or (latest(table.bodies) if rules.obeys_tombs else 0)


def stored(table: Table, version: int, body: str, rules: Rules) -> Table:
    """A put under the row's lock."""
    there = table.bodies[version]
    if there is not None and there != body:
        raise Violation(f"I2: version {version} is {there} and was to be {body}")
    if there is not None and (rules.obeys_tombs or table.version or body == TOMBSTONE):
        return table
    bodies: Bodies = replaced(table.bodies, version, body)
    if version <= top(table, rules):
        return Table(bodies, table.version)
    return Table(bodies, 0 if body == TOMBSTONE else version)


def is_locked(w: World, key: int, me: int) -> bool:
    return any(write.key == key and write.actor != me for write in w.writes)


def commit(w: World, me: int, rules: Rules, scene: Scenario, *, is_acknowledged: bool = True) -> World:
    """Everything that an actor wrote, its changes into the queue."""
    for write in w.writes:
        if write.actor == me:
            check_owner(w, Backend.LEGACY, scene)
            table = w.tables[write.key]
            if table.bodies[write.version] is None:
                w = w._replace(queue=tuple(sorted((*w.queue, Queued(write.key, write.version, False)))))
            table = stored(table, write.version, write.body, rules)
            w = w._replace(tables=replaced(w.tables, write.key, table))
            if is_acknowledged:
                w = acknowledge(w, write.key, write.version, write.body)
    return roll_back(w, me)


# ---- the gate -----------------------------------------------------------------------------------------------------


def enter(w: World, me: int, phase: Hashable, rules: Rules) -> Outcomes:
    """A writer's way in: the lock, then the look. Leads to the look, or he is refused."""
    if phase is None and not rules.locks_before_gate:
        yield "looks at the gate", w, Done(REFUSED) if w.gate.state is CLOSED else At("saw it open")
    elif w.barrier is None:
        found = At("look" if rules.locks_before_gate else "admitted")
        yield "takes the lock", w._replace(inside=w.inside | {me}), found
    elif rules.locks_before_gate:
        yield "waits at the door in vain", w, Done(REFUSED)


def is_of_now(w: World, scene: Scenario) -> bool:
    """Whether the gate was set on the timeline of the Postgres that answers."""
    mends = scene.mends
    return mends is None or not (mends.gate_has_timeline and mends.is_guarded) or w.accepted == w.timeline


def is_admitted(w: World, phase: Hashable, epoch: int | None, scene: Scenario) -> bool:
    """The look of a writer who has the lock: he goes on while the gate is closing, for he is waited for.

    `epoch`: as whom one of ours writes.
    """
    if not is_of_now(w, scene):
        return False
    if phase == "admitted":
        return True
    at = w.gate.epoch - 1 if w.gate.state is CLOSING else w.gate.epoch
    return w.gate.state is not CLOSED and epoch in (None, at)


def call(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    operation, epoch = arguments
    if isinstance(operation, Get):
        yield from _get(w, me, phase, operation.key, epoch, rules, scene)
    else:
        assert isinstance(operation, Put)
        yield from _put(w, me, phase, operation, epoch, rules, scene)


def _get(w: World, me: int, phase: Any, key: int, epoch: int, rules: Rules, scene: Scenario) -> Outcomes:
    if phase is None:
        table = w.tables[key]
        yield "takes its snapshot", w, At((table.version or latest(table.bodies), w.floor[key]))
        return
    version, floor = phase
    is_open = w.gate.state is OPEN and (w.gate.epoch == epoch or not rules.gate_has_epoch)
    is_open = is_open or w.gate == GateReading(epoch + 1, CLOSING)  # it is shut before anybody decides
    if (is_open and is_of_now(w, scene)) or not rules.fences_reads:
        check_layout(w, me, scene)
        yield f"is told version {version}", told(w, me, key, version, floor), Done(version)
    else:
        yield "drops its answer", w, Done(REFUSED)


def _put(w: World, me: int, phase: Any, put: Put, epoch: int, rules: Rules, scene: Scenario) -> Outcomes:
    key, version, body = key_of(put.cell), put.cell.ref_key, body_of(put.cell)
    if phase in BEFORE_THE_LOCK:
        yield from enter(w, me, phase, rules)
    elif phase == "written":
        check_layout(w, me, scene)
        yield "commits", flush(commit(w, me, rules, scene)), Done("stored")
    elif not is_admitted(w, phase, epoch, scene):
        yield "is refused", roll_back(w, me), Done(REFUSED)
    elif not is_locked(w, key, me):
        write = Write(me, key, version, body)
        yield f"writes {key}@{version}", w._replace(writes=(*w.writes, write)), At("written")


def statement(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """A statement of a service's own SQL, in its transaction."""
    verb, key = arguments
    if phase is None and me in w.inside:
        phase = "look"
    if phase in BEFORE_THE_LOCK:
        for label, after, outcome in enter(w, me, phase, rules):
            yield label, after, Done(False) if outcome == Done(REFUSED) else outcome
    elif not is_admitted(w, phase, None, scene):
        yield "is refused", roll_back(w, me), Done(False)
    elif is_locked(w, key, me):
        return
    elif verb == "update" and not w.tables[key].version:
        yield f"updates no row {key}", w, Done(True)
    else:
        version = latest(w.tables[key].bodies) + 1
        write = Write(me, key, version, TOMBSTONE if verb == "delete" else f"by {me}")
        yield f"{verb}s {key}@{version}", w._replace(writes=(*w.writes, write)), Done(True)


def sql_commit(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    if scene.asynchronous:
        yield "commits, not durably", commit(unflushed(w), me, rules, scene, is_acknowledged=False), Done(None)
    else:
        yield "commits", flush(commit(w, me, rules, scene)), Done(None)


def write_back(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """The reverse mirror: past a shut gate, but not past the barrier, and not at another epoch than the gate's."""
    (cells, epoch) = arguments
    keys = {key_of(each) for each in cells}
    if w.barrier is not None or any(is_locked(w, key, me) for key in keys):
        return
    if rules.mirror_has_epoch and w.gate != GateReading(epoch, CLOSED):
        yield "is refused as the mirror", w, Done(REFUSES)
        return
    check_layout(w, me, scene)
    w = flush(w) if rules.applies_durably else unflushed(w)
    for each in cells:
        key = key_of(each)
        table = stored(w.tables[key], each.ref_key, body_of(each), rules)
        w = w._replace(tables=replaced(w.tables, key, table))
    yield f"writes {len(cells)} back", w, Done(None)


def pass_by(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """What is compared there changes nothing."""
    (cells, _row) = arguments
    yield f"passes {len(cells)}", w, Done(None)


HANDLERS: dict[str, Handler] = {
    "legacy.call": call,
    "hands.write": write_back,
    "hands.passed": pass_by,
    "sql.statement": statement,
    "sql.commit": sql_commit,
}
