"""The log of shards: where a location is, and pages that prove that nothing is missing.

Added ids are dense and in commit order (I3): a page must start right after its location and have no hole, but for
added ids that repair has purged, which it passes. A hole seen on a replica is a replica that is behind or out of order,
and the primary is asked; on the primary it is damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from schemaless_core import metrics
from schemaless_core.calls.lookups import to_cell
from schemaless_core.cell.answers import Location, Position, ShardPage
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.requests import check_limit, check_location, check_shard
from schemaless_core.cell.standing import ShardHead, ShardState, Standing
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice, Node
from schemaless_core.errors import LogHole, PositionUnknown, SchemalessError, first_error, missing_shard
from schemaless_core.habits import Habits, ReadFrom
from schemaless_core.servers.routing import Router


class _Start(NamedTuple):
    """Where a page starts, with the state of the shard that said so."""

    state: ShardState
    added_id: int
    #: Why there is no such place in the log, as the server that was asked knows it.
    refusal: PositionUnknown | None = None


class _Slice(NamedTuple):
    """A log slice in the shape the router wants: with its state in sight."""

    state: ShardState
    slice: LogSlice


class ShardLog:
    """The log half of a datastore."""

    def __init__(self, router: Router, config: DatastoreConfig, habits: Habits, standing: Standing) -> None:
        self._router = router
        self._config = config
        self._habits = habits
        self._standing = standing

    def end(self, shard: int) -> Position:
        """Where a shard's log ends now: what a replica knows of is behind, and no answer."""
        check_shard(shard, self._config.shards)
        deadline = self._deadline()

        def look(node: Node) -> ShardHead:
            heads = node.heads([shard], deadline)
            if shard not in heads:
                raise missing_shard(shard)
            return heads[shard]

        state, head = self._router.read(shard, look, self._standing, "primary_only", deadline)
        return Position(self._config.datastore, state.epoch, head)

    def resumes_at(self, positions: Mapping[int, Position]) -> dict[int, Position]:
        """Where reading goes on behind these positions, in the log as it is now."""
        for shard, position in positions.items():
            check_shard(shard, self._config.shards)
            check_location(position, self._config.datastore)
        found = self._resumed_starts(positions, self._deadline())
        if (error := first_error(found.values())) is not None:
            raise error
        return {
            shard: Position(self._config.datastore, start.state.epoch, start.added_id)
            for shard, start in found.items()
            if isinstance(start, _Start)
        }

    def pages(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        """The next pages of all these shards, or the error of one."""
        pages = self.pages_each(locations, limit)
        if (error := first_error(pages.values())) is not None:
            raise error
        return {shard: page for shard, page in pages.items() if isinstance(page, ShardPage)}

    def within(self, seconds: float) -> ShardLog:
        """The same log for calls that may take so long."""
        return ShardLog(self._router, self._config, replace(self._habits, deadline=seconds), self._standing)

    def pages_each(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage | SchemalessError]:
        """The next page of each of these shards, or its error."""
        check_limit(limit)
        for shard, location in locations.items():
            check_shard(shard, self._config.shards)
            check_location(location, self._config.datastore)
        deadline = self._deadline()
        found = self._starts(locations, deadline)
        starts = {shard: start for shard, start in found.items() if isinstance(start, int)}
        unknown = {shard: start for shard, start in found.items() if isinstance(start, SchemalessError)}
        pages = self._read(starts, limit, self._habits.read, deadline)
        holed = {
            shard: starts[shard]
            for shard, page in pages.items()
            if isinstance(page, _Slice) and _walked(starts[shard], page.slice).hole is not None
        }
        if holed:
            pages |= self._read_again(holed, limit, deadline)
        return {
            shard: unknown[shard] if shard in unknown else self._page_or_error(shard, starts[shard], pages[shard])
            for shard in locations
        }

    def _read(
        self, starts: Mapping[int, int], limit: int, read_from: ReadFrom, deadline: Deadline
    ) -> dict[int, _Slice | SchemalessError]:
        def look(node: Node, wanted: Mapping[int, int]) -> dict[int, _Slice]:
            return {
                shard: _Slice(found.head.state, found) for shard, found in node.log(wanted, limit, deadline).items()
            }

        return self._router.read_each(starts, look, self._standing, read_from, deadline)

    def _read_again(
        self, starts: Mapping[int, int], limit: int, deadline: Deadline
    ) -> dict[int, _Slice | SchemalessError]:
        """Ask the primaries where a page had a hole; `LogHole` when they have it too."""
        metrics.call_repeated("log_hole")
        pages = self._read(starts, limit, "primary_only", deadline)
        for shard, page in pages.items():
            if isinstance(page, _Slice) and (hole := _walked(starts[shard], page.slice).hole) is not None:
                pages[shard] = LogHole(shard, hole, page.slice.head.head)
        return pages

    def _page_or_error(self, shard: int, start: int, page: _Slice | SchemalessError) -> ShardPage | SchemalessError:
        if isinstance(page, SchemalessError):
            return page
        cells: list[Cell] = []
        for stored in page.slice.cells:
            try:
                cells.append(to_cell(stored))
            except msgspec.MsgspecError:  # it must not take the other shards of a reader along
                return LogHole(shard, stored.added_id, page.slice.head.head, is_damaged=True)
        end, _hole = _walked(start, page.slice)
        position = Position(self._config.datastore, page.state.epoch, end)
        return ShardPage(cells, end, position, page.slice.head.head)

    def _starts(self, locations: Mapping[int, Location], deadline: Deadline) -> dict[int, int | SchemalessError]:
        """The added id after which each page starts. Positions of all shards cost one look at the heads together."""
        positions = {shard: location for shard, location in locations.items() if isinstance(location, Position)}
        starts = self._resumed(positions, deadline)
        for shard, location in locations.items():
            if isinstance(location, int):
                starts[shard] = location
            elif isinstance(location, datetime):
                try:
                    starts[shard] = self._before(shard, location, deadline)
                except SchemalessError as error:
                    starts[shard] = error
        return starts

    def _resumed(self, positions: Mapping[int, Position], deadline: Deadline) -> dict[int, int | SchemalessError]:
        return {
            shard: start.added_id if isinstance(start, _Start) else start
            for shard, start in self._resumed_starts(positions, deadline).items()
        }

    def _resumed_starts(
        self, positions: Mapping[int, Position], deadline: Deadline
    ) -> dict[int, _Start | SchemalessError]:
        """Where positions resume. A replica may not know of one yet: only the primary's word refuses it."""
        look = partial(_resumed, deadline)
        found = self._router.read_each(positions, look, self._standing, self._habits.read, deadline)
        unknown = {
            shard: positions[shard]
            for shard, start in found.items()
            if isinstance(start, _Start) and start.refusal is not None
        }
        if unknown:
            at_primary = self._router.read_each(unknown, look, self._standing, "primary_only", deadline)
            found |= {shard: start for shard, start in at_primary.items() if isinstance(start, _Start)}
            refused = {shard: start.refusal for shard, start in at_primary.items() if isinstance(start, _Start)}
        else:
            refused = {}
        return {
            shard: start if isinstance(start, SchemalessError) else refused.get(shard) or start
            for shard, start in found.items()
        }

    def _before(self, shard: int, moment: datetime, deadline: Deadline) -> int:
        """The last added id created before a moment."""

        def look(node: Node) -> _Start:
            first = node.first_created_at(shard, moment, deadline)
            return _Start(node.heads([shard], deadline)[shard].state, first - 1)

        return self._router.read(shard, look, self._standing, self._habits.read, deadline).added_id

    def _deadline(self) -> Deadline:
        seconds = self._config.deadlines.read_seconds if self._habits.deadline is None else self._habits.deadline
        return Deadline(seconds)


def _resumed(deadline: Deadline, node: Node, positions: Mapping[int, Position]) -> dict[int, _Start]:
    """Where positions resume: those from before a promotion at its fork, since ids above it may name other cells."""
    heads = node.heads(positions.keys(), deadline)
    starts = {}
    for shard, position in positions.items():
        if shard not in heads:
            raise missing_shard(shard)
        (state, head), added_id = heads[shard], position.added_id
        is_known = state.epoch == position.epoch and added_id <= head
        if state.epoch != position.epoch:
            openings = node.epochs(shard, deadline)
            opened = {opening.epoch for opening in openings}
            # Before the first one was another store's log, the legacy one's: nothing of this one was read there.
            is_known = position.epoch < state.epoch and (position.epoch in opened or position.epoch < min(opened))
            for opening in openings:
                if position.epoch < opening.epoch <= state.epoch:
                    added_id = min(added_id, opening.first_added_id - 1)
        refusal = None if is_known else PositionUnknown(shard, position.epoch, position.added_id, state.epoch, head)
        starts[shard] = _Start(state, added_id, refusal)
    return starts


class _Walk(NamedTuple):
    """How far a slice leads, and the first added id that must be in it and is not (None: it is dense)."""

    end: int
    hole: int | None


def _walked(start: int, found: LogSlice) -> _Walk:
    end = start
    for cell in found.cells:
        end = _past_purged(end, found)
        if cell.added_id != end + 1:
            return _Walk(end, end + 1)
        end = cell.added_id
    end = _past_purged(end, found)
    if end == start and found.head.head > start:
        return _Walk(end, start + 1)
    return _Walk(end, None)


def _past_purged(end: int, found: LogSlice) -> int:
    while end + 1 in found.purged:
        end += 1
    return end
