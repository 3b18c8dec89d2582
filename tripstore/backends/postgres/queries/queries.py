"""`Queries`: answers `query_index` from the legacy tables, with the entries, order and cursors of the real index.

No index tables are kept for them: the tables of the company are the truth, so 'fast' and 'verified' answers are alike,
and both are exact. SQL narrows by the shard field, and orders and filters where it does so as the index would. The
values themselves come from the rows' bodies by the core's own parsing, and every row is judged by them, so that what an
entry is has one definition for both backends. A portion is one statement and sees one moment; a page may need several.

With `on_delete: ignore` a deleted row leaves no trace here: it has no entry, whatever the mirror keeps.

One object serves all threads, and forked children: it holds what is true for ever of a layout and its tables. A column
of the company's whose type changes asks for a restart of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from schemaless_core.cell import page_bytes
from schemaless_core.cell.answers import Condition, IndexEntry, IndexPage, Scalar
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.query import Query, build_query, check_cells_asked, check_consistency, unknown_index
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.queries.physical import PhysicalTypes, Run
from tripstore.backends.postgres.queries.rows import FoundCell, FoundRow, IndexRows, OrderPlace

#: Rows of a statement after the first, which fetches no more than the page needs.
ROWS_PER_PORTION = 1_000
#: Rows whose cells one statement brings.
CELLS_PER_STATEMENT = 100

Columns = Sequence[str] | Literal["*"] | None
#: The latest cells of rows, of all columns or of these.
CellsOf = Callable[[Sequence[UUID], Collection[str] | None, Deadline], Mapping[UUID, Mapping[str, Cell]]]


class _Entry(NamedTuple):
    row_key: UUID
    values: tuple[Scalar | None, ...]
    sort_key: tuple[Any, ...]


class Queries:
    """The index half of the legacy store's reads."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        lookups: LookupCache,
        definitions: Mapping[str, IndexDefinition],
        cells_of: CellsOf,
    ) -> None:
        self._run = run
        self._layout = layout
        self._lookups = lookups
        self._definitions = definitions
        self._cells_of = cells_of
        self._types: PhysicalTypes | None = None
        self._rows: dict[str, IndexRows] = {}

    def query_index(
        self,
        index: str,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        fields: Sequence[str] | None = None,
        columns: Columns = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
        deadline: Deadline,
        scan_deadline: Deadline | None = None,
    ) -> IndexPage:
        """Answer by the deadline; by that of scans, if there is one, where more is read than goes into the page."""
        check_cells_asked(columns)
        check_consistency(consistency)
        definition = self._definition(index)
        query = build_query(definition, shard_value, where, fields, order_by, descending, limit, cursor)
        rows = self._rows_of(definition, deadline)
        if scan_deadline is not None and not rows.reads_no_more(query):
            deadline = scan_deadline
        bodies = _Bodies(self._run, self._lookups, rows, deadline)
        look = _Look(self._run, rows, bodies, query, deadline)
        found = look.ordered() if rows.is_ordered(query) else look.sorted()
        return self._page(query, found, columns, deadline)

    def _definition(self, index: object) -> IndexDefinition:
        if not isinstance(index, str) or index not in self._definitions:
            raise unknown_index(index, self._definitions)
        return self._definitions[index]

    def _page(self, query: Query, found: Sequence[_Entry], columns: Columns, deadline: Deadline) -> IndexPage:
        page = found[: query.limit]
        keys = [entry.row_key for entry in page]
        cells = self._cells(keys, columns, deadline)
        has_more = len(found) > query.limit
        if cells is not None and len(cells) < len(page):
            page, has_more = page[: len(cells)], True
        entries = [
            IndexEntry(entry.row_key, query.selected(entry.values), None if cells is None else cells[entry.row_key])
            for entry in page
        ]
        return IndexPage(entries, query.cursor_after(page[-1].values, page[-1].row_key) if has_more else None)

    def _cells(
        self, row_keys: Sequence[UUID], columns: Columns, deadline: Deadline
    ) -> dict[UUID, Mapping[str, Cell]] | None:
        """Of as many rows as a page has room for, one at least."""
        if columns is None:
            return None
        names = None if columns == "*" else columns
        found: dict[UUID, Mapping[str, Cell]] = {}
        size = 0
        for first in range(0, len(row_keys), CELLS_PER_STATEMENT):
            rows = self._cells_of(row_keys[first : first + CELLS_PER_STATEMENT], names, deadline)
            for row_key in row_keys[first : first + CELLS_PER_STATEMENT]:
                size += sum(len(canonical_bytes(cell.body)) for cell in rows[row_key].values())
                if found and size >= page_bytes.bound():
                    return found
                found[row_key] = rows[row_key]
        return found

    def _rows_of(self, definition: IndexDefinition, deadline: Deadline) -> IndexRows:
        """Made once per index. Two threads may do it at the same time, and make the same."""
        if definition.name not in self._rows:
            if self._types is None:
                self._types = PhysicalTypes.read(self._run, self._layout, deadline)
            self._rows[definition.name] = IndexRows.of(definition, self._layout, self._types)
        return self._rows[definition.name]


class _Bodies:
    """Renders the cells of found rows, with one look at each table that a portion points to."""

    def __init__(self, run: Run, lookups: LookupCache, rows: IndexRows, deadline: Deadline) -> None:
        self._run = run
        self._lookups = lookups
        self._deadline = deadline
        self._columns = rows.definition.column_names
        mapped = [source.mapped for source in rows.sources]
        asking = lookups.asking(self._ask)  # for pairs that the cache has no room for
        self._codecs = [None if column is None else ColumnCodec(column, asking) for column in mapped]

    def prefetch(self, rows: Sequence[FoundRow]) -> None:
        for number, codec in enumerate(self._codecs):
            texts = [cell.row for cell in (row.cells[number] for row in rows) if cell.row is not None]
            if codec is not None and (wanted := codec.missing(texts)):
                self._lookups.fill(wanted, self._ask)

    def of(self, row: FoundRow) -> dict[str, Cell | None]:
        """The latest cell of each source column."""
        triples = zip(self._columns, row.cells, self._codecs, strict=True)
        return {name: self._cell(row.row_key, name, cell, codec) for name, cell, codec in triples}

    def _cell(self, row_key: UUID, name: str, found: FoundCell, codec: ColumnCodec | None) -> Cell | None:
        if found.ref_key is None:
            return None
        if found.row is not None and codec is not None:
            return Cell(row_key, name, found.ref_key, codec.body(found.row))
        return Cell(row_key, name, found.ref_key, None if found.body is None else from_canonical(found.body))

    def _ask(self, sql: str, parameters: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        return [tuple(row) for row in self._run(sql, parameters, self._deadline)]


class _Look:
    """One call's search."""

    def __init__(
        self,
        run: Run,
        rows: IndexRows,
        bodies: _Bodies,
        query: Query,
        deadline: Deadline,
    ) -> None:
        self._run = run
        self._rows = rows
        self._bodies = bodies
        self._query = query
        self._deadline = deadline

    def ordered(self) -> list[_Entry]:
        """The entries of a page and one more, if there is one. Stops reading as soon as it has them."""
        found: dict[UUID, _Entry] = {}
        for entry in self._entries(self._rows.start(self._query), self._query.limit + 1):
            found.setdefault(entry.row_key, entry)  # one that moves on between two statements comes twice
            if len(found) > self._query.limit:
                break
        return list(found.values())

    def sorted(self) -> list[_Entry]:
        """The same, where all rows of the shard value must be read to know which come first."""
        found: list[_Entry] = []
        enough = self._query.limit + 1
        for entry in self._entries(None, ROWS_PER_PORTION):
            found.append(entry)
            if len(found) >= enough + 10 * ROWS_PER_PORTION:
                found = self._first(found)
        return self._first(found)

    def _first(self, found: list[_Entry]) -> list[_Entry]:
        found.sort(key=lambda entry: entry.sort_key, reverse=self._query.descending)
        return found[: self._query.limit + 1]

    def _entries(self, start: OrderPlace | None, portion: int) -> Iterable[_Entry]:
        """All rows behind a place that belong to the answer, portion by portion."""
        place = start
        while True:
            statement = self._rows.statement(self._query, place, portion)
            rows = [self._rows.found(row) for row in self._run(statement.text, statement.values, self._deadline)]
            self._bodies.prefetch(rows)
            for row in rows:
                entry = self._entry(row)
                if entry is not None:
                    yield entry
            if len(rows) < portion:
                return
            place, portion = rows[-1].place, max(portion, ROWS_PER_PORTION)

    def _entry(self, row: FoundRow) -> _Entry | None:
        row_key, query = row.row_key, self._query
        values = query.definition.fields_of(self._bodies.of(row)).values
        if not query.holds(values) or not query.is_after_cursor(values, row_key):
            return None
        return _Entry(row_key, values, query.sort_key(values, row_key))
