"""`LegacyReads`: cells by key, latest cells, rows, versions. One statement and one round trip each, whatever the
columns.

Of an owner's they count when they are returned, since the statement reads the gate as well. Of versions they do not:
the caller has to look at the gate afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_column_name, check_key, check_row_key
from schemaless_core.cell.children import ChildKey
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.requests import check_limit, listed_columns, listed_keys, listed_names
from schemaless_core.deadline import Deadline
from schemaless_core.habits import Habits
from tripstore.backends.postgres.cells.fence import NO_ROLE, LegacyStanding
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import FIELDS, ColumnRows, Found, LegacyIds, OwnCells, text
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared

T = TypeVar("T")
A = TypeVar("A")

#: Keys in one statement.
KEYS_PER_CALL = 1000
#: Cells of a page that are read together: how large they are is known afterwards.
CELLS_PER_PORTION = 25
#: Rows with all their columns in one statement.
ROWS_PER_CALL = 200

_FREE = OwnCells("$2")
_FREE_LATEST = Prepared("uuid, text", _FREE.latest("$1"))
_FREE_AT = Prepared("uuid, text, bigint", _FREE.at("$1", "$3"))
_FREE_BELOW = Prepared("uuid, text, bigint, bigint", _FREE.below("$1", "$3", "$4"))


class LegacyReads:
    """The reading half of the legacy store, by key."""

    def __init__(
        self,
        database: LegacyDatabase,
        places: ColumnPlaces,
        codecs: Codecs,
        habits: Habits,
        standing: LegacyStanding = NO_ROLE,
    ) -> None:
        self._database = database
        self._standing = standing
        self._places = places
        self._bodies = Bodies(codecs)
        self._habits = habits

    def cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        check_key(row_key, column_name, ref_key)
        return self._run(lambda connection: self.find(connection, row_key, column_name, ref_key))

    def find(self, connection: LegacyConnection, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        """The cell under a key; `HistoryTruncated` when it may have been there and that is not known any more."""
        found = self._at(connection, row_key, column_name, ref_key)
        if found is None and column_name in self._places.histories:
            found = self._looked_after(connection, lambda: self._sought(connection, row_key, column_name, ref_key))
        return None if found is None else self._cell(connection, row_key, column_name, found)

    def latest(self, row_key: UUID, column_name: str) -> Cell | None:
        check_row_key(row_key)
        check_column_name(column_name)
        return self._run(lambda connection: self.find_latest(connection, row_key, column_name))

    def find_latest(self, connection: LegacyConnection, row_key: UUID, column_name: str) -> Cell | None:
        rows: list[Any] = []
        if column_name in self._places.current:
            rows = self._standing.execute(connection, self._places.current[column_name], f"'{row_key}'")
        statement = self._places.latest.get(column_name)
        if statement is not None:
            rows = rows or self._standing.execute(connection, statement, f"'{row_key}'")
        else:
            rows = self._standing.execute(connection, _FREE_LATEST, f"'{row_key}', {text(column_name)}")
        return self._cell(connection, row_key, column_name, Found(*rows[0])) if rows else None

    def cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        return [_or_raise(each) for each in self.cells_known(keys)]

    def cells_known(self, keys: Sequence[CellKey]) -> list[Cell | HistoryTruncated | None]:
        """The same, with the error of each version that is not known any more in its place."""
        keys = listed_keys(keys)
        found = self._run_portions(keys, self._find_known)
        return [found.get(n) for n in range(len(keys))]

    def cells_there(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        """The cells under keys; None: there is none now. Whether there ever was one costs a question each."""
        found = self._run_portions(keys, self._find_there)
        return [found.get(n) for n in range(len(keys))]

    def latest_cells(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        columns = listed_columns(columns)
        found = self._run_portions(columns, self._find_latest_many)
        return [found.get(n) for n in range(len(columns))]

    def latest_children(self, keys: Sequence[ChildKey]) -> list[Cell | None]:
        for row_key, column_name, _child in keys:
            check_row_key(row_key)
            check_column_name(column_name)
        found = self._run_portions(keys, self._find_latest_children)
        return [found.get(n) for n in range(len(keys))]

    def row(self, row_key: UUID, columns: Collection[str] | None) -> dict[str, Cell]:
        check_row_key(row_key)
        columns = listed_names(columns)
        if columns is not None and not columns:
            return {}

        def look(connection: LegacyConnection) -> dict[str, Cell]:
            if columns is None:
                found = self._standing.execute(connection, self._places.row, f"'{row_key}'")
            else:
                found = self._standing.rows(
                    connection, self._places.of_row(f"'{row_key}'::uuid", list(dict.fromkeys(columns)))
                )
            stored = [StoredRow(row_key, name, Found(*of_column)) for name, *of_column in found]
            return {cell.column_name: cell for cell in self._bodies.cells(connection, stored)}

        return self._run(look)

    def rows(
        self, row_keys: Sequence[UUID], columns: Collection[str] | None, deadline: Deadline | None = None
    ) -> dict[UUID, dict[str, Cell]]:
        """The latest cells of many rows; a row without any is empty."""
        names = None if columns is None else list(dict.fromkeys(columns))
        rows: dict[UUID, dict[str, Cell]] = {row_key: {} for row_key in row_keys}
        keys = list(rows)

        def look(connection: LegacyConnection) -> None:
            for first in range(0, len(keys), ROWS_PER_CALL):
                for cell in self._rows_of(connection, keys[first : first + ROWS_PER_CALL], names):
                    rows[cell.row_key][cell.column_name] = cell

        if keys and names != []:
            self._database.run(look, deadline or self.deadline())
        return rows

    def history(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[Cell]:
        check_key(row_key, column_name, 0 if before is None else before)
        check_limit(limit)

        def look(connection: LegacyConnection) -> list[Cell]:
            return self._versions(connection, row_key, column_name, before, limit)

        return self._run(look)

    def _versions(
        self, connection: LegacyConnection, row_key: UUID, column_name: str, before: int | None, limit: int
    ) -> list[Cell]:
        """A page of a history, read in portions: how large its bodies are is known afterwards."""
        cells: list[Cell] = []
        room = bound()
        while True:
            wanted = min(limit - len(cells), CELLS_PER_PORTION)
            found = self._history(connection, row_key, column_name, before, wanted)
            for cell in self._bodies.cells(connection, [StoredRow(row_key, column_name, each) for each in found]):
                cells.append(cell)
                room -= len(canonical_bytes(cell.body))
                if room <= 0:
                    return cells
            if len(found) < wanted or len(cells) == limit:
                return cells
            before = cells[-1].ref_key

    def newest(self, columns: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:
        """The newest cells of each column that are known here, at most so many of each, newest first.

        Of the first columns, that a page has room for. How large their bodies are is known afterwards: first one is
        read, then as many as would be a quarter of a page if they were like those before.
        """
        check_limit(limit)
        columns, room = listed_columns(columns), bound()
        answers: list[list[Cell]] = []
        at_once = 1
        while len(answers) < len(columns) and room > 0:
            answers += self._newest(columns[len(answers) : len(answers) + at_once], limit)
            room = bound() - sum(len(canonical_bytes(cell.body)) for cells in answers for cell in cells)
            each = max(1, (bound() - room) // len(answers))
            at_once = min(max(1, KEYS_PER_CALL // limit), max(1, bound() // 4 // each))
        return answers

    def _newest(self, columns: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:

        def look(connection: LegacyConnection, wanted: dict[int, ColumnKey]) -> dict[int, list[Cell]]:
            found: defaultdict[int, list[Cell]] = defaultdict(list)
            for n, cell in self._of_columns(connection, wanted, lambda cells: cells.newest("k.row_key", limit)):
                found[n].append(cell)
            return found

        found = self._run_portions(columns, look)
        return [sorted(found.get(n, ()), key=lambda cell: -cell.ref_key) for n in range(len(columns))]

    def ref_keys(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[int]:
        """Ref keys of the cells that are known here, newest first; what they hold is not looked at."""
        check_key(row_key, column_name, 0 if before is None else before)
        check_limit(limit)
        history = self._places.histories.get(column_name)

        def look(connection: LegacyConnection) -> list[int]:
            if history is not None:
                return history.ref_keys(connection, row_key, before, limit)
            return [each.ref_key for each in self._history(connection, row_key, column_name, before, limit)]

        return self._run(look)

    def deadline(self) -> Deadline:
        seconds = self._habits.deadline
        return Deadline(self._database.settings.deadlines.read_seconds if seconds is None else seconds)

    def _run(self, look: Callable[[LegacyConnection], T]) -> T:
        return self._database.run(look, self.deadline())

    def _cell(self, connection: LegacyConnection, row_key: UUID, column_name: str, found: Found) -> Cell:
        return self._bodies.cell(connection, StoredRow(row_key, column_name, found))

    def _at(self, connection: LegacyConnection, row_key: UUID, column_name: str, ref_key: int) -> Found | None:
        statement = self._places.at.get(column_name)
        if statement is not None:
            rows = self._standing.execute(connection, statement, f"'{row_key}', {ref_key}")
        elif column_name == LEGACY_ID:
            latest = self._standing.execute(connection, self._places.latest[LEGACY_ID], f"'{row_key}'")
            rows = [row for row in latest if row[0] == ref_key]
        else:
            rows = self._standing.execute(connection, _FREE_AT, f"'{row_key}', {text(column_name)}, {ref_key}")
        return Found(*rows[0]) if rows else None

    def _looked_after(self, connection: LegacyConnection, part: Callable[[], T]) -> T:
        """Several statements: the gate is looked at when the last one has its snapshot."""
        return self._standing.fenced(lambda: self._standing.look(connection), part)

    def _sought(self, connection: LegacyConnection, row_key: UUID, column_name: str, ref_key: int) -> Found | None:
        """A version that nothing held a moment ago: it never was, was replaced meanwhile, or is not known any more."""
        history = self._places.histories[column_name]
        if history.is_known_missing(connection, row_key, ref_key):
            return None
        found = self._at(connection, row_key, column_name, ref_key)
        if found is None:
            raise history.truncated(row_key, ref_key)
        return found

    def _history(
        self, connection: LegacyConnection, row_key: UUID, column_name: str, before: int | None, limit: int
    ) -> list[Found]:
        history = self._places.histories.get(column_name)
        if history is not None:
            return history.page(connection, row_key, before, limit)
        if column_name == LEGACY_ID:
            found = self._at(connection, row_key, column_name, 0)
            return [] if found is None or (before is not None and before <= 0) else [found]
        asked = "NULL" if before is None else before
        rows = self._standing.execute(connection, _FREE_BELOW, f"'{row_key}', {text(column_name)}, {asked}, {limit}")
        return [Found(*row) for row in rows]

    def _run_portions(
        self,
        keys: Sequence[T],
        look: Callable[[LegacyConnection, dict[int, T]], dict[int, A]],
        at_once: int = KEYS_PER_CALL,
    ) -> dict[int, A]:
        """Ask for keys in bounded portions; return what was found by position."""
        found: dict[int, A] = {}
        deadline = self.deadline()
        for first in range(0, len(keys), at_once):
            portion = dict(enumerate(keys[first : first + at_once], first))
            found |= self._database.run(lambda connection, portion=portion: look(connection, portion), deadline)  # type: ignore[misc]  # mypy knows no default of a lambda
        return found

    def _find_latest_many(self, connection: LegacyConnection, wanted: dict[int, ColumnKey]) -> dict[int, Cell]:
        return dict(self._of_columns(connection, wanted, lambda cells: cells.latest("k.row_key")))

    def _of_columns(
        self,
        connection: LegacyConnection,
        wanted: dict[int, ColumnKey],
        select: Callable[[ColumnRows | LegacyIds | OwnCells], str],
    ) -> Iterable[tuple[int, Cell]]:
        """Cells of columns, each with the number of its column."""
        by_column: defaultdict[str, dict[int, ColumnKey]] = defaultdict(dict)
        for n, key in wanted.items():
            by_column[key[1] if key[1] in self._places.mapped else ""][n] = key
        parts, parameters = _Parts(), list[Any]()
        for name, keys in by_column.items():
            numbers, row_keys = list(keys), [str(key[0]) for key in keys.values()]
            if name:
                parts.add("n, row_key", "%s::int[], %s::uuid[]", select(self._places.mapped[name]))
                parameters += [numbers, row_keys]
            else:
                parts.add("n, row_key, name", "%s::int[], %s::uuid[], %s::text[]", select(OwnCells("k.name")))
                parameters += [numbers, row_keys, [key[1] for key in keys.values()]]
        return self._numbered(
            connection, wanted, self._standing.rows(connection, parts.sql, parameters) if wanted else []
        )

    def _find_latest_children(self, connection: LegacyConnection, wanted: dict[int, ChildKey]) -> dict[int, Cell]:
        known = {name for name, rows in self._places.columns.items() if rows.number}
        plain = {n: key.column for n, key in wanted.items() if key.child is None or key.column_name not in known}
        by_column: defaultdict[str, dict[int, ChildKey]] = defaultdict(dict)
        for n, key in wanted.items():
            if n not in plain:
                by_column[key.column_name][n] = key
        parts, parameters = _Parts(), list[Any]()
        for name, keys in by_column.items():
            latest = self._places.columns[name].latest_child("k.row_key", "k.child")
            parts.add("n, row_key, child", "%s::int[], %s::uuid[], %s::bigint[]", latest)
            parameters += [
                list(keys),
                [str(key.row_key) for key in keys.values()],
                [each.child for each in keys.values()],
            ]
        found = (
            self._cells_of(connection, wanted, self._standing.rows(connection, parts.sql, parameters))
            if by_column
            else {}
        )
        return found | (self._find_latest_many(connection, plain) if plain else {})

    def find_many(self, connection: LegacyConnection, wanted: dict[int, CellKey]) -> dict[int, Cell]:
        """The cells under keys; `HistoryTruncated` when one may have been there and that is not known any more."""
        known = self._find_known(connection, wanted)
        return {n: cell for n, each in known.items() if (cell := _or_raise(each)) is not None}

    def _find_known(
        self, connection: LegacyConnection, wanted: dict[int, CellKey]
    ) -> dict[int, Cell | HistoryTruncated]:
        found: dict[int, Cell | HistoryTruncated] = {**self._find_there(connection, wanted)}
        missing = {n: key for n, key in wanted.items() if n not in found and key[1] in self._places.histories}
        if missing:
            found |= self._looked_after(connection, lambda: self._sought_many(connection, missing))
        return found

    def _find_there(self, connection: LegacyConnection, wanted: dict[int, CellKey]) -> dict[int, Cell]:
        by_column: defaultdict[str, dict[int, CellKey]] = defaultdict(dict)
        for n, key in wanted.items():
            by_column[key[1] if key[1] in self._places.mapped else ""][n] = key
        parts, parameters = _Parts(), list[Any]()
        for name, keys in by_column.items():
            numbers, row_keys = list(keys), [str(key[0]) for key in keys.values()]
            refs = [key[2] for key in keys.values()]
            if name == LEGACY_ID:
                latest = f"SELECT * FROM ({self._places.legacy_ids.latest('k.row_key')}) AS l WHERE k.ref = l.ref_key"
                parts.add("n, row_key, ref", "%s::int[], %s::uuid[], %s::bigint[]", latest)
                parameters += [numbers, row_keys, refs]
            elif name:
                at = self._places.columns[name].at("k.row_key", "k.ref")
                parts.add("n, row_key, ref", "%s::int[], %s::uuid[], %s::bigint[]", at)
                parameters += [numbers, row_keys, refs]
            else:
                at = OwnCells("k.name").at("k.row_key", "k.ref")
                parts.add("n, row_key, ref, name", "%s::int[], %s::uuid[], %s::bigint[], %s::text[]", at)
                parameters += [numbers, row_keys, refs, [key[1] for key in keys.values()]]
        return self._cells_of(
            connection, wanted, self._standing.rows(connection, parts.sql, parameters) if wanted else []
        )

    def _sought_many(
        self, connection: LegacyConnection, missing: dict[int, CellKey]
    ) -> dict[int, Cell | HistoryTruncated]:
        """The same of many: what never was is known by one question for each column."""
        of_column = defaultdict[str, set[tuple[UUID, int]]](set)
        for row_key, name, ref_key in missing.values():
            of_column[name].add((row_key, ref_key))
        never = {
            CellKey(row_key, name, ref_key)
            for name, keys in of_column.items()
            for row_key, ref_key in self._places.histories[name].known_missing(connection, keys)
        }
        doubtful = {n: key for n, key in missing.items() if key not in never}
        truncated = {
            n: self._places.histories[name].truncated(row_key, ref_key)
            for n, (row_key, name, ref_key) in doubtful.items()
        }
        return truncated | self._find_there(connection, doubtful)

    def _cells_of(
        self,
        connection: LegacyConnection,
        wanted: Mapping[int, CellKey] | Mapping[int, ChildKey],
        rows: Iterable[Sequence[Any]],
    ) -> dict[int, Cell]:
        return dict(self._numbered(connection, wanted, rows))

    def _numbered(
        self,
        connection: LegacyConnection,
        wanted: Mapping[int, CellKey] | Mapping[int, ColumnKey] | Mapping[int, ChildKey],
        rows: Iterable[Sequence[Any]],
    ) -> Iterable[tuple[int, Cell]]:
        numbers, stored = [], []
        for n, *found in rows:
            numbers.append(n)
            stored.append(StoredRow(wanted[n][0], wanted[n][1], Found(*found)))
        return zip(numbers, self._bodies.cells(connection, stored), strict=True)

    def _rows_of(
        self, connection: LegacyConnection, row_keys: Sequence[UUID], columns: Collection[str] | None
    ) -> list[Cell]:
        latest = self._places.of_row("k.row_key", columns).replace("%", "%%")
        sql = (
            f"SELECT k.row_key::text, latest.* FROM unnest(%s::uuid[]) AS k (row_key) "
            f"CROSS JOIN LATERAL ({latest}) AS latest"
        )
        found = connection.rows(sql, ([str(row_key) for row_key in row_keys],))
        stored = [StoredRow(UUID(key), name, Found(*of_column)) for key, name, *of_column in found]
        return self._bodies.cells(connection, stored)


def _or_raise(found: Cell | HistoryTruncated | None) -> Cell | None:
    if isinstance(found, HistoryTruncated):
        raise found
    return found


class _Parts:
    """SELECTs for keys that stand in arrays, made into one statement."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, names: str, arrays: str, select: str) -> None:
        select = select.replace("%", "%%")
        self._parts.append(
            f"SELECT k.n, {', '.join(f'found.{name}' for name in FIELDS.split(', '))} "
            f"FROM unnest({arrays}) AS k ({names}) CROSS JOIN LATERAL ({select}) AS found ({FIELDS})"
        )

    @property
    def sql(self) -> str:
        return " UNION ALL ".join(self._parts)
