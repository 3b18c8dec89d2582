"""The corpus: values that lose something on the way between databases, one folder per case.

    tests/corpus/<case>/case.yaml
        says:    what the case shows
        type:    the physical type of the column `value`, as in CREATE TABLE
        setup:   statements before it: types, other tables
        needs:   what a server may lack: an extension (citext), xml, icu, or a version (postgres17)
        column:  fields, and extra, of the column of cells, as in a layout; its table is `source`, child rows of
                 `corpus.parents` with parent, uuid, n, version, label (a text, always 'a') and value
        rows:    [{sql, body} or {sql, unreadable, because}]: an SQL expression, and the body of its row as JSON; or
                 the path that is refused, and a part of the reason. At least two that differ: one replaces another
        puts:    [{body, refused, because}]: bodies that no row holds, the path that is refused, and a part of the
                 reason, or the SQLSTATE that Postgres refuses with
        misfit:  a part of the reason why `check` refuses such a column; then there are no rows

An expression must mean the same in every session: no literal with a backslash but in E'', none in letters beyond
ASCII, times with their offset, dates with the year first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from schemaless_core.cell.canonical import canonical_bytes, from_canonical

FOLDER = Path(__file__).parent
TABLE = "source"
SQLSTATE = re.compile(r"\d\d[0-9A-Z]{3}")


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
    because: str

    @property
    def is_refused_by_postgres(self) -> bool:
        """Whether the reason is an SQLSTATE."""
        return SQLSTATE.fullmatch(self.because) is not None


class Life(NamedTuple):
    """What becomes of one row: it is inserted with a value, updated to another, and deleted."""

    n: int
    first: Row
    second: Row


@dataclass(frozen=True)
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

    @property
    def schema(self) -> str:
        return "case_" + self.name.replace("-", "_")

    @property
    def table(self) -> str:
        return f"{self.schema}.{TABLE}"

    @cached_property
    def lives(self) -> tuple[Life, ...]:
        """Each value once as INSERT and once as UPDATE, if there is another body to go on from."""
        return _lives(self.rows)

    @cached_property
    def readable_lives(self) -> tuple[Life, ...]:
        """The same of values that have a body."""
        return _lives([row for row in self.rows if row.body is not None])

    @property
    def ddl(self) -> str:
        """Its types and tables, in a schema of its own."""
        return f"""
        CREATE SCHEMA {self.schema}; SET search_path = {self.schema};
        {";".join(self.setup) or "SELECT 1"};
        CREATE TABLE {TABLE} (parent bigint NOT NULL REFERENCES corpus.parents, uuid uuid NOT NULL, n bigint NOT NULL,
            version bigint NOT NULL DEFAULT 0, label text DEFAULT 'a', value {self.type},
            PRIMARY KEY (uuid, n), UNIQUE (parent, n));
        RESET search_path"""

    @property
    def document(self) -> dict[str, Any]:
        """Its column in a layout."""

        def placed(lookup: Mapping[str, str]) -> Mapping[str, str]:
            return {**lookup, "table": f"{self.schema}.{lookup['table']}"}

        fields = {
            name: {**field, **({"lookup": placed(field["lookup"])} if "lookup" in field else {})}
            for name, field in self.column.get("fields", {}).items()
        }
        source = {"parent": {"column": "parent"}, "ref_key": {"column": "n", "version": "version"}}
        return {**self.column, **source, "table": self.table, "fields": fields}


def _lives(rows: Sequence[Row]) -> tuple[Life, ...]:
    """The next row whose body differs is what a row is updated to; rows without a body differ from all."""
    found = []
    for n, row in enumerate(rows, 1):
        others = [*rows[n:], *rows[: n - 1]]
        other = next(other for other in others if other.body is None or other.body != row.body)
        found.append(Life(n, row, other))
    return tuple(found)


def load_case(folder: Path) -> Case:
    """Read a case in full; a key that the reader does not know is an error, since it would test nothing."""
    document = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    unknown = document.keys() - {"says", "type", "setup", "needs", "column", "rows", "puts", "misfit"}
    assert not unknown, f"{folder.name} has {unknown}"
    rows = tuple(_row(**row) for row in document.get("rows", ()))
    puts = tuple(_put(**put) for put in document.get("puts", ()))
    misfit = document.get("misfit")
    assert document["says"]
    assert bool(rows) != bool(misfit), f"{folder.name} shows nothing, or both"
    assert misfit or len({row.body or row.sql for row in rows}) > 1, f"{folder.name} has nothing to update to"
    assert len({row.body for row in rows} - {None}) != 1, f"{folder.name} has no second body"
    setup = document.get("setup", ())
    return Case(folder.name, document["type"], setup, document.get("needs"), document["column"], rows, puts, misfit)


def _row(*, sql: str, body: str | None = None, unreadable: str = "", because: str = "") -> Row:
    assert (body is None) == bool(unreadable and because), sql
    return Row(sql, None if body is None else _canonical(body), unreadable, because)


def _put(*, body: str, refused: str, because: str) -> Put:
    return Put(_canonical(body), refused, because)


def _canonical(text: str) -> bytes:
    """Cases are JSON that people can read, with escapes for what they could not see."""
    return canonical_bytes(from_canonical(text.encode()))


CASES = tuple(load_case(path.parent) for path in sorted(FOLDER.glob("*/case.yaml")))
