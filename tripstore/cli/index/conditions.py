"""Conditions and values of an index query as a person types them: text becomes what the field's type wants.

Only what no text can be is made here, numbers and booleans; everything else is judged by the query itself.
"""

from __future__ import annotations

import json
import re
from typing import cast

from schemaless_core.cell.answers import Condition, Operator, Scalar
from schemaless_core.definitions.index import IndexDefinition, IndexField
from schemaless_core.definitions.values import IndexFieldType
from schemaless_core.errors import InvalidRequest, shown

_CONDITION = re.compile(r"\s*(\w+)\s*(!=|<=|>=|<>|==|=|<|>|in\b|between\b)\s*(.*?)\s*", re.DOTALL | re.IGNORECASE)
_BETWEEN = re.compile(r"(.*?)\s+and\s+(.*)", re.DOTALL | re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_HINT = "Write FIELD OPERATOR VALUE, like 'city_uuid=…', 'fare >= 10', 'seats in 2,4' or 'fare between 10 and 20'."


def parse_condition(definition: IndexDefinition | None, text: str) -> Condition:
    """Return the condition that a text says. Without a definition, values stay texts."""
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise InvalidRequest(f"{shown(text)} is no condition.", hint=_HINT)
    name, operator, value = parts[1], parts[2].lower(), parts[3]
    field = None if definition is None else definition.field(name)
    if operator == "in":
        return name, "in", [typed(field, each) for each in _several(value)]
    if operator == "between":
        return name, "between", [typed(field, each) for each in _two(text, value)]
    return name, cast(Operator, operator), typed(field, value)  # the query judges it


def typed(field: IndexField | None, text: str) -> Scalar:
    """Return a value's text as what the field's type wants."""
    if field is None:
        return text
    try:
        if field.kind is IndexFieldType.INT:
            return int(text)
        if field.kind is IndexFieldType.FLOAT:
            return float(text)
        if field.kind is IndexFieldType.BOOLEAN:
            return _BOOLEANS[text.lower()]
    except (ValueError, KeyError):
        hint = "Write true or false." if field.kind is IndexFieldType.BOOLEAN else "Write a number."
        raise InvalidRequest(f"{field.name} is of type {field.kind.value}, {shown(text)} is not.", hint=hint) from None
    return text


def _two(text: str, values: str) -> list[str]:
    """The ends of a range: `A and B`, or a JSON list."""
    if values.startswith("["):
        return _several(values)
    ends = _BETWEEN.fullmatch(values)
    if ends is None:
        raise InvalidRequest(f"{shown(text)} names no range.", hint=_HINT)
    return [ends[1], ends[2]]


def _several(text: str) -> list[str]:
    """Values with commas between them, or a JSON list, in which texts may hold commas."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(",")] if text else []
    try:
        values = json.loads(text, parse_int=str, parse_float=str)
    except ValueError as error:
        raise InvalidRequest(f"{shown(text)} is no JSON list ({error}).", hint=_HINT) from None
    return [value if isinstance(value, str) else json.dumps(value) for value in values]
