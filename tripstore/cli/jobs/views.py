"""The jobs that `status` and `doctor` tell of: those that have not ended, and what the last ones left to see to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.datastore import Datastore
from schemaless_core.engine.base import Fact
from schemaless_core.errors import InvalidServer, SchemaMissing, Unavailable
from schemaless_core.servers.doctor import ServerFinding, ServerRole
from tripstore.cli.jobs.documents import ProgressDocument, progress_document
from tripstore.cli.jobs.screens import left_over, progress_line
from tripstore.engines.validation.diff.runner import KIND as DIFF
from tripstore.migration.cutover.facts import DiffScope
from tripstore.migration.cutover.job_facts import scope_of
from tripstore.migration.repair.job import KIND as REPAIR

_GOES_ON = (JobState.RUNNING, JobState.PAUSED)


def look_at_jobs(datastore: Datastore) -> list[ProgressDocument]:
    """The newest first. That the control database is down is said elsewhere."""
    jobs = Jobs(datastore.control)
    try:
        return [
            seen for job in _worth_telling(jobs.all()) if _is_news(seen := progress_document(jobs.progress(job.id)))
        ]
    except (Unavailable, InvalidServer, SchemaMissing):
        return []


def jobs_lines(seen: Sequence[ProgressDocument]) -> Iterator[RenderableType]:
    """One line for each, and what is wrong with it."""
    for each in seen:
        why = f" ({each.job.why})" if each.job.why else ""
        yield Text(f"{progress_line(each)}, {each.job.shown_state}{why}", style="" if each.is_fine else "yellow")
        if each.open:
            yield Text(left_over(each), style="bold red")
        yield from (Text(advice, style="bold red") for advice in each.advice)


def job_findings(datastore: Datastore) -> list[ServerFinding]:
    """The same as the doctor says it."""
    return [
        ServerFinding(None, datastore.control.name, ServerRole.CONTROL, _fact(each)) for each in look_at_jobs(datastore)
    ]


def _worth_telling(jobs: Sequence[Job]) -> Iterator[Job]:
    """Those that have not ended, and the last one of each kind.

    What a repair left, and differs still, is found by any whole diff that comes after it and looks as closely as the
    repaired one did: then that one tells of it.
    """
    kinds, looked = set[str](), list[DiffScope]()
    scopes = {job.id: scope_of(job.spec.get("note")) for job in jobs if job.kind == DIFF}
    for job in jobs:
        # A key list says nothing of how closely one looked for it.
        closely = scopes.get(str(job.spec.get("of")), DiffScope())
        is_found_again = job.kind == REPAIR and any(scope.covers(closely) for scope in looked)
        if job.state in _GOES_ON or not (job.kind in kinds or is_found_again):
            yield job
        kinds.add(job.kind)
        if job.kind == DIFF and job.state is JobState.DONE and not job.spec.get("is_partial"):
            looked.append(scopes[job.id])


def _is_news(seen: ProgressDocument) -> bool:
    return seen.job.state in _GOES_ON or not seen.is_fine


def _fact(seen: ProgressDocument) -> Fact:
    advice = [*seen.advice, *([left_over(seen)] if seen.open else [])]
    why = f" ({seen.job.why})" if seen.job.why else ""
    return Fact(seen.job.job, f"{seen.job.shown_state}{why}", seen.is_fine, advice="; ".join(advice))
