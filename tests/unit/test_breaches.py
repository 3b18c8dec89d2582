"""Which diff answers for a breach: whole, complete, with nothing open, and begun when the breach was known (I12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tripstore.cutover.breaches import unanswered
from tripstore.cutover.facts import BreachFacts, JobFacts, Unknown

NOW = datetime(2026, 11, 3, tzinfo=UTC)
BREACH = BreachFacts(3, NOW, "public.notes_0 was detached or dropped")
DIFF = JobFacts(NOW, True, 1000, breach=3)


def test_without_a_breach_no_diff_is_wanted() -> None:
    assert unanswered(None, None) is None


@pytest.mark.parametrize("number", [3, 4])
def test_a_diff_that_began_later_answers(number: int) -> None:
    assert unanswered(BREACH, replace(DIFF, breach=number)) is None


@pytest.mark.parametrize(
    "diff",
    [
        None,
        Unknown("the control database is away"),
        replace(DIFF, breach=2),
        replace(DIFF, breach=None),
        replace(DIFF, is_complete=False),
        replace(DIFF, is_partial=True),
        replace(DIFF, open=1),
        replace(DIFF, not_compared=1),
    ],
)
def test_i12_any_other_does_not(diff: JobFacts | None | Unknown) -> None:
    said = unanswered(BREACH, diff)

    assert said is not None
    assert "2026-11-03" in said
    assert BREACH.what in said
