"""What `schema plan` says of constraints that only Postgres can judge: on live their refusals come too late."""

from __future__ import annotations

import click
import msgspec
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.rules.last_week import exposures
from tripstore.cli.tables import show, table


class ExposureDocument(msgspec.Struct, frozen=True):
    """A constraint; `writes` are last week's changes under it, null if they were not counted."""

    table: str
    kind: str
    name: str
    #: Of the captured ones.
    columns: list[str]
    detail: str
    writes: int | None


def exposure_documents(connection: Connection, layout: Layout) -> list[ExposureDocument]:
    return [
        ExposureDocument(each.table, each.kind, each.name, list(each.columns), each.detail, writes)
        for each, writes in exposures(connection, layout)
    ]


def print_exposures(found: list[ExposureDocument]) -> None:
    if not found:
        return
    click.echo("What only Postgres can refuse: on live such a put is accepted, parked, and closes the way back.")
    lines = [
        (each.table, each.kind, each.name, each.detail, "?" if each.writes is None else f"{each.writes:,}")
        for each in found
    ]
    show(table(("table", "kind", "name", "about", "last week"), lines), Text())
    click.echo("'last week': changes under it in tripstore.log and queue, the most that live could have parked.")
