"""Reads by key: cells, latest cells, rows, versions. Routes, and turns what is stored into cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import msgspec

from schemaless_core.calls.children_reads import Verb, Wanted, find_children
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_column_name, check_key, check_row_key
from schemaless_core.cell.children import ChildKey, Children
from schemaless_core.cell.page_bytes import bound, halves
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.cell.requests import check_limit, listed_columns, listed_keys, listed_names
from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.standing import Standing
from schemaless_core.cell.stored import StoredCell
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node, Sighting
from schemaless_core.errors import SchemalessError, Unavailable, first_error
from schemaless_core.habits import Habits
from schemaless_core.servers.routing import Router

K = TypeVar("K", bound=tuple[object, ...])

#: Keys in one statement.
KEYS_PER_CALL = 1000
#: Cells whose bodies are of no use to the caller, and may be as large as they like, in one statement.
BODIES_PER_CALL = 20
#: Rows with all their columns in one statement.
ROWS_PER_CALL = 200

_TOMBSTONE = canonical_bytes(None)


class Lookups:
    """The reading half of a datastore, by key."""

    def __init__(self, router: Router, config: DatastoreConfig, habits: Habits, standing: Standing) -> None:
        self._router = router
        self._config = config
        self._habits = habits
        self._standing = standing

    def cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        check_key(row_key, column_name, ref_key)
        key, name, deadline = row_key.bytes, column_name.encode(), self._deadline()
        shard = shard_of(row_key, self._config.shards)
        sighting = self._read(shard, lambda node: node.find(shard, key, name, ref_key, deadline), deadline)
        return _first(row_key, column_name, sighting)

    def latest(self, row_key: UUID, column_name: str) -> Cell | None:
        check_row_key(row_key)
        check_column_name(column_name)
        key, name, deadline = row_key.bytes, column_name.encode(), self._deadline()
        shard = shard_of(row_key, self._config.shards)
        sighting = self._read(shard, lambda node: node.find_latest(shard, key, name, deadline), deadline)
        return _first(row_key, column_name, sighting)

    def cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        keys = listed_keys(keys)
        stored = _stored_keys(keys)
        found = self._find_many(keys, stored)
        return [None if (cell := found.get(key)) is None else to_cell(cell) for key in stored]

    def cells_known(self, keys: Sequence[CellKey]) -> tuple[dict[CellKey, Cell], dict[int, Unavailable]]:
        """Return those of these cells that are there, and why shards say nothing that do not answer."""
        stored, deadline = _stored_keys(keys), self._deadline()
        found, silent = dict[CellKey, Cell](), dict[int, Unavailable]()
        for wanted in self._portions(keys, stored):
            answers = self._router.read_each(
                wanted,
                lambda node, part: node.find_many(part, deadline),
                self._standing,
                self._habits.read,
                deadline,
            )
            for shard, answer in answers.items():
                if isinstance(answer, Unavailable):
                    silent[shard] = answer
                elif isinstance(answer, SchemalessError):
                    raise first_error(answers.values()) or answer
                else:
                    found.update((cell.key, cell) for cell in map(to_cell, answer.cells))
        return found, silent

    def tombstones(self, keys: Sequence[CellKey]) -> set[CellKey]:
        """Return which of these cells are tombstones; of many, some at a time. One whose bytes are torn is none."""
        deleted: set[CellKey] = set()
        for first in range(0, len(keys), BODIES_PER_CALL):
            part = keys[first : first + BODIES_PER_CALL]
            stored = _stored_keys(part)
            found = self._find_many(part, stored)
            bodies = [found[key].body if key in found else None for key in stored]
            deleted.update(key for key, body in zip(part, bodies, strict=True) if body == _TOMBSTONE)
        return deleted

    def latest_cells(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        columns = listed_columns(columns)
        stored = [(row_key.bytes, column_name.encode()) for row_key, column_name in columns]
        deadline = self._deadline()
        found = self._read_many(
            columns,
            stored,
            lambda node, wanted: node.find_latest_many(wanted, deadline),
            lambda cell: cell[1:3],
            deadline,
        )
        return [None if (cell := found.get(key)) is None else to_cell(cell) for key in stored]

    def latest_children(self, keys: Sequence[ChildKey], children: Children) -> list[Cell | None]:
        for row_key, column_name, _child in keys:
            check_row_key(row_key)
            check_column_name(column_name)

        deadline = self._deadline()

        def ask(verb: Verb, wanted: Wanted) -> list[StoredCell]:
            read, habit = self._router.read_many, self._habits.read
            answers = read(wanted, lambda node, part: verb(node, part, deadline), self._standing, habit, deadline)
            return [cell for sighting in answers.values() for cell in sighting.cells]

        found = find_children(keys, children, self._config.shards, ask)
        return [None if cell is None else to_cell(cell) for cell in found]

    def row(self, row_key: UUID, columns: Collection[str] | None) -> dict[str, Cell]:
        check_row_key(row_key)
        wanted = listed_names(columns)
        if wanted is not None and not wanted:
            return {}
        names = None if wanted is None else [name.encode() for name in dict.fromkeys(wanted)]
        shard, deadline = shard_of(row_key, self._config.shards), self._deadline()
        sighting = self._read(shard, lambda node: node.row(shard, row_key.bytes, names, deadline), deadline)
        return {cell.column_name: cell for cell in map(to_cell, sighting.cells)}

    def rows(self, row_keys: Sequence[UUID], columns: Collection[str] | None) -> dict[UUID, dict[str, Cell]]:
        """The latest cells of many rows; a row without any is empty."""
        rows: dict[UUID, dict[str, Cell]] = {row_key: {} for row_key in row_keys}
        if columns is not None:
            wanted = [ColumnKey(row_key, name) for row_key in rows for name in dict.fromkeys(columns)]
            found = [cell for cell in self.latest_cells(wanted) if cell is not None]
        else:
            deadline = self._deadline()
            found = []
            for first in range(0, len(row_keys), ROWS_PER_CALL):
                parts: defaultdict[int, list[bytes]] = defaultdict(list)
                for row_key in row_keys[first : first + ROWS_PER_CALL]:
                    parts[shard_of(row_key, self._config.shards)].append(row_key.bytes)
                answers = self._router.read_many(
                    parts, lambda node, part: node.rows(part, deadline), self._standing, self._habits.read, deadline
                )
                found += [to_cell(stored) for sighting in answers.values() for stored in sighting.cells]
        for cell in found:
            rows[cell.row_key][cell.column_name] = cell
        return rows

    def history(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[Cell]:
        return [to_cell(stored) for stored in self.history_page(row_key, column_name, before, limit).cells]

    def newest(self, columns: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:
        """The newest cells of each column, at most so many of each: of the first columns, that a page has room for."""
        columns, deadline, room = listed_columns(columns), self._deadline(), bound()
        check_limit(limit)
        answers: list[list[Cell]] = []
        at_once = max(1, KEYS_PER_CALL // limit)
        while len(answers) < len(columns) and room > 0:
            some = columns[len(answers) : len(answers) + at_once]
            found: defaultdict[tuple[bytes, bytes], list[Cell]] = defaultdict(list)
            for stored in self._newest(some, limit, deadline):
                found[stored.row_key, stored.column_name].append(to_cell(stored))
                room -= len(stored.body)
            answers += [
                found.get((key.row_key.bytes, key.column_name.encode()), []) for key in map(ColumnKey._make, some)
            ]
        return answers

    def _newest(self, columns: Sequence[ColumnKey], limit: int, deadline: Deadline) -> Iterator[StoredCell]:
        """Those that are more than a page are asked for by halves, and of one column page by page."""
        wanted: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        for row_key, column_name in dict.fromkeys(columns):
            wanted[shard_of(row_key, self._config.shards)].append((row_key.bytes, column_name.encode()))
        answers = self._router.read_many(
            wanted,
            lambda node, part: node.find_newest_many(part, limit, deadline),
            self._standing,
            self._habits.read,
            deadline,
        )
        if not any(sighting.is_cut for sighting in answers.values()):
            yield from (stored for sighting in answers.values() for stored in sighting.cells)
        elif len(columns) > 1:
            for half in halves(columns):
                yield from self._newest(half, limit, deadline)
        else:
            yield from self._pages(*columns[0], limit)

    def _pages(self, row_key: UUID, column_name: str, limit: int) -> Iterator[StoredCell]:
        before, left = None, limit
        while left:
            page = self.history_page(row_key, column_name, before, left)
            yield from page.cells
            if not page.is_cut:
                return
            before, left = page.cells[-1].ref_key, left - len(page.cells)

    def ref_keys(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[int]:
        """Ref keys of a column, newest first; what their cells hold is not looked at."""
        found: list[int] = []
        while True:
            page = self.history_page(row_key, column_name, before, limit - len(found))
            found += [stored.ref_key for stored in page.cells]
            if not page.is_cut or len(found) == limit:
                return found
            before = found[-1]

    def history_page(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> Sighting:
        """The same as they are stored, and whether the page was cut."""
        check_key(row_key, column_name, 0 if before is None else before)
        check_limit(limit)
        key, name, deadline = row_key.bytes, column_name.encode(), self._deadline()
        shard = shard_of(row_key, self._config.shards)
        return self._read(shard, lambda node: node.history(shard, key, name, before, limit, deadline), deadline)

    def _find_many(
        self, keys: Sequence[CellKey], stored: Sequence[tuple[bytes, bytes, int]]
    ) -> dict[tuple[object, ...], StoredCell]:
        deadline = self._deadline()
        return self._read_many(
            keys, stored, lambda node, wanted: node.find_many(wanted, deadline), lambda cell: cell[1:4], deadline
        )

    def _read(self, shard: int, verb: Callable[[Node], Sighting], deadline: Deadline) -> Sighting:
        return self._router.read(shard, verb, self._standing, self._habits.read, deadline)

    def _read_many(
        self,
        keys: Sequence[CellKey] | Sequence[ColumnKey],
        stored: Sequence[K],
        verb: Callable[[Node, Mapping[int, list[K]]], dict[int, Sighting]],
        key_of: Callable[[StoredCell], tuple[object, ...]],
        deadline: Deadline,
    ) -> dict[tuple[object, ...], StoredCell]:
        """Ask for keys in bounded portions, each over all shards at once; return what was found, by stored key."""
        found: dict[tuple[object, ...], StoredCell] = {}
        for wanted in self._portions(keys, stored):
            answers = self._router.read_many(wanted, verb, self._standing, self._habits.read, deadline)
            for sighting in answers.values():
                found.update((key_of(cell), cell) for cell in sighting.cells)
        return found

    def _portions(
        self, keys: Sequence[CellKey] | Sequence[ColumnKey], stored: Sequence[K]
    ) -> Iterator[dict[int, list[K]]]:
        for first in range(0, len(keys), KEYS_PER_CALL):
            wanted: defaultdict[int, list[K]] = defaultdict(list)
            for n in range(first, min(first + KEYS_PER_CALL, len(keys))):
                wanted[shard_of(keys[n][0], self._config.shards)].append(stored[n])
            yield {shard: list(dict.fromkeys(part)) for shard, part in wanted.items()}

    def within(self, seconds: float) -> Lookups:
        """The same reads for a call that has so long."""
        return Lookups(self._router, self._config, replace(self._habits, deadline=seconds), self._standing)

    def _deadline(self) -> Deadline:
        seconds = self._config.deadlines.read_seconds if self._habits.deadline is None else self._habits.deadline
        return Deadline(seconds)


def _stored_keys(keys: Sequence[CellKey]) -> list[tuple[bytes, bytes, int]]:
    return [(row_key.bytes, column_name.encode(), ref_key) for row_key, column_name, ref_key in keys]


def to_cell(stored: StoredCell) -> Cell:
    """A stored cell as callers see it."""
    added_id, row_key, column_name, ref_key, body, created_at = stored
    return Cell(UUID(bytes=row_key), column_name.decode(), ref_key, from_canonical(body), added_id, created_at)


def conflict(cell: Cell, found: StoredCell | None, *, expected: int | None = None) -> CellConflict:
    """A cell that cannot be put because of another that stands there, which may be damaged."""
    try:
        return CellConflict(cell, None if found is None else to_cell(found), expected=expected)
    except msgspec.MsgspecError:
        return CellConflict(cell, None, is_damaged=True)


def _first(row_key: UUID, column_name: str, sighting: Sighting) -> Cell | None:
    """The cell that was found, under the caller's own key."""
    if not sighting.cells:
        return None
    added_id, _row_key, _column_name, ref_key, body, created_at = sighting.cells[0]
    return Cell(row_key, column_name, ref_key, from_canonical(body), added_id, created_at)
