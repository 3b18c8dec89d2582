"""`tripstore demo`: runs the demo and says whether everything that was promised is there."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import click
import msgspec

from tripstore.demo.playground import POSTGRES_FOLDER, Engine, WantedPlay, engine_here, new_folder
from tripstore.demo.report import DemoReport, Say
from tripstore.errors import TripstoreError
from tripstore.local.owner import FolderOwner

KEPT_FOLDER = Path("tripstore-playground")
#: The page that the demo leaves without --keep; of an earlier run it is replaced.
LEFT_PAGE = Path("tripstore-demo-report.html")
TRAFFIC_SECONDS_MAX = 3600


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["auto", "sqlite", "mariadb", "mysql"]),
    default="auto",
    show_default=True,
    help="auto: MariaDB when it is on this machine, else SQLite.",
)
@click.option("--mysql", "urls", multiple=True, metavar="URL", help="Your own servers, a cluster each; repeatable.")
@click.option("--keep", is_flag=True, help="Leave everything behind to play with; on SQLite, unless --mysql is given.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=KEPT_FOLDER,
    show_default=True,
    help="Where --keep leaves it, and --traffic finds it.",
)
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=LEFT_PAGE,
    show_default=True,
    help="Where the demo leaves its report; with --keep it is in the playground.",
)
@click.option(
    "--traffic",
    "seconds",
    type=click.FloatRange(1, TRAFFIC_SECONDS_MAX),
    metavar="SECONDS",
    help="No demo: have the services of a kept playground read and write for so long; in its folder, or beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def demo(
    engine: str,
    urls: tuple[str, ...],
    keep: bool,
    folder: Path,
    page: Path,
    seconds: float | None,
    as_json: bool,
) -> int:
    """Show the whole migration on this machine, with real processes and measured numbers: two minutes if it is idle.

    A company's Postgres, in use, gets UUIDs; its trips are mirrored, copied, compared, damaged, found and repaired;
    the gates pass; authority moves to Schemaless while services write, back, and once more; a primary dies, its puts
    are buffered, and its replica takes its place (not on SQLite, not on servers of yours); a trigger bills riders;
    a report is written, and left behind. Things are killed with -9 in between. Exit code 1 if anything is wrong.

    \b
    Example:
      tripstore demo
      tripstore demo --keep && cd tripstore-playground && tripstore status
      tripstore demo --traffic 60
    """
    if seconds is not None:
        if urls or keep or engine != "auto":
            raise click.UsageError("--traffic is for a playground that is there: leave the other options out.")
        return _use(folder, seconds, as_json=as_json)
    from tripstore.demo.story import REPORT, run_demo  # no other command waits for this import

    if not os.access(page.absolute().parent, os.W_OK):
        raise click.UsageError(f"No file can be written in {page.absolute().parent}: name another one by --report.")

    wanted = WantedPlay(_engine(engine, urls, is_kept=keep), urls, keep)
    say = partial(click.echo, err=as_json)
    with closing(FolderOwner()) as owner:  # which is cleared also when this process is killed
        scratch = owner.folder / "demo"
        scratch.mkdir(mode=0o700)
        place = new_folder(folder) if keep else scratch
        try:
            report = run_demo(wanted, place, scratch, say)
        except TripstoreError:
            if keep:
                click.echo(f"{place} holds what the demo did so far. Remove it before you repeat the demo.", err=True)
            raise
        page = place / REPORT if keep else _left(place / REPORT, page)
    _conclude(report, page, say)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    return 0 if report.is_fine else 1


def _use(folder: Path, seconds: float, *, as_json: bool) -> int:
    """Let the services of the playground work that is in this folder, or here. Exit code 1: answers differed."""
    from tripstore.demo.traffic import make_traffic  # no other command waits for this import

    done = make_traffic(folder if folder.is_dir() else Path(), seconds)
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
    else:
        wrote = (
            f"{done.transactions:,} transactions were committed by SQL" if done.transactions else "none wrote by SQL"
        )
        click.echo(f"{done.trips_read:,} times a trip was read within {done.seconds:.0f} s; {wrote}.")
        counts = f"{done.compared:,} answers were compared, {done.not_compared:,} were not"
        click.echo(f"{counts}; {done.mismatches:,} differed. `tripstore cutover plan` shows what the gates say now.")
    return 1 if done.mismatches else 0


def _engine(chosen: str, urls: tuple[str, ...], *, is_kept: bool) -> Engine:
    if urls:
        if chosen != "auto":
            raise click.UsageError("--mysql names servers of yours; leave --engine out.")
        return "yours"
    if is_kept:
        if chosen not in ("auto", "sqlite"):
            raise click.UsageError("--keep leaves SQLite clusters; `tripstore dev up` starts servers that stay.")
        return "sqlite"
    return engine_here() if chosen == "auto" else cast(Engine, chosen)


def _left(made: Path, page: Path) -> Path:
    """The report beside the caller's files, as readable as it was made: by its owner."""
    beside = page.with_name(f".{page.name}.{os.getpid()}")
    shutil.copy(made, beside)
    return beside.replace(page)


def _conclude(report: DemoReport, page: Path, say: Say) -> None:
    sums = report.sums
    if report.is_fine:
        verdict = "everything acknowledged is there"
    else:
        wrong = [check.name for step in report.steps for check in step.checks if check.is_wrong]
        verdict = f"WRONG: these checks failed: {'; '.join(wrong)}"
    slow = [f"{check.name}: {check.detail}" for step in report.steps for check in step.checks if check.is_slow]
    counts = f"{sums.acknowledged:,} cells acknowledged, {sums.stored:,} stored, {sums.missing} missing"
    say(f"{counts}, after {report.seconds:.1f} s: {verdict}")
    if slow:
        say(f"This machine was busy, which is no fault of the store: {'; '.join(slow)}")
    if not report.is_fine:
        say("On a busy machine, calls miss their deadlines. Repeat the demo while nothing else runs.")
    say(f"The report, for a browser: {page}")
    say("Three commands to try:")
    for command, effect in _next(report):
        say(f"  {command}  # {effect}")
    if report.folder is not None:
        say("To pass the gates once more after `tripstore cutover reverse`, while the worker runs:")
        say(
            "`tripstore demo --traffic 60` has services read and write, and `tripstore diff start` compares everything."
        )
        say(f"To remove the playground: tripstore dev down --folder {report.folder}/{POSTGRES_FOLDER}, then its folder")


def _next(report: DemoReport) -> list[tuple[str, str]]:
    """What a reader of the demo may do now, each with its effect."""
    if report.folder is None:
        return [
            ("tripstore demo --keep", "leaves a playground to look into"),
            ("tripstore init && tripstore schema apply", "a store of your own in this folder"),
            ("tripstore init --from postgresql://… --table …", "proposes a layout for tables of yours"),
        ]
    return [
        (f"cd {report.folder} && tripstore worker run", "carries changes and calls triggers, until Ctrl-C"),
        ("tripstore status", "in another terminal of that folder: phase, lag, jobs"),
        ("tripstore cutover plan", "every gate with its numbers, and the steps of the way back"),
    ]
