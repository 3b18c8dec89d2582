"""Typed rows: what the classes are made of that `tripstore models` writes, and the calls that take and give them."""

from schemaless_core.cell.canonical import Json
from tripstore.typed.body_key import stored
from tripstore.typed.calls import typed
from tripstore.typed.column import TypedColumn
from tripstore.typed.entry import TypedEntry, indexed
from tripstore.typed.errors import UntypedCell
from tripstore.typed.forms.arrays import array_of
from tripstore.typed.forms.plain import BOOLEANS, BYTES, DECIMALS, FLOATS, INTS, JSON, STRINGS, UUIDS
from tripstore.typed.forms.times import DATES, DATETIMES
from tripstore.typed.index import TypedIndex
from tripstore.typed.kept import MISSING, Missing, NestedArray, TimeText
from tripstore.typed.page import Deleted, TypedPage
from tripstore.typed.row import TypedRow

__all__ = [
    "BOOLEANS",
    "BYTES",
    "DATES",
    "DATETIMES",
    "DECIMALS",
    "Deleted",
    "FLOATS",
    "INTS",
    "JSON",
    "Json",
    "MISSING",
    "Missing",
    "NestedArray",
    "STRINGS",
    "TimeText",
    "TypedColumn",
    "TypedEntry",
    "TypedIndex",
    "TypedPage",
    "TypedRow",
    "UUIDS",
    "UntypedCell",
    "array_of",
    "indexed",
    "stored",
    "typed",
]
