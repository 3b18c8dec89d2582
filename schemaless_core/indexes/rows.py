"""`Rows`: reads what index entries are made of, many rows at once; from the primaries only, shard by shard.

Never from a replica: entries are made from cells no older than the one that is processed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from schemaless_core.calls.lookups import KEYS_PER_CALL, to_cell
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, encoded_name
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Kind, ShardHead, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node, Sighting
from schemaless_core.errors import InvalidCell, SchemalessError, first_error, missing_shard
from schemaless_core.servers.routing import Router

W = TypeVar("W")

#: Entries are read and written as a copier: they are derived from cells, whichever backend is the authority.
AS_COPIER = Standing(Kind.COPIER)

#: Cells without another version beside them, by row and column.
AloneCells = Mapping[tuple[bytes, str], Cell]


class RowsRead(NamedTuple):
    """The cells that were found, by row and column, and the errors of shards that could not be read."""

    cells: Mapping[bytes, Mapping[str, Cell]]
    errors: Mapping[int, SchemalessError]

    def of(self, row_key: bytes) -> Mapping[str, Cell]:
        return self.cells.get(row_key, {})

    def beside(self, alone: AloneCells) -> RowsRead:
        """The same with cells that are known to be the latest of their columns."""
        if not alone:
            return self
        cells: defaultdict[bytes, dict[str, Cell]] = defaultdict(dict)
        cells.update((row_key, dict(found)) for row_key, found in self.cells.items())
        for (row_key, name), cell in alone.items():
            cells[row_key][name] = cell
        return RowsRead(cells, self.errors)

    def raise_first(self) -> None:
        """Raise the first error, for callers that cannot use a partial result."""
        if (error := first_error(self.errors.values())) is not None:
            raise error


class Rows:
    """The rows of a datastore, as indexes see them."""

    def __init__(self, router: Router, shards: int, standing: Standing = AS_COPIER) -> None:
        self._router = router
        self._shards = shards
        self._standing = standing

    def latest(self, row_keys: Collection[bytes], columns: Sequence[str], deadline: Deadline) -> RowsRead:
        """The latest cells of these columns of rows."""
        return self.latest_of([(key, name) for key in dict.fromkeys(row_keys) for name in columns], deadline)

    def latest_of(self, columns: Iterable[tuple[bytes, str]], deadline: Deadline) -> RowsRead:
        """The latest cells of columns, each of a row of its own."""
        wanted = [(row_key, (row_key, encoded_name(name))) for row_key, name in columns]
        return self._read(wanted, lambda node, part: node.find_latest_many(part, deadline), deadline)

    def whole(self, row_keys: Collection[bytes], deadline: Deadline) -> RowsRead:
        """The latest cells of all columns of rows."""
        wanted = [(row_key, row_key) for row_key in dict.fromkeys(row_keys)]
        return self._read(wanted, lambda node, part: node.rows(part, deadline), deadline)

    def before(self, cells: Iterable[Cell], deadline: Deadline) -> tuple[list[Cell], dict[int, SchemalessError]]:
        """The version before each of these cells, as far as there is one; and the errors of shards."""
        keys = dict.fromkeys((cell.row_key.bytes, cell.column_name.encode(), cell.ref_key) for cell in cells)
        wanted = [(key[0], key) for key in keys]
        return self._cells(wanted, lambda node, part: node.find_before_many(part, deadline), deadline)

    def alone(self, keyed: Iterable[tuple[bytes, Cell]], deadline: Deadline) -> AloneCells:
        """Those of these cells that are all that their columns hold, as their shards say now.

        None of a shard that does not answer: the reads that follow say what is wrong with it.
        """
        asked: dict[tuple[bytes, str], Cell] = {}
        parts: defaultdict[int, list[NewCell]] = defaultdict(list)
        for row_key, cell in keyed:
            column = (row_key, cell.column_name)
            if column in asked:
                continue  # another version of it is asked about: neither is alone
            asked[column] = cell
            new = NewCell(row_key, encoded_name(cell.column_name), cell.ref_key, _canonical(cell))
            parts[shard_of_bytes(row_key, self._shards)].append(new)
        answers = self._router.read_each(
            parts, lambda node, part: node.find_not_alone(part, deadline), self._standing, "primary_only", deadline
        )
        for shard, answer in answers.items():
            keys = [cell[:3] for cell in parts[shard]] if isinstance(answer, SchemalessError) else answer.keys
            for row_key, name, _ref_key in keys:
                del asked[row_key, name.decode()]
        return asked

    def _read(
        self,
        wanted: Sequence[tuple[bytes, W]],
        verb: Callable[[Node, Mapping[int, list[W]]], dict[int, Sighting]],
        deadline: Deadline,
    ) -> RowsRead:
        found: defaultdict[bytes, dict[str, Cell]] = defaultdict(dict)
        cells, errors = self._cells(wanted, verb, deadline)
        for cell in cells:
            found[cell.row_key.bytes][cell.column_name] = cell
        return RowsRead(found, errors)

    def _cells(
        self,
        wanted: Sequence[tuple[bytes, W]],
        verb: Callable[[Node, Mapping[int, list[W]]], dict[int, Sighting]],
        deadline: Deadline,
    ) -> tuple[list[Cell], dict[int, SchemalessError]]:
        """Ask in bounded portions, each of all servers at once; a shard that failed once is not asked again."""
        cells: list[Cell] = []
        errors: dict[int, SchemalessError] = {}
        for first in range(0, len(wanted), KEYS_PER_CALL):
            parts: defaultdict[int, list[W]] = defaultdict(list)
            for row_key, key in wanted[first : first + KEYS_PER_CALL]:
                if (shard := shard_of_bytes(row_key, self._shards)) not in errors:
                    parts[shard].append(key)
            answers = self._router.read_each(parts, verb, self._standing, "primary_only", deadline)
            for shard, answer in answers.items():
                if isinstance(answer, SchemalessError):
                    errors[shard] = answer
                else:
                    cells += map(to_cell, answer.cells)
        return cells, errors


def _canonical(cell: Cell) -> bytes:
    """What a server has of a cell that was read; of damaged bytes nothing that equals them."""
    try:
        return canonical_bytes(cell.body)
    except InvalidCell:
        return b""


def heads_of(node: Node, shards: Collection[int], deadline: Deadline) -> dict[int, ShardHead]:
    """The heads of these shards, all of which must be there; with them what the shards say of themselves."""
    heads = node.heads(list(shards), deadline)
    for shard in shards:
        if shard not in heads:
            raise missing_shard(shard)
    return heads
