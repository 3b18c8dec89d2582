"""`Node`: the verbs of one server, whatever its engine.

The seam is at the verb ("put a cell"), never at "execute this SQL". A node knows shards, epochs and bytes; it leaves
routing, repeating and comparing bodies to the datastore. Every verb keeps to its deadline and raises our errors only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.standing import Gate, ShardHead, ShardState, ShardStatus
from schemaless_core.cell.stored import NewCell, StoredCell, Version
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexField
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.engine.bodies import BodyForms
from schemaless_core.engine.buffers import BufferTables
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.groups import GroupTables
from schemaless_core.engine.kinds import ColumnKind
from schemaless_core.engine.leases import LeaseTables
from schemaless_core.engine.mending import Mending
from schemaless_core.engine.primacy import Candidate, Leadership
from schemaless_core.engine.purging import Purging
from schemaless_core.engine.turning import Turning
from schemaless_core.errors import SchemalessError
from schemaless_core.process.private import others_rights

#: Bytes of bodies in one packet of a batch; a single body may be larger. The doctor asks servers for twice as much.
BYTES_PER_BATCH = 4 * 1024 * 1024


class Stored(NamedTuple):
    """What a node found after a put: the cell it created, or the one that stood in the way (None: no cell)."""

    is_created: bool
    added_id: int | None
    found: StoredCell | None
    #: The key was purged, with all of its column up to this ref key: it is never stored again.
    purged: int | None = None


class RowSeen(NamedTuple):
    """A row as its reader saw it: none of its cells has a higher added id."""

    row_key: bytes
    added_id: int


class Batch(NamedTuple):
    """Cells for one shard, all with different keys."""

    gate: Gate
    cells: Sequence[NewCell]
    #: Whether some of them are likely there already, as when the past is copied again: they are looked for first.
    may_exist: bool = False
    #: All of it is stored if this still holds and no key is taken, else nothing. None: each cell for itself.
    seen: RowSeen | None = None


#: The answer to a batch: the added ids when all of it was created, else what was found of each cell. Where all of it
#: or nothing was to be stored, and nothing was: an empty range.
BatchAnswer = range | list[Stored]


class Sighting(NamedTuple):
    """What a shard answered, and what it said of itself no earlier than that."""

    state: ShardState
    cells: list[StoredCell]
    #: More cells are there than a page has room for.
    is_cut: bool = False


class VersionsSighting(NamedTuple):
    """The same of cells that are read without when they came."""

    state: ShardState
    cells: list[Version]
    is_cut: bool


class LogSlice(NamedTuple):
    """Cells of a shard's log in added-id order; the head is no older than they are."""

    head: ShardHead
    cells: list[StoredCell]
    #: Added ids between start and end whose cells repair has deleted: readers pass them.
    purged: frozenset[int] = frozenset()


class BucketSum(NamedTuple):
    """Count and plain sum of the cell hashes of one bucket."""

    number: int
    cells: int
    total: int


class KeysSeen(NamedTuple):
    """Keys of cells of a shard, and what it said of itself no earlier than that."""

    state: ShardState
    keys: list[tuple[bytes, bytes, int]]


class HashedCell(NamedTuple):
    """A latest cell by its key, with a hash for its bytes."""

    row_key: bytes
    column_name: bytes
    ref_key: int
    hash: int


class EpochOpening(NamedTuple):
    """One line of a shard's history: from which added id on an epoch gave ids."""

    epoch: int
    first_added_id: int
    opened_at: datetime
    why: str


class AuthorityChange(NamedTuple):
    """One line of a shard's history: from which added id on it was given under an authority epoch, and its state."""

    authority_epoch: int
    state: str
    first_added_id: int
    at: datetime


class IndexTable(NamedTuple):
    """What the table of an index version holds."""

    #: Index and version: driver_partner_index_v1.
    name: str
    #: The shard field first.
    fields: tuple[IndexField, ...]
    #: Number of source columns; the shard field belongs to column 0.
    columns: int
    #: The source column of each field.
    owners: tuple[int, ...]


class EntryWrite(NamedTuple):
    """What a writer knows of one entry: the fields of some source columns, and the ref keys they are of."""

    shard_value: Scalar
    row_key: bytes
    #: As many as the table has fields; the first is not looked at.
    values: tuple[Scalar | None, ...]
    #: One per source column; None leaves its fields as they are. The shard column's is always known.
    refs: tuple[int | None, ...]
    #: Whether the row is not, or not any more, under this shard value. As true as the shard column's ref key is new.
    is_dead: bool = False


class StoredEntry(NamedTuple):
    """An entry as a shard holds it."""

    row_key: bytes
    #: All fields, the shard value first.
    values: tuple[Scalar | None, ...]
    refs: tuple[int | None, ...]
    is_dead: bool


class EntrySighting(NamedTuple):
    """Entries of a shard, and what it said of itself no earlier than that."""

    state: ShardState
    entries: list[StoredEntry]


class EntryQuery(NamedTuple):
    """A question to one shard of an index version, already checked."""

    shard_value: Scalar
    limit: int
    conditions: Sequence[CheckedCondition] = ()
    #: Number of the field to sort by; row keys decide between equal values. None: by row key.
    order_field: int | None = None
    descending: bool = False
    #: Value of the order field and row key of the last entry seen.
    after: tuple[Scalar | None, bytes] | None = None


class FieldError(NamedTuple):
    """Why a field is missing from an entry although its cell holds something there."""

    index_name: str
    version: int
    #: Of the row, not of the index.
    shard: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    field: str
    #: None: the field parses as of this ref key, or holds nothing.
    reason: str | None
    #: When the server was told.
    at: datetime | None = None

    @property
    def key(self) -> tuple[str, int, int, bytes, str]:
        return self.index_name, self.version, self.shard, self.row_key, self.field


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing the doctor looked at on a server."""

    name: str
    value: str
    is_fine: bool
    #: Whether a datastore may not be created here as long as this stands.
    is_refusal: bool = False
    advice: str = ""


def files_fact(path: Path) -> Fact:
    """Whether a file of SQLite's and those beside it are their owner's alone."""
    others = others_rights(path)
    return Fact("files", others or "their owner's", not others, advice=f"chmod 600 {path}*")


class Node(Protocol):
    """One server that holds shards."""

    name: str
    buffers: BufferTables
    groups: GroupTables
    mending: Mending
    purging: Purging
    turning: Turning
    #: How it keeps bodies.
    bodies: BodyForms
    #: None: of a file, which no other server takes the place of.
    leases: LeaseTables | None

    def go_by_leases(self, are_needed: bool) -> None:
        """Whether the server takes writes only under a lease, as this process has heard. Without: UNLEASED shards."""
        ...

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

    def find_before_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return of each of these keys the version with the next lower ref key, if any, per shard."""
        ...

    def find_not_alone(self, cells: Mapping[int, Sequence[NewCell]], deadline: Deadline) -> dict[int, KeysSeen]:
        """Return the keys of those cells that are not, byte for byte, all that their column holds, per shard.

        The others have no version beside them.
        """
        ...

    def find_highest_many(
        self, spans: Mapping[int, Sequence[tuple[bytes, bytes, int, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return of each of these spans of ref keys, both ends included, the highest cell, if any, per shard."""
        ...

    def find_tombstones_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return the highest tombstone of each of these columns that has one, per shard."""
        ...

    def find_newest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], limit: int, deadline: Deadline
    ) -> dict[int, Sighting]:
        """Return the newest cells of each of these columns, at most so many of each, newest first, per shard.

        All shards together are one page: the sightings of those that it has no room for are cut.
        """
        ...

    def row(self, shard: int, row_key: bytes, columns: Sequence[bytes] | None, deadline: Deadline) -> Sighting:
        """Return the latest cell of each column of a row."""
        ...

    def rows(self, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline) -> dict[int, Sighting]:
        """Return the latest cell of each column of each of these rows, per shard."""
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

    def heads_since(self, seconds: float, deadline: Deadline) -> dict[int, ShardHead]:
        """Return the heads of the shards that got a cell in the last seconds, by the server's clock: a hint."""
        ...

    def ahead_seconds(self, deadline: Deadline) -> float:
        """Return how far the latest time of a shard is ahead of the server's clock; 0.0 where none is."""
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

    def open_to_owners(self, authority_epoch: int, deadline: Deadline) -> None:
        """Raise the shards here to this authority epoch and make COPY RW, of those whose epoch is older, at once."""
        ...

    def close_to_owners(self, authority_epoch: int, deadline: Deadline) -> bool:
        """The same, and make RW COPY. Whether all shards that have not moved are COPY, at exactly this epoch.

        Not those of a server that another one leads, nor one that is fenced: a promotion may open it.
        """
        ...

    def leadership(self, deadline: Deadline) -> Leadership:
        """Return which server leads this one's cluster, as far as it knows."""
        ...

    def candidate(self) -> Candidate:
        """Take the server for a promotion; it connects when it is first asked something."""
        ...

    def opened_at(self, deadline: Deadline, *, ever: bool = True) -> int:
        """Return the highest authority epoch at which a shard here was ever RW, as its history says; 0: none was.

        Not `ever`: at which one is RW now. That reads a row for each shard, and not all of their history.
        """
        ...

    def make_copies(self, deadline: Deadline) -> int:
        """Make COPY of what is RW here at authority epoch 0, where no hand-over ever was; return how many were."""
        ...

    def authority_history(self, shard: int, deadline: Deadline) -> list[AuthorityChange]:
        """Return under which authority epochs and states a shard gave added ids, oldest first."""
        ...

    def scan(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> Sighting:
        """Return the latest cells of up to `limit` rows that have any, in row-key order."""
        ...

    def scan_versions(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> VersionsSighting:
        """Return up to `limit` cells of the rows after a row key, all versions, in the order of their keys."""
        ...

    def checksum(
        self, shard: int, kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[BucketSum]]:
        """Return count and sum of the latest cells of the buckets that have any."""
        ...

    def digests(
        self, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[HashedCell]]:
        """Return the latest cells of these buckets, in no order."""
        ...

    def create_index(self, table: IndexTable, shards: Sequence[int], deadline: Deadline) -> None:
        """Create the tables of an index version that these shards lack. Safe to repeat, to race and to kill."""
        ...

    def altered_index(self, table: IndexTable, deadline: Deadline) -> list[Fact]:
        """Return what a doctor says of columns of an index version that are not as `create_index` makes them."""
        ...

    def drop_index(self, table_name: str, shards: Sequence[int], deadline: Deadline) -> None:
        """Drop those of the tables that are there."""
        ...

    def put_entries(
        self, table: IndexTable, entries: Mapping[int, Sequence[EntryWrite]], deadline: Deadline
    ) -> dict[int, ShardState]:
        """Write entries, each source column only forward; return what the shards said no earlier than that.

        In whatever order and however often writes come, the end state is the same. An error may leave some of them
        written. `IndexMissing` when a shard lacks the table.
        """
        ...

    def find_entries(
        self, table: IndexTable, shard: int, query: EntryQuery, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        """Return living entries of one shard value in order, missing values first; `IndexMissing`."""
        ...

    def find_first_entries(
        self, table: IndexTable, values: Mapping[int, Sequence[Scalar]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        """Return of each of these shard values its first living entry by row key, if it has one; `IndexMissing`."""
        ...

    def find_entries_at(
        self, table: IndexTable, keys: Mapping[int, Sequence[tuple[Scalar, bytes]]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        """Return whatever entries there are under these shard values and row keys, dead ones too; `IndexMissing`."""
        ...

    def find_entries_of(
        self, table: IndexTable, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        """Return all entries of these rows, dead ones too, by a walk through each shard's table; `IndexMissing`."""
        ...

    def scan_entries(
        self, table: IndexTable, shard: int, after: tuple[Scalar, bytes] | None, limit: int, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        """Return entries by shard value and row key, dead ones included; `IndexMissing`."""
        ...

    def remove_entries(
        self, table: IndexTable, shard: int, entries: Sequence[StoredEntry], deadline: Deadline
    ) -> tuple[ShardState, int]:
        """Remove those of the entries whose ref keys are still these; return how many; `IndexMissing`."""
        ...

    def put_document(self, document: StoredDocument, deadline: Deadline) -> None:
        """Keep a copy of a document, unless a copy of the same or a later version is here."""
        ...

    def find_documents(self, prefix: str, deadline: Deadline) -> list[StoredDocument]:
        """Return the copies of the documents whose names begin so."""
        ...

    def put_field_errors(self, errors: Sequence[FieldError], deadline: Deadline) -> None:
        """Note why fields are missing, or that they are not any more; what is known of a higher ref key stays."""
        ...

    def find_field_errors(self, index_name: str, version: int, limit: int, deadline: Deadline) -> list[FieldError]:
        """Return the errors of an index version, by shard, row key and field."""
        ...

    def count_field_errors(self, index_name: str, version: int, deadline: Deadline) -> int:
        """Return how many there are."""
        ...

    def drop_field_errors(self, index_name: str, version: int, deadline: Deadline) -> None:
        """Forget the errors of a version that is dropped."""
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

    def tables_missing(self) -> list[str]:
        """Return the tables that a server of an earlier version lacks; none when nothing was ever created here."""
        ...

    def facts(self, *, is_replica: bool, shards: int, has_replicas: bool = False) -> list[Fact]:
        """Return what the doctor wants to know of this server."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
