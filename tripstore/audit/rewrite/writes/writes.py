"""`RegionWrites`: the writes of a part of a function, and whether they may become puts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.regions import BlamedUse
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.audit.rewrite.writes.transactions import Transactions


@dataclass(frozen=True, slots=True)
class RegionWrite:
    """A write: an UPDATE or a DELETE where it stands, or assignments to a row, which become one call."""

    statements: tuple[ast.stmt, ...]
    handle: ast.expr | None
    model: RewriteModel
    text: str = ""  #: What assignments become.

    @property
    def is_of_row(self) -> bool:
        return bool(self.text)


@dataclass
class RegionWrites:
    """All of them, by the first of their statements."""

    known: dict[ast.stmt, RegionWrite] = field(default_factory=dict)

    def add(self, write: RegionWrite) -> None:
        self.known[write.statements[0]] = write

    def __len__(self) -> int:
        return len(self.known)

    @property
    def by_key(self) -> list[ast.stmt]:
        return [statement for statement, write in self.known.items() if not write.is_of_row]

    def texts(self) -> dict[tuple[ast.stmt, ...], str]:
        return {each.statements: each.text for each in self.known.values()}

    def check(self, transactions: Transactions) -> bool:
        """They are the last that their transaction does. Answers whether they would be separate puts."""
        in_order = sorted(self.known.values(), key=lambda each: _place(each.statements[0]))
        every = [statement for each in in_order for statement in each.statements]
        try:
            return bool(every) and self._check(in_order, every, transactions)
        except NotCertain as why:
            raise BlamedUse(every[0], why) from None

    def _check(self, in_order: Sequence[RegionWrite], every: list[ast.stmt], transactions: Transactions) -> bool:
        handles = {ast.unparse(each.handle): each.handle for each in in_order if each.handle is not None}
        if len(handles) > 1 or every != sorted(every, key=_place):
            raise NotCertain("its writes are mixed with each other", "change one row after the other")
        for table in _twice(in_order):
            raise NotCertain(
                f"two writes of {table} may be about one row, which a session knows and bodies do not",
                "a transaction for each",
            )
        handle = next(iter(handles.values()), None)
        opened = transactions.opened(handle)
        is_elsewhere = opened is None and transactions.is_committed_next(every, handle)
        return is_elsewhere or transactions.check_write(every, opened) or len(in_order) > 1


def _twice(writes: Sequence[RegionWrite]) -> Iterator[str]:
    """Tables of rows that are changed by their attributes, and by another write as well."""
    for write in writes:
        others = [each for each in writes if each is not write and each.model.column is write.model.column]
        if write.is_of_row and others:
            yield str(write.model.column.table)


def _place(statement: ast.stmt) -> tuple[int, int]:
    return statement.lineno, statement.col_offset
