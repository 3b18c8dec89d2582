"""`LegacyTables`: the tables that are looked for, and whether a name in the company's code means one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from schemaless_core.errors import InvalidRequest, shown
from tripstore.backends.postgres.tokens import HOLE

_PART = r'\s*(?:"((?:[^"]|"")+)"|([^\s".]+))\s*'
_NAME = re.compile(rf"(?:{_PART}\.)?{_PART}")


def words(text: str) -> frozenset[str]:
    """The words of a text as a set: a list of keywords that can be read."""
    return frozenset(text.split())


class LegacyTable(NamedTuple):
    """A table that is looked for. Without a schema it is looked for in all of them."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema in (None, "public") else f"{self.schema}.{self.name}"


class LegacyTables:
    """All tables that are looked for."""

    def __init__(self, tables: Iterable[LegacyTable]) -> None:
        self.tables = tuple(sorted(set(tables), key=str))
        self._by_name: dict[str, list[LegacyTable]] = {}
        for table in self.tables:
            self._by_name.setdefault(table.name, []).append(table)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> LegacyTables:
        """Read `table` and `schema.table`; parts may be quoted as in SQL."""
        return cls(map(_parsed, texts))

    def find(self, schema: str | None, name: str) -> LegacyTable | None:
        """The table that a name in code means. A schema that code leaves out, or builds at run time, may be any."""
        named = self._by_name.get(name.strip(HOLE), [])
        if schema is None or HOLE in schema:
            return named[0] if named else None
        return next((table for table in named if table.schema in (None, schema)), None)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names without their schemas."""
        return frozenset(self._by_name)

    @cached_property
    def word(self) -> re.Pattern[str]:
        """Finds any of the names as a whole word, in any case: SQL folds it."""
        names = "|".join(re.escape(name) for name in sorted(self.names))
        return re.compile(rf"(?<![^\W{HOLE}])(?:{names})(?![^\W{HOLE}])", re.IGNORECASE)


def _parsed(text: str) -> LegacyTable:
    found = _NAME.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{shown(text)} is no name of a table.", hint="Say it as trips or public.trips.")
    return LegacyTable(_unquoted(found[1], found[2]), _unquoted(found[3], found[4]) or "")


def _unquoted(quoted: str | None, plain: str | None) -> str | None:
    return plain if quoted is None else quoted.replace('""', '"')
