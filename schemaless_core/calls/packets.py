"""`packets`: a batch of many cells cut into what is sent in one go: few shards each, with many cells of every one.

A statement for many cells of a shard costs little more than one for a few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.engine.base import BYTES_PER_BATCH

#: Cells of one shard in one packet: as long as their transaction lasts, the shard's other writers wait.
CELLS_PER_SHARD = 500
#: Cells in one packet, of whatever shards.
CELLS_PER_PACKET = 2_000

#: Positions of cells by shard.
Packet = dict[int, list[int]]


def lanes_of(
    cells: Sequence[EncodedCell], positions: Sequence[int], shards: int, lanes: int
) -> list[dict[int, list[int]]]:
    """Parts of the shards with about as many cells each, to be sent at the same time; no part without a cell."""
    by_shard = _by_shard(cells, positions, shards)
    found: list[dict[int, list[int]]] = []
    share, cells_left = len(positions) / lanes, 0.0
    for shard, of_shard in by_shard.items():
        if cells_left <= 0:
            found.append({})
            cells_left += share
        found[-1][shard] = of_shard
        cells_left -= len(of_shard)
    return found


def packets(cells: Sequence[EncodedCell], waiting: dict[int, list[int]]) -> Iterator[Packet]:
    """Cut these positions of cells by shard; those of a shard stay in order. It uses up what is waiting."""
    while waiting:
        packet: Packet = {}
        count = size = 0
        for shard, found in list(waiting.items()):
            portion, portion_bytes = _portion(cells, found)
            if packet and (count + len(portion) > CELLS_PER_PACKET or size + portion_bytes > BYTES_PER_BATCH):
                break
            packet[shard] = portion
            count, size = count + len(portion), size + portion_bytes
            if len(portion) < len(found):
                waiting[shard] = found[len(portion) :]
            else:
                del waiting[shard]
        yield packet


def _by_shard(cells: Sequence[EncodedCell], positions: Sequence[int], shards: int) -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    last, add = b"", [].append  # type: ignore[var-annotated]  # never used: no row key is empty
    for n in positions:
        row_key = cells[n].row_key
        if row_key != last:  # rows come in order: their cells stand together
            last, add = row_key, found[shard_of_bytes(row_key, shards)].append
        add(n)
    return dict(sorted(found.items()))


def _portion(cells: Sequence[EncodedCell], found: list[int]) -> tuple[list[int], int]:
    """The first of a shard's cells, and the bytes of their bodies. A single one may be larger than a packet."""
    portion = found[:CELLS_PER_SHARD]
    sizes = [len(cells[n].body) for n in portion]
    size = sum(sizes)
    while size > BYTES_PER_BATCH and len(portion) > 1:
        size -= sizes[len(portion) - 1]
        portion.pop()
    return portion, size
