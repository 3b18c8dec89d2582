"""`tripstore cell train` and `dictionaries`: what bodies of a column have in common."""

from __future__ import annotations

import click
import msgspec

from schemaless_core.compression.training import Trained
from schemaless_core.engine.dictionaries import Dictionary
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table

#: zstd's own bounds are wider; smaller bodies profit from no more.
BYTES_LEAST, BYTES_MAX, BYTES = 1_024, 1_048_576, 16_384
SAMPLES_MAX, SAMPLES = 1_000_000, 10_000


class DictionaryDocument(msgspec.Struct, frozen=True):
    """A dictionary: what compressed bodies name it by, and how many bytes it has."""

    column: str
    number: int
    dictionary: str
    bytes: int


class DictionariesDocument(msgspec.Struct, frozen=True):
    """The JSON document of `dictionaries`."""

    dictionaries: list[DictionaryDocument]


class TrainedDocument(msgspec.Struct, frozen=True):
    """The JSON document of `train`: the bytes are of other bodies than the dictionary was made from."""

    dictionary: DictionaryDocument
    samples: int
    measured: int
    bytes_plain: int
    bytes_compressed: int
    is_kept: bool


@click.command(cls=Command)
@click.argument("column_name", metavar="COLUMN")
@click.option(
    "--bytes",
    "size",
    type=click.IntRange(BYTES_LEAST, BYTES_MAX),
    default=BYTES,
    show_default=True,
    help="Of the dictionary at most; each process that reads such bodies holds it.",
)
@click.option(
    "--samples", type=click.IntRange(100, SAMPLES_MAX), default=SAMPLES, show_default=True, help="Bodies to look at."
)
@click.option("--dry-run", is_flag=True, help="Make one, say what it saves, and throw it away.")
@json_option
@pass_settings
def train(settings: Settings, column_name: str, size: int, samples: int, dry_run: bool, as_json: bool) -> None:
    """Make a dictionary from the newest cells of COLUMN; '*' is one for all columns without their own.

    It is in use at once where `compression` names the column, for new cells. Former dictionaries stay: what was
    compressed with them is read for ever. A dictionary holds pieces of the bodies that it was made from.

    \b
    Example:
      tripstore cell train BASE --dry-run
      tripstore cell train BASE
      tripstore cell compress
    """
    with settings.open() as datastore:
        trained = datastore.training.train(column_name, size, samples)
        if not dry_run:
            datastore.training.keep(trained)
        is_used = {column_name, "*"} & set(datastore.config.compression.columns)
    if as_json:
        print_document(_document(trained, is_kept=not dry_run))
        return
    its, share = trained.dictionary, trained.bytes_compressed / max(trained.bytes_plain, 1)
    click.echo(
        f"Dictionary {its.number} of {column_name} ({its.id.hex()}, {len(its.data):,} bytes): {trained.measured:,}"
        f" other bodies take {trained.bytes_compressed:,} bytes instead of {trained.bytes_plain:,}: {share:.2f} of it."
    )
    if not is_used:
        click.echo(f"No body is compressed with it yet: name {column_name} under compression.columns.", err=True)


@click.command(cls=Command)
@json_option
@pass_settings
def dictionaries(settings: Settings, as_json: bool) -> None:
    """List the dictionaries that servers have. Of each column the one with the highest number is in use.

    \b
    Example:
      tripstore cell dictionaries
    """
    with settings.open() as datastore:
        found = [_listed(each) for each in datastore.dictionaries.all()]
    if as_json:
        print_document(DictionariesDocument(found))
        return
    rows = [(each.column, str(each.number), each.dictionary, f"{each.bytes:,}") for each in found]
    show(table(("column", "number", "dictionary", "bytes"), rows))


def _document(trained: Trained, *, is_kept: bool) -> TrainedDocument:
    figures = (trained.samples, trained.measured, trained.bytes_plain, trained.bytes_compressed)
    return TrainedDocument(_listed(trained.dictionary), *figures, is_kept)


def _listed(dictionary: Dictionary) -> DictionaryDocument:
    return DictionaryDocument(dictionary.column_name, dictionary.number, dictionary.id.hex(), len(dictionary.data))
