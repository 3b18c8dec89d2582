"""Statements about one column of a layout: what they take when several places hold an answer is no accident."""

from __future__ import annotations

import pytest

from tests.legacy import attempts, base, notes
from tripstore.backends.postgres.cells.rows import ColumnRows
from tripstore.backends.postgres.layout.layout import MappedColumn


@pytest.mark.parametrize("column", [base(), attempts(), notes()], ids=lambda column: column.name)
def test_a_limit_has_an_order(column: MappedColumn) -> None:
    rows = ColumnRows(column)
    for sql in (rows.at("$1", "$2"), rows.latest("$1"), rows.newest("$1", 3), rows.above("$1", "$2", "$3")):
        outer = sql.rpartition(") AS ")[2]
        assert " LIMIT " in outer
        assert " ORDER BY " in outer
