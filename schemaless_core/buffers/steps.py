"""What becomes of cells that their own cluster did not take, step by step: kept elsewhere, and replayed.

Any process may die or be stopped at any step, and any number may do this at once. A cell that is offered to two
buffers, or is in a buffer and in its shard as well, is stored once: the second writer finds it there.
"""

from __future__ import annotations

from typing import NamedTuple

from schemaless_core.buffers.ports import UNANSWERED, Buffering, Differs, Fate, KeepPort, Kept, OnHold, Silence
from schemaless_core.cell.stored import NewCell
from schemaless_core.steps import Step, Steps

KEEP = Step("buffer.keep", "offer the cell to the next buffer")
LOOK = Step("replay.look", "ask which authority epoch it is")
TAKE = Step("replay.take", "read what waits, in the order of arrival")
COPY = Step("replay.copy", "put it into its own shards, as a copier")
REPLICAS = Step("replay.replicas", "ask the replicas whether they have what is a second copy")
SETTLE = Step("replay.settle", "remove what is there; what conflicts goes to the ledger")

#: In order.
REPLAY = (LOOK, TAKE, COPY, SETTLE)


class Answered(NamedTuple):
    """What one buffer said of each cell; that of none: a silence."""

    server: str
    kept: tuple[Kept, ...] | Silence


def keep(buffers: KeepPort, servers: tuple[str, ...], cells: tuple[NewCell, ...], epoch: int | None) -> Steps[Answered]:
    """Offer cells to one buffer after the other, until one answers.

    Nothing is kept by a buffer that does not know this epoch: the caller asks which backend is the authority now, and
    writes there. What its own shard may still store at the old epoch is the same cell.
    """
    full = Answered("", UNANSWERED)
    for server in servers:
        yield KEEP
        answer = buffers.keep(server, cells, epoch)
        if isinstance(answer, Silence):
            continue
        if Kept.FULL not in answer:
            return Answered(server, answer)
        full = Answered(server, answer)
    return full


def replay(ports: Buffering, server: str, limit: int) -> Steps[int]:
    """Carry cells that wait in one buffer to their shards; return how many wait there no more.

    By the epoch of now, not by the one at which they were taken: a hand-over may have begun and been undone since.
    While one goes on their shards take copies, and the way back waits for them.
    """
    yield LOOK
    epoch = ports.present.epoch()
    if isinstance(epoch, OnHold):
        return 0
    yield TAKE
    waiting = ports.buffers.waiting(server, limit)
    if not waiting:
        return 0
    yield COPY
    fates = ports.own.copy(waiting, epoch)
    purged = frozenset(each for each, fate in zip(waiting, fates, strict=True) if fate is Fate.PURGED)
    there = tuple(each for each, fate in zip(waiting, fates, strict=True) if fate in (Fate.THERE, Fate.PURGED))
    if second := tuple(each for each in there if each.is_second and each not in purged):
        yield REPLICAS
        has_all = ports.own.replicated(second)
        missing = frozenset(each for each, has in zip(second, has_all, strict=True) if not has)
        there = tuple(each for each in there if each not in missing)
    conflicts = tuple(
        (each, fate.stored) for each, fate in zip(waiting, fates, strict=True) if isinstance(fate, Differs)
    )
    if not there and not conflicts:
        return 0
    yield SETTLE
    ports.buffers.settle(server, there, conflicts)
    return len(there) + len(conflicts)
