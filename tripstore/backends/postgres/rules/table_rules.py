"""`TableRules`: what the catalogue says of the mapped tables, as a document that travels, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemaless_core.cell.canonical import Json
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.numbers.sequences import NumberSequence, RowsOf, read_sequences
from tripstore.backends.postgres.rules.catalogue import read_tables
from tripstore.backends.postgres.rules.column_rules import ColumnRules, OncePerParent, Reference, Texts, Violation

Document = dict[str, Json]


def read_document(rows_of: RowsOf, layout: Layout) -> Document:
    """The rules as the database has them now."""
    sequences = read_sequences(rows_of, layout)
    return {
        "sequences": {name: each.to_document() for name, each in sequences.items()},
        "tables": read_tables(rows_of, sorted(layout.tables)),
    }


class TableRules:
    """Of all mapped columns; a column whose table is not there has none."""

    def __init__(self, layout: Layout, document: Mapping[str, Any]) -> None:
        #: By column; one that counts per parent has none.
        self.sequences = {name: NumberSequence.from_document(each) for name, each in document["sequences"].items()}
        tables = document["tables"]
        self.columns = {
            name: ColumnRules(layout, column, tables[column.table.sql])
            for name, column in layout.columns.items()
            if column.table.sql in tables
        }

    def find_violation(self, column_name: str, ref_key: int, texts: Texts) -> Violation | None:
        """What Postgres would refuse for sure of a cell that becomes this row; None: nothing that is known here."""
        rules = self.columns.get(column_name)
        return None if rules is None else rules.find_violation(ref_key, texts)

    def unique(self, column_name: str) -> Mapping[str, str]:
        """Constraints that allow a value of one field once, by field."""
        rules = self.columns.get(column_name)
        return {} if rules is None else rules.unique

    def references(self, column_name: str) -> Sequence[Reference]:
        """The fields that point to rows of the datastore."""
        rules = self.columns.get(column_name)
        return () if rules is None else rules.references

    def once_per_parent(self, column_name: str) -> Sequence[OncePerParent]:
        """What one parent's child rows may have once."""
        rules = self.columns.get(column_name)
        return () if rules is None else rules.once_per_parent

    def points_by_number(self, column_name: str) -> str | None:
        """The foreign key that the number of child rows is, where no sequence gives it."""
        rules = self.columns.get(column_name)
        return None if rules is None or column_name in self.sequences else rules.points_by_number
