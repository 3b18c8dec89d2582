"""`tripstore backfill`: copy the past of the legacy tables to Schemaless, all of it or a part, as often as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import click
import msgspec

from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.process.spares import Spares
from tripstore.cli.awaited import Awaited, awaited_mirror
from tripstore.cli.backfill.jobs import (
    KIND,
    cancel,
    list_jobs,
    pause,
    say,
    show_findings,
    status,
)
from tripstore.cli.backfill.options import ColumnNames, PaceOptions, detach_option, limit_options, processes_option
from tripstore.cli.backfill.plan import say_plan
from tripstore.cli.backfill.row_keys import read_row_keys, row_keys_of_diff
from tripstore.cli.backfill.run import copy, refusing, with_limits
from tripstore.cli.both import both, why_option
from tripstore.cli.elsewhere.address import EngineAddress, on_option
from tripstore.cli.elsewhere.engine import TaskEngine
from tripstore.cli.elsewhere.hosts import engine_at
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.hands import refuse_limits_of_workers, refuse_two_places, spares_for
from tripstore.cli.jobs.verbs import job_argument, say_left
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.config import BackfillConfig
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.migration.backfill.backfill import Backfill, BackfillPlan, Wanted
from tripstore.migration.backfill.walk import WalkKind


@click.group(cls=CommandGroup)
def backfill() -> None:
    """Copy what stood in the tables before the mirror began, or a part of it, while everybody works.

    A copy may be late, early or repeated: it never overwrites and never brings back what was deleted. What cannot be
    copied is set aside with its reason. JOB is an id, or `last`, which is meant when it is left out.

    \b
    Example:
      tripstore backfill start --processes 2
      tripstore backfill status --watch
    """


@backfill.command()
@click.option("--where", metavar="SQL", help="Rows of the parent's table, t, of which this is true.")
@click.option("--columns", type=ColumnNames(), metavar="A,B", help="These columns alone.")
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="These rows alone: a UUID per line, or JSON with row_key, as a report has it.",
)
@click.option("--from-diff", metavar="JOB|FILE", help="The rows that a diff found different, or its key list.")
@click.option(
    "--walk",
    type=click.Choice([kind.value for kind in WalkKind]),
    help="Read Postgres in the order of its blocks, each once; or by row keys. Else by blocks where tables are large.",
)
@processes_option
@limit_options
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and copy nothing.")
@on_option
@detach_option
@json_option
@pass_settings
def start(
    settings: Settings,
    where: str | None,
    columns: tuple[str, ...] | None,
    keys_file: Path | None,
    from_diff: str | None,
    walk: str | None,
    processes: int | None,
    limits: PaceOptions,
    dry_run: bool,
    on: EngineAddress | None,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Begin a job, and copy until it is done.

    Refused (exit code 4) unless Postgres is the authority, capture stands, and the mirror is on: what changes meanwhile
    has to be carried. Only a job over everything counts for a switch. Exit code 1 when rows are in quarantine, 5 when
    it was interrupted or paused: `tripstore backfill resume` goes on.

    Everything of large tables is walked by blocks: a trigger notes rows that move meanwhile, so the role has to own the
    tables for as long as it runs. Where it does not, on Postgres 13, and for a part of the rows it goes by row keys;
    --dry-run says why.

    --on has tasks of a Dask scheduler copy, on hosts that have tripstore and its configuration.

    \b
    Example:
      tripstore backfill start --dry-run
      tripstore backfill start --on dask://scheduler:8786
      tripstore backfill start --processes 4 --max-postgres-load 8
      tripstore backfill start --max-blocks 2000 --max-probe-seconds 0.05
      tripstore backfill start --where "t.request_at >= '2014-01-01'" --columns BASE
    """
    if keys_file is not None and from_diff is not None:
        raise click.UsageError("--keys and --from-diff are both a list of rows: give one.")
    if walk == WalkKind.BLOCKS and (where is not None or columns or keys_file or from_diff):
        raise click.UsageError("--walk blocks is for everything: a part of it is found by row keys. Leave --walk out.")
    refuse_two_places(on, detach=detach)
    spared = Spares.forked(spares_for(processes, on, is_left=dry_run or detach))
    with spared as spares, engine_at(settings, on) as engine, opened(settings) as found:
        keys = _keys(found, keys_file, from_diff)
        wanted = Wanted(
            where=where,
            columns=None if columns is None else list(columns),
            keys_from=from_diff or (None if keys_file is None else str(keys_file)),
            walk=walk,
            processes=_planned(processes, engine),
            **msgspec.structs.asdict(limits),
        )
        plan = found.backfill.plan(wanted, keys)
        return _begin(settings, found, plan, processes, engine, spares, dry_run=dry_run, detach=detach, as_json=as_json)


@backfill.command()
@job_argument
@why_option
@processes_option
@limit_options
@on_option
@detach_option
@json_option
@pass_settings
def resume(
    settings: Settings,
    job: str,
    why: str,
    processes: int | None,
    limits: PaceOptions,
    on: EngineAddress | None,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Go on with a job that was paused, interrupted or killed; or join one that others are at.

    Limits that are given hold for the processes of this command; who works at a job that is left to others keeps to
    those that it was started with.

    \b
    Example:
      tripstore backfill resume
      tripstore backfill resume --processes 4 --rate 0
    """
    refuse_limits_of_workers(KIND, detach=detach, are_given=limits != PaceOptions())
    refuse_two_places(on, detach=detach)
    spared = Spares.forked(spares_for(processes, on, is_left=detach))
    with spared as spares, engine_at(settings, on) as engine, opened(settings) as found:
        found.backfill.check_limits(with_limits(found.jobs.find(KIND, job), limits).spec, is_begun=True)
        resumed = found.jobs.resume(KIND, job, why, is_detached=True if detach else None)
        if detach:
            return _detached(found, resumed, as_json=as_json)
        limited = with_limits(resumed, limits)
        number = _processes(found, resumed, processes)
        return copy(settings, found.jobs, limited, number, found.awaited, engine, processes, spares, as_json=as_json)


@backfill.command()
@job_argument
@processes_option
@limit_options
@click.option("--dry-run", is_flag=True, help="Say how many rows would be copied, and copy nothing.")
@on_option
@detach_option
@json_option
@pass_settings
def retry(
    settings: Settings,
    job: str,
    processes: int | None,
    limits: PaceOptions,
    dry_run: bool,
    on: EngineAddress | None,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Copy just the rows that a job has in quarantine, by a job of its own.

    What can be copied now is solved; what cannot is in quarantine again, with its reason of today. Limits that are not
    given are those with which that job was begun.

    \b
    Example:
      tripstore backfill show && tripstore backfill retry
    """
    refuse_two_places(on, detach=detach)
    spared = Spares.forked(spares_for(processes, on, is_left=dry_run or detach))
    with spared as spares, engine_at(settings, on) as engine, opened(settings) as found:
        wanted = Wanted(processes=_planned(processes, engine), **msgspec.structs.asdict(limits))
        plan = found.backfill.plan_retry(job, wanted)
        return _begin(settings, found, plan, processes, engine, spares, dry_run=dry_run, detach=detach, as_json=as_json)


for command in (status, pause, cancel, list_jobs, show_findings):
    backfill.add_command(command)


class OpenedCopy(NamedTuple):
    """What copies from the one store to the other, and how the configuration wants it done."""

    backfill: Backfill
    config: BackfillConfig
    awaited: Awaited

    @property
    def jobs(self) -> Jobs:
        return self.backfill.jobs


@contextmanager
def opened(settings: Settings) -> Iterator[OpenedCopy]:
    """Both stores of the configuration."""
    with both(settings) as stores:
        try:
            awaited = awaited_mirror(stores.facade, "what services change meanwhile does not reach Schemaless.")
            yield OpenedCopy(Backfill(stores.facade), stores.facade.config.backfill, awaited)
        except CannotCopy as error:
            raise refusing(error) from error


def _keys(found: OpenedCopy, keys_file: Path | None, from_diff: str | None) -> Sequence[UUID] | None:
    if keys_file is not None:
        return read_row_keys(keys_file)
    if from_diff is None:
        return None
    file = Path(from_diff)
    return read_row_keys(file) if file.is_file() else row_keys_of_diff(found.jobs, from_diff)


def _begin(
    settings: Settings,
    found: OpenedCopy,
    plan: BackfillPlan,
    processes: int | None,
    engine: TaskEngine | None,
    spares: Spares,
    *,
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> Exit:
    if dry_run:
        say_plan(found.config, plan, _planned(processes, engine), as_json=as_json)
        return Exit.FINE
    job = found.backfill.begin(plan, is_detached=detach)
    if detach:
        return _detached(found, job, as_json=as_json)
    number = _processes(found, job, processes)
    return copy(settings, found.jobs, job, number, found.awaited, engine, processes, spares, as_json=as_json)


def _detached(found: OpenedCopy, job: Job, *, as_json: bool) -> Exit:
    if as_json:
        say(progress_document(found.jobs.progress(job.id)), as_json=True)
    else:
        say_left(job)
    return Exit.FINE


def _planned(processes: int | None, engine: TaskEngine | None) -> int | None:
    """Of so many a plan has parts for each; None: as the configuration says."""
    return processes if engine is None else processes or engine.count() or None


def _processes(found: OpenedCopy, job: Job, given: int | None) -> int:
    known = job.spec.get("processes")
    return given or (known if isinstance(known, int) else found.config.processes)
