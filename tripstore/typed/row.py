"""`TypedRow`: a cell whose body has typed fields. `tripstore models` writes its subclasses, one for each column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self
from uuid import UUID

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import REF_KEY_MAX, Cell
from schemaless_core.errors import InvalidCell, InvalidRequest
from tripstore.typed.body_key import PLACE, BodyKey
from tripstore.typed.errors import UntypedCell
from tripstore.typed.kept import MISSING
from tripstore.typed.unfit import Unfit


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TypedRow:
    """One cell. Frozen: `dataclasses.replace` makes a changed copy, under `next_ref_key` for a new version.

    Equal when row key, ref key and the canonical bytes of the body are, as cells are.
    """

    column_name: ClassVar[str]
    #: How many of a ref key's lowest bits are the version of a child; 0: facts; None: the column holds one row.
    child_bits: ClassVar[int | None] = None

    row_key: UUID
    ref_key: int
    #: Keys of the body that the class does not know, as they are there.
    unknown: Mapping[str, Json] = field(default_factory=dict)
    #: The cell that it was read from, with its time and its body; a changed copy keeps it.
    read_from: Cell | None = field(default=None, repr=False)

    @classmethod
    def from_cell(cls, cell: Cell) -> Self:
        """The same as a typed row, or `UntypedCell`. `to_body` of it is the cell's body, byte for byte."""
        body = _body_of(cls, cell)
        keys = keys_of(cls)
        values = {}
        for attribute, key in keys.items():
            try:
                values[attribute] = key.read(body)
            except Unfit as unfit:
                raise _untyped(cls, cell, unfit.reason, _path(key, unfit)) from None
        known = {key.name for key in keys.values()}
        unknown = {name: value for name, value in body.items() if name not in known}
        made: Any = cls  # the values are those of a subclass
        row: Self = made(row_key=cell.row_key, ref_key=cell.ref_key, unknown=unknown, read_from=cell, **values)
        return row

    def to_body(self) -> dict[str, Json]:
        """The body of its cell, or `InvalidCell`. A value that was read and not changed stands there as it stood."""
        body = dict(self.unknown)
        before = None if self.read_from is None else self.read_from.body
        was = before if isinstance(before, dict) else None
        for attribute, key in keys_of(type(self)).items():
            if key.name in body:
                reason = f"{type(self).__name__} has a field for it, and it is among the unknown keys, too"
                raise InvalidCell(reason, path=f"$.{key.name}", hint=f"Set {attribute}.")
            try:
                value = key.write(getattr(self, attribute), was)
            except Unfit as unfit:
                raise InvalidCell(unfit.reason, path=_path(key, unfit), hint=unfit.hint) from None
            if value is not MISSING:
                body[key.name] = value
        return body

    def to_cell(self) -> Cell:
        """The row as a cell, or `InvalidCell`."""
        return Cell(self.row_key, self.column_name, self.ref_key, self.to_body())

    @classmethod
    def child_ref_key(cls, number: int, version: int = 0) -> int:
        """The ref key of a child row by its number, or `InvalidRequest`: no child may have it, or there are none."""
        bits = cls.child_bits
        if bits is None:
            raise InvalidRequest(
                f"{cls.column_name} holds one row, and no children.", hint="Its ref keys are versions."
            )
        ref_key = number << bits | version
        if not (0 <= version < 1 << bits and 0 <= ref_key <= REF_KEY_MAX):
            raise InvalidRequest(
                f"{cls.column_name} has no child {number}, version {version}.", hint=f"Versions end below {1 << bits}."
            )
        return ref_key

    @property
    def child_number(self) -> int | None:
        """Which of the row's children it is; None: the column holds one row."""
        return None if self.child_bits is None else self.ref_key >> self.child_bits

    @property
    def next_ref_key(self) -> int:
        """The ref key of its next version. Of a child that is a fact there is none."""
        bits, following = self.child_bits, self.ref_key + 1
        if bits is not None and following >> bits != self.ref_key >> bits:
            reason = "is a fact, which never changes" if bits == 0 else "has had all the versions that a child may have"
            raise InvalidRequest(
                f"{self.column_name} {self.ref_key} of row {self.row_key} {reason}.", hint="Put another child."
            )
        return following

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedRow):
            return NotImplemented
        mine, others = (self.column_name, self.row_key, self.ref_key), (other.column_name, other.row_key, other.ref_key)
        return mine == others and canonical_bytes(self.to_body()) == canonical_bytes(other.to_body())

    def __hash__(self) -> int:
        return hash((self.column_name, self.row_key, self.ref_key))


def keys_of(kind: type[TypedRow]) -> Mapping[str, BodyKey]:
    """The keys of bodies by the attributes of the class."""
    if kind not in _KEYS:
        told = {each.name: each.metadata[PLACE] for each in fields(kind) if PLACE in each.metadata}
        _KEYS[kind] = {attribute: key if key.name else replace(key, name=attribute) for attribute, key in told.items()}
    return _KEYS[kind]


#: Every row of a class passes here, and classes are few.
_KEYS: dict[type[TypedRow], Mapping[str, BodyKey]] = {}


def _body_of(kind: type[TypedRow], cell: Cell) -> dict[str, Json]:
    if cell.column_name != kind.column_name:
        raise _untyped(kind, cell, f"{kind.__name__} is of the column {kind.column_name}")
    if cell.body is None:
        raise _untyped(kind, cell, "it is a tombstone: what was there is deleted")
    if not isinstance(cell.body, dict):
        raise _untyped(kind, cell, f"its body is a {type(cell.body).__name__}, not an object")
    return cell.body


def _untyped(kind: type[TypedRow], cell: Cell, reason: str, path: str = "") -> UntypedCell:
    return UntypedCell(kind.__name__, cell.column_name, cell.row_key, cell.ref_key, reason, path)


def _path(key: BodyKey, unfit: Unfit) -> str:
    return f"$.{key.name}{unfit.path}"
