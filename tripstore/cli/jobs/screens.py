"""Jobs for people: how far one is, which there are, and what was found."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from schemaless_core.control.jobs.commands import job_command, kind_of
from schemaless_core.errors import SchemalessError
from tripstore.cli.awaited import Awaited, AwaitsNothing
from tripstore.cli.jobs.documents import IDLE, FindingDocument, JobDocument, ProgressDocument
from tripstore.cli.tables import table
from tripstore.migration.cutover.verdicts import moment

INTERVAL_SECONDS = 1.0

_STYLES = {"running": "", IDLE: "bold red", "paused": "yellow", "cancelled": "yellow", "done": "green"}

Look = Callable[[], ProgressDocument]


@contextmanager
def telling(look: Look, awaited: Awaited | None = None, interval: float = INTERVAL_SECONDS) -> Iterator[None]:
    """Say on stderr how far a job is as long as the block lasts: a bar on a terminal, else a line per interval.

    What the job waits for is said as soon as it is known, and in each line after that.
    """
    ended = threading.Event()
    tell = _tell_bar if sys.stderr.isatty() else _tell_lines
    arguments = (look, awaited or AwaitsNothing(), ended, interval)
    teller = threading.Thread(target=tell, args=arguments, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def progress_line(seen: ProgressDocument) -> str:
    """How far it is, in one line."""
    return f"{seen.job.job}: {_rows(seen)}{_pace(seen)}"


def progress_screen(seen: ProgressDocument) -> Iterator[RenderableType]:
    """How far it is, with everything that is known."""
    job = seen.job
    state = Text(f"{job.job}: {job.shown_state}", style=_STYLES[job.shown_state])
    if job.why:
        state.append(f" ({job.why})", style="dim")
    yield state
    of = "" if seen.rows_estimate is None else f" of about {seen.rows_estimate:,}, an estimate"
    ended = "" if job.ended_at is None else f", ended {moment(job.ended_at)}"
    rows = [
        ("begun", f"{moment(job.begun_at)} by {job.who}@{job.host}{ended}"),
        ("rows", f"{seen.rows:,}{of}{_pace(seen)}"),
        ("parts", f"{seen.parts_done:,} of {seen.parts:,} are done, {seen.parts_claimed:,} are being worked at"),
    ]
    rows += [(name, f"{count:,}") for name, count in seen.counts.items() if name != "rows" and count]
    yield table(("", ""), rows)
    if seen.workers:
        found = [
            (each.worker, f"{each.rate:,.0f} rows/s", each.limit or "", each.throttle or "") for each in seen.workers
        ]
        yield table(("worker", "", "limit", "waits because"), found)
    if seen.open:
        yield Text(left_over(seen), style="bold red")
    yield from (Text(advice, style="bold red") for advice in seen.advice)


def jobs_screen(jobs: list[JobDocument]) -> RenderableType:
    """The newest first."""
    rows = [
        (
            each.job,
            Text(each.shown_state, style=_STYLES[each.shown_state]),
            moment(each.begun_at),
            "" if each.ended_at is None else moment(each.ended_at),
            "a part" if each.is_partial else "everything",
            f"{each.who}@{each.host}",
        )
        for each in jobs
    ]
    return table(("job", "state", "begun", "ended", "of", "who"), rows)


def findings_screen(findings: list[FindingDocument]) -> RenderableType:
    """Each with its reason."""
    rows = [
        (str(each.id), _key(each), each.kind if each.is_open else f"{each.kind}, solved", each.field or "", each.reason)
        for each in findings
    ]
    return table(("finding", "row", "kind", "field", "reason"), rows)


def left_over(seen: ProgressDocument) -> str:
    """That its findings are open."""
    job = seen.job.job
    return f"{seen.open:,} findings of {job} are open; `{job_command(kind_of(job), 'show', job)}`"


def _rows(seen: ProgressDocument) -> str:
    of = "" if seen.rows_estimate is None else f" of about {seen.rows_estimate:,} (est.)"
    return f"{seen.rows:,}{of} {_unit(seen)}"


def _unit(seen: ProgressDocument) -> str:
    """What a job counts; the spec of a diff names one of them."""
    unit = str(seen.job.spec.get("unit", "rows"))
    return "rows" if unit == "row" else unit


def _key(found: FindingDocument) -> str:
    parts = (found.row_key, found.column_name, found.ref_key)
    return "/".join(str(part) for part in parts if part is not None)


def _pace(seen: ProgressDocument) -> str:
    if seen.job.shown_state != "running":
        return ""
    eta = "" if seen.eta_seconds is None else f", about {_duration(seen.eta_seconds)} left"
    waits = f"; waits: {', '.join(seen.throttles)}" if seen.throttles else ""
    return f", {seen.rate:,.0f} {_unit(seen)}/s{eta}{waits}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _tell_lines(look: Look, awaited: Awaited, ended: threading.Event, interval: float) -> None:
    awaited.look()
    while not ended.wait(interval):
        seen, waits = _looked(look), awaited.look()
        if seen is not None:
            click.echo(progress_line(seen) + waits, err=True)


def _tell_bar(look: Look, awaited: Awaited, ended: threading.Event, interval: float) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, pace="")
        awaited.look()
        while not ended.wait(interval):
            seen, waits = _looked(look), awaited.look()
            if seen is not None:
                pace = (_pace(seen) + waits)[2:]
                bar.update(task, completed=seen.rows, total=seen.rows_estimate, description=_rows(seen), pace=pace)


def _looked(look: Look) -> ProgressDocument | None:
    """The control database may be down for a moment: the work says so, if it matters."""
    try:
        return look()
    except SchemalessError:
        return None
