"""How `tripstore backfill` copies: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

import click
import msgspec

from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.process.spares import Spares
from tripstore.cli.awaited import Awaited
from tripstore.cli.backfill.jobs import say
from tripstore.cli.backfill.options import PaceOptions
from tripstore.cli.elsewhere.engine import TaskEngine
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument, progress_document
from tripstore.cli.jobs.hands import hands
from tripstore.cli.jobs.screens import telling
from tripstore.cli.jobs.work import JobWork
from tripstore.cli.options import Settings
from tripstore.cli.questions import AnswerRefused
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.backfill import Backfill
from tripstore.migration.backfill.serving import JobRunner


def _runner(facade: Facade, job: Job, name: str) -> JobRunner:
    return Backfill(facade).runner(job, name)


def copy(
    settings: Settings,
    jobs: Jobs,
    job: Job,
    processes: int,
    awaited: Awaited,
    engine: TaskEngine | None = None,
    tasks: int | None = None,
    spares: Spares | None = None,
    *,
    as_json: bool,
) -> Exit:
    """Copy in the foreground, here or by tasks of an engine, and say what came of it."""
    said = "Ctrl-C ends it after the chunks at hand, `tripstore backfill resume` goes on"
    click.echo(f"{job.id}: {said}.", err=True)
    work, limits = JobWork(settings, job, _runner), numbers_of(job, PaceOptions)
    copiers = hands(jobs, work, processes, engine, tasks, limits, spares)
    with telling(lambda: progress_document(jobs.progress(job.id)), awaited):
        copiers.run()
    seen = progress_document(jobs.progress(job.id))
    say(seen, as_json=as_json)
    if not seen.is_done and not as_json:
        click.echo(_left(seen), err=True)
    return _exit(seen, has_failed=copiers.failed > 0)


def refusing(error: CannotCopy) -> AnswerRefused:
    """What keeps a job from beginning is a gate."""
    return AnswerRefused(error.message, hint=error.hint)


def with_limits(job: Job, limits: msgspec.Struct) -> Job:
    """The same job with other limits, for the processes of this command."""
    return msgspec.structs.replace(job, spec={**job.spec, **msgspec.to_builtins(limits)})


def numbers_of(job: Job, options: type[msgspec.Struct]) -> dict[str, int | float]:
    """The limits of this command's job, which are not always those of the job's spec."""
    said = {name: job.spec.get(name) for name in options.__struct_fields__}
    return {name: value for name, value in said.items() if isinstance(value, int | float)}


def _left(seen: ProgressDocument) -> str:
    job = seen.job
    if job.state == JobState.CANCELLED:
        return f"{job.job} was given up; what it copied stays."
    return f"{job.job} is not done: `{job_command('backfill', 'resume', job.job)}` goes on where it was."


def _exit(seen: ProgressDocument, *, has_failed: bool) -> Exit:
    if seen.is_done:
        return Exit.FAILED if seen.open else Exit.FINE
    if has_failed or seen.job.state == JobState.CANCELLED:
        return Exit.FAILED
    return Exit.INTERRUPTED
