"""`tripstore shadow`: how many reads are compared, and what came of it, per operation and with its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import TimingLedger
from tripstore.cli.both import Both, both, why_option
from tripstore.cli.compared import ComparedCounts, compared_cells, compared_documents, compared_headings
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.config import TripstoreConfig
from tripstore.engines.validation.shadow.ledger import KnownMismatch, OperationCounts, ShadowLedger
from tripstore.engines.validation.shadow.sampling import SamplingSettings
from tripstore.facade.flags import Comparing, Flags
from tripstore.facade.latency import calls_of
from tripstore.migration.cutover.look import epoch_of, find_handed_over
from tripstore.migration.report.comparisons import sampled
from tripstore.thresholds import CutoverSettings


class ComparingDocument(msgspec.Struct, frozen=True):
    """How much is compared: the JSON document of `set`. Null in `set_…`: what the configuration says holds."""

    phase: str
    is_comparing: bool
    share: float
    per_second: float
    set_share: float | None
    set_per_second: float | None
    #: Whether a store is held against itself: that is no evidence for a switch.
    is_against_itself: bool
    #: Rules of the configuration that hold today, and those that have ended.
    ignores: int
    ignores_ended: int


class ShadowDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    comparing: ComparingDocument
    since: datetime
    confidence: float
    rate_wanted: float
    operations: list[ComparedCounts]
    #: The same of a store against itself.
    noise: list[ComparedCounts]
    mismatches: list[KnownMismatch]


@click.group(cls=CommandGroup)
def shadow() -> None:
    """Reads that are replayed against the other store and compared, in the phases shadow and live.

    \b
    Example:
      tripstore shadow set --share 0.05
      tripstore shadow status
    """


@shadow.command("set")
@click.option("--share", type=click.FloatRange(0, 1), help="Of all reads: 0.1 is every tenth, 0 none.")
@click.option("--per-second", type=click.FloatRange(0), help="So many at most, in each process.")
@click.option(
    "--against",
    type=click.Choice(["other", "itself"]),
    help="Hold the store that answered against the other, or against itself: what differs then is noise.",
)
@click.option("--reset", is_flag=True, help="What is not given goes back to what the configuration says.")
@why_option
@click.option("--dry-run", is_flag=True, help="Say what would be compared and change nothing.")
@json_option
@pass_settings
def set_shadow(
    settings: Settings,
    share: float | None,
    per_second: float | None,
    against: str | None,
    reset: bool,
    why: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compare more reads, or fewer, from now on. Every process follows within a second.

    \b
    Example:
      tripstore shadow set --share 1 --per-second 50 --why "before the switch"
      tripstore shadow set --against itself --why "how much differs by itself?"
    """
    if share is None and per_second is None and against is None and not reset:
        raise click.UsageError("Give --share, --per-second, --against, or --reset.")
    with both(settings) as stores:

        def change(flags: Flags) -> Flags:
            known = Comparing() if reset else flags.comparing
            wanted = replace(
                known,
                share=known.share if share is None else share,
                per_second=known.per_second if per_second is None else per_second,
                is_against_itself=known.is_against_itself if against is None else against == "itself",
            )
            return replace(flags, comparing=wanted)

        book = stores.facade.flags
        flags = change(book.find()) if dry_run else book.change(change, "shadow.set", why)
        document = _comparing(stores, flags)
    if as_json:
        print_document(document)
    else:
        show(*_comparing_screen(document))
        click.echo("Nothing was changed." if dry_run else "Every process follows within a second.")


@shadow.command("status")
@click.option("--hours", type=click.IntRange(1), metavar="N", help="Of so many hours; else what the gates count.")
@click.option("--mismatches", "shown", type=click.IntRange(0, 1000), default=10, show_default=True, metavar="N")
@json_option
@pass_settings
def status(settings: Settings, hours: int | None, shown: int, as_json: bool) -> Exit:
    """Show what was compared of each operation, how high its mismatch rate may be, and the last mismatches.

    Processes write their counts every few seconds. Exit code 1 when something differs, 3 when too little was compared
    to say that the rate is small enough.

    \b
    Example:
      tripstore shadow status --hours 24
      tripstore shadow status --json | jq '.operations[] | select(.missing > 0)'
    """
    with both(settings) as stores:
        document = _status(stores, hours, shown)
    if as_json:
        print_document(document)
    else:
        show(*_screen(document))
    if any(each.mismatches for each in document.operations):
        return Exit.FAILED
    is_enough = document.operations and not any(each.missing for each in document.operations)
    return Exit.FINE if is_enough else Exit.NOT_VERIFIED


def _status(stores: Both, hours: int | None, shown: int) -> ShadowDocument:
    facade, settings = stores.facade, stores.facade.config.cutover
    since = datetime.now(UTC) - timedelta(hours=hours or settings.evidence_hours)
    handed_over = find_handed_over(stores.duo.legacy) if hours is None else None
    ledgers = Ledgers(facade.store.control)
    ledger, calls = ShadowLedger(ledgers), calls_of(TimingLedger(ledgers).total(since))
    return ShadowDocument(
        _comparing(stores, facade.flags.find()),
        since if handed_over is None else max(since, handed_over.at),
        settings.confidence,
        settings.mismatch_rate_max,
        _operations(ledger.operations(since, epoch_of(handed_over)), calls, settings),
        _operations(ledger.noise(since), Counter(), settings),
        ledger.mismatches(shown) if shown else [],
    )


def _operations(
    found: Sequence[OperationCounts], calls: Mapping[str, int], settings: CutoverSettings
) -> list[ComparedCounts]:
    return compared_documents(((each, sampled(each, calls[each.operation])) for each in found), settings)


def _comparing(stores: Both, flags: Flags) -> ComparingDocument:
    row = stores.duo.ports.control.authority()
    config, said = stores.facade.config, flags.comparing
    sampling = _configured(config)
    today = datetime.now(UTC).date()
    return ComparingDocument(
        flags.phase(row),
        flags.phase(row).route.asks_other,
        sampling.share if said.share is None else said.share,
        sampling.per_second if said.per_second is None else said.per_second,
        said.share,
        said.per_second,
        said.is_against_itself,
        _ignores(config, today),
        len(config.ignores) - _ignores(config, today),
    )


def _configured(config: TripstoreConfig) -> SamplingSettings:
    return SamplingSettings(config.shadow.share, config.shadow.per_second)


def _ignores(config: TripstoreConfig, today: date) -> int:
    return sum(today < rule.until for rule in config.ignores)


def _comparing_screen(document: ComparingDocument) -> Iterator[RenderableType]:
    said = f"{100 * document.share:g} % of the reads, at most {document.per_second:g} a second in each process"
    if not document.is_comparing:
        said = f"nothing, in phase {document.phase}; in shadow and live {said}"
    yield Text(f"compared: {said}", style="bold")
    if document.is_against_itself:
        yield Text("each store is held against itself: this measures the noise, and is no evidence", style="yellow")
    ended = f", {document.ignores_ended} more have ended" if document.ignores_ended else ""
    yield Text(f"{document.ignores} rules say what is ignored{ended}")


def _screen(document: ShadowDocument) -> Iterator[RenderableType]:
    yield from _comparing_screen(document.comparing)
    yield Text()
    if not document.operations:
        yield Text(f"Nothing was compared since {document.since:%Y-%m-%d %H:%M}.", style="yellow")
        return
    headings = "operation", *compared_headings(document.confidence)
    yield table(headings, [_row(each) for each in document.operations])
    yield Text(f"wanted: a rate below {100 * document.rate_wanted:.4g} % of each operation", style="dim")
    if document.noise:
        yield Text()
        yield Text("a store against itself: what differs by itself")
        yield table(headings, [_row(each) for each in document.noise])
    if document.mismatches:
        yield Text()
        rows = [
            (str(each.at)[:19], each.operation, each.kind, each.entry, each.path, each.command)
            for each in document.mismatches
        ]
        yield table(("mismatch", "operation", "class", "entry", "path", "look at it"), rows)


def _row(each: ComparedCounts) -> tuple[str | Text, ...]:
    return each.operation, *compared_cells(each)
