"""`LookupCache`: pairs of key and UUID of other tables. No pair ever changes: what was read once is true for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tripstore.backends.postgres.layout import Layout, Lookup, quoted

#: Runs a statement with its parameters and returns its rows. Must see committed pairs only: they are kept.
RowsOf = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]

#: Pairs of one lookup in one direction: some 60 MB.
PAIRS_MAX = 250_000
#: Pairs that one statement asks for.
PAIRS_PER_STATEMENT = 1000


@dataclass(slots=True)
class Wanted:
    """What rows and bodies point to: keys that came from rows, values (UUIDs) that came from bodies."""

    keys: dict[Lookup, set[str]] = field(default_factory=dict)
    values: dict[Lookup, set[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.keys or self.values)

    def want_key(self, lookup: Lookup, key: str) -> None:
        self.keys.setdefault(lookup, set()).add(key)

    def want_value(self, lookup: Lookup, value: str) -> None:
        self.values.setdefault(lookup, set()).add(value)


class LookupCache:
    """Shared by all threads, and by a forked child: there is no lock, every step is one operation on a dict.

    Bounded: the pairs used lately stay. A pair that is not here is asked for; that there is none is never kept, since
    it may come later.
    """

    def __init__(self, layout: Layout, rows_of: RowsOf | None = None, *, pairs_max: int = PAIRS_MAX) -> None:
        self._uuids = {lookup: _Recent(pairs_max) for lookup in layout.lookups}
        self._keys = {lookup: _Recent(pairs_max) for lookup in layout.lookups}
        self._rows_of = rows_of

    def __len__(self) -> int:
        """How many pairs are kept, each direction counted."""
        return sum(len(recent) for recent in (*self._uuids.values(), *self._keys.values()))

    def uuid_of(self, lookup: Lookup, key: str | int) -> str | None:
        """The UUID of a key; None: there is no such row."""
        text = str(key)
        found = self._uuids[lookup].get(text)
        return found if found is not None else self._ask_uuid(lookup, text)

    def key_of(self, lookup: Lookup, uuid: str) -> str | None:
        """The key of a UUID as text; None: there is no such row."""
        found = self._keys[lookup].get(uuid)
        return found if found is not None else self._ask_key(lookup, uuid)

    def knows_key(self, lookup: Lookup, key: str) -> bool:
        return self._uuids[lookup].get(key) is not None

    def knows_uuid(self, lookup: Lookup, uuid: str) -> bool:
        return self._keys[lookup].get(uuid) is not None

    def fill(self, wanted: Wanted, rows_of: RowsOf | None = None) -> None:
        """Ask for what is wanted and not known, in batches; `rows_of` runs the statements instead of the cache's own.

        Before a batch of rows or bodies: what is still missing is asked for one by one.
        """
        run = rows_of or self._rows_of
        if run is None:
            return
        for lookup, keys in wanted.keys.items():
            for part in _parts(key for key in keys if not self.knows_key(lookup, key)):
                self._learn(lookup, run(*_statement(lookup, lookup.key, part)))
        for lookup, uuids in wanted.values.items():
            for part in _parts(uuid for uuid in uuids if not self.knows_uuid(lookup, uuid)):
                self._learn(lookup, run(*_statement(lookup, lookup.value, part)))

    def _learn(self, lookup: Lookup, pairs: Iterable[Sequence[Any]]) -> None:
        uuids, keys = self._uuids[lookup], self._keys[lookup]
        for key, uuid in pairs:
            if key is not None and uuid is not None:
                uuids.put(key, uuid)
                keys.put(uuid, key)

    # What is asked for is answered from the answer itself: with little room another thread may push it out at once.

    def _ask_uuid(self, lookup: Lookup, key: str) -> str | None:
        return dict(self._ask(lookup, lookup.key, key)).get(key)

    def _ask_key(self, lookup: Lookup, uuid: str) -> str | None:
        return {found: key for key, found in self._ask(lookup, lookup.value, uuid)}.get(uuid)

    def _ask(self, lookup: Lookup, column: str, text: str) -> Sequence[tuple[Any, ...]]:
        if self._rows_of is None:
            return ()
        pairs = self._rows_of(*_statement(lookup, column, [text]))
        self._learn(lookup, pairs)
        return pairs


class _Recent:
    """A bounded dict: at half its size what is in it becomes old, and what nobody asks for again goes with the old."""

    def __init__(self, size_max: int) -> None:
        self._half = max(1, size_max // 2)
        self._young: dict[str, str] = {}
        self._old: Mapping[str, str] = {}

    def get(self, key: str) -> str | None:
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: str, value: str) -> None:
        young = self._young
        if len(young) >= self._half and key not in young:
            # Two threads may do this at once and forget too much; nothing false is ever kept.
            self._old, self._young = young, {}
            young = self._young
        young[key] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def _statement(lookup: Lookup, column: str, texts: Sequence[str]) -> tuple[str, Sequence[Any]]:
    """Pairs whose key or value is among these texts. The array is bound as a text without a type: Postgres gives it

    that of the column, whichever it is, and so finds its index.
    """
    key, value = _named(lookup.key), _named(lookup.value)
    statement = (
        f"SELECT {key}::pg_catalog.text, {value}::pg_catalog.text FROM {lookup.table.sql.replace('%', '%%')}"
        f" WHERE {_named(column)} = ANY (%s)"
    )
    return statement, ("{" + ",".join(map(_element, texts)) + "}",)


def _element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _named(name: str) -> str:
    """An identifier in a statement that has values to bind."""
    return quoted(name).replace("%", "%%")


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(texts)
    while part := list(islice(waiting, PAIRS_PER_STATEMENT)):
        yield part
