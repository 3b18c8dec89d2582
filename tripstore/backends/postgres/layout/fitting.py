"""Which physical types can hold the values of a field type, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping

from tripstore.backends.postgres.layout.layout import Field, FieldType
from tripstore.backends.postgres.layout.live import LiveType, TypeKind

INTEGERS = frozenset({"int2", "int4", "int8"})
TEXTS = frozenset({"text", "varchar", "bpchar"})
#: Types of keys that rows of other tables are found by.
KEYS = INTEGERS | TEXTS | {"uuid"}

#: Built-in types by what their values can be in bodies. Texts of UUIDs must be written as Postgres writes them.
HELD_BY: Mapping[FieldType, frozenset[str]] = {
    FieldType.UUID: frozenset({"uuid"}) | TEXTS,
    FieldType.INT: INTEGERS,
    FieldType.FLOAT: frozenset({"float4", "float8"}),
    FieldType.DECIMAL: frozenset({"numeric"}),
    FieldType.BOOLEAN: frozenset({"bool"}),
    FieldType.DATETIME: frozenset({"timestamptz", "timestamp"}),
    FieldType.DATE: frozenset({"date"}),
    FieldType.BYTES: frozenset({"bytea"}),
    FieldType.JSON: frozenset({"json", "jsonb"}),
}

#: Types that have a field type of their own: as a string their text would be another one.
_NOT_STRINGS = frozenset().union(*HELD_BY.values()) - TEXTS - {"uuid"}

#: Types whose text depends on the session, or says nothing outside this database.
_UNSTEADY: Mapping[str, str] = {
    "money": "its text depends on lc_monetary: make it numeric",
    "oid": "it points into this very database: copy what it points to into bytea",
    "xid": "it means nothing outside this database",
    "cid": "it means nothing outside this database",
    "tid": "it means nothing outside this database",
    "xid8": "it means nothing outside this database",
    "pg_snapshot": "it means nothing outside this database",
    "txid_snapshot": "it means nothing outside this database",
    "refcursor": "it means nothing outside this session",
    **{
        f"reg{what}": "its text depends on search_path: make it text"
        for what in (
            "class",
            "collation",
            "config",
            "dictionary",
            "namespace",
            "oper",
            "operator",
            "proc",
            "procedure",
            "role",
            "type",
        )
    },
}


def find_misfit(field: Field, found: LiveType) -> str | None:
    """Why values of this type cannot be this field's; None when they can."""
    plain = found.plain
    never = _never(plain)
    if never is not None:
        return never
    if field.kind is FieldType.ARRAY:
        if plain.element is None:
            return "it is no array"
        return _misfit(field.items or FieldType.STRING, plain.element, "items")
    if plain.is_array:
        return "it is an array: write type: array"
    return _misfit(field.kind, found, "type")


def proposed_type(found: LiveType) -> FieldType | None:
    """The field type for a physical type; None where there is none."""
    plain = found.plain
    if _never(plain) is not None:
        return None
    if plain.element is not None:
        return FieldType.ARRAY
    for kind, held in HELD_BY.items():
        if plain.is_built_in and plain.name in held - TEXTS:
            return kind
    return FieldType.STRING


def _never(plain: LiveType) -> str | None:
    """Why no field type holds this type."""
    if plain.is_char_without_length:
        return "blanks at the end of its values would be lost: make it text, varchar or char with a length"
    if plain.element is not None and plain.element.delimiter != ",":
        return f"{plain.element.delimiter} is between its elements, not a comma: make it an array of text"
    return _no_text(plain if plain.element is None else plain.element.plain)


def _no_text(plain: LiveType) -> str | None:
    """Why a type, or the elements of an array, have no text that bodies could hold."""
    if plain.kind is TypeKind.COMPOSITE:
        return "composite types are not supported: map its parts as columns, or make it json"
    if plain.kind is TypeKind.PSEUDO:
        return "it is a pseudo-type"
    if plain.is_built_in and plain.name in _UNSTEADY:
        return _UNSTEADY[plain.name]
    return None


def _misfit(kind: FieldType, found: LiveType, key: str) -> str | None:
    plain = found.plain
    if kind is FieldType.STRING:
        if plain.is_built_in and plain.name in _NOT_STRINGS:
            return f"write {key}: {proposed_type(plain)}"
        return None
    if plain.is_built_in and plain.name in HELD_BY[kind]:
        return None
    proposed = proposed_type(plain)
    return f"write {key}: {proposed.value}" if proposed else "no field type holds it"
