"""`ValueForm`: one type of values, as a body holds them and as Python does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemaless_core.cell.canonical import Json


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Both directions raise `Unfit`, and neither changes a value: what was read is written as it was.

    Bodies may hold one value in several ways, `"1.50"` and `1.5`, or a time with another offset. `read` takes all of
    them, `write` knows the layout's own; so a value that was not changed keeps the way in which it was read.
    """

    read: Callable[[Json], object]
    write: Callable[[Any], Json]

    def rewritten(self, value: object, was: Json) -> Json:
        """A value for a body that held `was` under its key."""
        read = self.read(was)
        # In Python 1 == True, 0.0 == -0.0 and 1.10 == 1.1, and no NaN is equal to another: their texts differ.
        is_unchanged = read is value or (type(read) is type(value) and repr(read) == repr(value))
        return was if is_unchanged else self.write(value)
