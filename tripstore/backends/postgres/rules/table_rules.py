"""`TableRules`: what the catalogue says of the mapped tables, as a document that travels, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from schemaless_core.canonical import Json
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.numbers.sequences import NumberSequence, RowsOf, read_sequences

Document = dict[str, Json]


def read_document(rows_of: RowsOf, layout: Layout) -> Document:
    """The rules as the database has them now."""
    sequences = read_sequences(rows_of, layout)
    return {"sequences": {name: each.to_document() for name, each in sequences.items()}}


@dataclass(frozen=True)
class TableRules:
    """Of all mapped columns."""

    #: By column; who counts per parent has none.
    sequences: Mapping[str, NumberSequence] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        return cls({name: NumberSequence.from_document(each) for name, each in document["sequences"].items()})
