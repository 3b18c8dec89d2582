"""`VersionSets`: the older versions of many columns compared at once, as sets of bytes. Whatever is out of the ordinary
is left for a closer look: nothing is called different here, nor wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.children import FACTS, latest_of

_TOMBSTONE = b"null"


class ComparedSets(NamedTuple):
    """What came of a look at many columns."""

    #: Columns to be looked at closely.
    left: list[ColumnKey]
    #: Of all others, how many older versions both stores have, and how many one of them has forgotten.
    equal: int = 0
    forgotten: int = 0


class VersionSets(Protocol):
    """Knows both stores."""

    def compared(self, keys: Sequence[ColumnKey]) -> ComparedSets:
        """Compare what stands below the latest versions of these columns, as far as that is plain."""
        ...


class NoSets:
    """Every column is looked at closely."""

    def compared(self, keys: Sequence[ColumnKey]) -> ComparedSets:
        return ComparedSets(list(keys))


class KnownLink(NamedTuple):
    """A version in a store that forgets: its bytes if it has them, and what it says of the one before it."""

    body: bytes | None
    is_change: bool
    previous: int | None = None


def settled(stored: Mapping[int, bytes], known: Mapping[int, KnownLink], bits: int | None) -> tuple[int, int] | None:
    """How many older versions of a column are equal, and how many are forgotten; None: it needs a closer look.

    `stored`: what Schemaless has, by ref key. `known`: what Postgres knows of them, tombstones left out.
    """
    latest = latest_of(stored.keys() | known.keys(), (), bits)
    if not latest <= stored.keys() & known.keys() or _TOMBSTONE in stored.values():
        return None
    equal = forgotten = 0
    for ref_key in (stored.keys() | known.keys()) - latest:
        body, link = stored.get(ref_key), known.get(ref_key)
        if body is not None and link is not None and link.body == body:
            equal += 1
        elif body is not None and link is None and _may_have_been(ref_key, known, bits) and _is_json(body):
            forgotten += 1
        else:
            return None
    return equal, forgotten


def _may_have_been(ref_key: int, known: Mapping[int, KnownLink], bits: int | None) -> bool:
    """Whether the nearest version above one that is not known allows that it was: it says what was before itself."""
    if bits == FACTS:
        return False
    child = 0 if bits is None else ref_key >> bits
    above = min((each for each in known if each > ref_key and (bits is None or each >> bits == child)), default=None)
    if above is None:
        return False
    link = known[above]
    if link.is_change:
        return link.previous is not None and link.previous >= ref_key
    return above - (0 if bits is None else child << bits) > (1 if bits is None else 0)


def _is_json(body: bytes) -> bool:
    try:
        from_canonical(body)
    except msgspec.MsgspecError:
        return False
    return True
