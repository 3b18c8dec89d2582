"""What `tripstore repair` does with jobs that were begun: shows one, and gives one up.

Neither needs the stores: an authority that moved, or a configuration without `legacy:`, must not keep a job for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemaless_core.control.jobs.jobs import Jobs
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.verbs import give_up, opened_jobs
from tripstore.cli.options import Settings
from tripstore.cli.repair.documents import LISTED_MAX, RepairDocument, repair_document
from tripstore.cli.repair.screens import print_progress, print_repair
from tripstore.engines.validation.repair import Action
from tripstore.migration.repair.ending import find_ended
from tripstore.migration.repair.job import KIND


def seen_repair(jobs: Jobs, job: str, actions: Mapping[Action, int]) -> RepairDocument:
    """How far it is, what came of it, and what it left. Actions are those of this command."""
    progress = progress_document(jobs.progress(job))
    return repair_document(progress, jobs.findings(job, limit=LISTED_MAX + 1), actions, find_ended(jobs, job))


def show_repair(settings: Settings, job: str, *, as_json: bool) -> Exit:
    """Say all of it that is known. The exit code is that of the repair."""
    with opened_jobs(settings) as jobs:
        seen = seen_repair(jobs, jobs.find(KIND, job).id, {})
    return _said(seen, as_json=as_json).exit


def cancel_repair(settings: Settings, job: str, why: str, *, yes: bool, as_json: bool) -> Exit:
    """Give it up, once the operator says yes. What it repaired stays."""
    with opened_jobs(settings) as jobs:
        seen = seen_repair(jobs, give_up(jobs, KIND, job, why, is_answered=yes).id, {})
    _said(seen, as_json=as_json)
    return Exit.FINE


def _said(seen: RepairDocument, *, as_json: bool) -> RepairDocument:
    if as_json:
        print_document(seen)
    else:
        print_progress(seen.progress)
        print_repair(seen)
    return seen
