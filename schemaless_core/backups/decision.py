"""`RestoreDecision`: the moment from which a restored datastore is one: its first topology, by the job that made it.

Before it the job may be given up, and its copies are closed for ever. Behind it the shards are opened, and the job only
goes on: a job that is given up at the same time is given up, or decides, and never both.
"""

from __future__ import annotations

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import DOCUMENTS, put_within
from schemaless_core.control.jobs.records import JobState
from schemaless_core.control.jobs.rows import hold_job
from schemaless_core.control.tables import document as document_table
from schemaless_core.control.tables import topology as topology_table
from schemaless_core.errors import BackupRefused, TopologyConflict
from schemaless_core.servers.restores import DOCUMENT, WAY_OUT, restored_by, restoring
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology

_VERSIONS = sa.select(sa.func.count()).select_from(topology_table)


class RestoreDecision:
    """Of one job. Safe to repeat."""

    def __init__(self, control: ControlDatabase, job: str) -> None:
        self._control = control
        self._topologies = Topologies(control)
        self._job = job

    def check(self) -> None:
        """Raise unless the datastore is this job's to restore."""
        with self._control.begin() as connection:
            job = restored_by(connection)
        if job != self._job:
            other = f"{job} does, or did" if job else "no job does"
            hint = f"`tripstore backup restore --cancel {self._job}` gives this one up."
            raise BackupRefused(f"{self._job} does not restore the datastore: {other}.", hint=hint)

    def decide(self, topology: Topology) -> None:
        """Write the first topology; `TopologyConflict`: another process has made the datastore meanwhile."""
        self.check()

        def work(connection: sa.Connection) -> None:
            if hold_job(connection, self._job).state is not JobState.RUNNING:
                raise BackupRefused(f"{self._job} was paused, or given up.", hint="`--show` says which.")
            if _is_decided(connection, self._job):
                return
            if connection.execute(_VERSIONS).scalar():
                raise TopologyConflict(
                    "The control database got another topology while the datastore was restored.",
                    hint=f"`tripstore backup restore --cancel {self._job}` gives it up. Then drop the databases that "
                    "it made, and restore to a datastore that has none, with an empty control database.",
                )
            self._topologies.put_within(connection, topology, why=_why(self._job))

        make_change(self._control, work)


def begin_within(control: ControlDatabase, backup: str, connection: sa.Connection, job: str) -> None:
    """Have a job that is being created restore the datastore, if no other one does, and no shards are there.

    The line of the audit log comes first: what makes a topology writes one too, so either sees what the other has done.
    """
    AuditLog(control).add_within(connection, "restore.begin", {"job": job, "backup": backup})
    if other := restoring(connection):
        raise BackupRefused(f"{other} restores the datastore already.", hint=WAY_OUT)
    if connection.execute(_VERSIONS).scalar():
        hint = "A restore makes all shards itself: give it a datastore that has none."
        raise BackupRefused("The datastore was created meanwhile.", hint=hint)
    known = connection.execute(DOCUMENTS.where(document_table.c.name == DOCUMENT)).first()
    body: dict[str, Json] = {"job": job}
    try:
        is_put = put_within(connection, DOCUMENT, body, 0 if known is None else known.version)
    except sa.exc.IntegrityError:  # lines of the audit log that have no seal do not wait for each other
        is_put = False
    if not is_put:
        raise BackupRefused("Another restore of the datastore has begun.", hint=WAY_OUT)


def refuse_decided(job: str, connection: sa.Connection) -> None:
    """Raise if this restore may not be given up any more."""
    if _is_decided(connection, job):
        hint = "`tripstore backup restore --resume last` opens the shards that are closed still."
        raise BackupRefused("All shards are there, and they are being opened.", hint=hint)


def _is_decided(connection: sa.Connection, job: str) -> bool:
    is_its = topology_table.c.why == _why(job)
    return bool(connection.execute(_VERSIONS.where(is_its)).scalar())


def _why(job: str) -> str:
    return f"restored by {job}"
