"""`tripstore index`: the versions of indexes, from their creation to their end, and questions to them."""

from __future__ import annotations

import click
import msgspec

from schemaless_core.datastore import Datastore
from schemaless_core.definitions.documents import meant
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import InvalidRequest
from schemaless_core.indexes.catalogue import KEPT, IndexRecord, VersionRecord, VersionState
from tripstore.cli.awaited import awaited_index
from tripstore.cli.documents import print_document
from tripstore.cli.index.errors import errors
from tripstore.cli.index.fill import fill
from tripstore.cli.index.query import query
from tripstore.cli.index.status import record_of, status
from tripstore.cli.index.verify import repair, verify, wait_option
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.questions import AnswerRefused, ask, yes_option
from tripstore.cli.tables import show, table


class CreateDocument(msgspec.Struct, frozen=True):
    """The JSON document of `create`; `same_as` is a version that is kept and has the same definition."""

    index: str
    version: int
    is_done: bool
    state: str | None
    same_as: int | None
    definition: dict[str, object]


class PromoteDocument(msgspec.Struct, frozen=True):
    """The JSON document of `promote`: which version answers the queries, and which one did."""

    index: str
    version: int
    before: int | None
    is_forced: bool
    is_done: bool


class DropDocument(msgspec.Struct, frozen=True):
    """The JSON document of `drop`."""

    index: str
    version: int
    state: str
    is_done: bool


@click.group(cls=CommandGroup)
def index() -> None:
    """Create indexes beside each other, verify them, choose which one answers, and ask it.

    \b
    Example:
      tripstore index status
      tripstore index query driver_partner_index 4b1e2f6c-6a2b-4f0e-9d7c-0d6a3c1f9b55 --limit 10
    """


for command in (status, fill, verify, repair, query, errors):
    index.add_command(command)


@index.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Show what would be created and change nothing.")
@yes_option
@json_option
@pass_settings
def create(settings: Settings, name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Create the next version of an index, as it is defined in the configuration, beside those that are there.

    It is filled by `tripstore worker run` and answers no query until it is promoted; the others go on meanwhile. The
    first versions of new indexes are created by `tripstore schema apply`, too. Killed half-way, run it again.

    \b
    Example:
      tripstore index create driver_partner_index --dry-run
      tripstore index create driver_partner_index
    """
    with settings.open() as datastore:
        document = _planned(datastore, name)
        if not dry_run:
            if document.same_as is not None:
                ask(f"Version {document.same_as} of {name} has the same definition. Another one?", is_answered=yes)
            with waiting(f"creating version {document.version} of index {name}"):
                number = datastore.indexes.create(name)
            state = datastore.indexes.catalogue.find(name).versions[number].state
            document = msgspec.structs.replace(document, version=number, is_done=True, state=state.value)
    if as_json:
        print_document(document)
    elif dry_run:
        _print_plan(document)
    else:
        click.echo(_created(document))


@index.command()
@click.argument("name")
@click.option("--version", "number", type=click.IntRange(min=1), help="Which one; the newest if left out.")
@click.option("--force", is_flag=True, help="Even if it was not verified and may lack entries.")
@wait_option
@click.option("--dry-run", is_flag=True, help="Say what would answer and change nothing.")
@json_option
@pass_settings
def promote(
    settings: Settings, name: str, number: int | None, force: bool, wait: float, dry_run: bool, as_json: bool
) -> None:
    """Let a version of an index answer its queries from now on. The older one, promoted again, is the way back.

    Refused (exit code 4) unless it was verified without differences or has answered before; and it must have caught
    up with the cells of this moment.

    \b
    Example:
      tripstore index promote driver_partner_index --version 2
    """
    with settings.open() as datastore:
        index = record_of(datastore, name)
        chosen = max(index.versions) if number is None else number
        version = _version(index, chosen)
        if not force:
            _refuse_unverified(version)
        if not dry_run:
            awaited = awaited_index(datastore, name, chosen)
            with waiting(f"waiting for version {chosen} of index {name} to catch up", awaited):
                datastore.indexes.promote(name, chosen, force=force, patience_seconds=wait)
    document = PromoteDocument(name, chosen, index.alias, force, not dry_run)
    if force and not dry_run:
        click.echo("FORCED: it was not verified, and may lack entries.", err=True)
    if as_json:
        print_document(document)
    else:
        click.echo(_promoted(document))


@index.command()
@click.argument("name")
@click.option("--version", "number", type=click.IntRange(min=1), required=True, help="Which one.")
@click.option("--dry-run", is_flag=True, help="Say what would be dropped and change nothing.")
@yes_option
@json_option
@pass_settings
def drop(settings: Settings, name: str, number: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Drop a version of an index that answers no queries: its entries, its tables and its group. Cells stay.

    Killed half-way, run it again.

    \b
    Example:
      tripstore index drop driver_partner_index --version 1
    """
    with settings.open() as datastore:
        index = record_of(datastore, name)
        version = _version(index, number)
        if index.alias == number:
            raise InvalidRequest(
                f"Version {number} of index {name} answers the queries.",
                hint=f"Promote another one first: `tripstore index promote {name} --version N`.",
            )
        if not dry_run:
            ask(f"Drop version {number} of index {name} with all its entries?", is_answered=yes)
            with waiting(f"dropping version {number} of index {name}"):
                datastore.indexes.drop(name, number)
    if as_json:
        print_document(DropDocument(name, number, version.state.value, not dry_run))
    else:
        click.echo(f"Version {number} of index {name} {'would be' if dry_run else 'is'} dropped; its cells stay.")


def _planned(datastore: Datastore, name: str) -> CreateDocument:
    """What `create` would do; a creation that was killed goes on under its number."""
    definition = _configured(datastore, name)
    index = datastore.indexes.catalogue.find(name)
    same = [
        number for number, each in sorted(index.versions.items()) if each.version.definition.digest == definition.digest
    ]
    begun = [number for number in same if index.versions[number].state is VersionState.CREATING]
    kept = [number for number in same if index.versions[number].state in KEPT]
    number = begun[0] if begun else index.next_number
    same_as = kept[-1] if kept and not begun else None
    return CreateDocument(name, number, False, None, same_as, dict(definition.to_document()))


def _configured(datastore: Datastore, name: str) -> IndexDefinition:
    definitions = {definition.name: definition for definition in datastore.config.indexes}
    if name not in definitions:
        none = "Add its definition to indexes: of the configuration."
        hint = f"{meant(name, definitions, 'Configured')} {none}" if definitions else none
        raise InvalidRequest(f"No index {name!r} is configured.", hint=hint)
    return definitions[name]


def _version(index: IndexRecord, number: int) -> VersionRecord:
    if number not in index.versions:
        known = ", ".join(map(str, sorted(index.versions)))
        raise InvalidRequest(f"Index {index.name} has no version {number}.", hint=f"Versions: {known}.")
    return index.versions[number]


def _refuse_unverified(record: VersionRecord) -> None:
    """The gate of a promotion. The core has it too; here it ends with the exit code of a gate."""
    if record.state is not VersionState.BUILDING or (record.verified is not None and record.verified.is_clean):
        return
    name, number = record.version.name, record.version.number
    if record.verified is None:
        why = "was never verified"
    else:
        why = f"had {record.verified.differences:,} differences when it was verified"
        if record.verified.not_compared:
            why += f", and {record.verified.not_compared:,} entries were not compared"
    raise AnswerRefused(
        f"Version {number} of index {name} {why}.",
        hint=f"Run `tripstore index verify {name} --version {number}`, then repeat.",
    )


def _print_plan(document: CreateDocument) -> None:
    columns = document.definition["column_defs"]
    assert isinstance(columns, list)
    rows = [
        (column["column_key"], field["field"], field["type"], "" if number or position else "shard field")
        for number, column in enumerate(columns)
        for position, field in enumerate(column["fields"])
    ]
    show(table(("column", "field", "type", ""), rows))
    if document.same_as is not None:
        click.echo(f"Version {document.same_as} has the same definition.", err=True)
    click.echo(f"Version {document.version} of index {document.index} would be created.")


def _created(document: CreateDocument) -> str:
    head = f"Version {document.version} of index {document.index} is created"
    if document.state == VersionState.READY.value:
        return f"{head} and answers queries: no cell was put before it."
    again = f"{document.index} --version {document.version}"
    steps = f"`tripstore index verify {again}`, `tripstore index promote {again}`"
    return f"{head}. `tripstore worker run` fills it, or `tripstore index fill` by an engine; then {steps}."


def _promoted(document: PromoteDocument) -> str:
    if document.before == document.version:
        return f"Version {document.version} of index {document.index} answers its queries already."
    verb = "answers" if document.is_done else "would answer"
    instead = "" if document.before is None else f" instead of version {document.before}"
    back = "" if document.before is None else f" The way back: --version {document.before}."
    return f"Version {document.version} of index {document.index} {verb} its queries{instead}.{back}"
