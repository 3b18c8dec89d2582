"""The unit of a diff: what is held against each other as one. It stands in a job and in its note.

A diff of an earlier version took the highest of a parent's children for all of them. What it began is not gone on
with, and what it found equal speaks for no switch (I12). Nor is what was begun under another layout: its parts until
then were of that one's columns, and so are its counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import Job
from tripstore.errors import TripstoreError

#: Each row of the company's tables: the latest cell of each child.
UNIT = "row"


class FormerUnit(TripstoreError):
    """A diff that was begun by a version that compared something else."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"{job} was begun by an earlier version, which compared one child of each parent.",
            hint=f"`{job_command('diff', 'cancel', job)}` gives it up; `tripstore diff start` compares every row.",
        )


class FormerLayout(TripstoreError):
    """A diff that was begun under a layout that is not in force any more."""

    def __init__(self, job: str, layout: str) -> None:
        super().__init__(
            f"{job} was begun under another layout than {layout}: rows of columns that came since are in none of it.",
            hint=f"`{job_command('diff', 'cancel', job)}` gives it up; `tripstore diff start` compares every row.",
        )


def check_unit(job: Job, layout: str) -> None:
    """Raise `FormerUnit` unless a diff compares every row, `FormerLayout` unless those of the layout in force."""
    if not compares_rows(job.spec):
        raise FormerUnit(job.id)
    if job.spec.get("layout") != layout:
        raise FormerLayout(job.id, layout)


def compares_rows(document: Mapping[str, Json]) -> bool:
    """Whether the spec of a diff, or its note, is of this unit."""
    return document.get("unit") == UNIT
