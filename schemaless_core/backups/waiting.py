"""`WaitingAgain`: cells of a backup that were in no log wait again, in the buffer of their shard's own cluster.

A buffer has one body under a key. Where several waited in several buffers, one waits again, and the others come to the
ledger of conflicts, where they would have come once that one was carried. They come there first: only then does the one
wait, so that a restore which goes on after a kill finds in the ledger what is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from schemaless_core.cell.page_bytes import fitting
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.buffers import CellKeyBytes, Offered
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd, copies_of

#: Cells that waited are kept so many at once.
KEPT_PER_CALL, KEPT_BYTES = 100, 2 * 1024 * 1024


class WaitingAgain:
    """Of one restore, for any of its shards, once they are open. Safe to repeat."""

    def __init__(self, ends: Mapping[str, ClusterEnd]) -> None:
        self._ends = ends

    def keep(self, shard: int, cluster: str, cells: list[StoredCell]) -> list[StoredCell]:
        """Have cells wait, or be in the ledger; return those that met the body of a later put: they are nowhere."""
        unique: dict[CellKeyBytes, StoredCell] = {}
        others: dict[tuple[CellKeyBytes, bytes], StoredCell] = {}
        for each in cells:
            if unique.setdefault(_key(each), each).body != each.body:
                others[_key(each), each.body] = each
        seconds = others.values()
        there = self._noted(cluster, {_key(each) for each in seconds})
        lost = [
            each
            for each in seconds
            if (_key(each), each.body) not in there and not self._note(shard, cluster, each, unique[_key(each)].body)
        ]
        return lost + self._wait(shard, cluster, list(unique.values()))

    def _wait(self, shard: int, cluster: str, cells: list[StoredCell]) -> list[StoredCell]:
        others: list[StoredCell] = []
        for some in _portions(cells):
            offered = [Offered(shard, NewCell(*each[1:5])) for each in some]
            state = self._ends[cluster].cluster.ask(lambda node: node.heads([shard], Deadline(CALL_SECONDS)))
            gate = Gate(shard, state[shard].state.epoch, Kind.COPIER, state[shard].state.authority_epoch)
            found = self._ends[cluster].cluster.write(partial(_kept, gate, offered))
            others += [each for each, other in zip(some, found, strict=True) if other is not None]
        return others

    def _note(self, shard: int, cluster: str, cell: StoredCell, first: bytes) -> bool:
        """Have a cell be in the ledger, by way of the buffer; False: another body waits there under its key."""
        if self._wait(shard, cluster, [cell]):
            return False
        reach("restore.second_waits")
        for waits in self._by_number(cluster, shard):
            if (_key(waits), waits.body) == (_key(cell), cell.body):
                self._ends[cluster].cluster.write(partial(_settled, {waits.added_id: first}))
                reach("restore.second_noted")
                break
        return True  # without a number it was carried meanwhile

    def _noted(self, cluster: str, keys: set[CellKeyBytes]) -> set[tuple[CellKeyBytes, bytes]]:
        """Bodies of these keys that the ledger has."""
        found = self._by_number(cluster, None) if keys else ()
        return {(_key(each), each.body) for each in found if _key(each) in keys}

    def _by_number(self, cluster: str, shard: int | None) -> Iterator[StoredCell]:
        """Yield the cells of a shard that wait; None: those of the ledger. Numbers stand for added ids."""
        after = 0
        while cells := self._ends[cluster].cluster.ask(partial(_page, shard, after)):
            yield from cells
            after = cells[-1].added_id


def _key(cell: StoredCell) -> CellKeyBytes:
    return cell.row_key, cell.column_name, cell.ref_key


def _kept(gate: Gate, offered: list[Offered], node: Node) -> list[bytes | None]:
    return node.buffers.keep(gate, offered, Deadline(CALL_SECONDS))


def _settled(conflicts: Mapping[int, bytes], node: Node) -> None:
    node.buffers.settle((), conflicts, Deadline(CALL_SECONDS))


def _page(shard: int | None, after: int, node: Node) -> list[StoredCell]:
    copies, deadline = copies_of(node), Deadline(CALL_SECONDS)
    return copies.conflicts(after, deadline) if shard is None else copies.waiting(shard, after, deadline)


def _portions(cells: list[StoredCell]) -> Iterator[list[StoredCell]]:
    """As many as one packet takes."""
    while cells:
        sizes = (len(each.body) for each in cells[:KEPT_PER_CALL])
        count = max(1, fitting(sizes, KEPT_BYTES))
        yield cells[:count]
        cells = cells[count:]
