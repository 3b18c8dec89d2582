"""Names, tables and choices as they stand in a layout: each is checked, and a complaint names the value and a fix."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from schemaless_core.cell.cell import check_column_name
from schemaless_core.definitions.documents import DocumentPlace, meant
from schemaless_core.errors import InvalidCell
from schemaless_core.urls import shown_setting
from tripstore.backends.postgres.layout.layout import LEGACY_ID, TableName
from tripstore.backends.postgres.names import SCHEMA

#: Bytes of an identifier in Postgres.
NAME_BYTES_MAX = 63

_QUOTES = "Write it in quotes: without them YAML takes it for something else."

Choice = TypeVar("Choice", bound=StrEnum)


def named(value: object, place: DocumentPlace, example: str) -> list[tuple[object, object]]:
    if not isinstance(value, dict) or not value:
        reason = "is empty" if isinstance(value, dict) else f"{shown_setting(value)} is no mapping"
        raise place.complaint(reason, f"Write {example}.")
    return list(value.items())


def column_name(name: object, place: DocumentPlace) -> str:
    try:
        check_column_name(name)  # type: ignore[arg-type]  # it is asked whether it is a string
    except InvalidCell as refused:
        raise place.complaint(refused.reason, _QUOTES if type(name) in (bool, int, float) else refused.hint) from None
    if name == LEGACY_ID:
        raise place.under(LEGACY_ID).complaint("is made from row_key by itself", "Leave it out, or name it otherwise.")
    return str(name)


def field_name(name: object, place: DocumentPlace) -> str:
    if not isinstance(name, str):
        raise place.complaint(f"{shown_setting(name)} is no name for a field", _QUOTES)
    if not name or not name.isprintable():
        raise place.complaint(f"{name!r} is no name for a field", "Use printable characters.")
    return name


def choice(choices: type[Choice], value: object, place: DocumentPlace, default: Choice | None = None) -> Choice:
    if value is None and default is not None:
        return default
    known = {member.value: member for member in choices}
    chosen = known.get(value.lower()) if isinstance(value, str) else None
    if chosen is None:
        raise place.complaint(f"{shown_setting(value)} is not known here", meant(value, known, "Known"))
    return chosen


def table_name(value: object, place: DocumentPlace) -> TableName:
    if not isinstance(value, str):
        raise place.complaint(f"{shown_setting(value)} is no table", "Write its name, or schema.name.")
    found = TableName.find(value)
    if found is None:
        reason = "has more than one dot" if '"' not in value and value.count(".") > 1 else "is no table"
        hint = """Write its name, or schema.name; a name with a dot in double quotes within single ones: '"a.b"'."""
        raise place.complaint(f"{value!r} {reason}", hint)
    schema, name = found
    for part in found:
        physical_name(part, place)
    if schema == SCHEMA or schema.startswith("pg_") or schema == "information_schema":
        raise place.complaint(f"{value!r} is not one of the company's tables", "Name one of theirs.")
    return TableName(schema, name)


def optional_name(value: object, place: DocumentPlace) -> str | None:
    return None if value is None else physical_name(value, place)


def physical_name(value: object, place: DocumentPlace) -> str:
    """A name as Postgres has it; it stands in SQL quoted, so case matters."""
    if not isinstance(value, str):
        raise place.complaint(f"{shown_setting(value)} is no name", _QUOTES)
    if not value or len(value.encode(errors="replace")) > NAME_BYTES_MAX:
        raise place.complaint(f"{shown_setting(value)} is no name", f"Names have 1 to {NAME_BYTES_MAX} bytes.")
    if not is_supported(value):
        hint = 'Rename it in the database: " and % and what cannot be printed are not supported.'
        raise place.complaint(f"{shown_setting(value)} holds a character that is not supported", hint)
    return value


def is_supported(name: str) -> bool:
    """Whether an identifier may stand in a layout. A % would be taken for a parameter by the driver."""
    return name.isprintable() and '"' not in name and "%" not in name
