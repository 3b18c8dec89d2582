"""The job that restores a datastore, as a document of the control database names it.

Until that job has ended, or was given up, it alone makes the shards.
"""

from __future__ import annotations

import json

import sqlalchemy as sa

from schemaless_core.control.jobs.records import JobState
from schemaless_core.control.tables import document as document_table
from schemaless_core.control.tables import job as job_table
from schemaless_core.errors import TopologyConflict

DOCUMENT = "restore"
#: What an operator does about one that has not ended.
WAY_OUT = "`tripstore backup restore --resume last` goes on with it; --cancel gives it up, then drop its databases."

_BODY = sa.select(document_table.c.body).where(document_table.c.name == DOCUMENT)
_UNDER_WAY = (JobState.RUNNING.value, JobState.PAUSED.value)


def restored_by(connection: sa.Connection) -> str:
    """Return the job that the datastore is, or was, restored by; empty: by none."""
    body = connection.execute(_BODY).scalar()
    return "" if body is None else str(json.loads(body)["job"])


def restoring(connection: sa.Connection) -> str:
    """Return the job that restores the datastore now, even if its process has ended; empty: none does."""
    job = restored_by(connection)
    state = connection.execute(sa.select(job_table.c.state).where(job_table.c.id == job)).scalar()
    return job if state in _UNDER_WAY else ""  # it is pruned long after its end


def refuse_restoring(connection: sa.Connection) -> None:
    """Raise while a restore makes the shards, and opens them."""
    if job := restoring(connection):
        raise TopologyConflict(f"{job} restores this datastore, and makes its shards itself.", hint=WAY_OUT)
