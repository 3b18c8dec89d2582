"""What one call does to the buffers of Schemaless, and to a shard that may not answer.

The gate of a server's buffer is that of its shard: both are opened and closed by one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemaless_core.buffers.ports import UNANSWERED, Differs, Fate, OnHold, Waiting
from schemaless_core.buffers.ports import Kept as Answer
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.stored import NewCell
from tests.explorer.postgres import Handler
from tests.explorer.programs import SERVERS, Asked
from tests.explorer.rules import BufferRules, Rules, Scenario
from tests.explorer.world import (
    COLUMN,
    ROWS,
    At,
    Done,
    Kept,
    Late,
    Outcomes,
    Violation,
    World,
    acknowledge,
    body_of,
    check_layout,
    check_owner,
    key_of,
    latest,
    replaced,
    told,
)
from tripstore.handover.authority import Backend
from tripstore.handover.ports import REFUSED

STORED, CONFLICT = "stored", "conflict"


def new_cell(of: Cell) -> NewCell:
    return NewCell(of.row_key.bytes, COLUMN.encode(), of.ref_key, body_of(of).encode())


def parts(of: NewCell) -> tuple[int, int, str]:
    """Row, version and body."""
    row_keys = [row_key.bytes for row_key in ROWS]
    return row_keys.index(of.row_key), of.ref_key, of.body.decode()


def is_named(w: World, key: int, version: int, body: str) -> bool:
    """Whether a cell waits in a buffer, or stands in the ledger."""
    return (key, version, body) in w.ledger or any(each[1:] == (key, version, body) for each in waiting_cells(w))


def waiting_cells(w: World) -> Iterator[Kept]:
    for buffer in w.buffers:
        yield from buffer


def waiting_versions(w: World, key: int) -> set[int]:
    """Versions of a row that are nowhere but in a buffer. Where another body is stored the ledger will name them."""
    return {each.version for each in waiting_cells(w) if each.key == key and not w.cells[key][each.version]}


# ---- packets ----------------------------------------------------------------------------------------------------


def is_open_to_owner(w: World, server: int, epoch: int) -> bool:
    shard = w.shards[server]
    return shard.state == "RW" and shard.epoch == epoch


def is_open_to_copier(w: World, server: int, epoch: int) -> bool:
    shard = w.shards[server]
    return shard.state in ("RW", "COPY") and shard.epoch <= epoch


def put_into(w: World, key: int, version: int, body: str) -> tuple[World, str]:
    """What a shard that is open does: never two bodies under one key."""
    there = w.cells[key][version]
    if there is not None:
        return w, STORED if there == body else CONFLICT
    cells = replaced(w.cells, key, replaced(w.cells[key], version, body))
    return w._replace(cells=cells, log=replaced(w.log, key, (*w.log[key], version))), STORED


def keep_in(w: World, server: int, key: int, version: int, body: str, rules: BufferRules) -> tuple[World, Answer]:
    """What a buffer that is open does."""
    for each in w.buffers[server]:
        if each[1:3] == (key, version):
            if each.body == body or not rules.compare:
                return w, Answer.KEPT
            return w, Answer.CONFLICT
    number = w.given_numbers[server] + 1
    buffer = (*w.buffers[server], Kept(number, key, version, body))
    numbers = replaced(w.given_numbers, server, number)
    return w._replace(buffers=replaced(w.buffers, server, buffer), given_numbers=numbers), Answer.KEPT


def is_admitted(w: World, server: int, epoch: int, rules: BufferRules) -> bool:
    """Whether a buffer takes a cell of an owner."""
    if not rules.are_gated:
        return True
    shard = w.shards[server]
    return shard.state == "RW" and (shard.epoch == epoch or not rules.have_epoch)


def without_client(w: World, rules: BufferRules) -> Iterator[tuple[str, World]]:
    """What becomes of packets whose senders hear nothing: they are run at any time, or lost."""
    for late in w.late:
        gone = w._replace(late=w.late - {late})
        verb, server, key, version, body, epoch, layout = late
        yield f"a late {verb} of {key}@{version} is lost", gone
        if not w.shards[server].up:
            continue
        after = gone
        if verb == "keep" and is_admitted(w, server, epoch, rules):
            after, _ = keep_in(gone, server, key, version, body, rules)
        is_open = {"put": is_open_to_owner, "copy": is_open_to_copier}.get(verb)
        if is_open is not None and is_open(w, server, epoch):
            after, _ = put_into(gone, key, version, body)
        if after is not gone:
            if layout is not None and layout != w.row.layout:
                raise Violation(f"I9: a late {verb} of layout {layout} is taken, and {w.row.layout} is in force")
            if verb == "put":
                check_owner(w, Backend.STORE, _NO_SCENE)
            yield f"a late {verb} of {key}@{version} is run", after


#: For checks that ask nothing of it.
_NO_SCENE = Scenario("none", ())


def unheard(
    w: World, verb: str, server: int, of: tuple[int, int, str], epoch: int, layout: str | None
) -> Iterator[tuple[str, World]]:
    """A packet that is sent, and of which its sender hears nothing."""
    if w.budget.lates:
        budget = w.budget._replace(lates=w.budget.lates - 1)
        late = Late(verb, server, *of, epoch, layout)
        yield f"hears nothing of its {verb}", w._replace(late=w.late | {late}, budget=budget)


# ---- the caller -------------------------------------------------------------------------------------------------


def put(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """An owner's put, of which the caller may hear nothing."""
    cell, epoch = arguments
    key, version, body = key_of(cell), cell.ref_key, body_of(cell)
    for label, after in unheard(w, "put", key, (key, version, body), epoch, scene.cast[me].layout):
        yield label, after, Done(UNANSWERED)
    if not w.shards[key].up:
        yield "is not answered", w, Done(UNANSWERED)
    elif not is_open_to_owner(w, key, epoch):
        yield "is refused", w, Done(REFUSED)
    else:
        check_layout(w, me, scene)
        after, answer = put_into(check_owner(w, Backend.STORE, scene), key, version, body)
        if answer == CONFLICT:
            check_conflicts(scene, key, version)
            yield f"conflicts at {key}@{version}", after, Done(CONFLICT)
        else:
            yield f"stores {key}@{version}", acknowledge(after, key, version, body), Done(STORED)


def check_conflicts(scene: Scenario, key: int, version: int) -> None:
    if not scene.has_conflicts:
        raise Violation(f"I2: two bodies for {key}@{version}")


def keep(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    name, (cell,), epoch = arguments
    its = scene.buffer_rules
    server, (key, version, body) = SERVERS.index(name), parts(cell)
    if phase is None:
        for label, after in unheard(w, "keep", server, (key, version, body), epoch, scene.cast[me].layout):
            yield label, after, Done(UNANSWERED)
    if not w.shards[server].up:
        yield f"is not answered by {name}", w, Done(UNANSWERED)
        return
    if phase is None and not is_admitted(w, server, epoch, its):
        yield f"is refused by the buffer of {name}", w, Done((Answer.REFUSED,))
    elif phase is None and not its.lock_gate:
        yield f"sees the buffer of {name} open", w, At("saw it open")
    else:
        check_layout(w, me, scene)
        after, answer = keep_in(check_owner(w, Backend.STORE, scene), server, key, version, body, its)
        if answer is Answer.KEPT:
            acknowledged = after.acknowledged | {(key, version, body)}
            yield f"has {key}@{version} kept by {name}", after._replace(acknowledged=acknowledged), Done((answer,))
        else:
            yield f"conflicts in the buffer of {name}", after, Done((answer,))


def ask_buffer(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """A part of a read that includes buffers. What was acknowledged before it began is due, in whichever place."""
    name, key, asked, is_last = arguments
    server = SERVERS.index(name)
    begun = _begun(w, key, asked)
    if not w.shards[server].up:
        yield f"hears nothing from the buffer of {name}", w, Done(begun._replace(version=None))
        return
    version = max((each.version for each in w.buffers[server] if each.key == key), default=0)
    after, merged = _merged(w, me, key, begun, version, is_last=is_last)
    yield f"finds version {version} in the buffer of {name}", after, Done(merged)


def ask_shard(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    key, epoch, asked, is_last = arguments
    begun = _begun(w, key, asked)
    if not w.shards[key].up:
        yield "hears nothing from the shard", w, Done(begun._replace(version=None))
    elif not is_open_to_owner(w, key, epoch):
        yield "is refused", w, Done(REFUSED)
    else:
        version = latest(w.cells[key])
        after, merged = _merged(w, me, key, begun, version, is_last=is_last)
        yield f"finds version {version} in the shard", after, Done(merged)


def _begun(w: World, key: int, asked: Asked) -> Asked:
    if asked.due >= 0:
        return asked
    return asked._replace(due=max((version for owner, version, _ in w.acknowledged if owner == key), default=0))


def _merged(w: World, me: int, key: int, asked: Asked, version: int, *, is_last: bool) -> tuple[World, Asked]:
    if asked.version is None:  # what is silent may hold anything
        return w, asked
    merged = asked._replace(version=max(asked.version, version))
    return (told(w, me, key, max(asked.version, version), asked.due) if is_last else w), merged


# ---- the replayer -----------------------------------------------------------------------------------------------


def present(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    is_held = w.row.backend is Backend.LEGACY
    yield f"reads the row, epoch {w.row.epoch}", w, Done(OnHold.HELD if is_held else w.row.epoch)


def waiting(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    name, limit = arguments
    server = SERVERS.index(name)
    if w.shards[server].up and w.buffers[server]:
        found = tuple(
            Waiting(each.number, NewCell(ROWS[each.key].bytes, COLUMN.encode(), each.version, each.body.encode()))
            for each in w.buffers[server][:limit]
        )
        yield f"reads {len(found)} from the buffer of {name}", w, Done(found)


def copy(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    """One cell after the other, each a transaction here."""
    cells, epoch = arguments
    fates = phase or ()
    cell = cells[len(fates)].cell
    key, version, body = parts(cell)

    def at(fate: Fate | Differs) -> Done | At:
        now = (*fates, fate)
        return Done(now) if len(now) == len(cells) else At(now)

    for label, after in unheard(w, "copy", key, (key, version, body), epoch, None):
        yield label, after, at(Fate.NOT_YET)
    if not w.shards[key].up:
        yield f"cannot carry {key}@{version}", w, at(Fate.NOT_YET)
    elif not is_open_to_copier(w, key, epoch):
        yield f"is refused as a copier of {key}@{version}", w, at(Fate.NOT_YET)
    else:
        after, answer = put_into(w, key, version, body)
        if answer == CONFLICT:
            check_conflicts(scene, key, version)
        fate = Fate.THERE if answer == STORED else Differs(str(after.cells[key][version]).encode())
        yield f"carries {key}@{version}: {answer}", after, at(fate)


def settle(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    name, there, conflicts = arguments
    server = SERVERS.index(name)
    if not w.shards[server].up:
        yield f"cannot tell the buffer of {name}", w, Done(None)
        return
    stored = {each.number: body.decode() for each, body in conflicts}
    gone = {*stored, *(each.number for each in there)}
    buffer = tuple(each for each in w.buffers[server] if each.number not in gone)
    removed = w._replace(buffers=replaced(w.buffers, server, buffer))
    both = {
        (each.key, each.version, body)
        for each in w.buffers[server]
        if each.number in stored
        for body in (each.body, stored[each.number])
    }
    if scene.buffer_rules.settles_at_once:
        yield f"settles {len(gone)} in the buffer of {name}", removed._replace(ledger=w.ledger | both), Done(None)
    elif phase is None:
        yield f"removes {len(gone)} from the buffer of {name}", removed, At(frozenset(both))
    else:
        yield "writes the ledger", w._replace(ledger=w.ledger | phase), Done(None)


def buffered(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (name,) = arguments
    server = SERVERS.index(name)
    if w.shards[server].up:
        count = len(w.buffers[server])
        yield f"counts {count} cells in the buffer of {name}", w, Done(count)


HANDLERS: dict[str, Handler] = {
    "own.put": put,
    "own.copy": copy,
    "own.ask_buffer": ask_buffer,
    "own.ask_shard": ask_shard,
    "present.epoch": present,
    "buffers.keep": keep,
    "buffers.waiting": waiting,
    "buffers.settle": settle,
    "store.buffered": buffered,
}
