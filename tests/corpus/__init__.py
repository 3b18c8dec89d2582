"""The corpus: values that lose something on the way between databases, one folder per case.

    tests/corpus/<case>/case.yaml
        says:    what the case shows
        type:    the physical type of the column `value`, as in CREATE TABLE
        setup:   statements before it: types, other tables
        needs:   what a server may lack: an extension (citext), or xml
        column:  fields, and extra, of the column of cells, as in a layout; its table is
                 `source` with id, uuid, version, label (a text, always 'a') and value
        rows:    [{sql, body} or {sql, unreadable, because}]: an SQL expression, and the body of its row as JSON; or
                 the path that is refused, and a part of the reason
        puts:    [{body, refused, by, because}]: bodies that no row holds, and the path that is refused. By codec:
                 `because` is a part of the reason; by store: it is an SQLSTATE, `other` when Postgres makes
                 another row of them, or a part of the reason why that row cannot be read
        misfit:  a part of the reason why `check` refuses such a column; then there are no rows

An expression must mean the same in every session: no literal with a backslash but in E'', none in letters beyond
ASCII, times with their offset, dates with the year first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from schemaless_core.canonical import canonical_bytes, from_canonical
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout

FOLDER = Path(__file__).parent
COLUMN = "BASE"
TABLE = "source"


@dataclass(frozen=True, slots=True)
class Row:
    """A value in SQL, and its body or the refusal."""

    sql: str
    body: bytes | None
    refused: str
    because: str


@dataclass(frozen=True, slots=True)
class Put:
    """A body that no row of the case's table holds."""

    body: bytes
    refused: str
    by: Literal["codec", "store"]
    because: str


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    type: str
    setup: Sequence[str]
    needs: str | None
    column: Mapping[str, Any]
    rows: tuple[Row, ...]
    puts: tuple[Put, ...]
    misfit: str | None

    def __str__(self) -> str:
        return self.name

    def layout(self, schema: str) -> Layout:
        """The layout of the case's tables in a schema."""

        def placed(lookup: Mapping[str, str]) -> Mapping[str, str]:
            return {**lookup, "table": f"{schema}.{lookup['table']}"}

        fields = {
            name: {**field, **({"lookup": placed(field["lookup"])} if "lookup" in field else {})}
            for name, field in self.column.get("fields", {}).items()
        }
        table = f"{schema}.{TABLE}"
        column = {**self.column, "table": table, "ref_key": {"version": "version"}, "fields": fields}
        row_key = {"table": table, "id": "id", "uuid": "uuid"}
        return load_layout({"datastore": "corpus", "row_key": row_key, "columns": {COLUMN: column}})


def load_case(folder: Path) -> Case:
    """Read a case in full; a key that nobody knows is an error, since it would test nothing."""
    document = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    unknown = document.keys() - {"says", "type", "setup", "needs", "column", "rows", "puts", "misfit"}
    assert not unknown, f"{folder.name} has {unknown}"
    rows = tuple(_row(**row) for row in document.get("rows", ()))
    puts = tuple(_put(**put) for put in document.get("puts", ()))
    misfit = document.get("misfit")
    assert document["says"]
    assert bool(rows) != bool(misfit), f"{folder.name} shows nothing, or both"
    setup = document.get("setup", ())
    return Case(folder.name, document["type"], setup, document.get("needs"), document["column"], rows, puts, misfit)


def _row(*, sql: str, body: str | None = None, unreadable: str = "", because: str = "") -> Row:
    assert (body is None) == bool(unreadable and because), sql
    return Row(sql, None if body is None else _canonical(body), unreadable, because)


def _put(*, body: str, refused: str, by: Literal["codec", "store"], because: str) -> Put:
    assert by in ("codec", "store")
    return Put(_canonical(body), refused, by, because)


def _canonical(text: str) -> bytes:
    """Cases are JSON that people can read, with escapes for what they could not see."""
    return canonical_bytes(from_canonical(text.encode()))


CASES = tuple(load_case(path.parent) for path in sorted(FOLDER.glob("*/case.yaml")))
