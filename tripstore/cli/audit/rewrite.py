"""`tripstore audit rewrite`: the calls of tripstore that replace what still uses the legacy tables."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import InvalidRequest
from tripstore.audit.rewrite.needs import index_yaml
from tripstore.audit.rewrite.patches import Unwritten, diff, write
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteAssumption, RewriteVerdict
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.tables import show, table
from tripstore.config import load_config

_STORE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class RewrittenUseView(msgspec.Struct, frozen=True):
    """A use and what becomes of it; `assumes` are the assumptions that were made."""

    file: str
    line: int
    column: int
    kind: str
    table: str
    verdict: str
    reason: str
    advice: str
    assumes: list[str]


class NeedView(msgspec.Struct, frozen=True):
    """What queries ask of an index: its fields, and which index answers; null: one has to be created."""

    fields: dict[str, str]
    answered_by: str | None


class DiffView(msgspec.Struct, frozen=True):
    """The change of one file as a unified diff; `unwritten` says why --apply left it."""

    file: str
    diff: str
    unwritten: str | None


class LeftFileView(msgspec.Struct, frozen=True):
    """A file, or a place in it, that could not be looked at."""

    file: str
    line: int
    reason: str


class RewriteDocument(msgspec.Struct, frozen=True):
    """The JSON document of `audit rewrite`. `share` is rewritten ÷ (rewritten + left)."""

    path: str
    files: int
    rewritten: int
    left: int
    schema: int
    share: float
    is_applied: bool
    findings: list[RewrittenUseView]
    diffs: list[DiffView]
    needs: list[NeedView]
    indexes: list[str]
    unread: list[LeftFileView]
    unclear: list[LeftFileView]
    untold: list[LeftFileView]


@click.command("rewrite", cls=Command)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--layout",
    "layout_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The layout, or a proposal of `init --from`.  [default: that of the configuration]",
)
@click.option("--store", metavar="MODULE:NAME", help="Where services import the store from, app.stores:store.")
@click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="NAME",
    help="A context manager of yours that commits at its end, and rolls back after an error; repeatable.",
)
@click.option(
    "--assume",
    multiple=True,
    type=click.Choice([each.value for each in RewriteAssumption]),
    help="What holds for all services below PATH; repeatable.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Skip files and folders of this name, or of this path below PATH if it has a slash; repeatable.",
)
@click.option("--apply", is_flag=True, help="Write the files. Those with changes that are not committed are left.")
@click.option("--allow-dirty", is_flag=True, help="With --apply: write those, too.")
@click.option("--no-comments", is_flag=True, help="Do not say beside each use that stays why it does.")
@click.option("--summary", is_flag=True, help="Print counts and indexes, neither uses nor diffs.")
@json_option
@pass_settings
def rewrite(
    settings: Settings,
    path: Path,
    layout_file: Path | None,
    store: str | None,
    units: tuple[str, ...],
    assume: tuple[str, ...],
    exclude: tuple[str, ...],
    apply: bool,
    allow_dirty: bool,
    no_comments: bool,
    summary: bool,
    as_json: bool,
) -> Exit:
    """Print, as a diff, the calls of tripstore that replace the uses of legacy tables below PATH.

    What is not certain to mean the same stays, under a comment that says why, and what to do. Nothing is imported or
    run, and nothing written without --apply. Ends with the indexes that the queries need. Exit code 1 when uses stay,
    or a file was not written; else 3 when a file could not be read, or a model's table cannot be told.

    \b
    Example:
      tripstore audit rewrite services/billing --store billing.stores:trips
      tripstore audit rewrite . --store app.stores:store --unit session_scope --assume committed-reads --apply
    """
    if store is not None and not _STORE.fullmatch(store):
        raise click.BadParameter(f"{store!r} is not like app.stores:store.", param_hint="--store")
    if apply and store is None:
        raise click.UsageError("--apply needs --store: where the store is imported from.")
    layout, indexes = _layout(settings, layout_file)
    wishes = RewriteWishes(store, units, [RewriteAssumption(each) for each in assume], not no_comments)
    with waiting(f"reading the code below {path}"):
        found = rewrite_code(path, layout, indexes, exclude, wishes)
    left = write(path, found.changed, allow_dirty=allow_dirty) if apply else []
    document = _document(path, found, left, is_applied=apply)
    if as_json:
        print_document(document)
    else:
        _print(document, is_short=summary)
    if document.left or left:
        return Exit.FAILED
    return Exit.NOT_VERIFIED if document.unread or document.untold or not document.files else Exit.FINE


def _layout(settings: Settings, layout_file: Path | None) -> tuple[Layout, tuple[IndexDefinition, ...]]:
    config = load_config(settings.config) if settings.config.exists() else None
    indexes = tuple(config.core.indexes) if config is not None else ()
    if layout_file is not None:
        return load_layout(layout_file), indexes
    if config is None or config.legacy is None:
        raise InvalidRequest("No layout is named.", hint="Name one, --layout layout.yaml, or -c tripstore.yaml.")
    return config.legacy.layout, indexes


def _document(path: Path, found: CodeRewrite, left: list[Unwritten], *, is_applied: bool) -> RewriteDocument:
    unwritten = {each.name: each.reason for each in left}
    return RewriteDocument(
        path=str(path),
        files=found.files,
        rewritten=found.count(RewriteVerdict.REWRITTEN),
        left=found.count(RewriteVerdict.LEFT),
        schema=found.count(RewriteVerdict.SCHEMA),
        share=round(found.share, 4),
        is_applied=is_applied,
        findings=[
            RewrittenUseView(
                each.use.file,
                each.use.line,
                each.use.column,
                each.use.kind.value,
                str(each.use.table),
                each.verdict.value,
                each.reason,
                each.advice,
                [assumed.value for assumed in each.assumes],
            )
            for each in found.uses
        ],
        diffs=[DiffView(each.name, diff(each), unwritten.get(each.name)) for each in found.changed],
        needs=[NeedView(dict(each.fields), each.answered_by) for each in found.needs],
        indexes=[index_yaml(each) for each in found.proposed],
        unread=[LeftFileView(each.file, each.line, each.reason) for each in found.unread],
        unclear=[LeftFileView(each.file, each.line, each.reason) for each in found.unclear],
        untold=[LeftFileView(each.file, each.line, each.reason) for each in found.untold],
    )


def _print(document: RewriteDocument, *, is_short: bool) -> None:
    if not is_short:
        _print_uses(document)
        for each in document.diffs:
            click.echo(each.diff)
    for remark in document.unread:
        click.echo(f"NOT LOOKED AT: {remark.file}:{remark.line} {remark.reason}")
    for remark in document.unclear if not is_short else document.untold:
        click.echo(f"unclear: {remark.file}:{remark.line} {remark.reason}")
    _print_indexes(document)
    for change in document.diffs:
        if change.unwritten is not None:
            click.echo(f"NOT WRITTEN: {change.file} {change.unwritten}")
    click.echo(_sums(document))


def _print_uses(document: RewriteDocument) -> None:
    rows = [
        (f"{each.file}:{each.line}:{each.column}", each.kind, each.table, each.verdict, _said(each))
        for each in document.findings
    ]
    if rows:
        show(table(("where", "kind", "table", "verdict", "why, and what to do"), rows))
        click.echo()


def _said(view: RewrittenUseView) -> str:
    if view.assumes:
        return f"assumes {', '.join(view.assumes)}"
    return f"{view.reason}; {view.advice}" if view.advice else view.reason


def _print_indexes(document: RewriteDocument) -> None:
    for each in document.needs:
        if each.answered_by is not None:
            click.echo(f"{each.answered_by} answers queries by {', '.join(each.fields)}.")
    for text in document.indexes:
        click.echo(f"\nAn index that queries need. Put it among the indexes, create it, and run this again:\n\n{text}")


def _sums(document: RewriteDocument) -> str:
    every = document.rewritten + document.left
    said = f"{document.rewritten:,} of {every:,} uses {'are' if document.is_applied else 'would be'} rewritten"
    said += f", {document.left:,} stay with a reason." if document.left else "."
    if document.schema:
        said += f" {document.schema:,} more are DDL, and go with the tables."
    if document.rewritten and not document.is_applied:
        said += " --apply writes them."
    return said
