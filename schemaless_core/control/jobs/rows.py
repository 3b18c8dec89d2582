"""The rows of jobs. A transaction that changes a job or one of its parts holds the job's row first."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from schemaless_core.control.clock import moment
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.control.tables import job as table
from schemaless_core.errors import InvalidRequest

#: The id of whichever job of a kind is the newest.
LAST = "last"


def hold_job(connection: sa.Connection, job_id: str) -> Job:
    """A job whose row is ours until the end of the transaction."""
    return _told(connection.execute(sa.select(table).where(table.c.id == job_id).with_for_update()).first(), job_id)


def see_job(connection: sa.Connection, job_id: str) -> Job:
    """A job whose row others may change, or prune."""
    return _told(connection.execute(sa.select(table).where(table.c.id == job_id)).first(), job_id)


def find_job(connection: sa.Connection, kind: str, job_id: str) -> Job:
    wanted = sa.select(table).where(table.c.kind == kind)
    wanted = wanted.order_by(table.c.number.desc()) if job_id == LAST else wanted.where(table.c.id == job_id)
    found = connection.execute(wanted.limit(1)).first()
    if found is not None:
        return read_job(found)
    what = f"no {kind} yet" if job_id == LAST else f"no {kind} {job_id}"
    hint = f"`{job_command(kind, 'start')}` begins one; the newest is called `last`."
    raise InvalidRequest(f"There is {what}.", hint=hint)


def _told(row: sa.Row[Any] | None, job_id: str) -> Job:
    if row is None:
        hint = "The newest of a kind is called `last`. Those that ended long ago are pruned."
        raise InvalidRequest(f"There is no job {job_id}.", hint=hint)
    return read_job(row)


def read_job(row: sa.Row[Any]) -> Job:
    ended = row.ended_ms
    return Job(
        row.id,
        row.kind,
        json.loads(row.spec),
        JobState(row.state),
        moment(row.begun_ms),
        None if ended is None else moment(ended),
        row.who,
        row.host,
        row.why,
        bool(row.is_detached),
    )
