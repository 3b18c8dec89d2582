"""`Value`: a field type, as text of Postgres and as a value of a body."""

from __future__ import annotations

from typing import Protocol

from schemaless_core import Json


class Value(Protocol):
    """Knows one field type. Both directions raise `Refused`."""

    def read(self, text: str) -> Json:
        """The value of a body for a text of Postgres."""
        ...

    def write(self, value: Json) -> str:
        """The text for a value of a body; for every text read, `write(read(text))` is equal to it in Postgres."""
        ...
