"""`Node`: the verbs of one server, whatever its engine.

The seam is at the verb ("put a cell"), never at "execute this SQL". A node knows shards, epochs and bytes; it leaves
routing, repeating and comparing bodies to the datastore. Every verb keeps to its deadline and raises our errors only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.standing import Gate, ShardHead, ShardState, ShardStatus

#: Bytes of bodies in one packet of a batch; a single body may be larger. The doctor asks servers for twice as much.
BYTES_PER_BATCH = 4 * 1024 * 1024


class NewCell(NamedTuple):
    """A checked cell on its way into a shard; the body is canonical bytes."""

    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes


class StoredCell(NamedTuple):
    """A cell as a shard holds it."""

    added_id: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes
    created_at: datetime


class Stored(NamedTuple):
    """What a node found after a put: the cell it created, or the one that stood in the way (None: no cell)."""

    is_created: bool
    added_id: int | None
    found: StoredCell | None


class Batch(NamedTuple):
    """Cells for one shard, all with different keys."""

    gate: Gate
    cells: Sequence[NewCell]


#: The answer to a batch: the added ids when all of it was created, else what was found of each cell.
BatchAnswer = range | list[Stored]


class Sighting(NamedTuple):
    """What a shard answered, and what it said of itself no earlier than that."""

    state: ShardState
    cells: list[StoredCell]


class LogSlice(NamedTuple):
    """Cells of a shard's log in added-id order; the head is no older than they are."""

    head: ShardHead
    cells: list[StoredCell]


class BucketSum(NamedTuple):
    """Count and plain sum of the cell hashes of one bucket."""

    number: int
    cells: int
    total: int


class EpochOpening(NamedTuple):
    """One line of a shard's history: from which added id on an epoch gave ids."""

    epoch: int
    first_added_id: int
    opened_at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing the doctor looked at on a server."""

    name: str
    value: str
    is_fine: bool
    #: Whether a datastore may not be created here as long as this stands.
    is_refusal: bool = False
    advice: str = ""


class Node(Protocol):
    """One server that holds shards."""

    name: str

    def put(self, gate: Gate, cell: NewCell, expect_latest: Any, deadline: Deadline) -> Stored:
        """Store one cell under the next added id, or find what is in its way; `StaleEpoch` when fenced."""
        ...

    def put_many(self, batches: Sequence[Batch], deadline: Deadline) -> list[BatchAnswer | SchemalessError]:
        """Store batches, one transaction per shard; one answer per batch. Only a lost server raises."""
        ...

    def find(self, shard: int, row_key: bytes, column_name: bytes, ref_key: int, deadline: Deadline) -> Sighting:
        """Return the cell under a key, if any."""
        ...

    def find_latest(self, shard: int, row_key: bytes, column_name: bytes, deadline: Deadline) -> Sighting:
        """Return the cell with the highest ref key of a column, if any."""
        ...

    def find_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return whatever of these cells is there, per shard."""
        ...

    def find_latest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return the latest cell of each of these columns that has one, per shard."""
        ...

    def row(self, shard: int, row_key: bytes, columns: Sequence[bytes] | None, deadline: Deadline) -> Sighting:
        """Return the latest cell of each column of a row."""
        ...

    def history(
        self,
        shard: int,
        row_key: bytes,
        column_name: bytes,
        before: int | None,
        limit: int,
        deadline: Deadline,
    ) -> Sighting:
        """Return versions below `before`, newest first."""
        ...

    def heads(self, shards: Collection[int] | None, deadline: Deadline) -> dict[int, ShardHead]:
        """Return the heads of these shards (None: of all on this server) that exist, in one look."""
        ...

    def log(self, starts: Mapping[int, int], limit: int, deadline: Deadline) -> dict[int, LogSlice]:
        """Return up to `limit` cells after an added id, per shard."""
        ...

    def first_created_at(self, shard: int, moment: datetime, deadline: Deadline) -> int:
        """Return the first added id created at or after a moment; head + 1 when there is none."""
        ...

    def epochs(self, shard: int, deadline: Deadline) -> list[EpochOpening]:
        """Return the history of a shard, oldest first."""
        ...

    def scan(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> Sighting:
        """Return the latest cells of up to `limit` rows that have any, in row-key order."""
        ...

    def checksum(
        self, shard: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> tuple[ShardState, list[BucketSum]]:
        """Return count and sum of the latest cells of the buckets that have any."""
        ...

    def create_shards(self, shards: Sequence[int], status: ShardStatus) -> int:
        """Create what is missing of these shards; return how many were. Safe to repeat, to race and to kill."""
        ...

    def record_shard_count(self, count: int) -> int:
        """Write down how many shards the datastore has, unless it is known; return what is known then."""
        ...

    def shard_count(self, deadline: Deadline) -> int | None:
        """Return the recorded number of shards, None when nothing was ever created here."""
        ...

    def shards_present(self) -> set[int]:
        """Return the shards that are complete here; empty when nothing was ever created."""
        ...

    def facts(self, *, is_replica: bool, shards: int) -> list[Fact]:
        """Return what the doctor wants to know of this server."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
