"""Names of classes and attributes, made of names that need be none in Python. The same names for the same text."""

from __future__ import annotations

import re
from collections.abc import Collection
from keyword import iskeyword
from unicodedata import normalize

from tripstore import typed
from tripstore.typed.entry import TypedEntry
from tripstore.typed.row import TypedRow

#: What a class body of a written module reads: a field of such a name would stand in its way.
_OTHERS = {"ClassVar", "Decimal", "UUID", "bool", "bytes", "dataclass", "dt", "float", "int", "str", "tuple"}
USED = frozenset({*typed.__all__, *_OTHERS})
_OF_ROWS = USED | {name for kind in (TypedRow, TypedEntry) for name in dir(kind)}


def class_name(text: str, taken: Collection[str]) -> str:
    """`driver_partner_index` is DriverPartnerIndex, and `BASE` is Base; one that is taken gets a number."""
    parts = re.split("_+", _worded(text))
    name = "".join(part[:1].upper() + (part[1:].lower() if part.isupper() else part[1:]) for part in parts)
    return _free(name if name[:1].isalpha() else f"Column{name}", {*taken, *USED}, "")


def attribute_name(key: str, taken: Collection[str]) -> str:
    """The key itself wherever it may be an attribute: `class` is class_, `unit price` is unit_price."""
    name = _worded(key)
    if name.startswith("__") or not name.strip("_"):  # a class would change it
        name = name.strip("_") or "key"
    if not name.isidentifier():
        name = f"key_{name}"
    if iskeyword(name) or name in _OF_ROWS:
        name += "_"
    return _free(name, taken, "_")


def _worded(text: str) -> str:
    """With _ for what no name in Python has, such as a space or an old sign for a number."""
    return "".join(each if f"a{each}".isidentifier() else "_" for each in normalize("NFKC", text))


def singular(datastore: str) -> str:
    """What one row is called by a datastore that has the name of many: trips, cities, addresses."""
    for ending, one in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if datastore.endswith(ending):
            return datastore.removesuffix(ending) + one
    return datastore if datastore.endswith(("ss", "us", "is")) else datastore.removesuffix("s")


def _free(name: str, taken: Collection[str], between: str) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}{between}{number}"
    return found
