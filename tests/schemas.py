"""Holds a document against a JSON schema: the few keywords that ours uses, and no other without a complaint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip
_KNOWN = frozenset(
    {"$schema", "$defs", "$ref", "title", "description", "type", "properties", "required", "items", "anyOf", "const"}
    | {"format", "additionalProperties", "default"}
)


def faults(document: Any, schema: Mapping[str, Any]) -> list[str]:
    """What of the document the schema does not allow."""
    return list(_faults(document, schema, schema["$defs"], "$"))


def _faults(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "$ref" in schema:
        yield from _faults(value, definitions[schema["$ref"].removeprefix("#/$defs/")], definitions, path)
    if "const" in schema and value != schema["const"]:
        yield f"{path} is {value!r}, not {schema['const']!r}"
    if "anyOf" in schema and all(list(_faults(value, each, definitions, path)) for each in schema["anyOf"]):
        yield f"{path} is none of what it may be"
    if "type" in schema:
        is_number = schema["type"] in ("integer", "number") and isinstance(value, bool)
        if not isinstance(value, _TYPES[schema["type"]]) or is_number:
            yield f"{path} is no {schema['type']}"
            return
    if isinstance(value, str):
        yield from _format_faults(value, schema.get("format"), path)
    if isinstance(value, dict):
        yield from _object_faults(value, schema, definitions, path)
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from _faults(each, schema["items"], definitions, f"{path}[{number}]")


def _object_faults(
    value: dict[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is missing"
    for name, each in value.items():
        if name in properties:
            yield from _faults(each, properties[name], definitions, f"{path}.{name}")
        elif isinstance(others, dict):
            yield from _faults(each, others, definitions, f"{path}.{name}")
        elif properties:
            yield f"{path}.{name} is not described"


def _format_faults(value: str, wanted: str | None, path: str) -> Iterator[str]:
    try:
        if wanted == "date-time":
            datetime.fromisoformat(value)
        elif wanted == "uuid":
            UUID(value)
        else:
            assert wanted is None, wanted
    except ValueError:
        yield f"{path} is no {wanted}"
