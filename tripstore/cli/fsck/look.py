"""How far an fsck is and what it found, for the command and for the console."""

from __future__ import annotations

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.datastore import Datastore
from tripstore.cli.fsck.documents import LISTED_MAX, FsckDocument, fsck_document
from tripstore.cli.jobs.documents import progress_document


def look_at_fsck(datastore: Datastore, job: Job, *, is_beside_postgres: bool) -> FsckDocument:
    """Look once. It asks the control database alone."""
    jobs = datastore.fsck.jobs
    return fsck_document(
        progress_document(jobs.progress(job.id)),
        jobs.open_kinds(job.id),
        jobs.findings(job.id, limit=LISTED_MAX),
        is_beside_postgres=is_beside_postgres,
    )
