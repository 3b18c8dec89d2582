"""`tripstore export`: the cells of all logs as Parquet files, and what came since by each run after the first."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from schemaless_core.logcopy.ends import CALL_SECONDS
from schemaless_core.logcopy.throttle import CopyThrottle
from tripstore.cli.backfill.options import ColumnNames
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.locked import Locked
from tripstore.cli.options import Command, Settings, json_option, pass_settings, read_option
from tripstore.cli.progress import progress
from tripstore.errors import TripstoreError
from tripstore.export.errors import ExportOvertaken

if TYPE_CHECKING:  # The extra may not be installed.
    from tripstore.export.exporter import Exporter, ExportReport

MEGABYTE = 1024 * 1024


@click.command(cls=Command)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--columns", type=ColumnNames(), metavar="A,B", help="Cells of these columns alone; the same each time.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="At most so many a second.")
@click.option(
    "--commit-mb",
    type=click.FloatRange(min=0, min_open=True),
    default=64.0,
    show_default=True,
    help="Write files when so much is in memory.",
)
@click.option("--dry-run", is_flag=True, help="Say how many cells there are to export, and write nothing.")
@read_option
@json_option
@pass_settings
def export(
    settings: Settings,
    folder: Path,
    columns: tuple[str, ...] | None,
    rate: float | None,
    commit_mb: float,
    dry_run: bool,
    read: Literal["primary", "replica"],
    as_json: bool,
) -> Exit:
    """Write the cells of all logs into FOLDER as Parquet files, by column and day.

    The first run writes all cells, each later one what came since. Each cell is in exactly one file, also when a run
    was interrupted or killed: the same command goes on. Fields of the layout and of indexes are columns of their own,
    beside the whole body. Cells that a promotion took out of the logs are taken out of the files, and named.

    Exit code 1 when such a cell is not stored again, 5 when it was interrupted, 6 while another process exports into
    FOLDER.

    \b
    Example:
      tripstore export warehouse --dry-run
      tripstore export warehouse
      tripstore export warehouse --read replica --rate 20000
    """
    _check_installed()
    from tripstore.cli.export.documents import export_document, export_plan_document
    from tripstore.cli.export.screens import print_export, print_export_plan
    from tripstore.export.commits import ExportFolder
    from tripstore.export.exporter import Exporter
    from tripstore.models.shapes import columns_of

    config = settings.load()
    layout = None if config.legacy is None else config.legacy.layout
    place = ExportFolder(folder)
    place.check(config.core.datastore, columns)
    with settings.open() as datastore:
        exporter = Exporter(
            datastore.using(read=read, deadline=CALL_SECONDS),
            place,
            columns_of(layout, config.core.indexes),
            columns=columns,
            commit_bytes=round(commit_mb * MEGABYTE),
            throttle=CopyThrottle(lambda: None, rate),
        )
        if dry_run:
            plan = export_plan_document(str(folder), exporter.plan())
            print_document(plan) if as_json else print_export_plan(plan)
            return Exit.FINE
        document = export_document(str(folder), _run(exporter))
        print_document(document) if as_json else print_export(document)
        with suppress(ExportOvertaken):  # that one tells it again
            exporter.note_told()
    return document.exit


def _check_installed() -> None:
    try:
        import pyarrow  # noqa: F401  # the extra may not be installed
    except ImportError as error:
        hint = "Install it: pip install 'tripstore[export]'."
        raise TripstoreError(f"`tripstore export` needs {error.name}, which is not installed.", hint=hint) from None


def _run(exporter: Exporter) -> ExportReport:
    """Run it with a bar, or lines, of how many cells there are of about how many."""
    expected = exporter.plan().cells
    with progress("cells") as advance:
        try:
            return exporter.run(lambda done: advance(done, max(done, expected)))
        except ExportOvertaken as overtaken:
            raise Locked(overtaken.message, hint=overtaken.hint) from None
