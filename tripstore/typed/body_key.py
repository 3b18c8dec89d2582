"""`BodyKey`: one top-level key of a column's bodies, and what a typed row holds for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemaless_core.cell.canonical import Json
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.forms.plain import JSON
from tripstore.typed.kept import MISSING, Missing

#: Where a dataclass's field has it.
PLACE = "tripstore"


@dataclass(frozen=True, slots=True)
class BodyKey:
    """A field that is NULL is `null` in the body or no key of it, as the layout says; in Python it is None.

    Of a json column `null` is a value. So None is that, and MISSING is no key, unless the layout keeps NULL as `null`.
    """

    name: str
    form: ValueForm
    keeps_null: bool = False

    @property
    def absent(self) -> Missing | None:
        """What a row holds for a body without this key."""
        return MISSING if self._has_null else None

    def read(self, body: Mapping[str, Json]) -> object:
        value = body.get(self.name, self.absent)
        return value if value is None or value is MISSING else self.form.read(value)

    def write(self, value: object, was: Mapping[str, Json] | None) -> Json | Missing:
        """What stands under the key; MISSING for none. `was`: the body that the row was read from, if it was."""
        if value is MISSING or (value is None and self._has_null):
            return None if value is None else MISSING
        before = MISSING if was is None else was.get(self.name, MISSING)
        if value is None:
            is_null = before is None or (self.keeps_null and (was is None or before is not MISSING))
            return None if is_null else MISSING
        return self.form.write(value) if before is None or before is MISSING else self.form.rewritten(value, before)

    @property
    def _has_null(self) -> bool:
        return self.form is JSON and not self.keeps_null


def stored(form: ValueForm, *, key: str | None = None, keeps_null: bool = False) -> Any:
    """A field of a typed row; without `key` the body's key has its name. Type checkers see its default alone."""
    told = BodyKey(key or "", form, keeps_null)
    return field(default=told.absent, metadata={PLACE: told})
