"""The sections of the page: what each is called, how often it is looked at, and which function of the CLI looks.

A look only reads. It is the function that the command of the same name calls, so page and command say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.told import Told
from tripstore.cli.buffer.commands import look_at_buffers
from tripstore.cli.console.mismatches import look_at_aside, look_at_mismatches
from tripstore.cli.console.stores import ConsoleStores
from tripstore.cli.console.upkeep import look_at_backups, look_at_last_fsck
from tripstore.cli.cutover.status import look_at_cutover
from tripstore.cli.index.status import IndexView, look_at_indexes
from tripstore.cli.jobs.documents import JobDocument, ProgressDocument, job_document
from tripstore.cli.jobs.views import look_at_jobs
from tripstore.cli.status.migration import MigrationView, look_at_migration
from tripstore.cli.status.overview import ServersView, look_at_control, look_at_servers
from tripstore.cli.triggers.groups import GroupView, look_at_groups
from tripstore.engines.validation.report.document import Report
from tripstore.migration.report.gather import WantedReport, gather

#: What the section on evidence shows is counted, not listed: a list asks both stores for each of its lines.
LISTED = 1


class JobsView(msgspec.Struct, frozen=True):
    """Jobs that have not ended or left something to see to, with how far they are; and all jobs, the newest first."""

    telling: list[ProgressDocument]
    jobs: list[JobDocument]


class GroupsView(msgspec.Struct, frozen=True):
    """Groups of triggers and of indexes, and how many workers live."""

    groups: list[GroupView]
    workers: int


class IndexesView(msgspec.Struct, frozen=True):
    """All indexes."""

    indexes: list[IndexView]


class ServersSection(msgspec.Struct, frozen=True):
    """Servers, and how many shards there should be."""

    seen: ServersView
    shards: int


@dataclass(frozen=True, slots=True)
class ConsoleSection:
    """One section. Its template has its name."""

    name: str
    title: str
    #: Between two looks while a page is open.
    seconds: float
    look: Callable[[ConsoleStores], msgspec.Struct]
    #: Between two looks while no page is open, so that charts have a past; None: it is not looked at then.
    idle_seconds: float | None = None
    #: Only where there are two stores.
    is_of_migration: bool = False


def sections_of(stores: ConsoleStores) -> tuple[ConsoleSection, ...]:
    """Those that this configuration has something for."""
    return tuple(each for each in SECTIONS if stores.is_both or not each.is_of_migration)


def _mirror(stores: ConsoleStores) -> MigrationView:
    stores.go_by_layout_in_force()
    seen = look_at_migration(stores.facade)
    assert seen is not None, "it is a section of the migration"
    if seen.trouble is not None:
        raise Told(seen.trouble)  # what was seen before is shown on, with its time
    return seen


def _evidence(stores: ConsoleStores) -> Report:
    return gather(stores.facade, WantedReport(listed_max=LISTED))


def _jobs(stores: ConsoleStores) -> JobsView:
    telling = look_at_jobs(stores.datastore)
    looked_at = {each.job.job: each.job for each in telling}
    jobs = [looked_at.get(each.id) or job_document(each) for each in Jobs(stores.datastore.control).all()]
    return JobsView(telling, jobs)


def _servers(stores: ConsoleStores) -> ServersSection:
    return ServersSection(look_at_servers(stores.datastore), stores.datastore.config.shards)


def _groups(stores: ConsoleStores) -> GroupsView:
    return GroupsView(*look_at_groups(stores.datastore))


SECTIONS = (
    ConsoleSection(
        "standing", "Phase and authority", 3, lambda stores: look_at_cutover(stores.both), is_of_migration=True
    ),
    ConsoleSection("mirror", "Mirror", 2, _mirror, idle_seconds=15, is_of_migration=True),
    ConsoleSection("jobs", "Jobs", 2, _jobs, idle_seconds=15),
    ConsoleSection("evidence", "Gates and evidence", 120, _evidence, is_of_migration=True),
    ConsoleSection("mismatches", "Mismatches", 30, look_at_mismatches, is_of_migration=True),
    ConsoleSection("aside", "Set aside", 30, look_at_aside, is_of_migration=True),
    ConsoleSection("servers", "Servers and shards", 3, _servers, idle_seconds=15),
    ConsoleSection("buffers", "Buffers", 5, lambda stores: look_at_buffers(stores.datastore)),
    ConsoleSection("groups", "Triggers", 10, _groups),
    ConsoleSection("indexes", "Indexes", 10, lambda stores: IndexesView(look_at_indexes(stores.datastore))),
    ConsoleSection("fsck", "Fsck", 15, look_at_last_fsck),
    ConsoleSection("backups", "Backups", 60, look_at_backups),
    ConsoleSection("control", "Control database", 5, lambda stores: look_at_control(stores.datastore)),
)
