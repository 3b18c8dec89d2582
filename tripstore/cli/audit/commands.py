"""`tripstore audit`: what still uses the legacy tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from schemaless_core.errors import InvalidRequest
from tripstore.audit import CodeAudit, LegacyTable, LegacyTables, Use, audit_code
from tripstore.audit.findings import Counts, Remark, counts
from tripstore.cli.audit.database import db
from tripstore.cli.audit.rewrite import rewrite
from tripstore.cli.audit.statements import statements
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.tables import show, table
from tripstore.config import load_config


class UseView(msgspec.Struct, frozen=True):
    """A use in the JSON document; `allowed` is the reason that its comment gives."""

    file: str
    line: int
    column: int
    kind: str
    table: str
    access: str
    is_brittle: bool
    excerpt: str
    allowed: str | None


class CountView(msgspec.Struct, frozen=True):
    """How many uses a module, a kind or a table has."""

    name: str
    uses: int
    reads: int
    writes: int
    unknown: int


class DefinitionView(msgspec.Struct, frozen=True):
    """A model or a table object; it is not counted."""

    file: str
    line: int
    name: str
    table: str


class RemarkView(msgspec.Struct, frozen=True):
    """What could not be looked at; line 0 is the whole file."""

    file: str
    line: int
    reason: str


class CodeAuditDocument(msgspec.Struct, frozen=True):
    """The JSON document of `audit code`. `brittle` uses may break when a table gets one more column."""

    path: str
    files: int
    is_complete: bool
    uses: int
    reads: int
    writes: int
    unknown: int
    brittle: int
    allowed: int
    fail_over: int | None
    over: int
    tables: list[CountView]
    kinds: list[CountView]
    modules: list[CountView]
    definitions: list[DefinitionView]
    findings: list[UseView]
    allowed_findings: list[UseView]
    unread: list[RemarkView]
    unclear: list[RemarkView]
    untold: list[RemarkView]


@click.group(cls=CommandGroup)
def audit() -> None:
    """Find what still uses the legacy tables, before it is moved and after.

    \b
    Example:
      tripstore audit code services/billing --table trips --table billing_attempts
      tripstore audit db
      tripstore audit rewrite services/billing --store billing.stores:trips
      tripstore audit statements week.sql
    """


@audit.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--table",
    "names",
    multiple=True,
    metavar="NAME",
    help="Look for this table, [schema.]name; repeatable. If left out: those of the configuration's layout.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Skip files and folders of this name, or of this path below PATH if it has a slash; repeatable.",
)
@click.option(
    "--fail-over", type=click.IntRange(min=0), metavar="N", help="Exit with code 1 when there are more than N uses."
)
@click.option("--summary", is_flag=True, help="Print counts, not every use.")
@json_option
@pass_settings
def code(
    settings: Settings,
    path: Path,
    names: tuple[str, ...],
    exclude: tuple[str, ...],
    fail_over: int | None,
    summary: bool,
    as_json: bool,
) -> Exit:
    """Find the uses of legacy tables in the Python and SQL files below PATH. Nothing of it is imported or run.

    Knows the models of SQLAlchemy, Flask-SQLAlchemy, SQLModel, Django and Peewee under all their names, and SQL in
    texts. A comment
    `# tripstore: allow <reason>` takes the uses of its line out of the count. Exit code 1 when there are more uses
    than --fail-over, else 3 when a file could not be read, or there is no use but a model whose table cannot be told.

    \b
    Example:
      tripstore audit code services/billing --table trips --table billing_attempts
      tripstore audit code . --table trips --exclude migrations --fail-over 41
    """
    tables = LegacyTables.parse(names) if names else _tables_of_layout(settings)
    with waiting(f"reading the code below {path}"):
        result = audit_code(path, tables, exclude)
    document = _document(path, result, fail_over)
    if as_json:
        print_document(document)
    else:
        _print(document, is_short=summary)
    if document.over:
        return Exit.FAILED
    return Exit.FINE if document.is_complete else Exit.NOT_VERIFIED


def _tables_of_layout(settings: Settings) -> LegacyTables:
    """The tables that the configuration maps to columns of cells."""
    hint = "Name tables, --table trips --table billing_attempts, or a configuration with a layout, -c tripstore.yaml."
    if not settings.config.exists():
        raise InvalidRequest("No table is named.", hint=hint)
    legacy = load_config(settings.config).legacy
    if legacy is None:
        raise InvalidRequest(f"No table is named, and {settings.config} has no legacy.layout.", hint=hint)
    return LegacyTables(LegacyTable(name.schema, name.name) for name in legacy.layout.tables)


def _document(path: Path, result: CodeAudit, fail_over: int | None) -> CodeAuditDocument:
    sums = counts(result.uses)
    return CodeAuditDocument(
        path=str(path),
        files=result.files,
        is_complete=result.is_complete,
        uses=sums.uses,
        reads=sums.reads,
        writes=sums.writes,
        unknown=sums.unknown,
        brittle=sum(finding.kind.is_brittle for finding in result.uses),
        allowed=len(result.allowed),
        fail_over=fail_over,
        over=0 if fail_over is None else max(0, sums.uses - fail_over),
        tables=[_count(str(each), counts(use for use in result.uses if use.table == each)) for each in result.tables],
        kinds=_counted(result.uses, [use.kind.value for use in result.uses]),
        modules=_counted(result.uses, [use.file for use in result.uses]),
        definitions=[DefinitionView(each.file, each.line, each.name, str(each.table)) for each in result.definitions],
        findings=[_view(use) for use in result.uses],
        allowed_findings=[_view(use) for use in result.allowed],
        unread=_remarks(result.unread),
        unclear=_remarks(result.unclear),
        untold=_remarks(result.untold),
    )


def _counted(uses: Iterable[Use], names: list[str]) -> list[CountView]:
    """Counts by name, the largest first."""
    grouped: dict[str, list[Use]] = {}
    for use, name in zip(uses, names, strict=True):
        grouped.setdefault(name, []).append(use)
    found = [_count(name, counts(each)) for name, each in grouped.items()]
    return sorted(found, key=lambda each: (-each.uses, each.name))


def _count(name: str, of: Counts) -> CountView:
    return CountView(name, of.uses, of.reads, of.writes, of.unknown)


def _view(use: Use) -> UseView:
    return UseView(
        file=use.file,
        line=use.line,
        column=use.column,
        kind=use.kind.value,
        table=str(use.table),
        access=use.access.value,
        is_brittle=use.kind.is_brittle,
        excerpt=use.excerpt,
        allowed=use.allowed,
    )


def _remarks(remarks: Iterable[Remark]) -> list[RemarkView]:
    return [RemarkView(each.file, each.line, each.reason) for each in remarks]


def _print(document: CodeAuditDocument, *, is_short: bool) -> None:
    if not is_short:
        rows = [
            (f"{use.file}:{use.line}:{use.column}", use.kind, use.table, use.access, use.excerpt)
            for use in document.findings
        ]
        if rows:
            show(table(("where", "kind", "table", "access", ""), rows))
            click.echo()
    for what, every in (("module", document.modules), ("kind", document.kinds), ("table", document.tables)):
        if every:
            rows_of = [(e.name, f"{e.uses:,}", f"{e.reads:,}", f"{e.writes:,}", f"{e.unknown:,}") for e in every]
            show(table((what, "uses", "reads", "writes", "unknown"), rows_of))
            click.echo()
    _print_remarks(document, is_short=is_short)
    click.echo(_sums(document))
    if document.fail_over is not None:
        click.echo(_verdict(document.uses, document.fail_over))


def _print_remarks(document: CodeAuditDocument, *, is_short: bool) -> None:
    for remark in document.unread:
        click.echo(f"NOT LOOKED AT: {_where(remark)} {remark.reason}")
    for reason, number in sorted(Counter(each.reason for each in document.unclear).items()) if is_short else ():
        click.echo(f"unclear, {number} times: {reason}")
    for remark in () if is_short else document.unclear:
        click.echo(f"unclear: {_where(remark)} {remark.reason}")


def _where(remark: RemarkView) -> str:
    return f"{remark.file}:{remark.line}" if remark.line else remark.file


def _sums(document: CodeAuditDocument) -> str:
    if not document.files and not document.unread:
        return f"No Python or SQL file is below {document.path}: nothing was looked at."
    places = f"{_number(document.uses, 'use')} in {_number(document.files, 'file')}"
    said = f"{places}: {document.reads:,} read, {document.writes:,} write"
    said += f", {document.unknown:,} cannot be told." if document.unknown else "."
    if document.brittle:
        said += f" {document.brittle:,} may break when a table gets one more column."
    if document.allowed:
        said += f" {document.allowed:,} more allowed by comments."
    if document.unread:
        said += f" {_number(len(document.unread), 'file')} could not be looked at."
    if document.untold:
        said += (
            f" Of {_number(len(document.untold), 'model')} the table cannot be told: any number of uses may be theirs."
        )
    if document.untold and not document.is_complete:
        said += " Give each a table name that can be read, or say why it is none: `# tripstore: allow <reason>`."
    return said


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _verdict(uses: int, limit: int) -> str:
    if uses > limit:
        return f"Too many: {uses - limit:,} more than --fail-over {limit}."
    if uses < limit:
        return f"Fewer than --fail-over {limit}: lower it to {uses}, so that none comes back."
    return f"As many as --fail-over {limit} allows."


audit.add_command(db)
audit.add_command(rewrite)
audit.add_command(statements)
