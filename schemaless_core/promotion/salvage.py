"""`Salvage`: what a primary had acknowledged and no replica got goes to its shards, from its disk.

Its log from the fork on, what waited in its buffer, what was purged there, and entries of indexes. All of it is put as
what is true elsewhere, by keys that never change their bodies: it may be repeated, and run beside callers. Where
another body stands under a key by now, the cell is kept in the buffer beside its shard, and so comes to the ledger of
conflicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from schemaless_core.calls.purged import find_purged
from schemaless_core.cell.page_bytes import fitting
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, EpochOpening, IndexTable, Node
from schemaless_core.engine.buffers import Offered
from schemaless_core.engine.purged import page_end
from schemaless_core.errors import LogHole, PromotionRefused, SchemalessError, SchemaMissing
from schemaless_core.promotion.ports import HANDING_OVER, AuthorityPort
from schemaless_core.promotion.salvaged_entries import SalvagedEntries
from schemaless_core.servers.routing import Router

if TYPE_CHECKING:
    from schemaless_core.purging.carried import CarriedPurges  # no put reads that file

#: Told how many cells were looked at.
Advance = Callable[[int, int | None], None]

CALL_SECONDS = 10.0
CELLS_PER_PAGE = 500
#: Of one shard's cells in a buffer: it may hold no more.
BUFFERED_MAX = 10_000_000
BYTES_MAX = 2**50
#: Of a ledger: a person has to look at each, so there are few.
CONFLICTS_MAX = 1_000_000


class Salvaged(NamedTuple):
    """What came of it, or would."""

    #: Shards whose log goes on there behind its fork, and the cells that it has there.
    shards: int
    cells: int
    there: int
    salvaged: int
    conflicts: int
    #: Cells that waited in its buffer.
    buffered: int
    index_entries: int
    #: Keys that were purged there, and not where their shards are led now.
    purged_keys: int


class LostTail(NamedTuple):
    """Cells of a shard that are on one server's disk alone, among those that it added behind a fork."""

    shard: int
    first: int
    last: int
    cells: int
    #: Keys that were purged there alone.
    purged_keys: int


class Salvage:
    """Of one old primary."""

    def __init__(
        self,
        router: Router,
        old: Node,
        shards: int,
        placed: Sequence[int],
        tables: Sequence[IndexTable],
        carried: CarriedPurges,
        authority: AuthorityPort,
    ) -> None:
        """`placed`: the shards of its cluster."""
        self._router = router
        self._old = old
        self._shards = shards
        self._placed = placed
        self._entries = SalvagedEntries(router, old, shards, tables)
        self._carried = carried
        self._authority = authority
        self._ledgers: set[NewCell] | None = None

    def run(self, advance: Advance, *, is_dry: bool = False) -> Salvaged:
        """Do it, once; `is_dry`: look, and change nothing."""
        with closing(self._old):
            return self._run(advance, is_dry=is_dry)

    def lost_tails(self) -> list[LostTail]:
        """What is nowhere else: neither in its shard, nor on its way there, nor in a ledger of conflicts."""
        with closing(self._old):
            forks = self._forks()
            heads = self._old.heads(forks, Deadline(CALL_SECONDS)) if forks else {}
            lost = Counter[int]()
            for shard, cells in self._lost(forks):
                lost[shard] += len(self._unnamed(self._unstored(shard, cells)))
            tails = [
                LostTail(shard, first, heads[shard].head, lost[shard], self._carried.count(shard))
                for shard, first in forks.items()
            ]
            return [tail for tail in tails if tail.cells or tail.purged_keys]

    def _run(self, advance: Advance, *, is_dry: bool) -> Salvaged:
        standing = self._standing()
        forks = self._forks()
        if not forks:
            raise PromotionRefused(
                f"{self._old.name} is at the epochs of now: nothing forked off it.",
                hint="Name the server that led before the promotion; `tripstore shards status` shows which one leads.",
            )
        seen = fresh = conflicts = looked = 0
        shards = set[int]()
        for shard, cells in self._lost(forks):
            shards.add(shard)
            seen += len(cells)
            there, new = self._put(shard, cells, standing, is_dry=is_dry)
            fresh, conflicts = fresh + new, conflicts + len(cells) - there - new
            looked += len(cells)
            advance(looked, None)
        there_of_log = seen - fresh - conflicts
        buffered = 0
        for shard, cells in self._waiting():
            buffered += len(cells)
            there, new = self._put(shard, cells, standing, is_dry=is_dry)
            conflicts += len(cells) - there - new
            advance(looked + buffered, None)
        # Behind the cells: a purge there may have left a version of the tail as the latest one. Before the entries,
        # which are not written of rows that are purged.
        keys = sum(map(self._carried.count, forks)) if is_dry else self._carried.carry(forks)
        entries = 0 if is_dry else self._entries.merge(forks, standing)
        return Salvaged(len(shards), seen, there_of_log, fresh, conflicts, buffered, entries, keys)

    def _standing(self) -> Standing:
        opening = self._authority.opening()
        if opening is HANDING_OVER:
            raise PromotionRefused("A hand-over goes on.", hint="Wait until it is decided, then run this again.")
        return Standing(Kind.COPIER, None if opening is None else opening.authority_epoch)

    def _forks(self) -> dict[int, int]:
        """Of each shard the first added id that a later primary gave."""
        deadline = Deadline(CALL_SECONDS)
        if self._old.shard_count(deadline) != self._shards:
            raise PromotionRefused(f"{self._old.name} holds another datastore.", hint="Name the cluster's old primary.")
        heads = self._old.heads(None, deadline)
        forks: dict[int, int] = {}
        for shard in self._placed:
            if shard not in heads:
                continue
            epoch = heads[shard].state.epoch
            cluster = self._router.cluster_of(shard, deadline)
            openings = self._router.ask_cluster(cluster, partial(_epochs_of, shard))
            firsts = [opening.first_added_id for opening in openings if opening.epoch > epoch]
            if firsts:
                forks[shard] = min(firsts)
        return forks

    def _lost(self, forks: dict[int, int]) -> Iterator[tuple[int, list[NewCell]]]:
        for shard, fork in forks.items():
            start = fork - 1
            while True:
                found = self._old.log({shard: start}, CELLS_PER_PAGE, Deadline(CALL_SECONDS))[shard]
                cells = [NewCell(each.row_key, each.column_name, each.ref_key, each.body) for each in found.cells]
                yield from ((shard, portion) for portion in _portions(cells))
                # A page may have no cell, and the log go on: behind more purged ids than one look brings.
                end, head = page_end(found, start), found.head.head
                if end >= head:
                    break
                if end <= start:
                    raise LogHole(shard, start + 1, head)
                start = end

    def _waiting(self) -> Iterator[tuple[int, list[NewCell]]]:
        """By the row's own shard: a buffer has cells of others."""
        try:
            shards = self._old.buffers.shards(Deadline(CALL_SECONDS))
        except SchemaMissing:
            return
        for shard in shards:
            found = self._old.buffers.waiting([shard], BUFFERED_MAX, BYTES_MAX, Deadline(CALL_SECONDS))
            for portion in _portions([each.cell for each in found]):
                yield shard_of_bytes(portion[0].row_key, self._shards), portion

    def _put(self, shard: int, cells: list[NewCell], standing: Standing, *, is_dry: bool) -> tuple[int, int]:
        """How many of the cells are stored by now, and how many were put."""
        if is_dry:
            return self._looked(shard, cells)
        deadline = Deadline(CALL_SECONDS)
        answer = self._router.write_many({shard: cells}, standing, deadline, may_exist=True)[shard]
        if isinstance(answer, SchemalessError):
            raise answer
        stored, _epoch = answer
        if isinstance(stored, range):
            return 0, len(cells)
        new = sum(each.is_created for each in stored)
        others = [
            cell
            for cell, each in zip(cells, stored, strict=True)
            if not each.is_created and each.purged is None and (each.found is None or each.found.body != cell.body)
        ]
        if unnamed := self._unnamed(others):
            offered = [Offered(shard, cell) for cell in unnamed]
            self._router.write(shard, lambda node, gate: node.buffers.keep(gate, offered, deadline), standing, deadline)
        return len(cells) - new - len(others), new

    def _looked(self, shard: int, cells: list[NewCell]) -> tuple[int, int]:
        bodies = self._bodies(shard, cells)
        absent = self._unpurged([cell for cell in cells if cell[:3] not in bodies])
        others = sum(bodies.get(cell[:3], cell.body) != cell.body for cell in cells)
        return len(cells) - len(absent) - others, len(absent)

    def _unstored(self, shard: int, cells: list[NewCell]) -> list[NewCell]:
        """Those of a shard's cells that it does not have like this, and would take."""
        bodies = self._bodies(shard, cells)
        return self._unpurged([cell for cell in cells if bodies.get(cell[:3]) != cell.body])

    def _unpurged(self, cells: list[NewCell]) -> list[NewCell]:
        """Those whose keys were not purged: what was is lost to no one."""
        purged = find_purged(self._router, self._shards, [cell[:3] for cell in cells])
        return [cell for cell in cells if cell[:3] not in purged]

    def _bodies(self, shard: int, cells: list[NewCell]) -> dict[tuple[bytes, bytes, int], bytes]:
        """What a shard has under the keys of these cells."""
        deadline = Deadline(CALL_SECONDS)
        keys = [cell[:3] for cell in cells]
        cluster = self._router.cluster_of(shard, deadline)
        found = self._router.ask_cluster(cluster, lambda node: node.find_many({shard: keys}, deadline))[shard].cells
        return {each[1:4]: each.body for each in found}

    def _unnamed(self, cells: list[NewCell]) -> list[NewCell]:
        """Those that neither wait in a buffer nor stood in a ledger of conflicts when this began."""
        if not cells:
            return []
        deadline, keys = Deadline(CALL_SECONDS), [cell[:3] for cell in cells]
        if self._ledgers is None:
            self._ledgers = self._of_buffers(
                lambda node: [each.waiting.cell for each in node.buffers.conflicts(CONFLICTS_MAX, deadline)]
            )
        waiting = self._of_buffers(lambda node: node.buffers.find(keys, deadline))
        return [cell for cell in cells if cell not in self._ledgers and cell not in waiting]

    def _of_buffers(self, ask: Callable[[Node], list[NewCell]]) -> set[NewCell]:
        found = set[NewCell]()
        for answer in self._router.ask_all(ask).values():
            if isinstance(answer, SchemaMissing):
                continue  # a server that never had a buffer
            if isinstance(answer, SchemalessError):
                raise answer
            found.update(answer)
        return found


def _portions(cells: list[NewCell]) -> Iterator[list[NewCell]]:
    """Cut cells into what one packet takes."""
    while cells:
        count = min(CELLS_PER_PAGE, fitting((len(cell.body) for cell in cells), BYTES_PER_BATCH))
        yield cells[:count]
        cells = cells[count:]


def _epochs_of(shard: int, node: Node) -> list[EpochOpening]:
    return node.epochs(shard, Deadline(CALL_SECONDS))
