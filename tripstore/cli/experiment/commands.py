"""`tripstore experiment`: the commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import msgspec

from schemaless_core.control.ledgers.ledgers import NOTES_MAX, Ledgers
from schemaless_core.errors import InvalidRequest, shown
from tripstore.cli.both import why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.experiment.documents import (
    ExperimentListDocument,
    ExperimentSetDocument,
    ExperimentStatusDocument,
    experiment_view,
    mismatch_views,
    status_views,
    use_views,
)
from tripstore.cli.experiment.screens import answering, list_screen, status_screen
from tripstore.cli.experiment.uses import acknowledge, uses
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import AnswerRefused
from tripstore.cli.tables import show
from tripstore.engines.validation.shadow.ledger import ShadowLedger
from tripstore.facade.experiments.flags import ExperimentBook, FlagsOfAll, check_name
from tripstore.facade.facade import Facade
from tripstore.migration.cutover.look import epoch_of, find_handed_over
from tripstore.migration.rewrites.standings import ExperimentStanding, Standings
from tripstore.migration.rewrites.uses import UseBooks


@click.group(cls=CommandGroup)
def experiment() -> None:
    """Rewritten queries: what was compared of them, which callers get their answers, and which uses remain.

    \b
    Example:
      tripstore experiment status
      tripstore experiment set billing.unpaid_trips --percent 5 --why "0 mismatches in 40,000"
    """


experiment.add_command(uses)
experiment.add_command(acknowledge)


@experiment.command("list")
@json_option
@pass_settings
def list_experiments(settings: Settings, as_json: bool) -> None:
    """List the experiments that a process ever had, which side answers, and the uses that audits found last.

    \b
    Example:
      tripstore experiment list
      tripstore experiment list --json | jq -r '.experiments[] | select(.percent < 100) | .name'
    """
    with settings.connect() as store:
        control = store.facade.store.control
        views = [experiment_view(each) for each in Standings(control).all()]
        document = ExperimentListDocument(views, use_views(UseBooks(control).all()))
    if as_json:
        print_document(document)
    else:
        show(*list_screen(document.experiments, document.uses))


@experiment.command("status")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--hours", type=click.IntRange(1), metavar="N", help="Of so many hours; else what the gates count.")
@click.option("--mismatches", "shown_max", type=click.IntRange(0, 1000), default=10, show_default=True, metavar="N")
@json_option
@pass_settings
def status(settings: Settings, names: tuple[str, ...], hours: int | None, shown_max: int, as_json: bool) -> Exit:
    """Show what was compared of each experiment, how high its mismatch rate may be, and how long both sides take.

    Processes write their counts every few seconds. Exit code 1 when something differs, 3 when too little was compared
    to say that the rate is small enough.

    \b
    Example:
      tripstore experiment status billing.unpaid_trips
      tripstore experiment status --json | jq '.experiments[] | select(.evidence.missing > 0)'
    """
    with settings.connect() as store:
        document = _status(store.facade, names, hours, shown_max)
    if as_json:
        print_document(document)
    else:
        show(*status_screen(document))
    told = [each for each in document.experiments if not each.experiment.is_retired]
    if any(each.evidence.mismatches for each in told):
        return Exit.FAILED
    return Exit.FINE if told and all(each.is_proven for each in told) else Exit.NOT_VERIFIED


@experiment.command("set")
@click.argument("name")
@click.option("--percent", type=click.FloatRange(0, 100), help="So many callers get the candidate's answer; 0: none.")
@click.option("--compare/--no-compare", "is_compared", default=None, help="Whether a share of its calls is compared.")
@click.option("--retired/--in-use", "is_retired", default=None, help="Whether its code is gone: no gate waits for it.")
@click.option("--ahead", is_flag=True, help="Although no process has it yet.")
@click.option("--force", is_flag=True, help="Turn callers over although it is not proven.")
@why_option
@click.option("--dry-run", is_flag=True, help="Say what would be set and change nothing.")
@json_option
@pass_settings
def set_experiment(
    settings: Settings,
    name: str,
    percent: float | None,
    is_compared: bool | None,
    is_retired: bool | None,
    ahead: bool,
    force: bool,
    why: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Turn callers over to the candidate, or back to the control, from now on. Every process follows within a second.

    The same callers get the same side everywhere. Exit code 4 when it is not proven and more callers would get its
    answer; fewer may always.

    \b
    Example:
      tripstore experiment set billing.unpaid_trips --percent 5 --why "proven since Monday"
      tripstore experiment set billing.unpaid_trips --percent 0 --why "riders complain"
    """
    given = {"percent": percent, "is_compared": is_compared, "is_retired": is_retired}
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Give --percent, --compare or --no-compare, --retired or --in-use.")
    with settings.connect() as store:
        facade = store.facade
        before = _known(facade, check_name(name), ahead=ahead)
        if percent is not None and percent > before.flags.percent and not force:
            _check_proven(facade, name)

        def change(flags: FlagsOfAll) -> FlagsOfAll:
            return flags.with_changes(name, **changes)

        book = ExperimentBook(facade.store.control)
        flags = change(book.find()) if dry_run else book.change(change, "experiment.set", why)
    wanted = msgspec.structs.replace(experiment_view(before), **changes)
    document = ExperimentSetDocument(experiment_view(before), wanted, is_done=not dry_run)
    assert flags.of(name).percent == wanted.percent
    if as_json:
        print_document(document)
        return
    click.echo(f"{name}: answered by the {answering(wanted)} (was: {answering(document.before)})")
    click.echo("Nothing was changed." if dry_run else "Every process follows within a second.")


def _status(facade: Facade, names: tuple[str, ...], hours: int | None, shown_max: int) -> ExperimentStatusDocument:
    settings, control = facade.config.cutover, facade.store.control
    found = _counted(facade, hours)
    for name in names:
        _check_known(name, found)
    told = [
        each for each in status_views(found, settings) if not names or each.experiment.name in names
    ]  # of all of them: what is rare is judged beside the others
    mismatches = ShadowLedger(Ledgers(control)).mismatches(NOTES_MAX) if shown_max else []
    return ExperimentStatusDocument(
        datetime.now(UTC) - timedelta(hours=hours or settings.evidence_hours),
        settings.confidence,
        settings.mismatch_rate_max,
        told,
        use_views(UseBooks(control).all()),
        mismatch_views(mismatches, [each.experiment.name for each in told], shown_max),
    )


def _counted(facade: Facade, hours: int | None = None) -> list[ExperimentStanding]:
    """As the gates count: not from before the last hand-over, unless hours are asked for."""
    settings, duo = facade.config.cutover, facade.duo
    since = datetime.now(UTC) - timedelta(hours=hours or settings.evidence_hours)
    handed_over = find_handed_over(duo.legacy) if duo is not None and hours is None else None
    return Standings(facade.store.control).all(since, epoch_of(handed_over))


def _known(facade: Facade, name: str, *, ahead: bool) -> ExperimentStanding:
    found = Standings(facade.store.control).all()
    if not ahead:
        _check_known(name, found)
    return next((each for each in found if each.name == name), None) or ExperimentStanding.unknown(name)


def _check_known(name: str, found: list[ExperimentStanding]) -> None:
    """A flag of a name that is misspelt would turn over no callers, and seem to."""
    if name not in {each.name for each in found}:
        some = ", ".join(each.name for each in found[:5]) or "there are none yet"
        hint = f"Known: {some}. `tripstore experiment set … --ahead` sets one that no process has yet."
        raise InvalidRequest(f"No process ever had an experiment {shown(name)}.", hint=hint)


def _check_proven(facade: Facade, name: str) -> None:
    settings = facade.config.cutover
    for each in status_views(_counted(facade), settings):
        if each.experiment.name == name and each.is_proven:
            return
    hint = f"`tripstore experiment status {name}` says what it lacks; --force goes on all the same, and says so."
    raise AnswerRefused(f"{name} is not proven: its callers would get answers that may be wrong.", hint=hint)
