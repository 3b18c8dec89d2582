"""`LookupCache`: pairs of key and UUID of other tables. No pair ever changes: what was read once is true for ever.

A pair that was deleted is asked for in `tripstore.pair`, and only when the company's table does not have it: pairs that
are there cost what they did. The transaction that takes the row away leaves the pair, which stays: a reader that does
not find the one finds the other, in two statements as in one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

from tripstore.backends.postgres.layout.layout import Layout, Lookup, quoted

#: Runs a statement with its parameters and returns its rows.
RowsOf = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]

#: Pairs of one lookup in one direction: some 60 MB.
PAIRS_MAX = 250_000
#: Pairs that one statement asks for.
PAIRS_PER_STATEMENT = 1000


def pair_name(lookup: Lookup) -> str:
    """What `tripstore.pair` calls a lookup."""
    return f"{lookup.table.schema}.{lookup.table.name}.{lookup.key}.{lookup.value}"


class By(Enum):
    """What is asked for; the value is its place in a pair, and its name in `tripstore.pair`."""

    KEY = (0, "key")
    VALUE = (1, "value")


@dataclass(slots=True)
class WantedPairs:
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
        self._keeps = True
        self._uuids = _Recent(pairs_max)
        self._keys = _Recent(pairs_max)

    def __len__(self) -> int:
        return len(self._uuids) + len(self._keys)

    def asking(self, rows_of: RowsOf) -> Pairs:
        """The same pairs, and others by asking, which are not kept."""
        other = copy.copy(self)
        other._rows_of, other._keeps = rows_of, False
        return other

    def uuid_of(self, key: str) -> str | None:
        """The UUID of a key; None: there never was such a row."""
        found = self._uuids.get(key)
        return found if found is not None else self._ask(By.KEY, key)

    def key_of(self, uuid: str) -> str | None:
        """The key of a UUID as text; None: there never was such a row."""
        found = self._keys.get(uuid)
        return found if found is not None else self._ask(By.VALUE, uuid)

    def forget(self, uuid: str) -> bool:
        """Forget the key of a UUID; whether it was known."""
        return self._keys.forget(uuid)

    def knows_key(self, key: str) -> bool:
        return self._uuids.get(key) is not None

    def knows_uuid(self, uuid: str) -> bool:
        return self._keys.get(uuid) is not None

    def fill(self, keys: Iterable[str], uuids: Iterable[str], rows_of: RowsOf) -> None:
        """Ask in batches for what is not known."""
        for part in _parts(key for key in keys if not self.knows_key(key)):
            self._found(By.KEY, part, rows_of)
        for part in _parts(uuid for uuid in uuids if not self.knows_uuid(uuid)):
            self._found(By.VALUE, part, rows_of)

    def _ask(self, by: By, text: str) -> str | None:
        """Its answer is used itself: with little room another thread may push the pair out at once."""
        return None if self._rows_of is None else self._found(by, [text], self._rows_of).get(text)

    def _found(self, by: By, texts: Sequence[str], rows_of: RowsOf) -> dict[str, str]:
        """The other halves of pairs; of a row that is there before one that was deleted."""
        place = by.value[0]
        pairs = [pair for pair in rows_of(*_present(self._lookup, by, texts)) if None not in pair]
        found: dict[str, str] = {pair[place]: pair[1 - place] for pair in pairs}
        deleted = []
        if missing := [text for text in texts if text not in found]:
            deleted = list(rows_of(*_deleted(self._lookup, by, missing)))
            found |= {pair[place]: pair[1 - place] for pair in deleted}
        if self._keeps:
            for key, uuid in pairs:
                self._uuids.put(key, uuid)
                self._keys.put(uuid, key)
            for key, uuid in deleted:  # another row may get the UUID, but none the key
                self._uuids.put(key, uuid)
        return found


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

    def asking(self, rows_of: RowsOf) -> LookupCache:
        """The same pairs, and an answer for all others, which is not kept: it may see what is rolled back later."""
        other = copy.copy(self)
        other._pairs = {lookup: pairs.asking(rows_of) for lookup, pairs in self._pairs.items()}
        return other

    def uuid_of(self, lookup: Lookup, key: str | int) -> str | None:
        """The UUID of a key; None: there never was such a row."""
        return self._pairs[lookup].uuid_of(str(key))

    def key_of(self, lookup: Lookup, uuid: str) -> str | None:
        """The key of a UUID as text; None: there never was such a row."""
        return self._pairs[lookup].key_of(uuid)

    def forget_keys(self, wanted: WantedPairs) -> bool:
        """Forget the keys of UUIDs; whether any was known."""
        found = [self._pairs[lookup].forget(uuid) for lookup, uuids in wanted.values.items() for uuid in uuids]
        return any(found)

    def fill(self, wanted: WantedPairs, rows_of: RowsOf | None = None) -> None:
        """Ask for what is wanted and not known, in batches; `rows_of` runs the statements instead of the cache's own.

        Must see committed pairs only: they are kept. Before a batch of rows or bodies: what is still missing is asked
        for one by one, if the cache knows where.
        """
        run = rows_of or self._rows_of
        if run is not None:
            for lookup in dict.fromkeys([*wanted.keys, *wanted.values]):
                keys, uuids = wanted.keys.get(lookup, ()), wanted.values.get(lookup, ())
                self._pairs[lookup].fill(keys, uuids, run)


class _Recent:
    """A bounded dict: at half its size what is in it becomes old, and what is not asked for again goes with the old."""

    def __init__(self, size_max: int) -> None:
        self._half = max(1, size_max // 2)
        self._young: dict[str, str] = {}
        self._old: dict[str, str] = {}

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

    def forget(self, key: str) -> bool:
        was_old = self._old.pop(key, None) is not None
        return self._young.pop(key, None) is not None or was_old

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def _present(lookup: Lookup, by: By, texts: Sequence[str]) -> tuple[str, Sequence[Any]]:
    """Pairs whose key or value is among these texts. The array is bound as a text without a type: Postgres gives it

    that of the column, whichever it is, and so finds its index.
    """
    key, value = _named(lookup.key), _named(lookup.value)
    statement = (
        f"SELECT {key}::pg_catalog.text, {value}::pg_catalog.text FROM {lookup.table.sql.replace('%', '%%')}"
        f" WHERE {key if by is By.KEY else value} = ANY (%s)"
    )
    return statement, (_array(texts),)


def _deleted(lookup: Lookup, by: By, texts: Sequence[str]) -> tuple[str, Sequence[Any]]:
    """The same of rows that were deleted."""
    statement = f"SELECT p.key, p.value FROM tripstore.pair AS p WHERE p.{by.value[1]} = ANY (%s) AND p.lookup = %s"
    return statement, (_array(texts), pair_name(lookup))


def _array(texts: Sequence[str]) -> str:
    return "{" + ",".join(map(_element, texts)) + "}"


def _element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _named(name: str) -> str:
    """An identifier in a statement that has values to bind."""
    return quoted(name).replace("%", "%%")


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(texts)
    while part := list(islice(waiting, PAIRS_PER_STATEMENT)):
        yield part
