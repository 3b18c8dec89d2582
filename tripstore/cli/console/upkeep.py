"""The sections on fsck and backups: what the last jobs found, and what the folders of backups hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from schemaless_core.backups.folders import open_folder
from schemaless_core.backups.kept import kept_backups
from schemaless_core.backups.runner import KIND as BACKUP
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.errors import SchemalessError
from schemaless_core.fsck.runner import KIND as FSCK
from tripstore.cli.backup.documents import BackupView, backups_document
from tripstore.cli.console.stores import ConsoleStores
from tripstore.cli.fsck.documents import FsckDocument
from tripstore.cli.fsck.look import look_at_fsck
from tripstore.cli.jobs.documents import JobDocument, job_document

#: Folders of the latest backups; of each so many backups.
FOLDERS_MAX, BACKUPS_MAX = 4, 25


class FsckSection(msgspec.Struct, frozen=True):
    """The last one with what it found, and all."""

    last: FsckDocument | None
    jobs: list[JobDocument]


class FolderView(msgspec.Struct, frozen=True):
    """A folder that backups were written to; `trouble`: why it could not be read from here."""

    place: str
    backups: list[BackupView]
    trouble: str = ""


class BackupsSection(msgspec.Struct, frozen=True):
    """Folders, the one of the newest backup first."""

    folders: list[FolderView]


def look_at_last_fsck(stores: ConsoleStores) -> FsckSection:
    datastore = stores.datastore
    jobs = Jobs(datastore.control).all(FSCK)
    last = look_at_fsck(datastore, jobs[0], is_beside_postgres=stores.is_both) if jobs else None
    return FsckSection(last, [job_document(each) for each in jobs])


def look_at_backups(stores: ConsoleStores) -> BackupsSection:
    """The folders that jobs of this datastore name. A folder of another host cannot be read here."""
    places = _places(Jobs(stores.datastore.control).all(BACKUP))
    return BackupsSection([_folder(each) for each in places[:FOLDERS_MAX]])


def _places(jobs: Sequence[Job]) -> list[str]:
    return list(dict.fromkeys(str(job.spec["place"]) for job in jobs))


def _folder(place: str) -> FolderView:
    try:
        found = backups_document(islice(kept_backups(open_folder(place)), BACKUPS_MAX))
    except SchemalessError as error:
        return FolderView(place, [], error.message)
    return FolderView(place, found.backups)
