"""`tripstore cutover`: whether authority may move to the other store, with numbers; moving it; and the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from schemaless_core.control.audit import AuditLog
from tripstore.cli.awaited import awaited_mirror
from tripstore.cli.both import Both, both, gates_screen, why_option
from tripstore.cli.cutover.completion import complete
from tripstore.cli.cutover.documents import (
    CutoverDocument,
    CutoverPlanDocument,
    cutover_document,
    plan_document,
    print_cutover,
    print_plan,
)
from tripstore.cli.cutover.lost import lost_command
from tripstore.cli.cutover.settle import settle_command
from tripstore.cli.cutover.status import status
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.questions import AnswerRefused, ask, yes_option
from tripstore.cli.tables import show
from tripstore.handover.authority import Backend
from tripstore.handover.settle import follow, settle
from tripstore.handover.steps import run
from tripstore.migration.cutover.perform import HandoverOrder, perform
from tripstore.migration.cutover.plan import CutoverPlan, Direction, plan
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort
from tripstore.ports.legacy import RealLegacyPort

force_option = click.option("--force", is_flag=True, help="Even if gates refuse; they are written down, with --why.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show gates and steps and change nothing.")


@click.group(cls=CommandGroup)
def cutover() -> None:
    """Move authority between Postgres and Schemaless, forwards and back, and end the migration.

    \b
    Example:
      tripstore cutover plan
      tripstore cutover switch --why "all gates pass"
    """


for command in (status, complete, settle_command, lost_command):
    cutover.add_command(command)


@cutover.command("plan")
@click.option(
    "--direction",
    type=click.Choice([each.value for each in Direction]),
    help="Else the one that leads away from where authority is.",
)
@json_option
@pass_settings
def show_plan(settings: Settings, direction: str | None, as_json: bool) -> Exit:
    """Show what each gate says, with its numbers, and the steps of the hand-over in order. Changes nothing.

    Exit code 4 when a gate refuses.

    \b
    Example:
      tripstore cutover plan
      tripstore cutover plan --direction reverse --json
    """
    with both(settings) as stores:
        chosen = _away(stores) if direction is None else Direction(direction)
        planned = _planned(stores, chosen)
    return _show_plan(plan_document(planned), as_json=as_json)


@cutover.command()
@force_option
@why_option
@dry_run_option
@yes_option
@json_option
@pass_settings
def switch(settings: Settings, force: bool, why: str, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    """Make Schemaless the authority. Callers wait meanwhile, and it can be taken back.

    Refused (exit code 4) unless every gate passes. Undone at once when callers would wait longer than
    mirror.max_pause_seconds (default: 2), or when anything fails before the decision: exit code 1, and nothing has
    changed.

    \b
    Example:
      tripstore cutover switch --dry-run
      tripstore cutover switch --why "all gates pass since Monday"
    """
    return _hand_over(settings, Direction.FORWARD, force, why, dry_run, yes, as_json)


@cutover.command()
@force_option
@why_option
@dry_run_option
@yes_option
@json_option
@pass_settings
def reverse(settings: Settings, force: bool, why: str, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    """Make Postgres the authority again: with everything that was written since, and capture going on.

    Refused (exit code 4) unless every gate passes; what --force cannot overrule is a migration that is complete.

    \b
    Example:
      tripstore cutover reverse --dry-run
      tripstore cutover reverse --why "queries are slow"
    """
    return _hand_over(settings, Direction.BACK, force, why, dry_run, yes, as_json)


def _hand_over(
    settings: Settings, direction: Direction, force: bool, why: str, dry_run: bool, yes: bool, as_json: bool
) -> Exit:
    if force and not why:
        raise click.UsageError("--force needs --why: the audit log keeps the reason.")
    with ExitStack() as opened:
        with _before_it_begins():
            stores = opened.enter_context(both(settings))
        _refuse_complete(stores)
        if not dry_run:
            _settle(stores)
            _refuse_complete(stores)
        planned = _planned(stores, direction)
        document = plan_document(planned)
        if dry_run or (planned.refusals and not force):
            return _show_plan(document, as_json=as_json)
        forced = [verdict.name for verdict in planned.refusals]
        if forced:
            if not as_json:
                show(*gates_screen([gate for gate in document.gates if not gate.is_passed]))
            click.echo(f"FORCED, though {len(forced)} gates refuse: {', '.join(forced)}.", err=True)
        seconds = stores.facade.config.mirror.max_pause_seconds
        with _before_it_begins():
            ask(
                f"Make {direction.target.value} the authority? Callers wait for {seconds:g} s at most.", is_answered=yes
            )
        if not yes:  # the answer may have come hours later
            _refuse_complete(stores)
            now = _planned(stores, direction)
            planned = now
            if any(verdict.name not in forced for verdict in now.refusals):
                return _show_plan(plan_document(now), as_json=as_json)
        done = _performed(stores, HandoverOrder(direction, why, forced), planned.breaches)
        # Printed before the stores are closed: that takes its time, and the operator may interrupt it.
        if as_json:
            print_document(done)
        else:
            print_cutover(done)
    return Exit.FINE if done.is_decided else Exit.FAILED


def _performed(stores: Both, order: HandoverOrder, breaches: int | None) -> CutoverDocument:
    facade, ports = stores.facade, stores.duo.ports
    legacy, control = ports.legacy, ports.control
    assert isinstance(legacy, RealLegacyPort)
    assert isinstance(control, RealControlPort)
    try:
        performed = perform(
            ports,
            order,
            flags=facade.flags,
            audit=AuditLog(facade.store.control),
            max_pause_seconds=facade.config.mirror.max_pause_seconds,
            guard=control.guard,
            move_sequences=legacy.move_sequences,
            in_the_way=lambda: legacy.in_the_way,
            missed=lambda: stores.looker.missed_since(breaches),
        )
    finally:
        legacy.close()
    return cutover_document(performed, order)


def _planned(stores: Both, direction: Direction) -> CutoverPlan:
    awaited = awaited_mirror(stores.facade, "the gates on the mirror will refuse.")
    with _before_it_begins(), waiting("looking at both stores", awaited):
        return plan(direction, stores.looker.facts(), stores.facade.config.cutover)


@contextmanager
def _before_it_begins() -> Iterator[None]:
    """Tell the operator who interrupts this that the command has moved no authority."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort) as interrupt:
        interrupt.add_note("The hand-over had not begun, so it changed nothing.")
        raise


def _away(stores: Both) -> Direction:
    row = stores.duo.ports.control.authority()
    return Direction.FORWARD if row.backend is Backend.LEGACY else Direction.BACK


def _settle(stores: Both) -> None:
    """Finish what a killed process began: a hand-over is waited for, and undone when it takes too long."""
    ports = stores.duo.ports
    row = ports.control.authority()
    if row.is_open:
        run(settle(ports))
    else:
        with waiting(f"waiting for hand-over {row.switch_id} to end"):
            run(follow(ports, row))


def _refuse_complete(stores: Both) -> None:
    """Capture is gone and the tables are closed: whatever is forced, Postgres cannot be the authority.

    Unless it is, or a hand-over goes on: then the process that set the phase was killed before it could see that and
    set it back. Nothing else was done yet, and the next switch sets the phase anew.
    """
    if stores.facade.flags.find().store_phase is not Phase.COMPLETE:
        return
    if stores.duo.ports.control.authority().is_open_for(Backend.STORE):
        raise AnswerRefused(
            "The migration is complete: there is no way back.", hint="Postgres has missed writes since then."
        )


def _show_plan(document: CutoverPlanDocument, *, as_json: bool) -> Exit:
    if as_json:
        print_document(document)
    else:
        print_plan(document)
    return Exit.FINE if document.is_allowed else Exit.REFUSED
