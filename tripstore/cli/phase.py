"""`tripstore phase`: how far the migration is, and going on or back without moving authority."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.definitions.documents import meant
from schemaless_core.errors import InvalidRequest, shown
from tripstore.cli.both import Both, both, why_option
from tripstore.cli.documents import print_document
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import AnswerRefused
from tripstore.cli.tables import show, table
from tripstore.facade.flags import EVERY, Flags, check_move
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.facts import Unknown
from tripstore.migration.cutover.look import known
from tripstore.migration.cutover.loss_gate import LOOK_FOR_LOST
from tripstore.migration.losses.unseen import KnownPostgres
from tripstore.phase import Phase, phases_of
from tripstore.ports.control import RealControlPort

#: Operations that name rows, or ids of them; an index query is an operation class of its own for each index.
OPERATIONS = (
    *("get_cell", "get_cell_latest", "get_cells", "get_cells_latest", "get_row", "get_history"),
    *("resolve_ids", "legacy_ids"),
)
#: What moves a phase that only a switch can move.
_ENDS = {Phase.COMPLETE: "tripstore cutover complete"}


class PhaseDocument(msgspec.Struct, frozen=True):
    """The JSON document of `show` and `set`. Cohorts are percentages by operation class, for each authority."""

    phase: str
    authority: str
    epoch: int
    is_open: bool
    #: The phase that a switch, or the way back, leads to.
    phase_after_switch: str
    is_mirrored: bool
    asks_other: bool
    cohorts: dict[str, float]
    cohorts_after_switch: dict[str, float]
    flags_version: int
    #: What the phase was; null where nothing was set.
    before: str | None = None
    is_done: bool = False


class CohortType(click.ParamType["tuple[str, float | None]"]):
    """OPERATION=PERCENT, or OPERATION=* for what every operation has: None."""

    name = "operation=percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float | None]:
        if isinstance(value, tuple):
            return value
        operation, equals, percent = value.rpartition("=")
        if operation and percent == EVERY:
            return operation, None
        try:
            return (operation if equals and operation else ""), float(percent.removesuffix("%"))
        except ValueError:
            return self.fail(f"{value!r} is no cohort: write get_cell_latest=5, or '*=5' for all.", param, ctx)


@click.group(cls=CommandGroup)
def phase() -> None:
    """See and set how far the migration is: off, dualwrite, shadow; after the switch live and rampdown.

    \b
    Example:
      tripstore phase show
      tripstore phase set dualwrite
    """


@phase.command("show")
@json_option
@pass_settings
def show_phase(settings: Settings, as_json: bool) -> None:
    """Show the phase, who is the authority, and which reads the other store answers.

    \b
    Example:
      tripstore phase show --json
    """
    with both(settings) as stores:
        document = _document(stores.duo.ports.control.authority(), stores.facade.flags.find())
    _print(document, as_json=as_json)


@phase.command("set")
@click.argument("wanted", required=False, metavar="[PHASE]", type=click.Choice([str(each) for each in Phase]))
@click.option(
    "--cohort",
    "cohorts",
    type=CohortType(),
    multiple=True,
    metavar="OPERATION=PERCENT",
    help="So much of an operation's reads is answered by the other store. May be repeated. '*' is every operation that "
    "has no percentage of its own; 0 keeps one out, and '*' as a percentage takes away its own.",
)
@why_option
@click.option("--dry-run", is_flag=True, help="Say what would be set and change nothing.")
@json_option
@pass_settings
def set_phase(
    settings: Settings,
    wanted: str | None,
    cohorts: tuple[tuple[str, float | None], ...],
    why: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Go to another phase with the same authority, or change its cohorts. Every process follows within a second.

    What needs another authority is refused: `tripstore cutover switch` and `reverse` move that. So is dualwrite while
    capture does not stand (exit code 4): the mirror would miss changes.

    \b
    Example:
      tripstore phase set dualwrite --why "capture stands since Monday"
      tripstore phase set shadow --cohort get_cell_latest=5
    """
    if wanted is None and not cohorts:
        raise click.UsageError("Name a phase, or a --cohort.")
    with both(settings) as stores:
        row, found = stores.duo.ports.control.authority(), stores.facade.flags.find()
        before = found.phase(row)
        if wanted is not None:
            _refuse(stores, row, before, Phase(wanted))
        _refuse_unknown(stores, dict(cohorts), found.cohorts(row.backend))

        def change(flags: Flags) -> Flags:
            changed = flags if wanted is None else flags.with_phase(Phase(wanted))
            return changed.with_cohorts(row.backend, dict(cohorts)) if cohorts else changed

        if wanted is not None and row.backend is Backend.LEGACY and not dry_run:
            _guard(stores, Phase(wanted), why)
        flags = change(found) if dry_run else stores.facade.flags.change(change, "phase.set", why)
        document = _document(row, flags, before=before, is_done=not dry_run)
    _print(document, as_json=as_json)


def _guard(stores: Both, wanted: Phase, why: str) -> None:
    """Have it seen when Postgres is promoted: from dualwrite on by asking, from shadow on by its first statement."""
    if wanted is Phase.DUALWRITE:
        KnownPostgres(stores.facade).remember(why)
    if wanted is Phase.SHADOW:
        if KnownPostgres(stores.facade).renew(why):
            click.echo(f"Postgres is another server than before. {LOOK_FOR_LOST}", err=True)
        control = stores.duo.ports.control
        assert isinstance(control, RealControlPort)
        control.guard()  # the next hand-over is not far: a standby has time to know


def _refuse(stores: Both, row: Authority, before: Phase, wanted: Phase) -> None:
    """Raise unless this phase may be set now."""
    if wanted is before:
        return
    check_move(row.backend, wanted)
    if before is Phase.COMPLETE:
        raise AnswerRefused("The migration is complete: there is no way back.", hint="Capture and the mirror are gone.")
    if wanted in _ENDS:
        raise AnswerRefused(f"The phase {wanted} is not set.", hint=f"`{_ENDS[wanted]}` does what belongs to it.")
    order = phases_of(row.backend)
    if order.index(wanted) > order.index(before) + 1:
        between = order[order.index(before) + 1]
        hint = f"First `tripstore phase set {between}`: each read of what the mirror lacks would count as a mismatch."
        raise InvalidRequest(f"Between {before} and {wanted} there is {between}.", hint=hint)
    if wanted.route.is_mirrored and row.backend is Backend.LEGACY:
        _refuse_without_capture(stores)


def _refuse_unknown(stores: Both, cohorts: Mapping[str, float | None], stored: Collection[str]) -> None:
    """A percentage of an operation that does not exist would change nothing; one that is stored can be taken away."""
    indexes = [f"query_index:{index.name}" for index in stores.facade.config.core.indexes]
    names = [EVERY, *OPERATIONS, *indexes]
    for name, percent in cohorts.items():
        is_taken_away = percent is None and name in stored
        if name not in names and not is_taken_away:
            raise InvalidRequest(f"There is no operation {shown(name)}.", hint=meant(name, names, "Operations"))


def _refuse_without_capture(stores: Both) -> None:
    capture = known(stores.looker.capture)
    hint = "Run `tripstore schema apply`; `tripstore doctor` says what is wrong."
    if isinstance(capture, Unknown):
        raise AnswerRefused(f"Whether capture stands is not known: {capture.reason}.", hint=hint)
    if capture.since is None:
        why = f"was broken ({capture.broken})" if capture.broken else "has not begun"
        raise AnswerRefused(f"Capture {why}: the mirror would miss changes.", hint=hint)
    if capture.complaints:
        raise AnswerRefused(f"Capture does not stand: {capture.complaints[0]}.", hint=hint)


def _document(row: Authority, flags: Flags, *, before: Phase | None = None, is_done: bool = False) -> PhaseDocument:
    found, other = flags.phase(row), row.backend.other
    return PhaseDocument(
        found,
        row.backend.value,
        row.epoch,
        row.is_open,
        flags.phase(other),
        found.route.is_mirrored,
        found.route.asks_other,
        dict(flags.cohorts(row.backend)),
        dict(flags.cohorts(other)),
        flags.version,
        before,
        is_done,
    )


def _print(document: PhaseDocument, *, as_json: bool) -> None:
    if as_json:
        print_document(document)
        return
    show(*_screen(document))
    if document.before is not None:
        moved = f"from {document.before} to {document.phase}" if document.before != document.phase else "as it was"
        click.echo(f"The phase {'is set' if document.is_done else 'would be set'}: {moved}.")


def _screen(document: PhaseDocument) -> Iterator[RenderableType]:
    state = "" if document.is_open else ", closing: a hand-over goes on"
    yield Text(f"phase {document.phase}", style="bold")
    other = Backend(document.authority).other.value
    rows = [
        ("authority", f"{document.authority} at epoch {document.epoch}{state}"),
        ("writes also go to", other if document.is_mirrored else "no other backend"),
        ("reads of", _cohorts(document.cohorts, other) if document.asks_other else f"no rows go to {other}"),
        ("compared with", other if document.asks_other else "nothing"),
        (f"with {other} as authority", f"phase {document.phase_after_switch}"),
    ]
    yield table(("", ""), rows)


def _cohorts(cohorts: Mapping[str, float], other: str) -> str:
    if not cohorts:
        return f"no rows go to {other}"
    return ", ".join(f"{percent:g} % of {name}" for name, percent in sorted(cohorts.items())) + f" go to {other}"
