"""`LayoutRules`: what the layout says of cells, kept by the facade while Schemaless is the authority.

What Postgres cannot hold is refused at once, as far as layout, catalogue and the rows that a body names tell. It would
be parked by the reverse mirror otherwise, and close the way back. What depends on the company's code, or on rows that
this process cannot name, is parked there still.

Tombstones of rows with children mean the same as at the legacy store: refused, or, where the layout says so, the
children go with the parent. These are cells of their own here, put with the parent's by one commit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any
from uuid import UUID

from schemaless_core.calls.puts import CELLS_TOGETHER
from schemaless_core.cell.answers import ANY, PutResult
from schemaless_core.cell.cell import REF_KEY_MAX, Cell, check_ref_key
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Unavailable
from schemaless_core.store import CellStore
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    VERSION_MAX,
    Layout,
    MappedColumn,
    RefKeyKind,
    TombstonePolicy,
)
from tripstore.backends.postgres.rules.column_rules import OncePerParent, Texts
from tripstore.backends.postgres.rules.table_rules import TableRules
from tripstore.facade.next_keys import NextKeys
from tripstore.facade.references import Dangling, References
from tripstore.facade.rule_book import RuleBook
from tripstore.facade.siblings import Siblings
from tripstore.facade.taken_values import TakenValues

HISTORY_PAGE = 1000
#: How often a deletion that found its row moved goes again, and the longest pause before that.
DELETION_TRIES = 50
DELETION_PAUSE_SECONDS = 0.01
_ONLY_WITH_PARENT = "facts are deleted with their parent only"


class LayoutRules:
    """Of one layout. `is_promised`: whether there is to be a way back; None: this process has not heard yet."""

    def __init__(
        self,
        layout: Layout,
        keys: NextKeys,
        book: RuleBook,
        taken: TakenValues,
        is_promised: Callable[[], bool | None] = lambda: True,
    ) -> None:
        self._layout = layout
        self.keys = keys
        self._book = book
        self._taken = taken
        self._references = References(layout)
        self._siblings = Siblings(layout)
        self._is_promised = is_promised
        # Which rows there are, only Postgres knows: a UUID that points to one is a UUID like any other here.
        columns = {
            name: replace(column, fields=tuple(replace(field, lookup=None) for field in column.fields))
            for name, column in layout.columns.items()
        }
        lookups = LookupCache(Layout(layout.datastore, layout.row_key, columns))
        self._codecs = {name: ColumnCodec(column, lookups) for name, column in columns.items()}

    def check(self, store: CellStore, cell: Cell, before: Sequence[Cell] = ()) -> None:
        """Raise what Postgres would, before anything is written. `store` is Schemaless.

        `before`: cells of the same row and column that are put before it, by the same call.
        """
        is_promised = self._is_promised()
        if is_promised is False:
            return
        try:
            self._check(store, cell, before)
        except (Unrepresentable, LegacyRefused) as refused:
            if is_promised:
                raise
            raise Unavailable(
                f"Postgres could not hold this cell, and it is not known yet whether it must: {refused.message}",
                hint="Repeat it when the control database answers; it says which phase it is.",
            ) from refused

    def _check(self, store: CellStore, cell: Cell, before: Sequence[Cell]) -> None:
        column = self._layout.columns.get(cell.column_name)
        if column is None:
            if cell.column_name == LEGACY_ID and store.get_cell(*cell.key) != cell:
                hint = "Put the row; its legacy id comes with it."
                raise Unrepresentable("", f"{LEGACY_ID} says what Postgres gave a row", hint=hint)
            return
        if column.ref_key.kind is RefKeyKind.CHILD:
            column.compose(*column.split(cell.ref_key))  # refuses what no row can be
        if cell.body is not None:
            self._check_body(store, cell, before)
            self.keys.passes(column, cell)
        elif column.ref_key.kind is RefKeyKind.FACT:
            self._check_fact(store, cell)
        elif not column.is_child and self._layout.parent.on_tombstone is not TombstonePolicy.DELETE:
            self._check_children(store, cell)

    def looks_around(self, cell: Cell) -> bool:
        """Whether what may become of it depends on other cells: on those of the same batch, too."""
        return cell.body is None and cell.column_name in self._layout.columns

    def takes_children(self, cell: Cell) -> bool:
        """Whether this is a tombstone with which, by the layout, the children go."""
        parent = self._layout.parent
        is_deletion = cell.column_name == parent.name and cell.body is None
        return is_deletion and parent.on_tombstone is TombstonePolicy.DELETE

    def put_deletion(self, store: Datastore, cell: Cell, expect_latest: Any) -> PutResult:
        """Put such a tombstone, and those of the children that are there before it, by one commit.

        A caller that dies, or is refused because of a hand-over, leaves all of it or nothing. A tombstone that is
        refused, or that becomes history, deletes no children.
        """
        if expect_latest is not ANY and expect_latest is not None:
            check_ref_key(expect_latest)
        deadline = Deadline(math.inf if store.deadline_seconds is None else store.deadline_seconds)
        for attempt in range(1, DELETION_TRIES + 1):
            result = self._put_deletion(store, cell, expect_latest)
            if result is not None:
                return result
            if deadline.is_over:
                break
            # Another caller that puts cells of this row, or deletes it too, must not meet this one again in step.
            time.sleep(random.uniform(0, min(DELETION_PAUSE_SECONDS, attempt / 1000)))
        raise Unavailable(
            f"Row {cell.row_key} got other cells whenever it was to be deleted.",
            hint="Repeat it when fewer write to the row, or give it a longer deadline with using(deadline=…).",
        )

    def _put_deletion(self, store: Datastore, cell: Cell, expect_latest: Any) -> PutResult | None:
        """One attempt; None: another writer put a cell of this row, and what is there is to be looked at again."""
        seen = store.end_of_log(store.shard_of(cell.row_key))
        latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is not None and latest.ref_key >= cell.ref_key:
            result = store.put_cell(*cell.key, None, expect_latest=expect_latest)
            if latest == cell:
                self._take_forgotten(store, cell.row_key, result.added_id)
            return result
        if expect_latest is not ANY and expect_latest != (None if latest is None else latest.ref_key):
            raise CellConflict(cell, latest, expected=expect_latest)
        is_alive = latest is not None and latest.body is not None
        of_children = islice(self._tombstones(store, cell.row_key), CELLS_TOGETHER) if is_alive else ()
        tombstones = [cell, *of_children]
        if len(tombstones) > CELLS_TOGETHER:
            raise LegacyRefused(
                f"The row has at least {len(tombstones) - 1:,} rows of other columns, too many to go with it at once.",
                hint="Put tombstones on them first.",
            )
        results = store.put_together(tombstones, seen)
        return None if results is None else results[0]

    def _tombstones(self, store: Datastore, row_key: UUID) -> Iterator[Cell]:
        """Those of all children that are there."""
        for child in self._layout.children:
            for cell in _live(store, row_key, child):
                yield _tombstone(child, cell)

    def _take_forgotten(self, store: Datastore, row_key: UUID, added_id: int | None) -> None:
        """Children that the tombstone should have taken: it came from somewhere else, or was put by an earlier version.

        What was put after the tombstone is of the row's next life.
        """
        assert added_id is not None  # Schemaless gives one
        for child in self._layout.children:
            for cell in _live(store, row_key, child):
                if cell.added_id is not None and cell.added_id < added_id:
                    # Another writer has put there meanwhile; or nothing can be put there, and this one's tombstone
                    # stands.
                    with suppress(CellConflict, LegacyRefused):
                        tombstone = _tombstone(child, cell)
                        store.put_cell(*tombstone.key, None)

    def _check_body(self, store: CellStore, cell: Cell, before: Sequence[Cell]) -> None:
        try:
            texts = self._codecs[cell.column_name].row(cell.body)
            self._check_row(store, cell, texts, before)
        except (Unrepresentable, LegacyRefused):
            # It may have been put when there was no such promise or rule: a write may always be repeated.
            if store.get_cell(*cell.key) != cell:
                raise

    def _check_row(self, store: CellStore, cell: Cell, texts: Texts, before: Sequence[Cell]) -> None:
        """By the catalogue. What becomes history is never a row, and the rules may have changed a moment ago."""
        rules = self._book.find()
        if rules is None:
            return
        try:
            self._keep_to(rules, store, cell, texts, before)
        except (Unrepresentable, LegacyRefused):
            if not self._is_history(store, cell):
                self._keep_to(self._book.find_now() or rules, store, cell, texts, before)

    def _keep_to(self, rules: TableRules, store: CellStore, cell: Cell, texts: Texts, before: Sequence[Cell]) -> None:
        violation = rules.find_violation(cell.column_name, cell.ref_key, texts)
        if violation is not None:
            hint = "Change the body, or the company's table; a process sees within a second that it was changed."
            raise Unrepresentable(violation.path, violation.reason, hint=hint)
        taken = self._taken.find(store, cell, rules.unique(cell.column_name))
        if taken is not None:
            field, constraint = taken
            hint = "Put another value, or change the row that has this one first."
            raise LegacyRefused(f"Another row has this {field}, which constraint {constraint} allows once.", hint=hint)
        beside = self._siblings.find_taken(store, cell, rules.once_per_parent(cell.column_name), before)
        if beside is not None:
            raise _met(cell, beside)
        dangling = self._references.find_dangling(store, cell, rules.references(cell.column_name))
        if dangling is not None:
            raise _refused(dangling)

    def rows_needed(self, cell: Cell) -> Collection[UUID]:
        """The other rows that must be there when it is put, as far as its body tells."""
        if self._is_promised() is False or cell.column_name not in self._layout.columns:
            return ()
        rules = self._book.find()
        references = () if rules is None else rules.references(cell.column_name)
        return self._references.rows(cell, references) if references else ()

    def is_a_row(self, cell: Cell) -> bool:
        """Whether others may point to what it makes."""
        return cell.column_name == self._layout.parent.name and cell.body is not None

    def _is_history(self, store: CellStore, cell: Cell) -> bool:
        """Whether a later version of the same row is there, or its tombstone."""
        column = self._layout.columns[cell.column_name]
        if column.ref_key.kind is RefKeyKind.CHILD:
            number, _version = column.split(cell.ref_key)
            found = store.get_history(
                cell.row_key, column.name, before=column.compose(number, VERSION_MAX) + 1, limit=1
            )
            latest = found[0] if found else None
        else:
            latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is None or latest.ref_key <= cell.ref_key:
            return False
        return column.ref_key.kind is not RefKeyKind.FACT or latest.body is None

    def _check_fact(self, store: CellStore, cell: Cell) -> None:
        latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is None or latest.body is None or cell.ref_key < latest.ref_key:
            return
        hint = "Delete the parent, or map the column with a version."
        raise Unrepresentable("", _ONLY_WITH_PARENT, hint=hint)

    def _check_children(self, store: CellStore, cell: Cell) -> None:
        latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is None or latest.body is None or cell.ref_key <= latest.ref_key:
            return
        for child in self._layout.children:
            if next(_live(store, cell.row_key, child), None) is not None:
                raise LegacyRefused(
                    f"The row has rows of {child.name}, which a tombstone of {cell.column_name} would take with it.",
                    hint="Put tombstones on them first, or write on_tombstone: delete into the layout.",
                )


def _refused(dangling: Dangling) -> Unrepresentable:
    """As Postgres would refuse it."""
    field = dangling.reference.field
    gone = "was deleted" if dangling.was_there else "is not there"
    hint = f"Put row {dangling.row_key} first, or leave {field} out."
    return Unrepresentable(field, f"it points to row {dangling.row_key}, which {gone}", hint=hint)


def _met(cell: Cell, beside: OncePerParent) -> LegacyRefused:
    """As Postgres would refuse it."""
    same = f" with this {' and '.join(beside.fields)}" if beside.fields else ""
    return LegacyRefused(
        f"Row {cell.row_key} has another {cell.column_name}{same}, and {beside.constraint} allows one.",
        hint="Put a new version of that one, under its number, or delete it first.",
    )


def _live(store: CellStore, row_key: UUID, column: MappedColumn) -> Iterator[Cell]:
    """Above each of these a tombstone says that rows are gone: the latest version of each child row that is there; of
    facts, the highest of all."""
    if column.ref_key.kind is RefKeyKind.CHILD:
        yield from _live_children(store, row_key, column)
        return
    latest = store.get_cell_latest(row_key, column.name)
    if latest is not None and latest.body is not None:
        yield latest


def _tombstone(column: MappedColumn, live: Cell) -> Cell:
    """Right above one of these. Above the last version is the key of another row."""
    number, version = column.split(live.ref_key)
    is_versioned = column.ref_key.kind is RefKeyKind.CHILD
    reached, last = (version, VERSION_MAX) if is_versioned else (live.ref_key, REF_KEY_MAX)
    if reached == last:
        raise LegacyRefused(
            f"Row {number} of {column.name} is at {reached:,}, and there is none after it for a tombstone.",
            hint="Neither it nor its parent can be deleted; put a version of the parent that says it is gone.",
        )
    return Cell(live.row_key, column.name, live.ref_key + 1, None)


def _live_children(store: CellStore, row_key: UUID, column: MappedColumn) -> Iterator[Cell]:
    """The latest version of each child row that is not deleted."""
    before: int | None = None
    last_number: int | None = None
    while page := store.get_history(row_key, column.name, before=before, limit=HISTORY_PAGE):
        for cell in page:
            number, _version = column.split(cell.ref_key)
            if number != last_number and cell.body is not None:
                yield cell
            last_number = number
        before = page[-1].ref_key
