"""`Difference`: one cell that two stores do not both have, or have otherwise. Pure; told without bodies."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.children import ChildKey
from schemaless_core.control.jobs.jobs import Finding
from tripstore.engines.validation.compare import BYTES, WHOLE, first_difference

#: The path of a difference in the ref keys: the stores have other versions of the column as its latest.
REF_KEY = "ref_key"

#: How cells are counted that only one store has, and rightly: the layout ignores deletions, which it was not told of.
EXPLAINED = "deletions_ignored"


class CellClass(StrEnum):
    """What the target's cell is, held against the source's."""

    MISSING = "missing"  #: The target has no cell of this column, or not this version.
    EXTRA = "extra"  #: The source has none.
    DIFFERS = "differs"  #: Both have one; the path says where it differs.


class NotCompared(StrEnum):
    """Why it is unknown whether a cell is equal."""

    BUSY = "busy"  #: It never rested, or the mirror did not get it.
    UNREADABLE = "unreadable"  #: A row of the company's that no cell can be made of.


class Difference(NamedTuple):
    """One difference, or one cell that could not be compared."""

    kind: CellClass | NotCompared
    row_key: UUID
    column_name: str
    #: What the source has; None: nothing.
    from_ref_key: int | None = None
    #: What the target has; None: nothing.
    to_ref_key: int | None = None
    #: Where it differs; of what was not compared: why.
    path: str = ""
    #: Whether it is an older version: its place among the ref keys is then both stores'.
    is_older: bool = False
    #: What saw it, if it was not the comparison of the latest cells: a decoder, an index.
    seen_by: str = ""
    #: Which of its column's children it is of; None: the column is one row, or it is an older version.
    child: int | None = None

    @property
    def is_difference(self) -> bool:
        return isinstance(self.kind, CellClass)

    @property
    def key(self) -> ChildKey:
        return ChildKey(self.row_key, self.column_name, self.child)

    @property
    def ref_key(self) -> int | None:
        """The version that it is about: the source's, where there is one."""
        return self.to_ref_key if self.from_ref_key is None else self.from_ref_key

    def document(self) -> dict[str, Json]:
        """As it stands in a key list."""
        found: dict[str, Json] = {"kind": str(self.kind), "row_key": str(self.row_key), "column": self.column_name}
        return found | self._details()

    def finding(self) -> Finding:
        """As a job keeps it."""
        return Finding(str(self.kind), self.row_key, self.column_name, self.ref_key, self._details())

    def _details(self) -> dict[str, Json]:
        found: dict[str, Json] = {
            "from_ref_key": self.from_ref_key,
            "to_ref_key": self.to_ref_key,
            "path": self.path,
        }
        if self.is_older:
            found["is_older"] = True
        if self.seen_by:
            found["seen_by"] = self.seen_by
        if self.child is not None:
            found["child"] = self.child
        return found


def from_document(document: Mapping[str, Json]) -> Difference:
    """A line of a key list. Raises `KeyError` or `ValueError` when it is none."""
    return _made(str(document["kind"]), UUID(str(document["row_key"])), str(document["column"]), document)


def from_finding(finding: Finding) -> Difference | None:
    """A difference that a job kept; None: the finding is of something else."""
    if finding.row_key is None or finding.column_name is None:
        return None
    return _made(finding.kind, finding.row_key, finding.column_name, finding.body)


def difference(key: ChildKey, wanted: Cell | None, held: Cell | None, *, is_older: bool = False) -> Difference | None:
    """How the target's cell differs from the source's; None: it does not."""
    ours = None if wanted is None else wanted.ref_key
    theirs = None if held is None else held.ref_key

    def of(kind: CellClass, path: str = "") -> Difference:
        return Difference(kind, *key.column, ours, theirs, path, is_older, child=key.child)

    if wanted is None or held is None:
        if wanted is held:
            return None
        return of(CellClass.MISSING if held is None else CellClass.EXTRA)
    if ours != theirs:
        return of(CellClass.DIFFERS, REF_KEY)
    if canonical_bytes(wanted.body) == canonical_bytes(held.body):
        return None
    path = first_difference(wanted.body, held.body)
    return of(CellClass.DIFFERS, WHOLE if path is None else path)


def of_bytes(key: ChildKey, ref_key: int | None) -> Difference:
    """Both have this version, and its bytes differ though its bodies do not, or cannot be read."""
    return Difference(CellClass.DIFFERS, *key.column, ref_key, ref_key, BYTES, child=key.child)


def _made(kind: str, row_key: UUID, column_name: str, details: Mapping[str, Json]) -> Difference:
    known: CellClass | NotCompared = CellClass(kind) if kind in list(CellClass) else NotCompared(kind)
    return Difference(
        known,
        row_key,
        column_name,
        _number(details.get("from_ref_key")),
        _number(details.get("to_ref_key")),
        str(details.get("path") or ""),
        bool(details.get("is_older")),
        str(details.get("seen_by") or ""),
        _number(details.get("child")),
    )


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) else None
