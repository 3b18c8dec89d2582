"""Sets of older versions: what is plain is counted, and all else is looked at closely (I12)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.cell.children import FACTS
from tripstore.engines.validation.diff.version_sets import KnownLink, is_cut, settled

STORED = {1: b"1", 2: b"2", 3: b"3"}
BITS = 4


def change(ref_key: int, previous: int | None = -1, body: bytes | None = None) -> KnownLink:
    """One that replaced the version below it, unless it says otherwise."""
    before = (ref_key - 1 or None) if previous == -1 else previous
    return KnownLink(str(ref_key).encode() if body is None else body, True, before)


CHANGES = {ref_key: change(ref_key) for ref_key in STORED}
ROW = KnownLink(None, is_change=False)
LATE = KnownLink(b"1", is_change=False, is_in_chain=False)
TOMB = KnownLink(b"null", is_change=False)


@pytest.mark.parametrize(
    ("known", "counts"),
    [
        (CHANGES, (2, 0)),
        ({3: ROW}, (0, 2)),  # the whole log is gone
        ({2: change(2), 3: change(3)}, (1, 1)),
        ({3: change(3)}, (0, 2)),
        (CHANGES | {1: LATE}, (2, 0)),
        ({1: LATE, 3: change(3)}, (1, 1)),  # what is late says nothing of what was below it
    ],
)
def test_what_is_plain_is_counted(known: Mapping[int, KnownLink], counts: tuple[int, int]) -> None:
    assert settled(STORED, known, None) == counts


@pytest.mark.parametrize(
    ("stored", "known"),
    [
        (STORED | {2: b"x"}, CHANGES),  # differs
        ({1: b"1", 3: b"3"}, CHANGES),  # missing
        (STORED, {1: change(1), 3: change(3, previous=1)}),  # extra: it never was
        (STORED, {2: change(2, previous=None), 3: change(3)}),  # the same: 2 was the first
        ({0: b"0", 1: b"1"}, {1: ROW}),  # a row begins with 1
        (STORED | {4: b"4"}, CHANGES),  # the latest is not the same
        ({1: b"1", 2: b"2"}, CHANGES),  # it may be on its way
        (STORED | {2: b"null"}, CHANGES),  # a tombstone of one store alone
        ({1: b"{torn", 3: b"3"}, {1: LATE._replace(body=b"{torn"), 3: ROW}),  # equal, and wrong all the same
        ({1: b"1", 3: b"3"}, {2: LATE, 3: change(3, None)}),  # what is late does not allow that 1 was
        (STORED | {1: b"{torn"}, {2: change(2), 3: change(3)}),  # forgotten, and wrong all the same
        ({}, {3: ROW}),
    ],
)
def test_what_is_not_plain_is_looked_at_closely(stored: Mapping[int, bytes], known: Mapping[int, KnownLink]) -> None:
    assert settled(stored, known, None) is None


def test_each_child_has_a_latest_version_and_a_chain_of_its_own() -> None:
    one, other = 1 << BITS, 2 << BITS
    stored = {one: b"1", one + 1: b"2", other: b"3", other + 1: b"4", other + 2: b"5"}
    links = {ref_key: KnownLink(body, True, ref_key - 1) for ref_key, body in stored.items()}

    assert settled(stored, links, BITS) == (3, 0)
    assert settled(stored, {one + 1: ROW, other + 1: links[other + 1], other + 2: ROW}, BITS) == (1, 2)
    # What is above belongs to another child, and says nothing.
    assert settled({one: b"1", one + 1: b"2", other: b"3"}, {one: ROW, other: ROW}, BITS) is None


def test_a_tombstone_is_a_version_like_any_other() -> None:
    deleted = STORED | {2: b"null"}
    links = CHANGES | {2: change(2, body=b"null")}

    assert settled(deleted, links, None) == (2, 0)
    assert settled(deleted, {2: TOMB, 3: change(3)}, None) == (1, 1)
    assert settled(deleted, {3: change(3)}, None) == (0, 2)
    assert settled(STORED | {3: b"null"}, {3: TOMB}, None) == (0, 2)


def test_facts_have_no_older_versions_until_a_tombstone_ends_them() -> None:
    assert settled({1: b"1", 2: b"2"}, {1: ROW, 2: ROW}, FACTS) == (0, 0)
    assert settled({1: b"1", 2: b"null"}, {1: ROW, 2: ROW}, FACTS) is None
    ended = {1: change(1), 2: change(2), 3: TOMB}
    assert settled({1: b"1", 2: b"2", 3: b"null"}, ended, FACTS) == (2, 0)
    assert settled({1: b"1", 2: b"x", 3: b"null"}, ended, FACTS) is None
    assert settled({1: b"1", 2: b"2", 3: b"null"}, {3: TOMB}, FACTS) is None
    assert settled({1: b"1", 2: b"2", 3: b"null"}, {3: TOMB}, FACTS, is_parent_cut=True) == (0, 2)
    assert settled({0: b"1", 2: b"2", 3: b"null"}, {3: TOMB}, FACTS, is_parent_cut=True) is None
    assert settled({1: b"1", 2: b"2"}, {2: ROW}, FACTS, is_parent_cut=True) is None


@pytest.mark.parametrize(
    ("known", "is_told"),
    [
        (CHANGES, False),
        ({2: change(2), 3: change(3)}, True),
        ({1: change(1), 3: change(3)}, True),
        ({3: TOMB}, True),
        ({1: ROW}, False),
        ({3: change(3, None)}, False),
        ({}, False),
        ({2: LATE, 3: change(3)}, False),  # it may be
    ],
)
def test_a_row_with_forgotten_versions_is_told_by_those_above_them(
    known: Mapping[int, KnownLink], is_told: bool
) -> None:
    assert is_cut(known) is is_told


versions = st.integers(0, 5)


@given(st.sets(versions, min_size=1), st.data())
def test_i12_every_version_is_counted_once_or_the_column_is_left(stored: set[int], data: st.DataObject) -> None:
    known = data.draw(
        st.dictionaries(versions, st.sampled_from([ROW, change(9, None, b"x"), change(9, 1), change(9, 4)]))
    )
    bodies = dict.fromkeys(stored, b"9")

    found = settled(bodies, known, None)

    if found is not None:
        assert sum(found) == len(stored | known.keys()) - 1
        assert found[0] == sum(known[each].body == b"9" for each in known if each != max(stored))
