"""What a server offers to a purge: keys that are never stored again, and what else it holds of a row.

Cells are deleted by the verbs of repair, with a line each in the audit table. A purge strips those lines of bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from schemaless_core.cell.cell import REF_KEY_MAX
from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline

#: Row key, column name, ref key.
Key = tuple[bytes, bytes, int]

#: How long a server whose tables are of an earlier version is taken for one: nothing was ever purged there.
#: A purge waits longer than that after the tables were made.
FORMER_SECONDS = 1.0
#: Added ids that one look for superseded cells leads over.
IDS_PER_LOOK = 5_000


class PurgedKey(NamedTuple):
    """Up to this ref key, no cell of the column is ever stored again. No column name: of the whole row."""

    row_key: bytes
    column_name: bytes
    ref_key: int


def whole_row(row_key: bytes) -> PurgedKey:
    """The key that bars all that a row has and may get."""
    return PurgedKey(row_key, b"", REF_KEY_MAX)


class KeptKey(NamedTuple):
    """A key as a server has it, and whether the lines of what it bars are stripped there."""

    key: PurgedKey
    is_erased: bool


class RowVersions(NamedTuple):
    """Cells of a row, and what its shard said of itself after that."""

    state: ShardState
    cells: list[StoredCell]


class Superseded(NamedTuple):
    """Cells with a later version in their column, among the added ids up to one."""

    state: ShardState
    cells: list[StoredCell]
    reached: int


class Unerased(NamedTuple):
    """Keys of columns with bodies in audit lines, at an epoch of the shard, and the last line there was by then."""

    keys: list[PurgedKey]
    epoch: int
    last_line: int


class RowTraces(NamedTuple):
    """What a server had of rows beside their shard."""

    waiting: int
    conflicts: int
    index_errors: int


class Purging(Protocol):
    """The verbs of one server."""

    def is_known(self, deadline: Deadline) -> bool:
        """Whether each process that puts here knows by now that this server may have purged keys."""
        ...

    def keep(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline) -> None:
        """Record keys, under the shard's counter row: no put stores one of them from then on. `StaleEpoch`."""
        ...

    def among(self, shard: int, keys: Sequence[Key], deadline: Deadline) -> dict[Key, int]:
        """Return those of these keys that are purged, each with the ref key up to which its column is."""
        ...

    def kept(self, shard: int, after: PurgedKey | None, limit: int, deadline: Deadline) -> list[KeptKey]:
        """Return keys behind one, by row key and column name; None: from the first on."""
        ...

    def versions(self, shard: int, row_key: bytes, limit: int, deadline: Deadline) -> RowVersions:
        """Return cells of a row, of all columns and versions."""
        ...

    def superseded(
        self, shard: int, columns: Sequence[bytes], after: int, last: int, limit: int, deadline: Deadline
    ) -> Superseded:
        """Return superseded cells of these columns behind one added id, up to another, and how far this look came."""
        ...

    def whole_rows(self, after: tuple[int, bytes], limit: int, deadline: Deadline) -> list[tuple[int, bytes]]:
        """Return shard and row key of rows that were purged as a whole, in order, behind one of them."""
        ...

    def unerased(self, shard: int, limit: int, deadline: Deadline) -> Unerased:
        """Return keys of columns whose lines are not stripped yet: their purge is under way, or was killed."""
        ...

    def erase(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline, last_line: int | None = None) -> None:
        """Strip the audit lines of purged cells of their bodies: all, or those up to one.

        It is noted with the keys whose lines have no body any more. One whose cell is deleted later loses that note.
        """
        ...

    def forget(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        """Delete what waits here of rows, whichever shard it is for, and what stood in conflict. Safe to repeat."""
        ...

    def forget_in_copies(self, rows: Mapping[int, Sequence[bytes]], deadline: Deadline) -> int:
        """Delete these rows of shards from copies that moves have left here; return how many cells they had."""
        ...

    def traces(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        """Return what there is of it."""
        ...
