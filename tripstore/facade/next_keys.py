"""`NextKeys`: which ref key a cell gets that is appended, at either authority.

The one after the latest; in a column of child rows a new row's. Its number comes from the sequence of the company's
table, if that has one: SQL, and a process that appends elsewhere, never gets the same. Otherwise it is the next of its
parent, and the loser of a race for it tries again.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.cell import REF_KEY_MAX, Cell, no_free_ref_key
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeyKind
from tripstore.backends.postgres.numbers.numbers import Numbers
from tripstore.backends.postgres.numbers.sequences import NumberSequence
from tripstore.facade.number_ranges import NumberRanges
from tripstore.facade.rule_book import RuleBook


class NextKey(NamedTuple):
    """A ref key, and the one that is to be the column's latest before it; ANY: no other writer gets this one."""

    ref_key: int
    expect_latest: Any


class NextKeys:
    """Of one process and layout."""

    def __init__(self, layout: Layout, numbers: Numbers, book: RuleBook) -> None:
        self._layout = layout
        self._numbers = numbers
        self._book = book
        self._ranges = NumberRanges(numbers)

    def choose(self, store: CellStore, row_key: UUID, column_name: str, seconds: float | None) -> NextKey:
        """The next one at this authority, which answers within so many seconds."""
        if not isinstance(store, Datastore):
            sequence = self._numbers.find(column_name, self._numbers.deadline(seconds))
            if sequence is not None:
                return NextKey(self._drawn(column_name, sequence, seconds), ANY)
        self._check_is_counted(column_name)
        latest = store.get_cell_latest(row_key, column_name)
        if isinstance(store, Datastore) and self._sequence(column_name) is not None:
            return NextKey(self.after(column_name, latest), ANY)
        return NextKey(self._counted(column_name, latest), None if latest is None else latest.ref_key)

    def after(self, column_name: str, latest: Cell | None) -> int:
        """The one after Schemaless' latest cell of a column."""
        sequence = self._sequence(column_name)
        if sequence is None:
            return self._counted(column_name, latest)
        column = self._layout.columns[column_name]
        above = None if latest is None else column.split(latest.ref_key)[0]
        # Below a tombstone of facts there is only history.
        is_ended = latest is not None and latest.body is None and column.ref_key.kind is RefKeyKind.FACT
        return column.compose(self._ranges.take(column_name, sequence, above, must_follow=is_ended), 0)

    def passes(self, column: MappedColumn, cell: Cell) -> None:
        """Schemaless gets a row's first cell: SQL is not to draw its number later."""
        if not column.is_child or not column.is_first(cell.ref_key):
            return
        rules = self._book.find()
        sequence = None if rules is None else rules.sequences.get(column.name)
        if sequence is not None:
            self._ranges.passes(sequence, column.split(cell.ref_key)[0])

    def after_fork(self) -> None:
        self._ranges.after_fork()

    def _drawn(self, column_name: str, sequence: NumberSequence, seconds: float | None) -> int:
        """While Postgres is the authority: drawn there and then, in the order of all writers."""
        (number,) = self._numbers.draw(sequence, 1, self._numbers.deadline(seconds), is_durable=False)
        return self._layout.columns[column_name].compose(number, 0)

    def _sequence(self, column_name: str) -> NumberSequence | None:
        """That of the column's numbers, by what is known here."""
        column = self._layout.columns.get(column_name)
        if column is None or not column.is_child:
            return None
        rules = self._book.find()
        if rules is None:
            raise LegacyUnavailable(
                f"Where the numbers of {column_name} come from is not known here, and Postgres is silent.",
                hint="Repeat it when Postgres answers, or put the cell with a ref key of your own.",
            )
        return rules.sequences.get(column_name)

    def _check_is_counted(self, column_name: str) -> None:
        """The next number would be another row's that the caller did not mean, where the number is a foreign key."""
        column = self._layout.columns.get(column_name)
        rules = self._book.find() if column is not None and column.is_child else None
        constraint = None if rules is None else rules.points_by_number(column_name)
        if column is not None and constraint is not None:
            raise LegacyRefused(
                f"The number of a row of {column_name} is a foreign key, {constraint}: there is no next one.",
                hint=f"Put the cell with a ref key of its own: its number is the row's {column.ref_key.column}.",
            )

    def _counted(self, column_name: str, latest: Cell | None) -> int:
        """The next of its parent; of child rows that change, the first version of the next row."""
        column = self._layout.columns.get(column_name)
        if column is not None and column.ref_key.kind is RefKeyKind.CHILD:
            number = 1 if latest is None else column.split(latest.ref_key)[0] + 1
            return column.compose(number, 0)
        if latest is not None and latest.ref_key == REF_KEY_MAX:
            raise no_free_ref_key(column_name)
        return 1 if latest is None else latest.ref_key + 1
