"""Parameters of paths and queries: what each looks like in the OpenAPI document, and how its text is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from schemaless_core.cell.answers import ANY
from schemaless_core.errors import InvalidRequest, shown

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_WHOLE = re.compile(r"-?[0-9]{1,20}")
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class ParameterKind:
    """How a text is read, or `ValueError`."""

    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or of a query. Without a default it must be there."""

    name: str
    kind: ParameterKind
    meaning: str
    place: Literal["path", "query"] = "query"
    default: Any = REQUIRED

    def value(self, given: Sequence[str]) -> Any:
        """Read what a request has of it."""
        if not given:
            if self.default is REQUIRED:
                raise InvalidRequest(f"{self.name} is missing.", hint=self.meaning)
            return self.default
        if self.kind.is_list:
            return [self._read(each) for each in given]
        if len(given) > 1:
            raise InvalidRequest(f"{self.name} is given {len(given)} times.", hint="Give it once.")
        return self._read(given[0])

    def document(self) -> dict[str, Any]:
        """What the OpenAPI document says of it."""
        schema = dict(self.kind.schema)
        if self.default not in (REQUIRED, None, ANY, ()):
            schema["default"] = self.default
        is_required = self.default is REQUIRED
        said = {"name": self.name, "in": self.place, "description": self.meaning, "schema": schema}
        return said | ({"required": True} if is_required else {})

    def _read(self, text: str) -> Any:
        try:
            return self.kind.read(text)
        except ValueError:
            raise InvalidRequest(f"{self.name} is {shown(text)}.", hint=self.meaning) from None


def _uuid(text: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return UUID(text)


def whole(text: str) -> int:
    """A whole number of 64 bits or so; the store says which it takes."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _expected(text: str) -> int | None:
    return None if text == "none" else whole(text)


def _child_bits(text: str) -> tuple[str, int]:
    """A column of child rows: its name, and how many bits of a ref key are the version."""
    name, _, bits = text.rpartition(":")
    if not name or not 0 <= whole(bits) <= 62:
        raise ValueError(text)
    return name, int(bits)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


_NUMBER_TEXT = {"type": "string", "pattern": "^-?[0-9]{1,20}$"}
UUID_TEXT = ParameterKind({"type": "string", "format": "uuid"}, _uuid)
INT64 = ParameterKind(_NUMBER_TEXT, whole)
WHOLE = ParameterKind({"type": "integer", "format": "int32"}, whole)
TEXT = ParameterKind({"type": "string"}, str)
TEXTS = ParameterKind({"type": "array", "items": {"type": "string"}}, str, is_list=True)
TIME = ParameterKind({"type": "string", "format": "date-time"}, _time)
EXPECTED = ParameterKind({"type": "string", "pattern": "^(none|-?[0-9]{1,20})$"}, _expected)
CHILDREN = ParameterKind({"type": "array", "items": {"type": "string"}}, _child_bits, is_list=True)
