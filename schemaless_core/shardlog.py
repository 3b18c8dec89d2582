"""The log of shards: where a location is, and pages that prove that nothing is missing.

Added ids are dense and in commit order (I3): a page must start right after its location and have no hole. A hole seen
on a replica is a replica that is behind or out of order, and the primary is asked; on the primary it is damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemaless_core import metrics
from schemaless_core.answers import Location, Position, ShardPage
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice, Node
from schemaless_core.errors import LogHole
from schemaless_core.habits import Habits, ReadFrom
from schemaless_core.lookups import to_cell
from schemaless_core.requests import check_limit, check_location, check_shard
from schemaless_core.routing import Router
from schemaless_core.standing import ShardState, Standing


class _Start(NamedTuple):
    """Where a page starts, with the state of the shard that said so."""

    state: ShardState
    added_id: int


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

    def pages(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        check_limit(limit)
        for shard, location in locations.items():
            check_shard(shard, self._config.shards)
            check_location(location, self._config.datastore)
        deadline = self._deadline()
        starts = {shard: self._start(shard, location, deadline) for shard, location in locations.items()}
        pages = self._read(starts, limit, self._habits.read, deadline)
        holed = {shard: starts[shard] for shard, page in pages.items() if _hole(starts[shard], page.slice) is not None}
        if holed:
            pages |= self._read_again(holed, limit, deadline)
        return {shard: self._page(starts[shard], pages[shard]) for shard in locations}

    def _read(
        self, starts: Mapping[int, int], limit: int, read_from: ReadFrom, deadline: Deadline
    ) -> dict[int, _Slice]:
        def look(node: Node, wanted: Mapping[int, int]) -> dict[int, _Slice]:
            return {
                shard: _Slice(found.head.state, found) for shard, found in node.log(wanted, limit, deadline).items()
            }

        return self._router.read_many(starts, look, self._standing, read_from, deadline)

    def _read_again(self, starts: Mapping[int, int], limit: int, deadline: Deadline) -> dict[int, _Slice]:
        """Ask the primaries where a page had a hole; raise `LogHole` when they have it too."""
        metrics.call_repeated("log_hole")
        pages = self._read(starts, limit, "primary", deadline)
        for shard, page in pages.items():
            missing = _hole(starts[shard], page.slice)
            if missing is not None:
                raise LogHole(shard, missing, page.slice.head.head)
        return pages

    def _page(self, start: int, page: _Slice) -> ShardPage:
        cells = [to_cell(stored) for stored in page.slice.cells]
        end = start + len(cells)
        position = Position(self._config.datastore, page.state.epoch, end)
        return ShardPage(cells, end, position, page.slice.head.head)

    def _start(self, shard: int, location: Location, deadline: Deadline) -> int:
        """The added id after which the page starts."""
        if isinstance(location, int):
            return location
        if isinstance(location, Position):
            return self._resumed(shard, location, deadline)

        def look(node: Node) -> _Start:
            first = node.first_created_at(shard, location, deadline)
            return _Start(node.heads([shard], deadline)[shard].state, first - 1)

        return self._router.read(shard, look, self._standing, self._habits.read, deadline).added_id

    def _resumed(self, shard: int, position: Position, deadline: Deadline) -> int:
        """A position from before a promotion resumes at the fork: ids above it may name other cells now."""

        def look(node: Node) -> _Start:
            state = node.heads([shard], deadline)[shard].state
            if state.epoch == position.epoch:
                return _Start(state, position.added_id)
            forks = [
                opening.first_added_id - 1
                for opening in node.epochs(shard, deadline)
                if position.epoch < opening.epoch <= state.epoch
            ]
            return _Start(state, min([position.added_id, *forks]))

        return self._router.read(shard, look, self._standing, self._habits.read, deadline).added_id

    def _deadline(self) -> Deadline:
        seconds = self._config.deadlines.read_seconds if self._habits.deadline is None else self._habits.deadline
        return Deadline(seconds)


def _hole(start: int, found: LogSlice) -> int | None:
    """The first added id that must be in a slice and is not; None when it is dense."""
    for expected, cell in enumerate(found.cells, start + 1):
        if cell.added_id != expected:
            return expected
    if not found.cells and found.head.head > start:
        return start + 1
    return None
