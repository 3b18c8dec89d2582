"""`LookupCache`: pairs of key and UUID of other tables. No pair ever changes: what was read once is true for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tripstore.backends.postgres.layout.layout import Layout, Lookup, quoted

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


class Pairs:
    """The pairs of one lookup that are known, and where to ask for others."""

    def __init__(self, lookup: Lookup, rows_of: RowsOf | None, pairs_max: int) -> None:
        self._lookup = lookup
        self._rows_of = rows_of
        self._uuids = _Recent(pairs_max)
        self._keys = _Recent(pairs_max)

    def __len__(self) -> int:
        return len(self._uuids) + len(self._keys)

    def uuid_of(self, key: str) -> str | None:
        """The UUID of a key; None: there is no such row."""
        found = self._uuids.get(key)
        return found if found is not None else dict(self._ask(self._lookup.key, key)).get(key)

    def key_of(self, uuid: str) -> str | None:
        """The key of a UUID as text; None: there is no such row."""
        found = self._keys.get(uuid)
        if found is None:
            found = {value: key for key, value in self._ask(self._lookup.value, uuid)}.get(uuid)
        return found

    def knows_key(self, key: str) -> bool:
        return self._uuids.get(key) is not None

    def knows_uuid(self, uuid: str) -> bool:
        return self._keys.get(uuid) is not None

    def fill(self, keys: Iterable[str], uuids: Iterable[str], rows_of: RowsOf) -> None:
        """Ask in batches for what is not known."""
        for part in _parts(key for key in keys if not self.knows_key(key)):
            self._learn(rows_of(*_statement(self._lookup, self._lookup.key, part)))
        for part in _parts(uuid for uuid in uuids if not self.knows_uuid(uuid)):
            self._learn(rows_of(*_statement(self._lookup, self._lookup.value, part)))

    def _ask(self, column: str, text: str) -> Sequence[tuple[Any, ...]]:
        """Its answer is used itself: with little room another thread may push the pair out at once."""
        if self._rows_of is None:
            return ()
        pairs = self._rows_of(*_statement(self._lookup, column, [text]))
        self._learn(pairs)
        return pairs

    def _learn(self, pairs: Iterable[Sequence[Any]]) -> None:
        for key, uuid in pairs:
            if key is not None and uuid is not None:
                self._uuids.put(key, uuid)
                self._keys.put(uuid, key)


class LookupCache:
    """Shared by all threads, and by a forked child: there is no lock, every step is one operation on a dict.

    Bounded: the pairs used lately stay. A pair that is not here is asked for; that there is none is never kept, since
    it may come later.
    """

    def __init__(self, layout: Layout, rows_of: RowsOf | None = None, *, pairs_max: int = PAIRS_MAX) -> None:
        self._pairs = {lookup: Pairs(lookup, rows_of, pairs_max) for lookup in layout.lookups}
        self._rows_of = rows_of

    def __len__(self) -> int:
        """How many pairs are kept, each direction counted."""
        return sum(map(len, self._pairs.values()))

    def of(self, lookup: Lookup) -> Pairs:
        return self._pairs[lookup]

    def uuid_of(self, lookup: Lookup, key: str | int) -> str | None:
        """The UUID of a key; None: there is no such row."""
        return self._pairs[lookup].uuid_of(str(key))

    def key_of(self, lookup: Lookup, uuid: str) -> str | None:
        """The key of a UUID as text; None: there is no such row."""
        return self._pairs[lookup].key_of(uuid)

    def fill(self, wanted: Wanted, rows_of: RowsOf | None = None) -> None:
        """Ask for what is wanted and not known, in batches; `rows_of` runs the statements instead of the cache's own.

        Before a batch of rows or bodies: what is still missing is asked for one by one, if the cache knows where.
        """
        run = rows_of or self._rows_of
        if run is not None:
            for lookup in dict.fromkeys([*wanted.keys, *wanted.values]):
                keys, uuids = wanted.keys.get(lookup, ()), wanted.values.get(lookup, ())
                self._pairs[lookup].fill(keys, uuids, run)


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
