"""To which version a repair lifts a row: to none from which it could hardly be changed again (I4)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from schemaless_core.cell.cell import REF_KEY_MAX, ColumnKey
from tests.legacy import layout
from tripstore.backends.postgres.layout.layout import VERSION_BITS, VERSION_MAX
from tripstore.engines.validation.repair import HeldVersion
from tripstore.migration.repair import heights

LAST = heights.LAST_VERSIONS
#: Of each kind of column, a row at its second version, and the last ref key that it can have.
ROWS = {"BASE": (2, REF_KEY_MAX), "NOTES": (3 << VERSION_BITS | 1, 3 << VERSION_BITS | VERSION_MAX)}


def target(name: str, theirs: int) -> int | None:
    """Where the row is to stand while the mirror's stands there."""
    ours = HeldVersion(ROWS[name][0], b"{}")
    return heights.lift_target(layout(), ColumnKey(uuid4(), name), ours, HeldVersion(theirs, b"{}"))


@pytest.mark.parametrize("name", ROWS)
def test_i4_a_repair_lifts_no_row_to_one_of_its_last_versions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror has what the row jumped to, but for the very last: the control freezes the row again."""
    first, last = ROWS[name]
    assert target(name, first + 5) == first + 6
    assert target(name, last - LAST - 1) == last - LAST
    assert [target(name, last - below) for below in (LAST, 1, 0)] == [None, None, None]

    monkeypatch.setattr(heights, "LAST_VERSIONS", 0)
    assert target(name, last - 1) == last


def test_no_row_of_another_number_and_no_fact_is_lifted() -> None:
    assert target("NOTES", 4 << VERSION_BITS) is None
    ours, theirs = HeldVersion(1, b"{}"), HeldVersion(1, b"[]")
    assert heights.lift_target(layout(), ColumnKey(uuid4(), "STATUS"), ours, theirs) is None
