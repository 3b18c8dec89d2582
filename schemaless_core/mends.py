"""`Mends`: cells as their bytes stand on the servers, and the changes that repair may make to them.

Reads here decode nothing, so that a cell whose bytes are no JSON can be seen. The caller decides what is right.
Here it is made so, once, with a line in the audit table, and the entries of the row are made right after it.
"""

from __future__ import annotations

import logging
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from schemaless_core import metrics
from schemaless_core.calls.children_reads import Verb, Wanted, find_children
from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import ChildKey, Children
from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.cell.sharding import shard_of, shard_of_bytes
from schemaless_core.cell.standing import Gate, ShardHead, ShardState, Standing
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.control.audit import who_am_i
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node, Sighting
from schemaless_core.engine.mending import IDS_PER_LOOK, BodyChange, Filled, Lack, Mended, MendLine, MendNote
from schemaless_core.errors import InvalidCell, SchemaMissing
from schemaless_core.failpoints import reach
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.indexes import IndexParts
from schemaless_core.indexes.rebuilding import Rebuilding
from schemaless_core.indexes.rows import AS_COPIER
from schemaless_core.servers.routing import Router

logger = logging.getLogger(__name__)

READ_SECONDS = 20.0
WRITE_SECONDS = 10.0
INDEX_SECONDS = 20.0
#: Changes of one transaction, whose shard's writers wait for it: fewer than a put's, since each writes a line, too.
CELLS_PER_WRITE = 200
#: Of their bodies, unless one alone has more.
BYTES_PER_WRITE = 2**20
#: Versions of a shard column whose values may have left entries.
VERSIONS_MAX = 1000


T = TypeVar("T")
Look = Callable[[Node, Deadline], Sighting]
Write = Callable[[Node, Gate, Deadline], T]


class _Holes(NamedTuple):
    """A look at a part of a log, in the shape the router wants."""

    head: ShardHead
    ids: list[int]

    @property
    def state(self) -> ShardState:
        return self.head.state


class _Former(NamedTuple):
    """The same of bodies that a column had."""

    state: ShardState
    bodies: list[bytes]


class RawCell(NamedTuple):
    """A cell as it is stored: its bytes may be no canonical JSON, or no JSON at all."""

    stored: StoredCell

    @property
    def key(self) -> CellKey:
        _added_id, row_key, column_name, ref_key, _body, _created_at = self.stored
        return CellKey(UUID(bytes=row_key), column_name.decode(), ref_key)

    @property
    def body(self) -> bytes:
        return self.stored.body

    @property
    def canonical(self) -> bytes | None:
        """The bytes that a put of its body stores; None: its bytes are no JSON, or none that a cell may have."""
        try:
            return canonical_bytes(from_canonical(self.body))
        except (msgspec.MsgspecError, InvalidCell, RecursionError):
            return None

    @property
    def is_canonical(self) -> bool:
        """Whether its bytes are those that a put of its body stores."""
        return self.canonical == self.body


class Mends:
    """The cells of one datastore, for repair. A repair of the mirror is a copier; one of the authority is an owner."""

    def __init__(self, router: Router, shards: int, standing: Standing, parts: IndexParts, job: str = "") -> None:
        self._router = router
        self._shards = shards
        self._standing = standing
        self._parts = parts
        self._note = MendNote(job, who_am_i(), socket.gethostname()[:128])

    def of_job(self, job: str) -> Mends:
        """The same, on behalf of a job."""
        return Mends(self._router, self._shards, self._standing, self._parts, job)

    # What stands there, undecoded.

    def latest(self, keys: Sequence[ChildKey], children: Children) -> list[RawCell | None]:
        """The latest cells of these children."""
        deadline = Deadline(READ_SECONDS)

        def ask(verb: Verb, wanted: Wanted) -> list[StoredCell]:
            answers = self._router.read_many(
                wanted, lambda node, part: verb(node, part, deadline), AS_COPIER, "primary_only", deadline
            )
            return [cell for sighting in answers.values() for cell in sighting.cells]

        found = find_children(keys, children, self._shards, ask)
        return [None if cell is None else RawCell(cell) for cell in found]

    def find(self, key: CellKey) -> RawCell | None:
        """The cell under a key."""
        shard, stored = shard_of(key.row_key, self._shards), (key.row_key.bytes, key.column_name.encode(), key.ref_key)
        return self._first(shard, lambda node, deadline: node.find(shard, *stored, deadline))

    def find_all(self, keys: Sequence[CellKey]) -> list[RawCell | None]:
        """The cells under keys, in order."""
        wanted = defaultdict[int, dict[tuple[bytes, bytes, int], None]](dict)
        for key in keys:
            wanted[self._shard_of(key.row_key)][_stored_key(key)] = None
        deadline = Deadline(READ_SECONDS)
        answers = self._router.read_many(
            {shard: list(part) for shard, part in wanted.items()},
            lambda node, part: node.find_many(part, deadline),
            AS_COPIER,
            "primary_only",
            deadline,
        )
        found = {cell[1:4]: RawCell(cell) for sighting in answers.values() for cell in sighting.cells}
        return [found.get(_stored_key(key)) for key in keys]

    def highest(self, column: ColumnKey, before: int) -> RawCell | None:
        """The cell with the highest ref key below one."""
        shard, name = shard_of(column.row_key, self._shards), column.column_name.encode()
        row_key = column.row_key.bytes
        return self._first(shard, lambda node, deadline: node.history(shard, row_key, name, before, 1, deadline))

    def holes(self, shard: int, limit: int = 1000) -> list[int]:
        """Added ids of a shard's log at which nothing stands, though readers wait for it."""
        found: list[int] = []
        after = 0
        while len(found) < limit:
            deadline = Deadline(READ_SECONDS)

            def look(node: Node) -> _Holes:
                head = node.heads([shard], deadline)[shard]  # noqa: B023  # called at once
                return _Holes(head, node.mending.holes(shard, after, limit - len(found), deadline))  # noqa: B023  # called at once

            seen = self._router.read(shard, look, AS_COPIER, "primary_only", deadline)
            found += seen.ids
            after = found[-1] if seen.ids and len(found) >= limit else after + IDS_PER_LOOK
            if after >= seen.head.head:
                break
        return found

    def lines(self, job: str | None = None, limit: int = 1000) -> list[MendLine]:
        """What was done to cells, of one job or of all; the newest of each server first."""
        deadline, found = Deadline(READ_SECONDS), list[MendLine]()
        for cluster in self._router.holders(deadline):
            try:
                found += cluster.write(lambda node: node.mending.lines(job, limit, deadline))
            except SchemaMissing:
                continue  # of an earlier version: nothing was ever mended there
        return found

    # What may be done to it.

    def put_beside(self, cell: Cell, hole: int) -> Filled | None:
        """Put a cell that is missing, and let readers pass a hole of its log; None: there is none any more."""
        return self.put_all_beside([(cell, hole)])[0]

    def put_all_beside(self, cells: Sequence[tuple[Cell, int]]) -> list[Filled | None]:
        """The same of many, each key and each hole once; one answer for each, in order."""
        return self.put_encoded_beside([(_new(cell), hole) for cell, hole in cells])

    def put_encoded_beside(self, cells: Sequence[tuple[EncodedCell, int]]) -> list[Filled | None]:
        """The same of cells as they are stored."""
        lacks = [(shard_of_bytes(cell.row_key, self._shards), Lack(cell, hole)) for cell, hole in cells]
        answers: list[Filled | None] = [None] * len(lacks)
        for shard, numbers in _portions([(shard, len(lack.cell.body)) for shard, lack in lacks]):
            part = [lacks[number][1] for number in numbers]
            reach("mends.before_put")
            filled = self._write(
                shard,
                lambda node, gate, end: node.mending.put_beside(gate, part, self._note, end),  # noqa: B023  # called at once
            )
            for number, each in zip(numbers, filled, strict=True):
                answers[number] = each
            self._done(Mended.PUT, shard, [each.cell.added_id for each in filled if each and each.is_created])
            self._rebuild_rows([cells[number][0][:2] for number in numbers if answers[number] is not None])
        return answers

    def mend(self, raw: RawCell, body: bytes) -> bool:
        """Give a cell other bytes; False: it is not there like this any more."""
        return self.mend_all([(raw, body)])[0]

    def mend_all(self, changes: Sequence[tuple[RawCell, bytes]]) -> list[bool]:
        """The same of many, each cell once."""
        return self._change(Mended.MEND, [BodyChange(raw.stored, body) for raw, body in changes])

    def purge(self, raw: RawCell) -> bool:
        """Delete a cell; readers of the log pass its added id. False: it is not there like this any more."""
        return self.purge_all([raw])[0]

    def purge_all(self, cells: Sequence[RawCell]) -> list[bool]:
        """The same of many, each cell once."""
        return self._change(Mended.PURGE, [BodyChange(raw.stored, None) for raw in cells])

    def _change(self, action: Mended, changes: Sequence[BodyChange]) -> list[bool]:
        sizes = [
            (shard_of_bytes(stored.row_key, self._shards), len(stored.body) + len(body or b""))
            for stored, body in changes
        ]
        answers = [False] * len(changes)
        for shard, numbers in _portions(sizes):
            part = [changes[number] for number in numbers]
            reach(f"mends.before_{action.value}")
            done = self._write(
                shard,
                lambda node, gate, end: node.mending.change(gate, part, self._note, end),  # noqa: B023  # called at once
            )
            for number, is_done in zip(numbers, done, strict=True):
                answers[number] = is_done
            self._done(
                action, shard, [each.stored.added_id for each, is_done in zip(part, done, strict=True) if is_done]
            )
            self._rebuild_rows([each.stored[1:3] for each in part])
        return answers

    def close_hole(self, shard: int, hole: int) -> bool:
        """Let readers of a log pass a hole whose cell cannot be known. False: it is no hole any more."""
        reach("mends.before_close")
        is_done = self._write(shard, lambda node, gate, end: node.mending.close_hole(gate, hole, self._note, end))
        if is_done:
            self._done(Mended.CLOSE, shard, [hole])
        return is_done

    @property
    def indexed_columns(self) -> set[str]:
        """The columns whose cells have entries."""
        return {name for version in self._parts.catalogue.kept() for name in version.definition.column_names}

    def _rebuild_rows(self, keys: Sequence[tuple[bytes, bytes]]) -> None:
        indexed, columns = self.indexed_columns, defaultdict[bytes, set[str]](set)
        for row_key, column_name in keys:
            if (name := column_name.decode()) in indexed:
                columns[row_key].add(name)
        for row_key, names in columns.items():
            self.rebuild(UUID(bytes=row_key), names)

    def rebuild(self, row_key: UUID, columns: Collection[str]) -> None:
        """Make the entries of a row right, after cells of these columns changed. Safe to repeat, and to do for nothing.

        Left undone while another cell of the row is unreadable: the mend of that cell does it.
        """
        reach("mends.before_rebuild")
        try:
            for version in self._parts.catalogue.kept():
                if set(columns) & set(version.definition.column_names):
                    values = self.shard_values(version, row_key)
                    rebuilding = Rebuilding(version, self._router, self._shards, self._parts.writer)
                    rebuilding.rebuild(row_key.bytes, values, Deadline(INDEX_SECONDS))
        except msgspec.MsgspecError:
            extra = {"event": "cells.index_left", "row_key": str(row_key)}
            logger.warning("entries cannot be made of a row with an unreadable cell", extra=extra)

    def purged_of(self, row_keys: Collection[UUID]) -> list[CellKey]:
        """The keys of these rows' cells that were purged, and may have come again since; each once."""
        deadline, wanted, found = Deadline(READ_SECONDS), [key.bytes for key in row_keys], dict[CellKey, None]()
        for cluster in self._router.holders(deadline) if wanted else []:
            try:
                keys = cluster.write(lambda node: node.mending.purged(wanted, deadline))
            except SchemaMissing:
                continue
            found |= dict.fromkeys(CellKey(UUID(bytes=row), name.decode(), ref_key) for row, name, ref_key in keys)
        return list(found)

    def touched(self, row_keys: Collection[UUID]) -> set[UUID]:
        """Those of the rows whose cells repair ever changed or deleted: a kill may have come before their entries."""
        deadline, wanted, found = Deadline(READ_SECONDS), [key.bytes for key in row_keys], set[bytes]()
        for cluster in self._router.holders(deadline):
            try:
                found |= cluster.write(lambda node: node.mending.touched(wanted, deadline))
            except SchemaMissing:
                continue
        return {UUID(bytes=key) for key in found}

    def shard_values(self, version: IndexVersion, row_key: UUID) -> set[Scalar]:
        """The shard values that a row has or had in an index, those of bytes that repair took away included."""
        shard, name = shard_of(row_key, self._shards), version.shard_column.encode()
        deadline = Deadline(READ_SECONDS)

        def look(node: Node) -> _Former:
            lines = node.mending.of_row(shard, row_key.bytes, deadline)
            former = [line.old_body for line in lines if line.column_name == name and line.old_body is not None]
            before: int | None = None
            while True:
                sighting = node.history(shard, row_key.bytes, name, before, VERSIONS_MAX, deadline)
                former += [cell.body for cell in sighting.cells]
                if not sighting.is_cut:
                    return _Former(sighting.state, former)
                before = sighting.cells[-1].ref_key

        bodies = self._router.read(shard, look, AS_COPIER, "primary_only", deadline).bodies
        cells = (_readable(row_key, version.shard_column, body) for body in bodies)
        return {value for cell in cells if (value := version.shard_value_of(cell)) is not None}

    def _first(self, shard: int, look: Look) -> RawCell | None:
        deadline = Deadline(READ_SECONDS)
        sighting = self._router.read(shard, lambda node: look(node, deadline), AS_COPIER, "primary_only", deadline)
        return RawCell(sighting.cells[0]) if sighting.cells else None

    def _write(self, shard: int, verb: Write[T]) -> T:
        deadline = Deadline(WRITE_SECONDS)
        answer, _epoch = self._router.write(
            shard, lambda node, gate: verb(node, gate, deadline), self._standing, deadline
        )
        return answer

    def _done(self, action: Mended, shard: int, added_ids: Sequence[int]) -> None:
        if not added_ids:
            return
        reach("mends.done")
        metrics.cells_mended(action.value, len(added_ids))
        extra = {
            "event": "cells.mended",
            "action": action.value,
            "shard": shard,
            "added_ids": list(added_ids),
            "job": self._note.job,
        }
        logger.warning("repair changed a shard's cells", extra=extra)

    def _shard_of(self, row_key: UUID) -> int:
        return shard_of(row_key, self._shards)


def _portions(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """What is written together: from the shard and the bytes of each its shard, and their positions."""
    full: list[tuple[int, list[int]]] = []
    open_: dict[int, tuple[list[int], int]] = {}
    for number, (shard, size) in enumerate(sizes):
        numbers, filled = open_.get(shard, ([], 0))
        if numbers and (len(numbers) == CELLS_PER_WRITE or filled + size > BYTES_PER_WRITE):
            full.append((shard, numbers))
            numbers, filled = [], 0
        open_[shard] = [*numbers, number], filled + size
    return [*full, *((shard, numbers) for shard, (numbers, _filled) in open_.items())]


def _new(cell: Cell) -> NewCell:
    return NewCell(*_stored_key(cell.key), canonical_bytes(cell.body))


def _stored_key(key: CellKey) -> tuple[bytes, bytes, int]:
    return key.row_key.bytes, key.column_name.encode(), key.ref_key


def _readable(row_key: UUID, column_name: str, body: bytes) -> Cell | None:
    """A body as a cell of its row; None: its bytes are no JSON."""
    try:
        return Cell(row_key, column_name, 0, from_canonical(body))
    except msgspec.MsgspecError:
        return None
