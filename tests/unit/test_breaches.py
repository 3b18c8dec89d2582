"""Which diff answers for a breach: whole, complete, with nothing open, and begun when the breach was known (I12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemaless_core import Json
from tripstore.migration.cutover.breaches import unanswered
from tripstore.migration.cutover.facts import BreachFacts, JobFacts, Unknown
from tripstore.migration.cutover.job_facts import job_facts
from tripstore.migration.diff.unit import UNIT

NOW = datetime(2026, 11, 3, tzinfo=UTC)
BREACH = BreachFacts(3, NOW, "public.notes_0 was detached or dropped")


def note(hour: float = 0, **more: Any) -> dict[str, Json]:
    """Of a whole diff that knew of the breach and left nothing."""
    body: dict[str, Json] = {
        "job": f"diff-{hour}",
        "begun_at": (NOW + timedelta(hours=hour)).isoformat(),
        "ended_at": (NOW + timedelta(hours=hour + 0.5)).isoformat(),
        "is_complete": True,
        "is_partial": False,
        "rows": 1000,
        "open": 0,
        "not_compared": 0,
        "unit": UNIT,
        "breach": 3,
        "table_rows": 900,
        "table_rows_compared": 900,
    }
    return body | more


def test_without_a_breach_no_diff_is_wanted() -> None:
    assert unanswered(None, None) is None


@pytest.mark.parametrize("number", [3, 4])
def test_a_diff_that_began_later_answers(number: int) -> None:
    assert unanswered(BREACH, job_facts([note(breach=number)])) is None


LEAVES = [
    {"breach": 2},
    {"breach": None},
    {"is_complete": False, "ended_at": None},
    {"is_partial": True},
    {"open": 1},
    {"not_compared": 1},
    {"table_rows_compared": 899},
    {"unit": None},
]


@pytest.mark.parametrize("leaves", LEAVES)
def test_i12_any_other_does_not(leaves: dict[str, Json]) -> None:
    said = unanswered(BREACH, job_facts([note() | leaves]))

    assert said is not None
    assert "2026-11-03" in said
    assert BREACH.what in said


@pytest.mark.parametrize("diff", [None, Unknown("the control database is away")])
def test_i12_nor_does_one_that_is_not_there(diff: JobFacts | None | Unknown) -> None:
    assert unanswered(BREACH, diff) is not None


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_a_later_diff_leaves_is_not_said_of_a_breach_that_was_answered(leaves: dict[str, Json]) -> None:
    """The gate *diff* says it. A breach that is newer than the answer is open, as before."""
    found = job_facts([note(), note(1) | leaves])

    assert unanswered(BREACH, found) is None
    assert unanswered(BREACH._replace(number=4), found) is not None
