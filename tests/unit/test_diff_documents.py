"""A diff as it is told: what stays by the layout is said apart, and nothing is called equal that is not."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from schemaless_core.control.jobs.jobs import JobProgress
from tests.unit.test_job_documents import AT, progress
from tripstore.cli.diff.documents import DiffDocument, diff_document, diff_screen
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document


def told(**counts: int) -> DiffDocument:
    job = progress().job
    done = type(job)("diff-1", "diff", {}, type(job.state).DONE, AT, AT, "ann", "host", "")
    return diff_document(progress_document(JobProgress(done, counts, 1, 1, 0, 0, (), AT, AT)))


def screen(seen: DiffDocument) -> str:
    text = StringIO()
    for each in diff_screen(seen):
        Console(file=text, width=200).print(each)
    return text.getvalue()


def test_ignored_deletions_are_counted_apart() -> None:
    """I12"""
    seen = told(rows=7, equal=4, deletions_ignored=3, index_deletions_ignored=1)

    assert (seen.exit, seen.open, seen.is_equal) == (Exit.FINE, 0, True)
    assert (seen.cells.equal, seen.deletions_ignored, seen.indexes.deletions_ignored) == (4, 3, 1)
    assert "3 cells stay in Schemaless though their rows were deleted" in screen(seen)
    assert screen(seen).endswith("equal, but for those\n")


def test_without_any_nothing_is_said_of_them() -> None:
    assert "stay" not in screen(told(rows=4, equal=4))
    assert screen(told(rows=4, equal=4)).endswith("equal\n")


@pytest.mark.parametrize("name", ["not_compared", "older_not_compared", "index_not_compared"])
def test_what_was_not_compared_is_not_equal(name: str) -> None:
    """I12"""
    seen = told(rows=4, equal=4, **{name: 2})

    assert (seen.exit, seen.is_equal) == (Exit.NOT_VERIFIED, False)
    assert not screen(seen).endswith("equal\n")


def test_older_versions_that_were_not_compared_are_said() -> None:
    assert "2 older versions were not compared" in screen(told(rows=4, equal=4, older_not_compared=2))


def test_versions_that_one_store_has_forgotten_are_said_and_no_fault() -> None:
    """I12: they are not called equal, either."""
    seen = told(rows=4, equal=4, older_equal=5, older_forgotten=2)

    assert (seen.exit, seen.is_equal, seen.forgotten, seen.older.equal) == (Exit.FINE, True, 2, 5)
    assert "2 older versions one store has forgotten" in screen(seen)
    assert screen(seen).endswith("equal, but for those\n")


def test_what_differs_is_said_whatever_was_ignored() -> None:
    seen = told(rows=7, equal=3, deletions_ignored=3, missing=1, open=1)

    assert (seen.exit, seen.is_equal) == (Exit.FAILED, False)
