"""What walks by blocks left in Postgres: told from what those rely on that go on, dropped, and told of by `doctor`.

A walk drops its trigger at its end. It is left where the command was killed before there was a job, where Postgres did
not answer a cancellation, and where no lock could be had. Until it goes services pay for each row that moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.errors import ControlUnavailable, SchemaMissing
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.walk.moves import MoveNotes, find_notes
from tripstore.migration.backfill.walk import record_of

BACKFILL = "backfill"
#: Notes without a job are those of a command that is about to begin one, or of one that was killed then.
FORGOTTEN_SECONDS = 3600.0


class JobWalks(NamedTuple):
    """The names of the notes that jobs have."""

    going_on: frozenset[str] = frozenset()
    #: Of jobs that are done or cancelled: nothing needs them any more.
    ended: frozenset[str] = frozenset()

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> JobWalks:
        """Those of all backfills."""
        named = [(record.notes, job.state) for job in jobs if (record := record_of(job.spec)) is not None]
        going_on = frozenset(name for name, state in named if state in (JobState.RUNNING, JobState.PAUSED))
        return cls(going_on, frozenset(name for name, _ in named) - going_on)


def find_walks(control: ControlDatabase) -> JobWalks | None:
    """None: the control database does not answer, or has no tables yet, and of which walks jobs are is not known."""
    with suppress(ControlUnavailable, SchemaMissing):
        return JobWalks.of(Jobs(control).all(BACKFILL))
    return None


def find_forgotten(connection: Connection, walks: JobWalks) -> list[MoveNotes]:
    """Those that no job needs: of jobs that ended, and of none since a while."""
    old = set(find_notes(connection, FORGOTTEN_SECONDS))
    return [
        notes
        for notes in find_notes(connection)
        if notes.name not in walks.going_on and (notes in old or notes.name in walks.ended)
    ]


def forget(connection: Connection, walks: JobWalks) -> None:
    """Drop them, as far as this role may and a lock is to be had. May be repeated."""
    for notes in find_forgotten(connection, walks):
        notes.drop(connection)


def walk_complaints(connection: Connection, walks: JobWalks | None) -> Iterator[Complaint]:
    """Which are left; None: the jobs are not known."""
    hint = "The next `tripstore backfill start` drops it; one of a single row key (--keys) is enough."
    for notes in find_forgotten(connection, walks) if walks is not None else ():
        yield error(
            SCHEMA, f"table {notes.name} is of a walk by blocks that no job goes on with; it notes moves still", hint
        )
