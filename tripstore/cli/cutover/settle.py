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
from tripstore.handover.accept import STEPS, Acceptance
from tripstore.handover.acceptance import SeenPrimary, look, settle_lost
from tripstore.handover.authority import Backend


class SettleDocument(msgspec.Struct, frozen=True):
    """The JSON document of `settle`; `lost` proves that a decision, or an acceptance, was lost; "": none was.

    `accepted_timeline` is 0 where the row is of no server: it was found to be old, or is being accepted.
    """

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
    """Accept a Postgres that was promoted or put back, and may lack a decision. Until then no process writes there.

    Shards that were opened above its authority row prove that a hand-over is lost: then Schemaless is the authority.
    Else the row is right, also where another Postgres was accepted meanwhile. Without a loss every process does this by
    itself. Exit code 1 when it could not be done.

    \b
    Example:
      tripstore cutover settle --dry-run
      tripstore cutover settle --why "db2 was promoted without its last seconds"
    """
    with both(settings) as stores:
        ports = stores.duo.ports
        if unknown := sorted(set(without).difference(ports.store.servers)):
            raise click.UsageError(f"There is no cluster {', '.join(unknown)}.")
        document = _document(look(ports, without))
        if document.is_needed and not dry_run:
            ask(f"Make {document.will_be} the authority on this Postgres?", is_answered=yes)
            acceptance = settle_lost(ports, AuditLog(stores.facade.store.control), why, without)
            document = _done(document, acceptance)
    if as_json:
        print_document(document)
    else:
        show(*_screen(document))
    return Exit.FAILED if document.reason else Exit.FINE


def _document(seen: SeenPrimary) -> SettleDocument:
    found, lost = seen.found, seen.in_the_way
    will_be = Backend.STORE if seen.has_lost else found.row.backend
    is_needed = bool(lost) or not found.is_accepted
    return SettleDocument(
        found.timeline,
        None if found.given is None else max(found.given, 0),
        found.row.backend.value,
        found.row.epoch,
        seen.opened,
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
    accepted = f"timeline {seen.accepted_timeline}" if seen.accepted_timeline else "no timeline"
    yield Text(f"Postgres is at timeline {seen.timeline}; its authority row was given on {accepted}.")
    yield Text(f"authority: {seen.authority}, epoch {seen.epoch}; shards were opened last at {seen.shards_opened_at}.")
    if seen.lost:
        yield Text(seen.lost + ".", style="bold red")
    if seen.reason:
        yield Text(
            f"Not accepted: {seen.reason}. No process writes to Postgres before it is accepted; repeat this.",
            style="bold red",
        )
    elif seen.is_done:
        yield Text(f"Accepted: {seen.authority} is the authority at epoch {seen.epoch}.", style="bold green")
    elif not seen.is_needed:
        yield Text("There is nothing to settle.")
    else:
        yield table(("step", ""), [(step.name, step.sentence) for step in dict.fromkeys(STEPS)])
        yield Text(f"`tripstore cutover settle` makes {seen.will_be} the authority. Nothing was changed yet.")
