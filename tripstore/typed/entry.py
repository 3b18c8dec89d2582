"""`TypedEntry`: what an index holds of a row, typed. `tripstore models` writes its subclasses, one for each index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import UUID

from schemaless_core.cell.answers import IndexEntry, Scalar
from tripstore.typed.body_key import PLACE

#: The type of an index's shard value.
S = TypeVar("S", bound=Scalar)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedEntry(Generic[S]):
    """One row that an index query found. Its values are of the index's types: decimals without needless zeros."""

    index_name: ClassVar[str]

    row_key: UUID

    @classmethod
    def from_entry(cls, entry: IndexEntry) -> Self:
        made: Any = cls  # the values are those of a subclass
        values = {attribute: entry.fields.get(name) for attribute, name in names_of(cls).items()}
        typed: Self = made(row_key=entry.row_key, **values)
        return typed


def indexed(*, key: str) -> Any:
    """A field of an entry whose name is no name in Python. Type checkers see its default alone."""
    return field(default=None, metadata={PLACE: key})


def names_of(kind: type[TypedEntry[Any]]) -> Mapping[str, str]:
    """The fields of the index by the attributes of the class."""
    return {each.name: each.metadata.get(PLACE, each.name) for each in fields(kind) if each.name != "row_key"}
