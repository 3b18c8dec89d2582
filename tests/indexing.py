"""Stands in for the workers of index groups: brings the indexes of a datastore up to date, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast
from unittest.mock import patch

from schemaless_core import Cell, Datastore, IndexMissing, Position, SchemalessError
from schemaless_core.deadline import Deadline
from schemaless_core.engine.groups import OffsetSeen, Step
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.maintainer import IndexGroup
from schemaless_core.triggers.offsets import Offsets

#: Above what any worker's lease has reached in a test.
FENCE = 1_000_000


def only_maintained(store: Datastore) -> None:
    """From now on `catch_up` alone writes entries: what a test spoils nobody makes right a little after its commit."""
    store.indexes.after_commit.close()


def catch_up(store: Datastore, *names: str, page_cells: int = 500) -> int:
    """Let the groups of these indexes, or of all, pass the heads of this moment; return how many cells they got."""
    groups = [cast(IndexGroup, group) for group in store.indexes.groups()]
    return sum(_catch_up(store, group, page_cells) for group in groups if not names or group.version.name in names)


def _catch_up(store: Datastore, group: IndexGroup, page_cells: int) -> int:
    offsets = store.triggers.offsets
    seen = _told(offsets.find(group.name))
    unclaimed = [shard for shard, at in seen.items() if at.offset is None or at.offset.fence != FENCE]
    if unclaimed:
        seen |= _told(offsets.claim(group.name, dict.fromkeys(unclaimed, FENCE)))
    delivered = 0
    while lagging := {shard: at for shard, at in seen.items() if _is_behind(at)}:
        try:
            delivered += _deliver_pages(store, group, offsets, lagging, page_cells)
        except IndexMissing:
            break  # dropped meanwhile
        seen |= _told(offsets.find(group.name, list(lagging)))
    return delivered


def _deliver_pages(
    store: Datastore, group: IndexGroup, offsets: Offsets, lagging: Mapping[int, OffsetSeen], page_cells: int
) -> int:
    places = {shard: _place(store, at) for shard, at in lagging.items()}
    pages = store.get_cells_for_shards(places, page_cells)
    runs = {shard: [cell for cell in page.cells if cell.column_name in group.columns] for shard, page in pages.items()}
    for outcome in group.deliver(runs).values():
        if outcome.error is not None:
            raise outcome.error
    steps = {
        shard: Step(FENCE, page.position.epoch, page.next_location, page.position.epoch)
        for shard, page in pages.items()
    }
    _told(offsets.advance(group.name, steps))
    return sum(len(cells) for cells in runs.values())


def _place(store: Datastore, at: OffsetSeen) -> Position:
    assert at.offset is not None
    return Position(store.config.datastore, at.offset.epoch, at.offset.added_id)


def _is_behind(at: OffsetSeen) -> bool:
    """A group whose offsets are gone was dropped."""
    if at.offset is None:
        return False
    return at.offset.added_id < at.head or at.offset.epoch != at.state.epoch


def _told(answers: Mapping[int, OffsetSeen | SchemalessError]) -> dict[int, OffsetSeen]:
    told = {}
    for shard, answer in answers.items():
        if isinstance(answer, SchemalessError):
            raise answer
        told[shard] = answer
    return told


def process(store: Datastore, versions: Iterable[IndexVersion], cells: Sequence[Cell]) -> None:
    """Write the entries of committed cells, as the thread after the commit does."""
    for version in versions:
        _plan, answers = store.indexes.writer.write(version, cells, Deadline(20))
        for answer in answers:
            if answer is not None:
                raise answer


@contextmanager
def nothing_after_commit() -> Iterator[None]:
    """No entry is written right after a commit: only what a test does itself happens."""
    with patch("schemaless_core.indexes.aftercommit.AfterCommit.created", lambda self, cell: None):
        yield
