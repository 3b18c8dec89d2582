"""`VersionSets`: the older versions of many columns compared at once, as sets of bytes. Whatever is out of the ordinary
is left for a closer look: nothing is called different here, nor wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple, Protocol

import msgspec

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.children import FACTS, latest_of

_TOMBSTONE = b"null"


class RowPlace(NamedTuple):
    """Where a walk over shards goes on: behind a row of a shard; None: with its first."""

    shard: int
    after: bytes | None = None


@dataclass(slots=True)
class ComparedSets:
    """What came of a look at the columns of some rows."""

    #: Where the next look begins.
    next: RowPlace
    #: Columns that were looked at, and of them those that are to be looked at closely.
    columns: int = 0
    left: list[ColumnKey] = field(default_factory=list)
    #: Of all others, how many older versions both stores have, and how many one of them has forgotten.
    equal: int = 0
    forgotten: int = 0


class VersionSets(Protocol):
    """Knows both stores."""

    def compared(self, place: RowPlace, stop: int) -> Generator[ComparedSets]:
        """Compare what stands below the latest versions of all columns up to a shard, as far as that is plain.

        Look by look, each of a page. The caller may leave off behind any of them, and closes it.
        """
        ...


class KnownLink(NamedTuple):
    """A version in a store that forgets: its bytes if they are known, and what it says of the one before it."""

    body: bytes | None
    #: Whether it says what was before it; its bytes are then of our own encoder.
    is_change: bool
    previous: int | None = None
    #: A version that was put late stands beside the chain: it says nothing of others.
    is_in_chain: bool = True


def settled(
    stored: Mapping[int, bytes], known: Mapping[int, KnownLink], bits: int | None, *, is_parent_cut: bool = False
) -> tuple[int, int] | None:
    """How many older versions of a column are equal, and how many are forgotten; None: it needs a closer look.

    `stored`: what Schemaless has, by ref key. `known`: what Postgres knows of them. `is_parent_cut`: facts below a
    tombstone may be forgotten, for versions of their parent are.
    """
    latest = _latest(stored, known, bits)
    if not latest <= stored.keys() & known.keys():
        return None
    equal = forgotten = 0
    for ref_key in (stored.keys() | known.keys()) - latest:
        body, link = stored.get(ref_key), known.get(ref_key)
        if body is not None and link is not None and link.body == body and (link.is_change or _is_json(body)):
            equal += 1
        elif body is None or link is not None or not _is_json(body):
            return None
        elif (is_parent_cut and _is_ended(ref_key, known)) if bits == FACTS else _may_have_been(ref_key, known, bits):
            forgotten += 1
        else:
            return None
    return equal, forgotten


def older(stored: Mapping[int, bytes], bits: int | None) -> set[int]:
    """The versions of a store that are not the latest of their child."""
    return stored.keys() - _latest(stored, {}, bits)


def _latest(stored: Mapping[int, bytes], known: Mapping[int, KnownLink], bits: int | None) -> set[int]:
    if bits is None:
        return {max((*stored, *known))}
    ended = [ref_key for ref_key, body in stored.items() if body == _TOMBSTONE]
    ended += [ref_key for ref_key, link in known.items() if link.body == _TOMBSTONE]
    return latest_of(stored.keys() | known.keys(), ended, bits)


def _may_have_been(ref_key: int, known: Mapping[int, KnownLink], bits: int | None) -> bool:
    """Whether the nearest version above one that is not known allows that it was: it says what was before itself."""
    child = 0 if bits is None else ref_key >> bits
    above = min((each for each in known if _is_above(each, ref_key, known, bits)), default=None)
    if above is None:
        return False
    link = known[above]
    if link.is_change:
        return link.previous is not None and link.previous >= ref_key
    return above - (0 if bits is None else child << bits) > (1 if bits is None else 0)


def _is_ended(number: int, known: Mapping[int, KnownLink]) -> bool:
    """Whether a tombstone stands above a fact."""
    return number >= 1 and any(each > number and link.body == _TOMBSTONE for each, link in known.items())


def is_cut(known: Mapping[int, KnownLink]) -> bool:
    """Whether versions of a row are surely forgotten: one of those that are known says so of the one before it.

    Not told where a version was put late, which may be that one.
    """
    if not all(link.is_in_chain for link in known.values()):
        return False
    chain = sorted(known, reverse=True)
    for ref_key, before in zip_longest(chain, chain[1:]):
        link = known[ref_key]
        if link.is_change and link.previous not in (None, before):
            return True
        if not link.is_change and ref_key > 1 and before != ref_key - 1:
            return True
    return False


def _is_above(each: int, ref_key: int, known: Mapping[int, KnownLink], bits: int | None) -> bool:
    """Whether a known version stands above another one in the chain of the same child."""
    is_same = bits is None or each >> bits == ref_key >> bits
    return each > ref_key and is_same and known[each].is_in_chain


def _is_json(body: bytes) -> bool:
    try:
        from_canonical(body)
    except msgspec.MsgspecError:
        return False
    return True
