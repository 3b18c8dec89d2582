"""`tripstore fsck`: looks whether what stands on the servers is right, and makes right what no other command does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import click

from schemaless_core.control.audit import AuditLog
from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.datastore import Datastore
from schemaless_core.fsck.faults import NOT_COMPARED
from schemaless_core.fsck.fsck import FsckOrder, order_of
from schemaless_core.fsck.mending import MendOutcome
from schemaless_core.fsck.runner import KIND, LEFT_OUT, FsckRunner
from tripstore.cli.backfill.options import PROCESSES_MAX, ColumnNames, ShardRange, detach_option
from tripstore.cli.documents import print_document
from tripstore.cli.elsewhere.address import EngineAddress, on_option
from tripstore.cli.elsewhere.engine import TaskEngine
from tripstore.cli.elsewhere.hosts import engine_at
from tripstore.cli.exits import Exit
from tripstore.cli.fsck.documents import FsckDocument, FsckMendDocument, MendedDocument, fsck_plan_document
from tripstore.cli.fsck.look import look_at_fsck
from tripstore.cli.fsck.screens import print_fsck, print_mended, print_plan
from tripstore.cli.jobs.hands import refuse_two_places
from tripstore.cli.jobs.running import given_verb, run_job
from tripstore.cli.jobs.verbs import give_up, say_left
from tripstore.cli.jobs.work import JobWork
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.facade.facade import Facade

#: Findings that one `--mend` takes.
MENDED_MAX = 100_000


def _runner(facade: Facade, job: Job, name: str) -> FsckRunner:
    return facade.store.fsck.runner(job, name)


@click.command(cls=Command)
@click.option("--shards", type=ShardRange(), metavar="FIRST-LAST", help="The logs of these shards alone.")
@click.option("--columns", type=ColumnNames(), metavar="A,B", help="Bodies of these columns alone.")
@click.option("--deep", is_flag=True, help="Replicas and entries of indexes as well, byte by byte.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second, of each process."
)
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --resume as begun.")
@click.option("--dry-run", is_flag=True, help="Say what would be looked at; with --mend, what would be mended.")
@on_option
@detach_option
@click.option("--resume", "resumed", metavar="JOB", help="Go on with one that was interrupted; `last` is the newest.")
@click.option("--show", "shown", metavar="JOB", help="Show how far one is, and what it found.")
@click.option("--cancel", "cancelled", metavar="JOB", help="Give one up for ever.")
@click.option("--mend", "mended", metavar="JOB", help="Make right what one found in the logs of shards.")
@click.option(
    "--give-up",
    "may_give_up",
    is_flag=True,
    help="With --mend: let readers pass holes, and delete cells that are no JSON, where no server has them right.",
)
@yes_option
@json_option
@pass_settings
def fsck(
    settings: Settings,
    shards: tuple[int, int] | None,
    columns: tuple[str, ...] | None,
    deep: bool,
    rate: float | None,
    processes: int | None,
    dry_run: bool,
    on: EngineAddress | None,
    detach: bool,
    resumed: str | None,
    shown: str | None,
    cancelled: str | None,
    mended: str | None,
    may_give_up: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Look whether what stands on the servers is right, while callers read and write.

    Of each shard: its log is dense, its counter right, times never fall, bodies are canonical JSON, rows are where they
    belong, one cluster owns it. Beside them: offsets, buffers, ledgers, replicas, and servers that led before. --deep
    compares replicas and indexes. Each finding names the invariant, a command that shows it and one that mends it.

    Exit code 1 when something is wrong, 3 when nothing is but not all could be looked at, 5 when it was interrupted:
    --resume goes on.

    \b
    Example:
      tripstore fsck
      tripstore fsck --deep --rate 20000 --processes 2
      tripstore fsck --on dask://scheduler:8786
      tripstore fsck --shards 0-63 --json
      tripstore fsck --mend last --dry-run
    """
    order = FsckOrder(None if shards is None else (shards[0], shards[1] - 1), columns, deep, rate, processes or 1)
    verbs = {"--resume": resumed, "--show": shown, "--cancel": cancelled, "--mend": mended}
    refuse_two_places(on, detach=detach)
    _check(verbs, order, dry_run=dry_run, is_served=detach or on is not None, may_give_up=may_give_up)
    is_beside_postgres = settings.load().legacy is not None
    with engine_at(settings, on) as engine, settings.open() as datastore:
        if shown is not None:
            seen = look_at_fsck(datastore, datastore.fsck.jobs.find(KIND, shown), is_beside_postgres=is_beside_postgres)
            return _said(seen, as_json=as_json).exit
        if cancelled is not None:
            job = give_up(datastore.fsck.jobs, KIND, cancelled, "", is_answered=yes)
            _said(look_at_fsck(datastore, job, is_beside_postgres=is_beside_postgres), as_json=as_json)
            return Exit.FINE
        if mended is not None:
            answers = (is_beside_postgres, may_give_up, dry_run, yes, as_json)
            return _mend(datastore, datastore.fsck.jobs.find(KIND, mended), *answers)
        if resumed is not None:
            job = datastore.fsck.jobs.resume(KIND, resumed, is_detached=True if detach else None)
            if engine is None:
                processes = processes or order_of(job).processes
        else:
            if engine is not None and processes is None:
                order = replace(order, processes=max(1, engine.count()))
            plan = datastore.fsck.plan(order)
            if dry_run:
                document = fsck_plan_document(plan)
                if as_json:
                    print_document(document)
                else:
                    print_plan(document)
                return Exit.FINE
            job = datastore.fsck.begin(plan, is_detached=detach)
        if detach:
            if as_json:
                print_document(look_at_fsck(datastore, job, is_beside_postgres=is_beside_postgres))
            else:
                say_left(job)
            return Exit.FINE
        return _looked(
            settings, datastore, job, processes, engine, is_beside_postgres=is_beside_postgres, as_json=as_json
        )


def _check(
    verbs: dict[str, str | None], order: FsckOrder, *, dry_run: bool, is_served: bool, may_give_up: bool
) -> None:
    """Of the options for a job that was begun one alone, and none that would begin another.

    `is_served`: whether it is said where a job is done.
    """
    resumed, mended = verbs["--resume"] is not None, verbs["--mend"] is not None
    asked = replace(order, processes=1) if resumed else order
    given_verb(verbs, is_more=asked != FsckOrder() or (dry_run and not mended) or (is_served and not resumed))
    if may_give_up and not mended:
        raise click.UsageError("--give-up goes with --mend.")


def _looked(
    settings: Settings,
    datastore: Datastore,
    job: Job,
    processes: int | None,
    engine: TaskEngine | None,
    *,
    is_beside_postgres: bool,
    as_json: bool,
) -> Exit:
    def say() -> Exit:
        return _said(look_at_fsck(datastore, job, is_beside_postgres=is_beside_postgres), as_json=as_json).exit

    return run_job(datastore.fsck.jobs, JobWork(settings, job, _runner), processes, "steps", say, engine)


def _said(seen: FsckDocument, *, as_json: bool) -> FsckDocument:
    if as_json:
        print_document(seen)
    else:
        print_fsck(seen)
    return seen


def _mend(
    datastore: Datastore,
    job: Job,
    is_beside_postgres: bool,
    may_give_up: bool,
    is_dry: bool,
    is_answered: bool,
    as_json: bool,
) -> Exit:
    """Exit code 1 while something is left, here or to other commands."""
    jobs = datastore.fsck.jobs
    mending = datastore.fsck.mending(is_beside_postgres=is_beside_postgres, may_give_up=may_give_up)
    open_kinds = jobs.open_kinds(job.id)
    others = {kind: n for kind, n in open_kinds.items() if kind not in mending.kinds and kind != NOT_COMPARED}
    findings = [found for kind in mending.kinds for found in jobs.findings(job.id, kinds=[kind], limit=MENDED_MAX)]
    if findings and not is_dry:
        lost = " What no server knows is given up for ever." if may_give_up else ""
        ask(f"Mend {len(findings):,} findings of {job.id}?{lost}", is_answered=is_answered)
        AuditLog(datastore.control).add("fsck.mend", {"job": job.id, "findings": len(findings), "give_up": may_give_up})
    became = list[MendedDocument]()
    for each in findings:
        outcome, why = ("to be mended", "") if is_dry else mending.mend(each)
        became.append(MendedDocument(each.id, each.kind, str(each.body["reason"]), str(outcome), why))
        if not is_dry and outcome is not MendOutcome.LEFT:
            jobs.solve(job.id, [each.id])
    outcomes = dict(Counter(each.outcome for each in became))
    progress = jobs.progress(job.id)
    left_out = progress.counts.get(LEFT_OUT, 0)
    document = FsckMendDocument(job.id, outcomes, others, left_out, became)
    if as_json:
        print_document(document)
    else:
        print_mended(document)
    if outcomes.get(MendOutcome.LEFT.value, 0) or others or left_out or (is_dry and findings):
        return Exit.FAILED
    is_whole = progress.job.state is JobState.DONE and NOT_COMPARED not in open_kinds
    return Exit.FINE if is_whole else Exit.NOT_VERIFIED
