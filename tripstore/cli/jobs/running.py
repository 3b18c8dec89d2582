"""A job that a command works at itself, and the options about one that was begun before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from schemaless_core.control.jobs.jobs import Jobs
from tripstore.cli.elsewhere.engine import TaskEngine
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.hands import hands
from tripstore.cli.jobs.screens import telling
from tripstore.cli.jobs.work import ProcessWork

_Command = TypeVar("_Command", bound=Callable[..., Any])


def verb_options(*, pause: str, cancel: str) -> Callable[[_Command], _Command]:
    """`--show`, `--pause`, `--resume` and `--cancel`, each with a job: what the last two mean differs by its kind."""
    options = (
        click.option("--show", "shown", metavar="JOB", help="Show how far one is; `last` is the newest."),
        click.option("--pause", "paused", metavar="JOB", help=pause),
        click.option("--resume", "resumed", metavar="JOB", help="Go on with one that was paused or interrupted."),
        click.option("--cancel", "cancelled", metavar="JOB", help=cancel),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given_verb(verbs: Mapping[str, str | None], *, is_more: bool) -> str | None:
    """The one option of these that has a job. `is_more`: whether the call says something about a new one, too."""
    given = [name for name, job in verbs.items() if job is not None]
    if given and (is_more or len(given) > 1):
        raise click.UsageError(f"{given[0]} is about one that was begun before: leave the other options out.")
    return given[0] if given else None


def run_job(
    jobs: Jobs,
    work: ProcessWork,
    processes: int | None,
    unit: str,
    say: Callable[[], Exit],
    engine: TaskEngine | None = None,
) -> Exit:
    """Work at it until it has ended or Ctrl-C comes, with its progress. `say` tells what became of it.

    `unit`: between two of what a process ends. An engine has `processes` tasks do it at once, or as many as it has
    processes.
    """
    job = work.job
    command = click.get_current_context().command_path
    click.echo(f"{job.id} begins; Ctrl-C ends it between two {unit}, `{command} --resume last` goes on.", err=True)
    workers = hands(jobs, work, processes or 1, engine, processes)
    with telling(lambda: progress_document(jobs.progress(job.id))):
        workers.run()
    if workers.failed and engine is None:
        click.echo(f"{workers.failed:,} of {processes or 1:,} processes ended with an error.", err=True)
    found = say()
    return Exit.FAILED if workers.failed and found is Exit.INTERRUPTED else found
