"""`Joined`: what a transactional trigger puts, committed with its group's progress: both or neither, and once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from schemaless_core.calls.lookups import conflict
from schemaless_core.calls.puts import CommitListener, new_cell
from schemaless_core.cell.cell import Cell, checked_bytes
from schemaless_core.cell.standing import Gate, Kind, Standing
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import GroupStep, OffsetSeen, Settling
from schemaless_core.errors import Conflict, SchemalessError, StaleEpoch
from schemaless_core.servers.routing import Router
from schemaless_core.store import CellStore
from schemaless_core.triggers.offsets import STEP_SECONDS, is_mine
from schemaless_core.triggers.staging import NoRules, StagedStore, StagingRules

logger = logging.getLogger(__name__)


class FencedOut(Conflict):
    """Another worker holds the shard by now: what this one delivers does not count."""

    def __init__(self, group: str, shard: int) -> None:
        super().__init__(
            f"Shard {shard} of {group} is served by another worker.", hint="Nothing to do: it delivers the cell again."
        )


class Joined:
    """Puts of one datastore that wait for a group's commit. They are an owner's: the shard must be RW."""

    def __init__(
        self,
        router: Router,
        store: CellStore,
        max_body_bytes: int,
        after_commit: CommitListener,
        rules: StagingRules | None = None,
    ) -> None:
        self._router = router
        self._store = store
        self._max_body_bytes = max_body_bytes
        self._after_commit = after_commit
        self._rules = rules or NoRules()

    def with_store(self, store: CellStore, rules: StagingRules | None = None) -> Joined:
        """The same for functions that are given another store; what joins the commit is put here, by its rules."""
        return Joined(self._router, store, self._max_body_bytes, self._after_commit, rules)

    def staging(self, row_key: UUID) -> StagedStore:
        """A store for one call of a function: puts of this row wait, all others go through."""
        return StagedStore(self._store, row_key, self._max_body_bytes, rules=self._rules)

    def advance(self, group: str, shard: int, cells: Sequence[Cell], step: GroupStep) -> None:
        """Put cells of one shard and move its offset. Nothing happens when the offset is there already.

        `CellConflict` when another body is stored, `FencedOut` when the fence is not the newest.
        """
        new, deadline = self._new(cells), Deadline(STEP_SECONDS)

        def put(node: Node, gate: Gate) -> None:
            seen, stored = node.groups.put_and_advance(gate, group, new, step, deadline)
            if not is_mine(seen, step.fence):
                raise FencedOut(group, shard)
            if not _is_there(seen, step):
                gate.check_write(seen.state)
                raise _refusal(shard, cells, new, stored)
            _tell_purged(node, group, shard, new, stored, deadline)

        self._write(shard, put, cells, deadline)

    def settle(self, group: str, shard: int, cells: Sequence[Cell], settling: Settling) -> None:
        """Put cells of one shard and forget a parked cell. Nothing happens when it is not parked any more."""
        new, deadline = self._new(cells), Deadline(STEP_SECONDS)

        def put(node: Node, gate: Gate) -> None:
            is_parked, stored = node.groups.put_and_settle(gate, group, new, settling, deadline)
            if is_parked:
                gate.check_write(node.heads([shard], deadline)[shard].state)
                raise _refusal(shard, cells, new, stored)
            _tell_purged(node, group, shard, new, stored, deadline)

        self._write(shard, put, cells, deadline)

    def _write(self, shard: int, put: Callable[[Node, Gate], None], cells: Sequence[Cell], deadline: Deadline) -> None:
        # What was staged by a layout that is not in force any more is refused: no process learns the next epoch by it.
        standing = Standing(Kind.OWNER, self._rules.authority_epoch())
        try:
            self._router.write(shard, put, standing, deadline)
        finally:  # one that failed may have happened
            self._rules.wrote({cell.row_key for cell in cells})
        self._tell(cells)

    def _tell(self, cells: Sequence[Cell]) -> None:
        """Have their index entries written soon, as with any put."""
        for cell in cells:
            if cell.column_name in self._after_commit.columns:
                self._after_commit.created(cell)

    def _new(self, cells: Sequence[Cell]) -> list[NewCell]:
        return [new_cell(cell, checked_bytes(cell, self._max_body_bytes)) for cell in cells]


def _tell_purged(
    node: Node, group: str, shard: int, new: Sequence[NewCell], stored: Sequence[StoredCell], deadline: Deadline
) -> None:
    """The progress is made without them: only the log says so."""
    there = {cell[1:4] for cell in stored}
    lacking = [cell[:3] for cell in new if cell[:3] not in there]
    if lacking and (gone := list(node.purging.among(shard, lacking, deadline))):
        row_key = str(UUID(bytes=gone[0][0]))
        extra = {"event": "triggers.purged", "group": group, "shard": shard, "cells": len(gone), "row_key": row_key}
        logger.warning("cells of a transactional trigger were not stored, since their keys were purged", extra=extra)


def _refusal(
    shard: int, cells: Sequence[Cell], new: Sequence[NewCell], stored: Sequence[StoredCell]
) -> SchemalessError:
    """Why nothing happened: another body is stored under a key, or the shard was not open when it was tried."""
    bodies = {there[1:4]: there for there in stored}
    for cell, ours in zip(cells, new, strict=True):
        there = bodies.get(ours[:3])
        if there is not None and there.body != ours.body:
            return conflict(cell, there)
    return StaleEpoch(shard, "RW", "it did not take the cells", hint="Ask again.")


def _is_there(seen: OffsetSeen, step: GroupStep) -> bool:
    return seen.offset is not None and seen.offset[:2] >= (step.epoch, step.added_id)
