"""Stands in for a trigger worker: serves a group in this process, up to the heads of this moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from schemaless_core import Cell, Datastore, IndexMissing, Position, SchemalessError
from schemaless_core.engine.groups import GroupStep, OffsetSeen
from schemaless_core.triggers.group import Group, RunOutcome
from schemaless_core.triggers.offsets import Progress

T = TypeVar("T")


def serve(store: Datastore, group: Group, page_cells: int = 500) -> int:
    """Let the group pass what it has not; return how many cells it got. Any worker may hold the offsets."""
    offsets = store.triggers.offsets
    progress = group.progress(offsets, store.triggers.parking)
    fences = {shard: at.offset.fence for shard, at in told(offsets.find(group.name)).items() if at.offset}
    told(progress.claim(group.name, fences))  # one that has to go back gets a new fence
    seen = told(offsets.find(group.name))
    delivered = 0
    while lagging := {shard: at for shard, at in seen.items() if _is_behind(at)}:
        try:
            delivered += _serve_pages(store, group, progress, lagging, page_cells)
        except IndexMissing:
            break  # dropped meanwhile
        seen |= told(offsets.find(group.name, list(lagging)))
    return delivered


def told(answers: Mapping[int, T | SchemalessError]) -> dict[int, T]:
    """The answers of all shards; the error of one is raised."""
    heard = {}
    for shard, answer in answers.items():
        if isinstance(answer, SchemalessError):
            raise answer
        heard[shard] = answer
    return heard


def _serve_pages(
    store: Datastore, group: Group, progress: Progress, lagging: Mapping[int, OffsetSeen], page_cells: int
) -> int:
    pages = store.get_cells_for_shards({shard: _place(store, at) for shard, at in lagging.items()}, page_cells)
    runs = {shard: [cell for cell in page.cells if cell.column_name in group.columns] for shard, page in pages.items()}
    steps = {}
    for shard, outcome in group.deliver(runs).items():
        if outcome.error is not None:
            raise outcome.error
        page, offset = pages[shard], lagging[shard].offset
        assert offset is not None
        passed = _passed(runs[shard], outcome, page.next_location)
        if passed is not None:
            steps[shard] = GroupStep(offset.fence, page.position.epoch, passed, page.position.epoch)
    assert set(told(progress.advance(group.name, steps))) == set(steps)
    return sum(len(cells) for cells in runs.values())


def _passed(cells: list[Cell], outcome: RunOutcome, next_location: int) -> int | None:
    """How far a group is that had time for so many cells of a page; None: no further."""
    if outcome.done == len(cells):
        return next_location
    return cells[outcome.done - 1].added_id if outcome.done else None


def _place(store: Datastore, at: OffsetSeen) -> Position:
    assert at.offset is not None
    return Position(store.config.datastore, at.offset.epoch, at.offset.added_id)


def _is_behind(at: OffsetSeen) -> bool:
    """A group whose offsets are gone was dropped."""
    if at.offset is None:
        return False
    return at.offset.added_id < at.head or at.offset.epoch != at.state.epoch
