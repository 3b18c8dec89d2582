"""Keys of changes as a person types and pastes them: ROW_KEY/COLUMN/REF_KEY, or ROW_KEY for all changes of a row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from schemaless_core.cell.cell import CellKey

_ADVICE = "`tripstore mirror parked` shows keys as they are typed."


class WholeKey(click.ParamType[CellKey]):
    """One cell's."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CellKey:
        key = value if isinstance(value, CellKey) else _whole(value)
        if key is None:
            self.fail(f"{value!r} is no ROW_KEY/COLUMN/REF_KEY; {_ADVICE}", param, ctx)
        return key


class KeyOrRow(click.ParamType["CellKey | UUID"]):
    """One cell's, or a row's."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CellKey | UUID:
        if isinstance(value, CellKey | UUID):
            return value
        key = _whole(value) or _row(value)
        if key is None:
            self.fail(f"{value!r} is neither a ROW_KEY nor a ROW_KEY/COLUMN/REF_KEY; {_ADVICE}", param, ctx)
        return key


def key_text(key: CellKey) -> str:
    """A key as it is typed."""
    return f"{key.row_key}/{key.column_name}/{key.ref_key}"


def _whole(text: str) -> CellKey | None:
    """A column's name may hold a slash: the first part is a UUID, the last a number."""
    first, _, rest = text.partition("/")
    column_name, _, ref_key = rest.rpartition("/")
    row_key = _row(first)
    try:
        return CellKey(row_key, column_name, int(ref_key)) if row_key and column_name else None
    except ValueError:
        return None


def _row(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
