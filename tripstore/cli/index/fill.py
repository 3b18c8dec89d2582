"""`tripstore index fill`: a version that is behind is filled by tasks of an engine, beside the workers that keep it."""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import msgspec

from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.process.seat import Seat
from schemaless_core.version import VERSION
from tripstore.cli.backfill.options import PROCESSES_MAX
from tripstore.cli.documents import print_document
from tripstore.cli.elsewhere.address import EngineAddress, needed_on_option
from tripstore.cli.elsewhere.engine import TaskEngine, TaskOrder
from tripstore.cli.elsewhere.hosts import engine_at
from tripstore.cli.elsewhere.presence import Presence
from tripstore.cli.elsewhere.submission import Left, Submission
from tripstore.cli.exits import Exit
from tripstore.cli.index.status import record_of
from tripstore.cli.index.verify import version_option
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import Advance, progress

#: Each look asks for all offsets.
LOOK_SECONDS = 1.0


class FillDocument(msgspec.Struct, frozen=True):
    """The JSON document of `fill`: how many of the cells that were there when it began have no entry yet."""

    index: str
    version: int
    lag_cells: int
    is_done: bool
    seconds: float


class OpenIndex:
    """The cells that a version had before it when this was made."""

    def __init__(self, behind: Callable[[], int], tell: Advance, clock: Callable[[], float] = time.monotonic) -> None:
        self._behind = behind
        self._tell = tell
        self._clock = clock
        self._looked_at = clock()
        self.left = self._all = behind()

    def look(self) -> Left:
        """A task serves as long as it is wanted, so there is always something to do for one more."""
        if self._clock() - self._looked_at >= LOOK_SECONDS:
            self.left, self._looked_at = self._behind(), self._clock()
            self._tell(max(0, self._all - self.left), self._all)
        return Left(is_over=not self.left, free=PROCESSES_MAX, is_held=bool(self.left))


@click.command(cls=Command)
@click.argument("name")
@version_option
@needed_on_option
@click.option(
    "--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Tasks at once; else one for each."
)
@json_option
@pass_settings
def fill(
    settings: Settings, name: str, number: int | None, on: EngineAddress, processes: int | None, as_json: bool
) -> Exit:
    """Have tasks of an engine fill a version, until it has passed the cells of this moment.

    They share its shards with each `tripstore worker run`, by the same leases, which goes on keeping it afterwards.
    Exit code 5 when it was interrupted, or the engine is gone: the same command again goes on.

    \b
    Example:
      tripstore index create driver_partner_index
      tripstore index fill driver_partner_index --on dask://scheduler:8786
    """
    started = time.perf_counter()
    with engine_at(settings, on) as engine, settings.open() as datastore:
        assert engine is not None  # it has an address
        index = record_of(datastore, name)
        chosen = max(index.versions) if number is None else number
        version = datastore.indexes.version(name, chosen)
        with progress("cells") as tell:
            piece = OpenIndex(datastore.indexes.behind(name, chosen), tell)
            submission = _submission(engine, Jobs(datastore.control), version, piece, processes)
            if piece.left:
                submission.run()
    document = FillDocument(name, chosen, piece.left, not piece.left, time.perf_counter() - started)
    _say(document, submission, as_json=as_json)
    if document.is_done:
        return Exit.FINE
    return Exit.FAILED if submission.failed else Exit.INTERRUPTED


def _submission(
    engine: TaskEngine, jobs: Jobs, version: IndexVersion, piece: OpenIndex, processes: int | None
) -> Submission:
    presence = Presence(jobs, version.group_name, f"{Seat(0).name} by {engine.name}"[:128])
    order = TaskOrder(VERSION, kind="", subject=version.group_name, submitter=presence.submitter)
    return Submission(engine, piece, presence, order, processes)


def _say(document: FillDocument, submission: Submission, *, as_json: bool) -> None:
    if as_json:
        print_document(document)
    elif document.is_done:
        again = f"{document.index} --version {document.version}"
        click.echo(f"Version {document.version} of index {document.index} has passed all cells of that moment.")
        click.echo(f"Then `tripstore index verify {again}`, `tripstore index promote {again}`.")
    else:
        trouble = "" if submission.trouble is None else f"{submission.trouble.message} "
        click.echo(f"{trouble}{document.lag_cells:,} cells are left: the same command again goes on.", err=True)
