"""`tripstore replicate`: a second datacentre: a standby that follows, is compared, and comes to lead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

import click
from rich.text import Text

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job
from schemaless_core.errors import Unavailable
from schemaless_core.replication.replication import FollowOrder, FollowPlan, Replication
from schemaless_core.replication.runner import KIND
from schemaless_core.steps import Step
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.running import given_verb, run_job, verb_options
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.jobs.verbs import give_up
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import progress
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.replicate.documents import (
    CompareDocument,
    FollowDocument,
    LeadTakenDocument,
    StandbyDocument,
    compare_document,
    follow_document,
    plan_document,
    standby_document,
)
from tripstore.cli.replicate.work import FollowWork, both, both_as_recorded
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import PORT_MAX

#: Shards that are listed on a terminal: those that lack most.
LISTED_MAX = 10
#: A standby has no way to Postgres, and its copies say who was the authority when they were copied.
BY_WORD = "You say by this as well that Postgres is not the authority: a standby cannot ask it."


@click.group(cls=CommandGroup)
def replicate() -> None:
    """Keep a datastore elsewhere that has the same log, compare it, and have it lead when the first one is lost.

    All commands are of the standby: its configuration names its own clusters and its own control database.

    \b
    Example:
      tripstore replicate start --from first.yaml --config second.yaml
      tripstore replicate status --config second.yaml
      tripstore replicate promote --config second.yaml
    """


@replicate.command()
@click.option("--from", "other", metavar="FILE", type=click.Path(dir_okay=False), help="Of the datastore that leads.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second at most.")
@click.option("--dry-run", is_flag=True, help="Look at both datastores, and say what would be copied.")
@verb_options(pause="Have it copy no other page.", cancel="Give one up for ever; what was copied stays, and is closed.")
@click.option("--metrics-port", type=click.IntRange(1, PORT_MAX), metavar="PORT", help="Where its metrics are served.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="On which address.")
@yes_option
@json_option
@pass_settings
def start(
    settings: Settings,
    other: str | None,
    rate: float | None,
    dry_run: bool,
    shown: str | None,
    paused: str | None,
    resumed: str | None,
    cancelled: str | None,
    metrics_port: int | None,
    metrics_host: str,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Follow the datastore that another configuration names, until this one leads, or Ctrl-C.

    It has as many shards as this configuration says, and this one has none yet; or this one led before: then it is
    closed, and what it alone has is put into the other one first. Any number of processes may run it: one follows, and
    another one takes over when that dies.

    Exit code 4 when it is refused, 5 when it was interrupted: repeat it, or --resume.

    \b
    Example:
      tripstore replicate start --from first.yaml --dry-run --config second.yaml
      tripstore replicate start --from first.yaml --rate 20000 --metrics-port 9300 --config second.yaml
      tripstore replicate start --resume last --config second.yaml
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled}
    if given_verb(verbs, is_more=other is not None or dry_run or rate is not None) is None and other is None:
        raise click.UsageError("Say which datastore leads: tripstore replicate start --from first.yaml.")
    if other is not None:
        return _started(
            settings, FollowOrder(os.path.abspath(other), rate), (metrics_port, metrics_host), dry_run, yes, as_json
        )
    with both_as_recorded(settings) as replication:
        jobs = replication.jobs
        if shown is not None:
            return _said(replication, jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None:
            _said(replication, jobs.pause(KIND, paused), as_json=as_json)
            return Exit.FINE
        if cancelled is not None:
            _said(replication, give_up(jobs, KIND, cancelled, "", is_answered=yes), as_json=as_json)
            return Exit.FINE
        job = jobs.resume(KIND, resumed or "last")
        return _followed(settings, replication, job, (metrics_port, metrics_host), as_json=as_json)


def _started(
    settings: Settings, order: FollowOrder, metrics: tuple[int | None, str], dry_run: bool, yes: bool, as_json: bool
) -> Exit:
    with both(settings, order.other) as replication:
        plan = replication.plan(order)
        if dry_run or plan.refusals:
            return _show_plan(plan, as_json=as_json)
        if plan.returns and not plan.job:
            ask("Close this datastore, put what it alone has into the other one, and follow that?", is_answered=yes)
        job = replication.begin(plan)
        return _followed(settings, replication, job, metrics, as_json=as_json)


def _show_plan(plan: FollowPlan, *, as_json: bool) -> Exit:
    if as_json:
        print_document(plan_document(plan))
    elif plan.refusals:
        show(*(Text(refusal, style="bold red") for refusal in plan.refusals))
    else:
        click.echo(f"{plan.cells:,} cells in the logs of the one that leads, {plan.there:,} of them are here.")
        if plan.returns:
            click.echo("This datastore is closed, and what it alone has is put into the other one first.")
        if plan.job:
            click.echo(f"{plan.job} is gone on with.")
        show(*(Text(remark, style="yellow") for remark in plan.remarks))
    return Exit.REFUSED if plan.refusals else Exit.FINE


def _followed(
    settings: Settings, replication: Replication, job: Job, metrics: tuple[int | None, str], *, as_json: bool
) -> Exit:
    work = FollowWork(settings, job, *metrics)
    return run_job(replication.jobs, work, 1, "pages", lambda: _said(replication, job, as_json=as_json).exit)


def _said(replication: Replication, job: Job, *, as_json: bool) -> FollowDocument:
    document = follow_document(progress_document(replication.jobs.progress(job.id)))
    if as_json:
        print_document(document)
        return document
    show(Text(f"{progress_line(document.progress)}, {document.progress.job.state}"))
    if document.brought or document.conflicts:
        click.echo(f"{document.brought:,} cells that were here alone were put into the one that leads.")
    if document.conflicts:
        what = f"{document.conflicts:,} of them met another body there: `tripstore buffer conflicts` of that one."
        show(Text(what, style="bold red"))
    return document


@replicate.command()
@json_option
@pass_settings
def status(settings: Settings, as_json: bool) -> Exit:
    """Show what this datastore is, and how far it is behind the one that leads, in cells and in seconds.

    Seconds are by the clocks of both sides. While the one that leads does not answer they go on from the last answer.

    \b
    Example:
      tripstore replicate status --config second.yaml
    """
    with both_as_recorded(settings) as replication:
        document = _status(replication)
    if as_json:
        print_document(document)
    else:
        _show_status(document)
    return Exit.FINE


def _status(replication: Replication) -> StandbyDocument:
    standby = replication.record.find().standby
    job = progress_document(replication.jobs.progress(standby.job)) if standby.job else None
    checkpoint = replication.jobs.checkpoints(standby.job).get(0) if standby.job else None
    until = checkpoint.get("whole_until") if isinstance(checkpoint, dict) else None
    whole_until = datetime.fromisoformat(until) if isinstance(until, str) else None
    buffered = _buffered(checkpoint if isinstance(checkpoint, dict) else {})
    try:
        leads = replication.does_other_lead() if replication.is_other_known else None
    except Unavailable:
        leads = None
    return standby_document(standby, replication.lag(), job, whole_until, buffered, datetime.now(UTC), leads)


def _buffered(checkpoint: Mapping[str, Json]) -> tuple[int | None, datetime | None]:
    cells, since = checkpoint.get("buffered"), checkpoint.get("buffered_since")
    return cells if isinstance(cells, int) else None, datetime.fromisoformat(since) if isinstance(since, str) else None


def _show_status(seen: StandbyDocument) -> None:
    if seen.state == "left":
        where = f", whose configuration there is {seen.other}" if seen.other else ""
        click.echo(f"This datastore left: at epoch {seen.epoch} the lead was given to {seen.taker}{where}.")
    else:
        click.echo(f"This datastore {seen.state}; the other one is that of {seen.other}.")
    if not seen.is_other_heard:
        show(Text("The other one does not answer.", style="bold red"))
    elif seen.state == "leads" and seen.does_other_lead:
        what = "The other one takes puts: `tripstore replicate start` of that one closes it, and brings what it has."
        show(Text(what, style="bold red"))
    if seen.whole_until is not None and seen.seconds_behind is not None:
        behind = "an unknown number of" if seen.behind is None else f"{seen.behind:,}"
        click.echo(
            f"{seen.cells:,} cells, {behind} behind. All that came to the logs until"
            f" {seen.whole_until.isoformat(timespec='milliseconds')} is here, {seen.seconds_behind:,.1f} s ago."
        )
    if seen.buffered:
        since = "" if seen.buffered_since is None else f", the oldest since {seen.buffered_since.isoformat()}"
        what = f"When the other one was heard last, {seen.buffered:,} cells waited in its buffers{since}: none is here."
        show(Text(what, style="bold red"))
    late = sorted((each for each in seen.shards if each.behind), key=lambda each: -(each.behind or 0))
    if late:
        rows = [(str(each.shard), f"{each.cells:,}", f"{each.behind:,}") for each in late[:LISTED_MAX]]
        show(table(("shard", "cells", "behind"), rows))


@replicate.command()
@click.option(
    "--other-is-lost",
    "typed",
    metavar="NAME",
    help="Lead without a word of the one that leads; type the name of this datastore.",
)
@click.option("--dry-run", is_flag=True, help="Say what is here, and what may not be.")
@yes_option
@json_option
@pass_settings
def promote(settings: Settings, typed: str | None, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    """Have this datastore lead: the other one is closed, the last cells are copied, and all shards open here.

    Where the other one cannot be reached, --other-is-lost has this one lead with what it has. Until the other one is
    stopped, or follows this one, it goes on taking puts of services that do not know: they are brought when it
    comes back. So leads again one that gave the lead away, or has not brought all yet, where the one that took it
    is lost.

    Exit code 4 when it is refused. It may be repeated, by any process: what is done stays done.

    \b
    Example:
      tripstore replicate promote --dry-run --config second.yaml
      tripstore replicate promote --config second.yaml
      tripstore replicate promote --other-is-lost trips --config second.yaml
    """
    name = settings.load().core.datastore
    if typed is not None and typed != name:
        raise click.UsageError(f"--other-is-lost wants the name of this datastore: {name}.")
    is_forced = typed is not None
    with both_as_recorded(settings) as replication:
        seen = _status(replication)
        if dry_run:
            if as_json:
                print_document(seen)
            else:
                _show_status(seen)
            return Exit.FINE
        if is_forced and not as_json:
            _show_status(seen)
        if is_forced:
            click.echo(BY_WORD, err=True)
        ask(f"Have {name} lead?", is_answered=yes)
        epoch = replication.promote(
            is_forced=is_forced, hear=_ToldSteps(), configuration=os.path.abspath(settings.config)
        )
    document = LeadTakenDocument(epoch, is_forced, seen.cells)
    if as_json:
        print_document(document)
    else:
        click.echo(f"{name} leads, at epoch {epoch}. Let services use its configuration, and run its workers.")
        click.echo("Indexes are filled by `tripstore worker run`; then `tripstore index verify` and `index promote`.")
        click.echo("`tripstore replicate start --from` this configuration has the other one follow.")
    return Exit.FINE


class _ToldSteps:
    """What a promotion does, each step once: of one that waits the operator reads one line."""

    def __init__(self) -> None:
        self._last: Step | None = None

    def __call__(self, step: Step) -> None:
        if step != self._last:
            click.echo(f"{step.sentence} …", err=True)
        self._last = step


@replicate.command()
@json_option
@pass_settings
def compare(settings: Settings, as_json: bool) -> Exit:
    """Compare the logs of both datastores, by sums that the servers make of all that a cell has.

    Each shard is compared up to where the shorter log ends, while callers read and write. Exit code 1 when they differ.

    \b
    Example:
      tripstore replicate compare --config second.yaml
    """
    with both_as_recorded(settings) as replication, progress("added ids compared") as tell:
        document = compare_document(replication.compare(tell))
    if as_json:
        print_document(document)
    else:
        _show_compared(document)
    return document.exit


def _show_compared(seen: CompareDocument) -> None:
    rows = [(str(each.shard), f"{each.first:,} to {each.last:,}") for each in seen.differs]
    if rows:
        show(table(("shard", "added ids that differ"), rows))
    if seen.missing:
        which = ", ".join(map(str, seen.missing[:LISTED_MAX]))
        show(
            Text(
                f"{len(seen.missing):,} shards are not on both sides, and were not compared: {which}.", style="bold red"
            )
        )
    verdict = "differ" if rows else "are the same"
    click.echo(
        f"{seen.compared:,} added ids of {seen.shards:,} shards {verdict};"
        f" {seen.behind:,} behind, {seen.ahead:,} ahead."
    )
