"""`tripstore cutover settle`: accepts a Postgres that was promoted without a decision, for the side that is right."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.audit import AuditLog
from tripstore.cli.both import both, why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show, table
from tripstore.cutover.acceptance import look, settle_lost, what_is_in_the_way
from tripstore.handover.accept import STEPS, Acceptance
from tripstore.handover.authority import Backend
from tripstore.handover.ports import Standing


class SettleDocument(msgspec.Struct, frozen=True):
    """The JSON document of `settle`; `lost` proves that a decision was lost, "": none was."""

    timeline: int
    accepted_timeline: int | None
    authority: str
    epoch: int
    shards_opened_at: int
    lost: str
    will_be: str
    is_needed: bool
    is_done: bool
    reason: str


@click.command("settle", cls=Command)
@click.option(
    "--without",
    multiple=True,
    metavar="CLUSTER",
    help="Do not ask this one, which is down: you vouch that its shards are not opened by a hand-over that is lost, "
    "and that it was not open above the authority row. May be repeated.",
)
@why_option
@click.option("--dry-run", is_flag=True, help="Show what was lost and what would be done, and change nothing.")
@yes_option
@json_option
@pass_settings
def settle_command(
    settings: Settings, without: tuple[str, ...], why: str, dry_run: bool, yes: bool, as_json: bool
) -> Exit:
    """Accept a Postgres that was promoted or put back, and may lack a decision. Until then nobody writes there.

    Shards that were opened above its authority row prove that a hand-over is lost: then Schemaless is the authority.
    Else the row is right. Without a loss every process does this by itself. Exit code 1 when it could not be done.

    \b
    Example:
      tripstore cutover settle --dry-run
      tripstore cutover settle --why "db2 was promoted without its last seconds"
    """
    with both(settings) as stores:
        ports = stores.duo.ports
        if unknown := sorted(set(without).difference(ports.store.servers)):
            raise click.UsageError(f"There is no cluster {', '.join(unknown)}.")
        found, opened = look(ports, without)
        document = _document(found, opened)
        if document.is_needed and not dry_run:
            ask(f"Make {document.will_be} the authority on this Postgres?", is_answered=yes)
            acceptance = settle_lost(ports, AuditLog(stores.facade.store.control), why, without)
            document = _done(document, acceptance)
    if as_json:
        print_document(document)
    else:
        show(*_screen(document))
    return Exit.FAILED if document.reason else Exit.FINE


def _document(found: Standing, opened: int) -> SettleDocument:
    lost = what_is_in_the_way(found, opened)
    will_be = Backend.STORE if lost else found.row.backend
    is_needed = bool(lost) or not found.is_accepted
    return SettleDocument(
        found.timeline,
        found.given,
        found.row.backend.value,
        found.row.epoch,
        opened,
        lost,
        will_be.value,
        is_needed,
        False,
        "",
    )


def _done(document: SettleDocument, acceptance: Acceptance) -> SettleDocument:
    row = acceptance.authority
    return msgspec.structs.replace(
        document,
        authority=row.backend.value,
        epoch=row.epoch,
        is_done=acceptance.is_accepted,
        reason=acceptance.reason,
    )


def _screen(seen: SettleDocument) -> Iterator[RenderableType]:
    accepted = "no timeline" if seen.accepted_timeline is None else f"timeline {seen.accepted_timeline}"
    yield Text(f"Postgres is at timeline {seen.timeline}; its authority row was given on {accepted}.")
    yield Text(f"authority: {seen.authority}, epoch {seen.epoch}; shards were opened last at {seen.shards_opened_at}.")
    if seen.lost:
        yield Text(seen.lost + ".", style="bold red")
    if seen.reason:
        yield Text(
            f"Not accepted: {seen.reason}. Nobody writes to Postgres before it is; repeat this.", style="bold red"
        )
    elif seen.is_done:
        yield Text(f"Accepted: {seen.authority} is the authority at epoch {seen.epoch}.", style="bold green")
    elif not seen.is_needed:
        yield Text("There is nothing to settle.")
    else:
        yield table(("step", ""), [(step.name, step.sentence) for step in dict.fromkeys(STEPS)])
        yield Text(f"`tripstore cutover settle` makes {seen.will_be} the authority. Nothing was changed yet.")
