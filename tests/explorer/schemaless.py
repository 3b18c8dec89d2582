"""What one call does to Schemaless: two shards, each on a server of its own. A server that is down answers no call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.encoded import EncodedOutcome, Problem
from schemaless_core.errors import StaleEpoch
from tests.explorer.postgres import Handler
from tests.explorer.programs import SERVERS, Page
from tests.explorer.rules import Rules, Scenario
from tests.explorer.world import (
    At,
    Done,
    Get,
    Outcomes,
    Put,
    Shard,
    Violation,
    World,
    acknowledge,
    body_of,
    cell,
    check_layout,
    check_owner,
    decoded,
    key_of,
    latest,
    replaced,
    told,
)
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import Backend
from tripstore.handover.ports import REFUSED

#: Why a shard takes no cell of a copier. One object: what an actor knows is compared.
YOUNGER = StaleEpoch(0, "RW", "its authority epoch is younger", is_of_authority=True)


def stored(w: World, key: int, version: int, body: str) -> World:
    there = w.cells[key][version]
    if there is not None:
        if there != body:
            raise Violation(f"I2: cell {key}@{version} is {there} and was to be {body}")
        return w
    cells = replaced(w.cells, key, replaced(w.cells[key], version, body))
    return w._replace(cells=cells, log=replaced(w.log, key, (*w.log[key], version)))


def call(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    operation, epoch = arguments
    key = operation.key if isinstance(operation, Get) else key_of(operation.cell)
    shard = w.shards[key]
    if not shard.up:
        return
    is_fenced = rules.store_fences_reads if isinstance(operation, Get) else rules.store_fences_writes
    if is_fenced and (shard.state != "RW" or shard.epoch != epoch):
        yield "is refused", w, Done(REFUSED)
    elif isinstance(operation, Get):
        version = latest(w.cells[key])
        check_layout(w, me, scene)
        yield f"is told version {version}", told(w, me, key, version, w.floor[key]), Done(version)
    else:
        assert isinstance(operation, Put)
        version, body = operation.cell.ref_key, body_of(operation.cell)
        check_layout(w, me, scene)
        after = check_owner(stored(w, key, version, body), Backend.STORE, scene)
        if scene.losses:
            after = after._replace(owned=after.owned | {(key, version)})
        yield f"stores {key}@{version}", acknowledge(after, key, version, body), Done("stored")


def copy(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    cells, epoch = arguments
    for label, after, taken in _copied(w, phase or (), cells, epoch):
        if sum(taken) > sum(phase or ()):
            check_layout(w, me, scene)
        is_through = len(taken) == len(cells)
        there = tuple(each for each, is_taken in zip(cells, taken, strict=False) if is_taken)
        yield label, after, Done(there) if is_through else At(taken)


def put_encoded(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    given, epoch = arguments
    for label, after, taken in _copied(w, phase or (), tuple(map(decoded, given)), epoch):
        check_past(w, after)
        if sum(taken) > sum(phase or ()):
            check_layout(w, me, scene)
        problems = tuple(Problem(n, YOUNGER) for n, is_taken in enumerate(taken) if not is_taken)
        is_through = len(taken) == len(given)
        yield label, after, Done(EncodedOutcome(sum(taken), 0, problems)) if is_through else At(taken)


def check_past(before: World, after: World) -> None:
    """Where Schemaless has taken over, nothing of the past may turn up: its owners may have built on what was there."""
    moved = zip(after.shards, before.cells, after.cells, strict=True)
    if any(shard.state == "RW" and now != was for shard, was, now in moved):
        raise Violation("I9: a chunk of the past came to a shard that is RW")


def _copied(
    w: World, done: tuple[int, ...], cells: tuple[Cell, ...], epoch: int
) -> Iterator[tuple[str, World, tuple[int, ...]]]:
    """Shard by shard: one cell at a time here. What was taken so far, and what was not."""
    if len(done) == len(cells):
        yield "copied nothing", w, done
        return
    next_ = cells[len(done)]
    key = key_of(next_)
    shard = w.shards[key]
    if not shard.up:
        return
    is_taken = shard.state in ("RW", "COPY") and shard.epoch <= epoch
    after = stored(w, key, next_.ref_key, body_of(next_)) if is_taken else w
    label = f"copies {key}@{next_.ref_key}" if is_taken else "is refused as a copier"
    yield label, after, (*done, int(is_taken))


def open_(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    server, epoch, _layout = arguments
    key = SERVERS.index(server)
    shard = w.shards[key]
    if not shard.up:
        yield f"{server} does not answer", w, Done(False)
        return
    if shard.epoch < epoch or not rules.open_compares:
        w = w._replace(shards=replaced(w.shards, key, Shard(epoch, "RW", True, epoch)))
    yield f"opens {server} for {epoch}", w, Done(True)


def close(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    server, epoch = arguments
    key = SERVERS.index(server)
    shard = w.shards[key]
    if not shard.up:
        yield f"{server} does not answer", w, Done(False)
        return
    if scene.mends is not None and not scene.mends.fences_shards and epoch % EPOCHS_PER_TIMELINE == 1:
        yield f"takes {server} for fenced", w, Done(True)
        return
    remembered = shard.opened if scene.mends is None or scene.mends.shards_remember else 0
    if not rules.closes_at_row_epoch:
        shard = Shard(shard.epoch + 1, "COPY", True, remembered)
    elif shard.epoch < epoch:
        shard = Shard(epoch, "COPY", True, remembered)
    is_closed = shard.state == "COPY" and (shard.epoch == epoch or not rules.closes_at_row_epoch)
    yield f"closes {server} at {epoch}", w._replace(shards=replaced(w.shards, key, shard)), Done(is_closed)


def opened(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (server,) = arguments
    shard = w.shards[SERVERS.index(server)]
    if shard.up:
        is_proof = scene.mends is None or scene.mends.shards_are_proof
        yield f"is told that {server} was open at {shard.opened}", w, Done(shard.opened if is_proof else 0)


def reached(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (server,) = arguments
    shard = w.shards[SERVERS.index(server)]
    if shard.up:
        is_above = scene.mends is None or scene.mends.reaches_above
        yield f"is told that {server} is at {shard.epoch}", w, Done(shard.epoch if is_above else 0)


def unmirrored(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    (server,) = arguments
    key = SERVERS.index(server)
    if w.shards[key].up:
        count = len(w.log[key]) - w.offsets[key] if key < len(w.log) else 0
        yield f"counts {count} cells to mirror back", w, Done(count)


def read(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    key, limit = arguments
    position = w.offsets[key]
    versions = w.log[key][position : position + limit]
    if w.shards[key].up and versions:
        found = tuple(cell(key, version, str(w.cells[key][version])) for version in versions)
        yield f"reads {len(found)} of shard {key}", w, Done(Page(found, position + len(found)))


def advance(w: World, me: int, phase: Any, arguments: tuple[Any, ...], rules: Rules, scene: Scenario) -> Outcomes:
    key, position = arguments
    if w.shards[key].up:
        offsets = replaced(w.offsets, key, max(w.offsets[key], position))
        yield f"saves offset {position} of shard {key}", w._replace(offsets=offsets), Done(None)


HANDLERS: dict[str, Handler] = {
    "store.call": call,
    "store.copy": copy,
    "store.put_encoded": put_encoded,
    "store.open": open_,
    "store.close": close,
    "store.opened": opened,
    "store.reached": reached,
    "store.unmirrored": unmirrored,
    "log.read": read,
    "log.advance": advance,
}
