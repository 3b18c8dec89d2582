"""`tripstore index verify` and `repair`: entries held against cells, both ways, and made right."""

from __future__ import annotations

import time
from uuid import UUID

import click
import msgspec

from schemaless_core.cell.answers import Scalar
from schemaless_core.datastore import Datastore
from schemaless_core.indexes.verify import CATCH_UP_SECONDS, SAMPLES_MAX, VerificationReport
from tripstore.cli.awaited import awaited_index
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.index.status import record_of
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show, table


class DifferenceView(msgspec.Struct, frozen=True):
    """A place where an entry is missing, stale or different."""

    kind: str
    row_key: UUID
    shard_value: Scalar


class VerdictDocument(msgspec.Struct, frozen=True):
    """The JSON document of `verify` and `repair`. `late` differed at first and had not been written yet."""

    index: str
    version: int
    entries: int
    rows: int
    missing: int
    stale: int
    different: int
    differences: int
    late: int
    not_compared: int
    #: Cells that the version's group has not passed by the end: their entries cannot be compared yet.
    lag_cells: int
    repaired: int
    is_clean: bool
    seconds: float
    samples: list[DifferenceView]


version_option = click.option(
    "--version", "number", type=click.IntRange(min=1), help="Which one; the newest if left out."
)
wait_option = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=CATCH_UP_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long the version may take to catch up with the cells of this moment.",
)
sample_option = click.option(
    "--sample",
    type=click.IntRange(0, SAMPLES_MAX),
    default=SAMPLES_MAX,
    show_default=True,
    help="Show so many differences of each kind.",
)


@click.command(cls=Command)
@click.argument("name")
@version_option
@sample_option
@wait_option
@json_option
@pass_settings
def verify(settings: Settings, name: str, number: int | None, sample: int, wait: float, as_json: bool) -> Exit:
    """Compare every entry of a version with the cells, and every row with its entry. The verdict is kept.

    Reads all cells of the index's columns, page by page; puts and queries go on. Exit code 1 when something differs, 3
    when rows changed meanwhile or the version was too far behind, so that not everything was compared.

    \b
    Example:
      tripstore index verify driver_partner_index
      tripstore index verify driver_partner_index --version 2 --json
    """
    document = _compared(settings, name, number, wait, sample, is_repair=False)
    return _conclude(document, as_json=as_json)


@click.command(cls=Command)
@click.argument("name")
@version_option
@sample_option
@wait_option
@click.option("--dry-run", is_flag=True, help="Compare and change nothing: the same as `verify`.")
@yes_option
@json_option
@pass_settings
def repair(
    settings: Settings,
    name: str,
    number: int | None,
    sample: int,
    wait: float,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Compare a version with the cells, as `verify` does, and make right what differs. Cells are never changed.

    May be repeated and interrupted; puts and queries go on. Verify it again afterwards.

    \b
    Example:
      tripstore index repair driver_partner_index --dry-run
      tripstore index repair driver_partner_index --yes
    """
    if not dry_run:
        ask(f"Make the entries of index {name} right wherever they differ from the cells?", is_answered=yes)
    document = _compared(settings, name, number, wait, sample, is_repair=not dry_run)
    return _conclude(document, as_json=as_json)


def _compared(
    settings: Settings, name: str, number: int | None, wait: float, sample: int, *, is_repair: bool
) -> VerdictDocument:
    with settings.open() as datastore:
        index = record_of(datastore, name)
        chosen = max(index.versions) if number is None else number
        started = time.perf_counter()
        awaited = awaited_index(datastore, name, chosen)
        with waiting(f"comparing version {chosen} of index {name} with its cells", awaited):
            report = datastore.indexes.verify(name, chosen, repair=is_repair, patience_seconds=wait)
        lag_cells = _lag_cells(datastore, name, chosen) if report.not_compared else 0
    return _document(report, sample, time.perf_counter() - started, lag_cells)


def _lag_cells(datastore: Datastore, name: str, number: int) -> int:
    versions = next(status.versions for status in datastore.indexes.status() if status.name == name)
    return next((each.lag_cells for each in versions if each.record.version.number == number), 0)


def _document(report: VerificationReport, sample: int, seconds: float, lag_cells: int) -> VerdictDocument:
    counts = {kind.value: count for kind, count in report.counts.items()}
    shown = [
        DifferenceView(kind.value, found.row_key, found.shard_value)
        for kind in report.counts
        for found in [each for each in report.samples if each.kind is kind][:sample]
    ]
    return VerdictDocument(
        index=report.index,
        version=report.version,
        entries=report.entries,
        rows=report.rows,
        missing=counts["missing"],
        stale=counts["stale"],
        different=counts["different"],
        differences=report.differences,
        late=report.late,
        not_compared=report.not_compared,
        lag_cells=lag_cells,
        repaired=report.repaired,
        is_clean=report.is_clean,
        seconds=round(seconds, 3),
        samples=shown,
    )


def _conclude(document: VerdictDocument, *, as_json: bool) -> Exit:
    if as_json:
        print_document(document)
    else:
        _print(document)
    if document.repaired < document.differences:
        return Exit.FAILED
    return Exit.NOT_VERIFIED if document.not_compared else Exit.FINE


def _print(document: VerdictDocument) -> None:
    which = f"Version {document.version} of index {document.index}"
    compared = f"{document.entries:,} entries and {document.rows:,} rows compared in {document.seconds:.1f} s"
    if document.samples:
        rows = [(each.kind, str(each.row_key), str(each.shard_value)) for each in document.samples]
        show(table(("what", "row key", "shard value"), rows))
    click.echo(f"{which}: {compared}; {document.late:,} were only late, and are right by now.")
    if document.differences:
        kinds = f"{document.missing:,} missing, {document.stale:,} stale, {document.different:,} different"
        click.echo(f"{document.differences:,} differ: {kinds}; {document.repaired:,} repaired.")
    if document.not_compared:
        why = f"the index is {document.lag_cells:,} cells behind" if document.lag_cells else "they changed meanwhile"
        click.echo(f"{document.not_compared:,} were not compared: {why}.")
    click.echo(_next(document))


def _next(document: VerdictDocument) -> str:
    name = f"{document.index} --version {document.version}"
    if document.repaired < document.differences:
        return f"`tripstore index repair {name}` makes them right."
    if document.differences:
        return f"Verify it again: `tripstore index verify {name}`."
    if document.lag_cells:
        return f"`tripstore worker run` serves it. Let it catch up, then `tripstore index verify {name}`."
    if document.not_compared:
        return "Is it served (`tripstore index status`)? Let it catch up, then verify it again."
    return "Everything compared is right."
