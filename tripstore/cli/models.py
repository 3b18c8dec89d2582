"""`tripstore models`: typed classes of the columns and the indexes, as a Python module."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.models.file import ModelsNotWritten, is_current, write_module
from tripstore.models.source import ModelClass, classes_of, module_of


class ModelDocument(msgspec.Struct, frozen=True):
    """A class, and what it is of."""

    name: str
    column: str | None
    index: str | None


class ModelsDocument(msgspec.Struct, frozen=True):
    """The document of the command. `is_written`: whether this call changed the file."""

    file: str | None
    is_current: bool
    is_written: bool
    classes: list[ModelDocument]


@click.command(cls=Command)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the module there, over one that this command wrote; else print it.",
)
@click.option("--check", "is_check", is_flag=True, help="Write nothing. Exit code 1 when FILE is not up to date.")
@click.option("--prefix", metavar="NAME", help="Begin the names of rows' classes so; else with the datastore's.")
@json_option
@pass_settings
def models(settings: Settings, output: Path | None, is_check: bool, prefix: str | None, as_json: bool) -> Exit:
    """Write frozen typed classes of the layout's columns and of the indexes. Asks no server.

    The module needs `tripstore` alone, and passes `mypy --strict`. The same configuration writes the same bytes.

    \b
    Example:
      tripstore models -o trips_models.py
      tripstore models -o trips_models.py --check
    """
    _check_call(output, is_check, prefix)
    config = settings.load()
    layout = None if config.legacy is None else config.legacy.layout
    classes = classes_of(config.core.datastore, layout, config.core.indexes, prefix)
    if not classes:
        hint = "Map tables in a layout, or define an index."
        raise ModelsNotWritten("There is no layout and no index, so no column is known.", hint=hint)
    module = module_of(config.core.datastore, classes)
    is_written = output is not None and not is_check and write_module(output, module)
    is_same = output is None or is_written or is_current(output, module)
    if as_json:
        print_document(_document(output, classes, is_current=is_same, is_written=is_written))
    else:
        command = f"tripstore models -o {output}" + (f" --prefix {prefix}" if prefix else "")
        said = _said(output, len(classes), command, is_same=is_same, is_written=is_written)
        click.echo(module.rstrip() if output is None else said)
    return Exit.FINE if is_same else Exit.FAILED


def _check_call(output: Path | None, is_check: bool, prefix: str | None) -> None:
    if is_check and output is None:
        raise click.UsageError("--check needs -o: which file is it to look at?")
    if prefix is not None and not prefix.isidentifier():
        raise click.UsageError("--prefix is to be a name in Python, like Trip.")


def _said(output: Path | None, count: int, command: str, *, is_same: bool, is_written: bool) -> str:
    if not is_same:
        return f"{output} is not up to date: run `{command}`."
    return f"{output} has {count} classes." if is_written else f"{output} is up to date."


def _document(output: Path | None, classes: list[ModelClass], *, is_current: bool, is_written: bool) -> ModelsDocument:
    said = [ModelDocument(each.name, each.column, each.index) for each in classes]
    return ModelsDocument(None if output is None else str(output), is_current, is_written, said)
