"""Stands in for the workers of index groups: brings the indexes of a datastore up to date, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast
from unittest.mock import patch

from schemaless_core import Cell, Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.maintainer import IndexGroup
from tests.serving import serve, told

#: Above what any worker's lease has reached in a test.
FENCE = 1_000_000


def only_maintained(store: Datastore) -> None:
    """From now on `catch_up` alone writes entries: no thread mends what a test spoils a little after its commit."""
    store.indexes.after_commit.close()


def catch_up(store: Datastore, *names: str, page_cells: int = 500) -> int:
    """Let the groups of these indexes, or of all, pass the heads of this moment; return how many cells they got."""
    groups = [cast(IndexGroup, group) for group in store.indexes.groups()]
    delivered = 0
    for group in groups:
        if not names or group.version.name in names:
            _claim(store, group)
            delivered += serve(store, group, page_cells)
    return delivered


def _claim(store: Datastore, group: IndexGroup) -> None:
    """Take its shards, also from a worker."""
    offsets = store.triggers.offsets
    seen = told(offsets.find(group.name))
    unclaimed = [shard for shard, at in seen.items() if at.offset is None or at.offset.fence != FENCE]
    if unclaimed:
        told(offsets.claim(group.name, dict.fromkeys(unclaimed, FENCE)))


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
