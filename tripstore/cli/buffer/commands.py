"""`tripstore buffer`: what waits for servers that did not take it, and what to do about it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
from rich.text import Text

from schemaless_core.buffers.replayer import PAUSE_SECONDS, Replayer
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from tripstore.cli.buffer.documents import (
    BufferClusterView,
    BufferDrainDocument,
    ConflictsDocument,
    StatusDocument,
    conflict_view,
    view,
)
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import opened, replayer_of

#: Of one ledger, shown at once.
CONFLICTS_SHOWN = 100
BYTES_SHOWN = 60


@click.group(cls=CommandGroup)
def buffer() -> None:
    """Show and carry cells that wait for servers that did not take them in time.

    \b
    Example:
      tripstore buffer status
      tripstore buffer drain
    """


@buffer.command()
@json_option
@pass_settings
def status(settings: Settings, as_json: bool) -> Exit:
    """Show how many cells wait in the buffer of each cluster, since when, and how many are in conflict.

    Exit code 1 when a cell is in conflict, or a server does not answer.

    \b
    Example:
      tripstore buffer status
    """
    with settings.open() as datastore:
        seen = look_at_buffers(datastore)
    if as_json:
        print_document(seen)
    else:
        _show(seen.clusters)
        if not seen.is_configured:
            show(Text("No buffers are configured: puts fail while their cluster is down. `buffer: {}` changes that."))
    return Exit.FINE if seen.is_fine else Exit.FAILED


@buffer.command()
@click.option(
    "--wait", "seconds", type=float, default=10.0, show_default=True, help="Seconds without progress to wait."
)
@json_option
@pass_settings
def drain(settings: Settings, seconds: float, as_json: bool) -> Exit:
    """Carry what waits to its shards now, without a worker.

    Ends when nothing waits, or nothing has moved for a while: then a cluster is still down, or Postgres is the
    authority. It may run beside workers.

    \b
    Example:
      tripstore buffer drain
    """
    with opened(settings) as stores:
        replayer = replayer_of(stores)
        carried = _drain(replayer, seconds)
        clusters = _views(replayer)
    is_empty = not any(each.error or each.cells for each in clusters)
    if as_json:
        print_document(BufferDrainDocument(carried, is_empty, clusters))
    else:
        _show(clusters)
        show(Text(f"{carried:,} cells were carried."))
    return Exit.FINE if is_empty else Exit.FAILED


def _drain(replayer: Replayer, seconds: float) -> int:
    carried, last = 0, time.monotonic()
    while True:
        done = replayer.round()
        if done.cells:
            carried, last = carried + done.cells, time.monotonic()
        elif not done.left or time.monotonic() - last >= seconds:
            return carried
        else:
            time.sleep(PAUSE_SECONDS)


@buffer.command()
@click.option("--close", "number", type=int, metavar="NUMBER", help="Take this one out of the ledger: it is settled.")
@click.option("--cluster", metavar="NAME", help="Whose ledger; needed with --close.")
@yes_option
@json_option
@pass_settings
def conflicts(settings: Settings, number: int | None, cluster: str | None, yes: bool, as_json: bool) -> Exit:
    """Show cells that waited and found another body under their key, with both bodies.

    The stored one is what every reader has seen, and it never changes. If the other is right, put it under a higher ref
    key, then close the conflict. Exit code 1 while there are any.

    \b
    Example:
      tripstore buffer conflicts
      tripstore buffer conflicts --close 17 --cluster b
    """
    if (number is None) != (cluster is None):
        raise click.UsageError("--close and --cluster go together: numbers are those of one ledger.")
    with settings.open() as datastore:
        replayer = datastore.replayer()
        if number is not None and cluster is not None:
            if cluster not in datastore.clusters:
                raise click.UsageError(f"There is no cluster {cluster}. There is: {', '.join(datastore.clusters)}.")
            ask(f"Forget the body that waited under number {number} of {cluster}?", is_answered=yes)
            if not replayer.close_conflicts(cluster, [number]):
                where = "`tripstore buffer conflicts` lists them with their cluster"
                raise click.UsageError(f"There is no conflict {number} on {cluster}: {where}.")
        found = replayer.conflicts(CONFLICTS_SHOWN)
    views = [
        conflict_view(name, each)
        for name, ledger in found.items()
        if not isinstance(ledger, SchemalessError)
        for each in ledger
    ]
    silent = [name for name, ledger in found.items() if isinstance(ledger, SchemalessError)]
    if as_json:
        print_document(ConflictsDocument(views, int(number is not None), silent))
    else:
        rows = [
            (
                each.cluster,
                str(each.number),
                f"{each.row_key} {each.column_name}@{each.ref_key}",
                _short(bytes(each.waited)),
                _short(bytes(each.stored)),
            )
            for each in views
        ]
        show(table(("cluster", "number", "cell", "waited", "stored"), rows))
        show(*(Text(f"{name} does not answer", style="bold red") for name in silent))
    return Exit.FAILED if views or silent else Exit.FINE


def _short(body: bytes) -> str:
    text = body.decode(errors="replace")
    return text if len(text) <= BYTES_SHOWN else f"{text[:BYTES_SHOWN]}…"


def look_at_buffers(datastore: Datastore) -> StatusDocument:
    """Look at the buffers of all clusters once."""
    clusters = _views(datastore.replayer())
    is_fine = not any(each.error or each.conflicts for each in clusters)
    return StatusDocument(datastore.config.buffer is not None, is_fine, clusters)


def _views(replayer: Replayer) -> list[BufferClusterView]:
    return [view(cluster, size) for cluster, size in replayer.sizes().items()]


def _show(clusters: list[BufferClusterView]) -> None:
    rows = [
        (each.cluster, "unknown", "", "", each.error or "")
        if each.error
        else (each.cluster, f"{each.cells:,}", f"{each.bytes:,}", _age(each.oldest_at), f"{each.conflicts:,}")
        for each in clusters
    ]
    show(table(("cluster", "cells", "bytes", "oldest", "in conflict"), rows))


def _age(moment: datetime | None) -> str:
    return "" if moment is None else f"{max(0.0, (datetime.now(UTC) - moment).total_seconds()):.0f} s"
