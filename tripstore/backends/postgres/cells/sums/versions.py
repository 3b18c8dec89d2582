"""`KnownVersions`: what Postgres knows of the versions of many rows of one column, by one statement.

Of each place where versions are: the rows, their tombs, cells of our own, and the changes. It is for a comparison that
looks closer by itself where a row cannot be read: such a row is left to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.children import FACTS
from schemaless_core.cell.page_bytes import bound
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.cells.rows import CHANGES, ColumnRows, text
from tripstore.backends.postgres.cells.sums.lines import columns_of, copied, row_keys
from tripstore.backends.postgres.cells.sums.rendering import BATCH_SECONDS
from tripstore.backends.postgres.cells.sums.tables import Tables
from tripstore.backends.postgres.cells.sums.written import WrittenLayouts
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.copy_text import NULL, unescaped
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.backends.postgres.names import NO_FLOOR
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.engines.validation.diff.version_sets import KnownLink

_NOTHING = "NULL::bigint, NULL::int, NULL::pg_catalog.text"
_BODY = "NULL::bigint, NULL::int, pg_catalog.encode(c.body, 'hex')"
#: Where a line comes from.
_ROW, _TOMB, _OWN, _CHANGE = "row", "tomb", "own", "change"

#: Of each row the ref keys whose bodies are of use.
Wanted = Mapping[bytes, Collection[int]]


class _Change(NamedTuple):
    """A captured change whose body is wanted."""

    key: bytes
    ref_key: int
    previous: int | None
    row: str


class KnownVersions:
    """By row key, the versions of one column. Filled line by line."""

    def __init__(self, tables: Tables, written: WrittenLayouts, column_name: str, wanted: Wanted) -> None:
        self._tables = tables
        self._written = written
        self._name = column_name
        self._wanted = wanted
        self._room = 2 * bound()
        self.links: defaultdict[bytes, dict[int, KnownLink]] = defaultdict(dict)
        #: Rows that need a closer look.
        self.left: set[bytes] = set()

    def take(self, lines: list[bytes]) -> None:
        """Lines of row key, ref key, where it is from, the version before it, layout and text."""
        self._room -= sum(map(len, lines))
        if self._room < 0:  # the rows are read to their end, since COPY has none, and looked at a few at a time
            self.links.clear()
            self.left.update(self._wanted)
            return
        changes: defaultdict[int, list[_Change]] = defaultdict(list)
        keys, *texts = columns_of(lines)
        for key, ref_key, place, previous, layout, row in zip(row_keys(keys), *texts, strict=True):
            if ref_key == NULL:
                self.left.add(key)
                continue
            number, links = int(ref_key), self.links[key]
            if place == _CHANGE and (layout != NULL or row == NULL):
                before = None if previous == NULL else int(previous)
                links[number] = KnownLink(TOMBSTONE if row == NULL else None, True, before)
                if row != NULL and number in self._wanted[key]:
                    changes[int(layout)].append(_Change(key, number, before, row))
            elif place in (_OWN, _CHANGE):  # it says nothing of others
                body = bytes.fromhex(row) if place == _OWN else str(unescaped(row)).encode()
                links.setdefault(number, KnownLink(body, False, is_in_chain=False))
            elif number not in links or not links[number].is_in_chain:
                links[number] = KnownLink(TOMBSTONE if place == _TOMB else None, False)
        if changes:
            self._tables.database.run(lambda lent: self._render(lent, changes), Deadline(BATCH_SECONDS))

    def _render(self, lent: LegacyConnection, changes: Mapping[int, Sequence[_Change]]) -> None:
        """Each layout's changes by its own codecs."""
        for number, of_layout in changes.items():
            written = self._written.of(lent, number, self._name)
            if written is None:
                self.left.update(change.key for change in of_layout)
                continue
            rows = [change.row if "\\" not in change.row else str(unescaped(change.row)) for change in of_layout]
            for change, body in zip(of_layout, written.canonical(lent, rows), strict=True):
                if isinstance(body, UnreadableRow):
                    self.left.add(change.key)
                else:
                    self.links[change.key][change.ref_key] = KnownLink(body, True, change.previous)


class VersionsReader:
    """On a connection with an open snapshot."""

    def __init__(self, connection: Connection, tables: Tables, written: WrittenLayouts) -> None:
        self._connection = connection
        self._tables = tables
        self._written = written

    def known(self, column_name: str, wanted: Wanted) -> KnownVersions:
        """What is known of these rows of a mapped column, or of one that the layout does not know."""
        found = KnownVersions(self._tables, self._written, column_name, wanted)
        rows = self._tables.places.mapped.get(column_name)
        if isinstance(rows, ColumnRows):
            parts = _parts(rows, is_of_facts=self._tables.children.get(column_name) == FACTS)
        else:
            parts = [_own(text(column_name))]
        keys = ",".join(key.hex() for key in sorted(wanted))  # their entries stand side by side
        with_keys = f"WITH k (row_key) AS MATERIALIZED (SELECT pg_catalog.unnest('{{{keys}}}'::pg_catalog.uuid[]))"
        copied(self._connection, f"{with_keys} {' UNION ALL '.join(parts)}", found.take, self._tables.turns)
        return found


def _parts(rows: ColumnRows, *, is_of_facts: bool) -> list[str]:
    """What stands under the row keys `k`. A row whose deletion is ignored is known by the ref key that it had last."""
    kept = (
        f"SELECT k.row_key, e.ref_key, '{_ROW}', {_NOTHING} FROM k JOIN tripstore.kept AS e"
        f" ON e.row_key = k.row_key AND e.column_name = {rows.name} AND e.ref_key > {NO_FLOOR}"
    )
    return [
        *([kept] if rows.column.on_delete is DeletePolicy.IGNORE else []),
        f"SELECT k.row_key, {rows.ref_key}, '{_ROW}', {_NOTHING} FROM k JOIN {rows.table} AS r"
        f" ON r.{rows.uuid} = k.row_key",
        f"SELECT k.row_key, t.ref_key, '{_TOMB}', {_NOTHING} FROM k JOIN tripstore.tomb AS t"
        f" ON t.row_key = k.row_key AND t.column_name = {rows.name}",
        _own(rows.name),
        *(_changes(rows, table, is_of_facts=is_of_facts) for table in CHANGES),
    ]


def _own(name: str) -> str:
    return (
        f"SELECT k.row_key, c.ref_key, '{_OWN}', {_BODY} FROM k JOIN tripstore.cell AS c"
        f" ON c.row_key = k.row_key AND c.column_name = {name}"
    )


def _changes(rows: ColumnRows, table: str, *, is_of_facts: bool) -> str:
    """Facts are of one version each: what they were is asked for once a tombstone has ended them."""
    ended = f"SELECT FROM tripstore.tomb AS t WHERE t.row_key = k.row_key AND t.column_name = {rows.name}"
    return (
        f"SELECT k.row_key, q.ref_key, '{_CHANGE}', q.previous, q.layout, q.row FROM k JOIN {table} AS q"
        f" ON q.row_key = k.row_key AND q.column_name = {rows.name}{f' AND EXISTS ({ended})' if is_of_facts else ''}"
    )
