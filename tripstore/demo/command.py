"""`tripstore demo`: runs the demo and says whether everything that was promised is there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import click
import msgspec

from tripstore.demo.playground import Engine, engine_here
from tripstore.demo.report import DemoReport
from tripstore.demo.story import Say, run_demo
from tripstore.errors import TripstoreError

KEPT_FOLDER = Path("tripstore-playground")


@click.command()
@click.option(
    "--engine",
    type=click.Choice(["auto", "sqlite", "mariadb", "mysql"]),
    default="auto",
    show_default=True,
    help="auto: MariaDB when it is on this machine, else SQLite.",
)
@click.option("--keep", is_flag=True, help="Leave the datastore behind to play with; SQLite only.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=KEPT_FOLDER,
    show_default=True,
    help="Where --keep leaves it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def demo(engine: str, keep: bool, folder: Path, as_json: bool) -> int:
    """Show what works on this machine, with real processes and measured numbers, in less than a minute.

    Creates two clusters, puts a few thousand cells, kills something with -9 in the middle, reads on; has riders billed
    by a trigger whose worker is killed, finds drivers by an index, tails the log to its end, and holds what was
    acknowledged against what is there. Exit code 1 if anything is wrong.

    \b
    Example:
      tripstore demo
      tripstore demo --engine sqlite --keep
    """
    chosen = engine_here() if engine == "auto" else cast(Engine, engine)
    is_kept = keep and chosen == "sqlite"
    say = partial(click.echo, err=as_json)
    with TemporaryDirectory(prefix="tripstore-demo-") as scratch:
        place = _new_folder(folder) if is_kept else Path(scratch)
        report = run_demo(chosen, place, Path(scratch), say, is_kept=is_kept)
    _conclude(report, say)
    if keep and not is_kept:
        say("The servers of the demo have ended with it; `tripstore dev up` starts some that stay.")
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    return 0 if report.is_fine else 1


def _new_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise TripstoreError(f"{folder} exists already.", hint="Remove it, or name another by --folder.") from None
    return folder.resolve()


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
        say(f"Go on with: cd {report.folder} && tripstore status; `tripstore worker run` keeps its index.")
