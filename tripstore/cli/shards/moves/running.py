"""A job that moves shards, as commands run it, show it, and give it up."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.moves.moves import MovePlan, Moves
from schemaless_core.moves.runner import KIND
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.running import run_job
from tripstore.cli.options import Settings
from tripstore.cli.questions import ask
from tripstore.cli.shards.moves.documents import MoveDocument, move_document, plan_document
from tripstore.cli.shards.moves.work import MoveWork
from tripstore.cli.tables import show, table


def move_shards(settings: Settings, moves: Moves, job: Job, processes: int, *, as_json: bool) -> Exit:
    work = MoveWork(settings, job)
    return run_job(moves.jobs, work, processes, "pages", lambda: say_job(moves, job, as_json=as_json).exit)


def say_job(moves: Moves, job: Job, *, as_json: bool) -> MoveDocument:
    progress = progress_document(moves.jobs.progress(job.id))
    document = move_document(progress, moves.jobs.findings(job.id))
    if as_json:
        print_document(document)
    else:
        show(Text(f"{job.id}: {document.moved:,} of {progress.parts:,} shards have moved ({progress.job.state})."))
        show(*(Text(f"Shard {each.shard} stays: {each.reason}.", style="bold red") for each in document.stayed))
    return document


def pause_job(moves: Moves, job_id: str, *, as_json: bool) -> Exit:
    """Shards that a dead mover left closed are named: no worker serves a job that is paused."""
    job = moves.jobs.pause(KIND, job_id)
    say_job(moves, job, as_json=as_json)
    if closed := moves.closed(job):
        listed = ", ".join(map(str, closed))
        told = f"Shards {listed} take no writes now. A mover that lives opens them in a moment; else resume or cancel."
        click.echo(told, err=True)
    return Exit.FINE


def cancel_job(moves: Moves, job: Job, *, is_answered: bool, as_json: bool) -> Exit:
    ask(f"Give up {job.id}? Shards that have gone stay at their new cluster.", is_answered=is_answered)
    cancelled = moves.jobs.cancel(KIND, job.id)
    moves.give_up(cancelled)
    say_job(moves, cancelled, as_json=as_json)
    return Exit.FINE


def show_plans(plans: list[MovePlan], *, as_json: bool) -> Exit:
    refusals = [refusal for plan in plans for refusal in plan.refusals]
    if as_json:
        print_document(plan_document(plans))
    elif refusals:
        show(*(Text(refusal, style="bold red") for refusal in refusals))
    else:
        rows = [
            (str(each.shard), each.source, plan.order.to, f"{each.cells:,}", f"{each.there:,}")
            for plan in plans
            for each in plan.moves
        ]
        show(table(("shard", "from", "to", "cells", "there already"), rows))
        there = sum(len(plan.there) for plan in plans)
        show(*([Text(f"{there:,} shards are there.")] if there else []))
    return Exit.REFUSED if refusals else Exit.FINE
