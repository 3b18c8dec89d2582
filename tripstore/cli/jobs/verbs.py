"""What verbs on jobs share, whatever a job does: which one is meant; that it is given up, left to workers, listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.datastore import Datastore
from tripstore.cli.documents import print_document
from tripstore.cli.jobs.documents import JobDocument, JobList, job_document, progress_document
from tripstore.cli.jobs.screens import jobs_screen
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask
from tripstore.cli.tables import show

_LIST = """\
List all {kind}s, the newest first.

\b
Example:
  tripstore {kind} list
"""

job_argument = click.argument("job", default="last", metavar="[JOB]")


@contextmanager
def opened_jobs(settings: Settings) -> Iterator[Jobs]:
    """The jobs of the configuration's datastore."""
    with Datastore(settings.load().core) as datastore:
        yield Jobs(datastore.control)


def give_up(jobs: Jobs, kind: str, job: str, why: str, *, is_answered: bool) -> Job:
    """Cancel it for ever, once the operator says yes."""
    found = jobs.find(kind, job).id
    ask(f"Give up {found} for ever?", is_answered=is_answered)
    return jobs.cancel(kind, found, why)


def say_left(job: Job) -> None:
    """That workers do it from here on."""
    click.echo(f"{job.id} is left to `tripstore worker run`; `{job_command(job.kind, 'status', job.id)}` shows it.")


def list_command(kind: str) -> click.Command:
    """The verb `list` of a kind of jobs. It needs no store but the control database."""

    @click.command("list", cls=Command, help=_LIST.format(kind=kind))
    @json_option
    @pass_settings
    def list_jobs(settings: Settings, as_json: bool) -> None:
        with opened_jobs(settings) as jobs:
            _say_jobs(kind, [listed(jobs, each) for each in jobs.all(kind)], as_json=as_json)

    return list_jobs


def listed(jobs: Jobs, job: Job) -> JobDocument:
    """As a list shows it: whether a process works at one that runs is looked at."""
    return progress_document(jobs.progress(job.id)).job if job.state is JobState.RUNNING else job_document(job)


def _say_jobs(kind: str, found: list[JobDocument], *, as_json: bool) -> None:
    """All of a kind, or how the first one begins."""
    if as_json:
        print_document(JobList(found))
    elif found:
        show(jobs_screen(found))
    else:
        click.echo(f"There was no {kind} yet; `{job_command(kind, 'start')}` begins one.")
