"""`LogWalk`: the logs of shards, held against what every reader takes for granted.

Each added id up to the head has a cell or was purged, none is above the counter, times never fall, bodies are canonical
JSON, and rows are in their shards. A head that is read after the cells is no lower than any of them: that tells a cell
above the counter from one that was put meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import ShardHead, ShardState
from schemaless_core.cell.stored import StoredCell
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice, Node
from schemaless_core.engine.mending import IDS_PER_LOOK
from schemaless_core.errors import SchemalessError
from schemaless_core.fsck.faults import Fault, found, found_at, not_compared
from schemaless_core.fsck.walk import PAGE_SECONDS, WalkStep
from schemaless_core.indexes.rows import AS_COPIER
from schemaless_core.mends import RawCell
from schemaless_core.servers.routing import Router

CELLS_PER_PAGE = 2_000
#: Of one page; a log that was truncated has millions.
HOLES_MAX = 1_000


class _Place(NamedTuple):
    """Where a walk is: behind which added id of which shard, and what it has seen of that."""

    shard: int
    after: int = 0
    #: The head when the shard was begun: what comes later is not walked. -1: it is begun now.
    until: int = -1
    epoch: int = 0
    #: The newest time of its cells; "": none yet, at this epoch.
    newest: str = ""


class _Seen(NamedTuple):
    """A page, a head that was read after it, and the holes among the page; in the shape the router wants."""

    page: LogSlice
    head: ShardHead
    holes: list[int]

    @property
    def state(self) -> ShardState:
        return self.head.state


class LogWalk:
    """Bounds of a part: the first and the last shard."""

    def __init__(self, router: Router, shards: int, columns: Sequence[str] | None = None) -> None:
        """`columns`: look at the bodies of these alone."""
        self._router = router
        self._shards = shards
        self._columns = None if columns is None else frozenset(name.encode() for name in columns)

    def step(self, bounds: Json, at: Json) -> WalkStep:
        place = _place(bounds, at)
        seen = self._read(place)
        if place.epoch not in (0, seen.state.epoch):  # another server leads: what it has was not looked at
            return WalkStep([], 0, list(_Place(place.shard)), False)
        place = place._replace(epoch=seen.state.epoch)
        is_last = not seen.page.cells or 0 <= place.until <= place.after
        newest, findings = self._judged(place, seen)
        cells = seen.page.cells
        if is_last:
            return _next_shard(bounds, place, findings, len(cells))
        until = seen.head.head if place.until < 0 else place.until
        after = place._replace(after=cells[-1].added_id, until=until, newest=newest)
        return WalkStep(findings, len(cells), list(after), False)

    def skip(self, bounds: Json, at: Json, error: SchemalessError) -> WalkStep:
        place = _place(bounds, at)
        reason = f"The log of shard {place.shard} behind {place.after}: {error.message}"
        return _next_shard(bounds, place, [not_compared(reason, shard=place.shard)], 0)

    def _read(self, place: _Place) -> _Seen:
        shard, deadline = place.shard, Deadline(PAGE_SECONDS)

        def look(node: Node) -> _Seen:
            page = node.log({shard: place.after}, CELLS_PER_PAGE, deadline)[shard]
            head = node.heads([shard], deadline)[shard]
            end = min(head.head, page.cells[-1].added_id) if page.cells else head.head
            is_dense = end - place.after <= sum(cell.added_id <= end for cell in page.cells)
            return _Seen(page, head, [] if is_dense else _holes(node, shard, place.after, end, deadline))

        return self._router.read(shard, look, AS_COPIER, "primary_only", deadline)

    def _judged(self, place: _Place, seen: _Seen) -> tuple[str, list[Finding]]:
        """The newest time by now, and what is wrong with a page."""
        findings = list[Finding]()
        if len(seen.holes) > HOLES_MAX:
            reason = f"Added ids of shard {place.shard} from {seen.holes.pop()} on: too many are missing"
            findings.append(not_compared(reason, shard=place.shard))
        findings += [_hole(place.shard, first, last) for first, last in _runs(seen.holes)]
        newest = datetime.fromisoformat(place.newest) if place.newest else None
        for cell in seen.page.cells:
            if cell.added_id > seen.head.head:
                reason = f"its added id is above the counter, which says {seen.head.head}"
                findings.append(found_at(Fault.ABOVE_HEAD, place.shard, cell, reason))
            if newest is not None and cell.created_at < newest:
                reason = f"it is of {cell.created_at.isoformat()}, and one before it of {newest.isoformat()}"
                findings.append(found_at(Fault.TIME, place.shard, cell, reason, not_before=newest.isoformat()))
            else:
                newest = cell.created_at
            if (home := shard_of_bytes(cell.row_key, self._shards)) != place.shard:
                findings.append(found_at(Fault.ELSEWHERE, place.shard, cell, f"its row belongs to shard {home}"))
            if self._is_looked_at(cell) and not RawCell(cell).is_canonical:
                findings.append(found_at(Fault.BYTES, place.shard, cell, "its bytes are no canonical JSON"))
        return "" if newest is None else newest.isoformat(), findings

    def _is_looked_at(self, cell: StoredCell) -> bool:
        return self._columns is None or cell.column_name in self._columns


def _holes(node: Node, shard: int, after: int, end: int, deadline: Deadline) -> list[int]:
    found: list[int] = []
    while after < end and len(found) <= HOLES_MAX:
        ids = node.mending.holes(shard, after, HOLES_MAX + 1 - len(found), deadline)
        found += [added_id for added_id in ids if added_id <= end]
        after += IDS_PER_LOOK
    return found


def _runs(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs without a gap."""
    runs: list[tuple[int, int]] = []
    for each in ids:
        if runs and runs[-1][1] == each - 1:
            runs[-1] = runs[-1][0], each
        else:
            runs.append((each, each))
    return runs


def _hole(shard: int, first: int, last: int) -> Finding:
    ids = f"added id {first}" if first == last else f"added ids {first} to {last}"
    reason = f"nothing stands at {ids} of shard {shard}: readers of its log stop there"
    return found(Fault.HOLE, reason, shard=shard, before=first - 1, first=first, last=last)


def _next_shard(bounds: Json, place: _Place, findings: list[Finding], rows: int) -> WalkStep:
    _first, last = _bounds(bounds)
    if place.shard >= last:
        return WalkStep(findings, rows, None, True)
    return WalkStep(findings, rows, list(_Place(place.shard + 1)), False)


def _place(bounds: Json, at: Json) -> _Place:
    first, _last = _bounds(bounds)
    match at:
        case [int(shard), int(after), int(until), int(epoch), str(newest)]:
            return _Place(shard, after, until, epoch, newest)
    return _Place(first)


def _bounds(bounds: Json) -> tuple[int, int]:
    match bounds:
        case [int(first), int(last)]:
            return first, last
    raise AssertionError("a part of logs names its first and its last shard")
