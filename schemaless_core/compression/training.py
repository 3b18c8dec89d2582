"""`Training`: a dictionary from the newest cells of a column, and what it would save of others of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from schemaless_core.compression.catalogue import DictionaryCatalogue
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.bodies import FRAME_AT, TOMBSTONE
from schemaless_core.engine.dictionaries import EVERY_COLUMN, Dictionary
from schemaless_core.engine.frames import frames_of, require_zstandard
from schemaless_core.errors import InvalidRequest
from schemaless_core.servers.shard_primaries import ShardPrimaries

#: Fewer tell too little of those to come.
SAMPLES_MIN = 100
#: Newest cells of a shard that are looked at, for each that is wanted: others may be of other columns.
LOOKED_PER_SAMPLE = 10
CELLS_PER_PAGE = 1_000
#: Shards that samples are taken from: row keys are spread over all alike.
SHARDS_MAX = 64


class Trained(NamedTuple):
    """A dictionary, how many bodies it was made from, and bytes of as many others: plain, and compressed with it."""

    dictionary: Dictionary
    samples: int
    measured: int
    bytes_plain: int
    bytes_compressed: int


class Training:
    """Of one datastore."""

    def __init__(
        self,
        catalogue: DictionaryCatalogue,
        primaries: ShardPrimaries,
        control: ControlDatabase,
        shards: int,
        level: int,
    ) -> None:
        self._catalogue = catalogue
        self._primaries = primaries
        self._control = control
        self._shards = shards
        self._level = level

    def train(self, column_name: str, size: int, samples: int) -> Trained:
        """Make one; no server has it yet. `InvalidRequest`: there are too few cells, or too small ones."""
        require_zstandard()
        from zstandard import ZstdError, train_dictionary

        bodies = self._samples(column_name, samples)
        for_training: list[bytes | bytearray | memoryview[int]] = [*bodies[::2]]
        for_measuring = bodies[1::2]
        if len(bodies) < SAMPLES_MIN:
            raise _too_few(column_name, len(bodies))
        try:
            data = train_dictionary(size, for_training).as_bytes()
        except ZstdError as problem:
            raise _too_few(column_name, len(bodies)) from problem
        number = 1 + max((each.number for each in self._catalogue.all() if each.column_name == column_name), default=0)
        frames = frames_of(Dictionary(column_name, number, data), self._level)
        compressed = sum(min(len(each), FRAME_AT + len(frames.compressed(each))) for each in for_measuring)
        plain = sum(map(len, for_measuring))
        return Trained(frames.dictionary, len(for_training), len(for_measuring), plain, compressed)

    def keep(self, trained: Trained) -> None:
        """Give it to each server: it is in use from then on, beside those that are there. Safe to repeat."""
        its = trained.dictionary
        self._catalogue.spread()
        self._catalogue.put(its)
        detail = {"column": its.column_name, "number": its.number, "dictionary": its.id.hex(), "bytes": len(its.data)}
        AuditLog(self._control).add("cell.train", {**detail, "samples": trained.samples})

    def _samples(self, column_name: str, wanted: int) -> list[bytes]:
        shards = range(0, self._shards, -(-self._shards // SHARDS_MAX))
        each = -(-wanted // len(shards))
        name = None if column_name == EVERY_COLUMN else column_name.encode()
        return [body for shard in shards for body in self._newest(shard, name, each)][:wanted]

    def _newest(self, shard: int, column_name: bytes | None, wanted: int) -> Iterator[bytes]:
        head = self._primaries.ask(shard, lambda node, end: node.heads([shard], end)[shard].head)
        at, left = max(0, head - wanted * LOOKED_PER_SAMPLE), wanted
        while at < head and left:
            cells = self._primaries.ask(shard, partial(_page, shard, at))
            if not cells:
                return
            at = cells[-1][0]
            found = [body for _id, name, body in cells if column_name in (None, name) and body != TOMBSTONE][:left]
            left -= len(found)
            yield from found


def _page(shard: int, after: int, node: Node, deadline: Deadline) -> list[tuple[int, bytes, bytes]]:
    cells = node.log({shard: after}, CELLS_PER_PAGE, deadline)[shard].cells
    return [(cell.added_id, cell.column_name, cell.body) for cell in cells]


def _too_few(column_name: str, found: int) -> InvalidRequest:
    return InvalidRequest(
        f"{found} cells of {column_name} are too few, or too small, to train a dictionary from.",
        hint=f"It takes some thousands, and {SAMPLES_MIN} at least: train one when there are more.",
    )
