"""`tripstore demo`: runs the demo and says whether everything that was promised is there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import click
import msgspec

from tripstore.demo.playground import POSTGRES_FOLDER, Engine, Wanted, engine_here, new_folder
from tripstore.demo.report import DemoReport, Say

KEPT_FOLDER = Path("tripstore-playground")


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
    help="Where --keep leaves it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def demo(engine: str, urls: tuple[str, ...], keep: bool, folder: Path, as_json: bool) -> int:
    """Show the whole migration on this machine, with real processes and measured numbers, in less than two minutes.

    A company's Postgres, in use, gets UUIDs; its trips are mirrored, copied, compared, damaged, found and repaired;
    the gates pass; authority moves to Schemaless while services write, back, and once more; a trigger bills riders;
    a report is written. Things are killed with -9 in between. Exit code 1 if anything is wrong.

    \b
    Example:
      tripstore demo
      tripstore demo --keep && cd tripstore-playground && tripstore status
    """
    from tripstore.demo.story import run_demo  # whoever runs another command need not wait for it

    wanted = Wanted(_engine(engine, urls, is_kept=keep), urls, keep)
    say = partial(click.echo, err=as_json)
    with TemporaryDirectory(prefix="tripstore-demo-") as scratch:
        place = new_folder(folder) if keep else Path(scratch)
        report = run_demo(wanted, place, Path(scratch), say)
    _conclude(report, say)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    return 0 if report.is_fine else 1


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


def _conclude(report: DemoReport, say: Say) -> None:
    sums = report.sums
    if report.is_fine:
        verdict = "everything acknowledged is there"
    else:
        wrong = [check.name for step in report.steps for check in step.checks if not check.is_fine]
        verdict = f"WRONG: not true is {'; '.join(wrong)}"
    counts = f"{sums.acknowledged:,} cells acknowledged, {sums.stored:,} stored, {sums.missing} missing"
    say(f"{counts}, after {report.seconds:.1f} s: {verdict}")
    if report.folder is not None:
        say(f"Go on with: cd {report.folder} && tripstore worker run; in another terminal: tripstore status")
        say(f"The end of it: tripstore dev down --folder {report.folder}/{POSTGRES_FOLDER}, and remove the folder")
