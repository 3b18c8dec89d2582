"""`tripstore ids revisions`: the steps from ids to UUIDs as files for the company's own alembic."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.ids.revisions import Revision, id_revisions
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table


class RevisionView(msgspec.Struct, frozen=True):
    """A file, and whether this run wrote it (or would)."""

    revision: str
    after: str
    title: str
    file: str
    is_new: bool


class RevisionsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `revisions`, in the order in which alembic runs them."""

    folder: str
    is_dry_run: bool
    revisions: list[RevisionView]


@click.command(cls=Command)
@click.option("--after", required=True, metavar="REVISION", help="The newest revision so far, as `alembic heads` says.")
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of alembic's revisions.",
)
@click.option(
    "--layout",
    "layout_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The layout; else that of the configuration.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written.")
@json_option
@pass_settings
def revisions(
    settings: Settings, after: str, folder: Path, layout_file: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Write the steps as revisions for alembic, one file per step, each with its way back.

    For companies whose tables change by reviewed revisions only. `alembic upgrade` then does what the first steps of
    `tripstore schema apply` would do, which finds them done. No database is asked. Files that are there already are
    never changed.

    \b
    Example:
      tripstore ids revisions --after 0005 -o migrations/versions
      tripstore ids revisions --after 8f2b61d9c0aa -o migrations/versions --layout layout.yaml --dry-run
    """
    made = id_revisions(load_layout(layout_file) if layout_file else _layout(settings), after)
    views = [_view(revision, folder) for revision in made]
    if not dry_run:
        for revision in made:
            _write(revision, folder)
    document = RevisionsDocument(str(folder), dry_run, views)
    if as_json:
        print_document(document)
    else:
        _print(document)


def _layout(settings: Settings) -> Layout:
    legacy = settings.load().legacy
    if legacy is None:
        raise InvalidRequest(f"{settings.config} has no legacy.layout.", hint="Name the layout's file with --layout.")
    return legacy.layout


def _view(revision: Revision, folder: Path) -> RevisionView:
    path = folder / revision.file
    is_there = path.exists()
    if is_there and path.read_text(encoding="utf-8") != revision.text:
        raise InvalidRequest(
            f"{path} is there, and differs.", hint="A revision that ran must not change: write to another folder."
        )
    return RevisionView(revision.id, revision.after, revision.title, revision.file, not is_there)


def _write(revision: Revision, folder: Path) -> None:
    path = folder / revision.file
    if not path.exists():
        path.write_text(revision.text, encoding="utf-8")


def _print(document: RevisionsDocument) -> None:
    show(table(("file", "step", ""), [(each.file, each.title, _state(each, document)) for each in document.revisions]))
    if not document.is_dry_run:
        click.echo("Read them, commit them, then `alembic upgrade head`.", err=True)


def _state(view: RevisionView, document: RevisionsDocument) -> str:
    if not view.is_new:
        return "was there"
    return "to be written" if document.is_dry_run else "written"
