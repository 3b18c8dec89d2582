"""`History`: older versions of a mapped column, and whether they are all known here.

Every captured change says which ref key it replaced. Along these links a reader tells a version that never was from one
that Postgres does not know any more, because its log was dropped or it was changed before capture began. Versions put
late stand beside the chain: they say nothing of others. Facts have no chain, and none goes missing before its parent
goes. After that they are known as long as their parent's whole chain is, which is older than they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.cell import REF_KEY_MAX, REF_KEY_MIN
from schemaless_core.cell.requests import LIMIT_MAX
from tripstore.backends.postgres.cells.rows import FIELDS, ColumnRows, Found
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.postgres.layout.layout import VERSION_BITS, VERSION_MAX, RefKeyKind
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared


class _Link(NamedTuple):
    """One known version of a chain."""

    ref_key: int
    #: Whether it says what was before it.
    is_change: bool
    previous: int | None


class _Known(NamedTuple):
    """One known cell below the asked ref key."""

    found: Found
    #: Its place in the chain; None for a cell that was put late.
    link: _Link | None


class History:
    """The versions of one mapped column."""

    def __init__(self, rows: ColumnRows, parent: History | None) -> None:
        self._rows = rows
        self._parent = parent
        self._kind = rows.column.ref_key.kind
        parts = " UNION ALL ".join(rows.below("$1", "$2", "$3"))
        below = (
            f"SELECT {FIELDS}, in_chain, is_change, previous FROM ({parts}) AS cells "
            f"({FIELDS}, in_chain, is_change, previous) ORDER BY ref_key DESC, is_change DESC, in_chain DESC"
        )
        self._below = Prepared("uuid, bigint, bigint", below)
        self._above = Prepared("uuid, bigint, bigint", rows.above("$1", "$2", "$3"))
        above_each = rows.above("k.row_key", "k.ref_key", "k.upper").replace("%", "%%")
        self._above_each = (
            "SELECT k.row_key::text, k.ref_key, link.* "
            "FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS k (row_key, ref_key, upper) "
            f"CROSS JOIN LATERAL ({above_each}) AS link"
        )
        tombs = f"SELECT max(t.ref_key) FROM tripstore.tomb AS t WHERE t.row_key = $1 AND t.column_name = {rows.name}"
        self._tomb = Prepared("uuid", tombs)

    def page(self, connection: LegacyConnection, row_key: UUID, before: int | None, limit: int) -> list[Found]:
        """Cells below a ref key, newest first; `HistoryTruncated` when one that belongs there is not known."""
        known = self._known(connection, row_key, before, limit)
        page = [each.found for each in known[:limit]]
        if self._kind is RefKeyKind.FACT:
            gap = self._missing_fact(connection, row_key, page, before, limit)
        else:
            gap = self._gap(connection, row_key, known, before, limit)
        if gap is not None:
            raise self.truncated(row_key, gap)
        return page

    def ref_keys(self, connection: LegacyConnection, row_key: UUID, before: int | None, limit: int) -> list[int]:
        """Ref keys of the cells that are known below a ref key, newest first, whatever is missing between them."""
        return [each.found.ref_key for each in self._known(connection, row_key, before, limit)[:limit]]

    def is_known_missing(self, connection: LegacyConnection, row_key: UUID, ref_key: int) -> bool:
        """Whether a ref key that nothing holds never was one; False: it may have been."""
        if self._kind is RefKeyKind.FACT:
            top = self._top_tomb(connection, row_key)
            return top is None or not 1 <= ref_key < top or self._has_whole_parent(connection, row_key)
        return self._is_gap(self._next_link(connection, row_key, ref_key), ref_key)

    def known_missing(self, connection: LegacyConnection, keys: Collection[tuple[UUID, int]]) -> set[tuple[UUID, int]]:
        """Those of many for which `is_known_missing` says so, by one question but of facts."""
        if self._kind is RefKeyKind.FACT:
            return {key for key in keys if self.is_known_missing(connection, *key)}
        links = self._next_links(connection, keys)
        return {key for key in keys if self._is_gap(links.get(key), key[1])}

    def _is_gap(self, above: _Link | None, ref_key: int) -> bool:
        """Whether the nearest link above a ref key that nothing holds says that it never was."""
        if above is None or self._is_end(above):
            return True
        return above.is_change and above.previous is not None and above.previous < ref_key

    def is_whole(self, connection: LegacyConnection, row_key: UUID) -> bool:
        """Whether every version there ever was is known."""
        known = self._known(connection, row_key, None, LIMIT_MAX)
        return self._gap(connection, row_key, known, None, LIMIT_MAX) is None

    def truncated(self, row_key: UUID, ref_key: int) -> HistoryTruncated:
        return HistoryTruncated(
            f"Version {ref_key} of {self._rows.column.name} of {row_key}, or one below it, is not known to Postgres.",
            hint="It was changed before capture began, or its log was dropped; Schemaless may have it.",
        )

    def _known(self, connection: LegacyConnection, row_key: UUID, before: int | None, limit: int) -> list[_Known]:
        """Each ref key once, newest first; complete for one more than asked."""
        asked = "NULL" if before is None else str(before)
        known: dict[int, _Known] = {}
        for *found, in_chain, is_change, previous in connection.execute(
            self._below, f"'{row_key}', {asked}, {limit + 1}"
        ):
            cell = Found(*found)
            link = _Link(cell.ref_key, is_change, previous) if in_chain else None
            # A row and its change stand for one version: the change comes first, and says what was before it.
            known.setdefault(cell.ref_key, _Known(cell, link))
        return list(known.values())

    def _gap(
        self, connection: LegacyConnection, row_key: UUID, known: Sequence[_Known], before: int | None, limit: int
    ) -> int | None:
        """The highest ref key that may be missing on the page."""
        if before == REF_KEY_MIN:
            return None
        chain = [each.link for each in known if each.link is not None]
        late = {each.found.ref_key for each in known if each.link is None}
        if before is not None and (above := self._next_link(connection, row_key, before - 1)) is not None:
            chain.insert(0, above)
        last = known[limit - 1].found.ref_key if len(known) >= limit else None
        for upper, lower in zip_longest(chain, chain[1:]):
            highest = self._missing_between(upper, lower)
            while highest is not None and highest in late:  # it was put again
                highest = self._missing_between(_Link(highest, is_change=False, previous=None), lower)
            if highest is not None and before is not None:
                highest = min(highest, before - 1)
                if lower is not None and lower.ref_key == highest:
                    continue
            if highest is not None and (last is None or highest > last):
                return highest
        return None

    def _missing_between(self, upper: _Link, lower: _Link | None) -> int | None:
        """The highest version between two known neighbours that may have been."""
        if self._is_end(upper):
            return None
        if lower is not None and not self._same_chain(upper.ref_key, lower.ref_key):
            lower = None
        if upper.is_change:
            return None if lower is not None and upper.previous == lower.ref_key else upper.previous
        return None if lower is not None and lower.ref_key == upper.ref_key - 1 else upper.ref_key - 1

    def _is_end(self, link: _Link) -> bool:
        """Whether nothing was before a version: the first of a child row is 0; 1 is what a row begins with."""
        if link.is_change:
            return link.previous is None
        return link.ref_key & VERSION_MAX == 0 if self._kind is RefKeyKind.CHILD else link.ref_key <= 1

    def _same_chain(self, one: int, other: int) -> bool:
        return self._kind is not RefKeyKind.CHILD or one >> VERSION_BITS == other >> VERSION_BITS

    def _next_link(self, connection: LegacyConnection, row_key: UUID, ref_key: int) -> _Link | None:
        found = connection.execute(self._above, f"'{row_key}', {ref_key}, {self._upper(ref_key)}")
        return _Link(*found[0]) if found else None

    def _next_links(
        self, connection: LegacyConnection, keys: Collection[tuple[UUID, int]]
    ) -> dict[tuple[UUID, int], _Link]:
        row_keys, refs = [str(row_key) for row_key, _ in keys], [ref_key for _, ref_key in keys]
        found = connection.rows(self._above_each, (row_keys, refs, list(map(self._upper, refs))))
        return {(UUID(row_key), ref_key): _Link(*link) for row_key, ref_key, *link in found}

    def _upper(self, ref_key: int) -> int:
        """The highest ref key of the same chain."""
        return ref_key | VERSION_MAX if self._kind is RefKeyKind.CHILD else REF_KEY_MAX

    def _missing_fact(
        self, connection: LegacyConnection, row_key: UUID, page: Sequence[Found], before: int | None, limit: int
    ) -> int | None:
        """Facts below a tomb are known by their changes alone: the highest number there that is not."""
        top = self._top_tomb(connection, row_key)
        if top is None:
            return None
        known = {found.ref_key for found in page}
        highest = (top if before is None else min(top, before)) - 1
        lowest = page[-1].ref_key if len(page) == limit else 1
        missing = next((number for number in range(highest, lowest - 1, -1) if number not in known), None)
        return None if missing is None or self._has_whole_parent(connection, row_key) else missing

    def _has_whole_parent(self, connection: LegacyConnection, row_key: UUID) -> bool:
        return self._parent is not None and self._parent.is_whole(connection, row_key)

    def _top_tomb(self, connection: LegacyConnection, row_key: UUID) -> int | None:
        found: int | None = connection.execute(self._tomb, f"'{row_key}'")[0][0]
        return found
