"""`tripstore cutover complete`: the end of a migration, confirmed by typing the datastore's name."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from schemaless_core.errors import InvalidRequest
from tripstore.cli.both import Both, both, gate_documents, why_option
from tripstore.cli.cutover.documents import CompletionDocument, completion_document, print_completion
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.questions import AnswerRefused
from tripstore.migration.cutover.complete import Completion
from tripstore.migration.cutover.evidence import Evidence, gather
from tripstore.migration.cutover.facts import Facts
from tripstore.migration.cutover.gates import complete_verdicts
from tripstore.migration.cutover.verdicts import GateVerdict, refusals
from tripstore.ports.control import RealControlPort

#: Lines of the authority row's history in the evidence.
HISTORY_MAX = 10_000


@click.command(cls=Command)
@click.option("--datastore", metavar="NAME", help="The datastore's name, to confirm.")
@click.option(
    "--evidence",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the evidence; else a new file here.",
)
@why_option
@click.option("--dry-run", is_flag=True, help="Show gates and steps and change nothing.")
@json_option
@pass_settings
def complete(
    settings: Settings, datastore: str | None, file: Path | None, why: str, dry_run: bool, as_json: bool
) -> Exit:
    """End the migration: there is no way back afterwards. Nothing of the company's is dropped.

    Exports the evidence, stops the reverse mirror, closes the mapped tables to every writer, takes capture and gate
    off. Asks for the datastore's name. Killed half-way, run it again.

    \b
    Example:
      tripstore cutover complete --dry-run
      tripstore cutover complete --datastore trips --why "a month without a mismatch"
    """
    with both(settings) as stores:
        name = stores.facade.config.core.datastore
        facts, verdicts = _judged(stores)
        target = file or Path(f"tripstore-evidence-{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")
        if target.exists():
            raise InvalidRequest(f"{target} is there already.", hint="Name another file: evidence is not overwritten.")
        completion = Completion(
            stores.legacy,
            stores.facade.store,
            stores.facade.flags,
            why,
            lambda: _evidence(stores),
            target,
            facts.authority,
            stores.duo.ports.control.authority,
        )
        document = completion_document(name, completion, gate_documents(verdicts), str(target))
        if refusals(verdicts):
            return _refused(document, as_json=as_json)
        if not dry_run:
            _ask_for_name(name, datastore)
            if datastore is None:  # the answer may have come hours later
                _facts, verdicts = _judged(stores)
                if refusals(verdicts):
                    document = completion_document(name, completion, gate_documents(verdicts), str(target))
                    return _refused(document, as_json=as_json)
            for step in completion.perform():
                click.echo(f"done: {step.sentence}", err=True)
            document = completion_document(name, completion, gate_documents(verdicts), str(target), is_done=True)
    if as_json:
        print_document(document)
    else:
        print_completion(document)
    return Exit.FINE


def _judged(stores: Both) -> tuple[Facts, list[GateVerdict]]:
    with waiting("looking at both stores"):
        facts = stores.looker.facts()
    return facts, complete_verdicts(facts, stores.facade.config.cutover)


def _refused(document: CompletionDocument, *, as_json: bool) -> Exit:
    if as_json:
        print_document(document)
    else:
        print_completion(document)
    return Exit.REFUSED


def _ask_for_name(name: str, typed: str | None) -> None:
    hint = f"There is no way back: say --datastore {name}."
    if typed is None:
        if not sys.stdin.isatty():
            raise AnswerRefused("The datastore's name was not typed, so nothing was changed.", hint=hint)
        typed = click.prompt(f"There is no way back. Type the datastore's name ({name})", err=True)
    if typed != name:
        raise AnswerRefused(f"The datastore is not called {typed}; nothing was changed.", hint=hint)


def _evidence(stores: Both) -> Evidence:
    facade, control = stores.facade, stores.duo.ports.control
    assert isinstance(control, RealControlPort)
    facts = stores.looker.facts()
    name = facade.config.core.datastore
    return gather(name, facts, facade.config.cutover, facade.store.control, control.history(HISTORY_MAX))
