"""What columns hold, by all layouts that are known: of the file, of the servers, of the book, and of Postgres."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg2

from schemaless_core.datastore import Datastore
from schemaless_core.purging.columns import ColumnBook, ColumnKinds
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.config import TripstoreConfig
from tripstore.facade.in_force import layout_said
from tripstore.migration.layouts.history import layouts_in_force


def kinds_by(layouts: Iterable[Layout]) -> ColumnKinds:
    """By layouts, the latest first. Of a column the latest that has it counts: with cells there it may not change."""
    found = dict[str, int | None]()
    for layout in layouts:
        found = {name: column.child_bits for name, column in layout.columns.items()} | found
    return found


def known_kinds(config: TripstoreConfig, store: Datastore) -> ColumnKinds:
    """What is known without asking an operator.

    With `legacy` taken out of the configuration, servers say it that were ever opened to owners by a switch, and the
    book into which `cutover complete` writes it. A Postgres that is silent adds nothing.
    """
    of_file = [] if config.legacy is None else [config.legacy.layout]
    of_servers = [layout_said(said, config.core.datastore) for said in reversed(store.authority.ever_said())]
    return {
        **kinds_by([*of_servers, *of_file]),
        **ColumnBook(store.control).find(),
        **kinds_by(past_layouts(config)),
    }


def past_layouts(config: TripstoreConfig) -> list[Layout]:
    """Those that Postgres knows to be or to have been in force, the latest first."""
    if config.legacy is None:
        return []
    try:
        with connected(config.legacy.postgres.text, "purge") as connection:
            return layouts_in_force(lambda asked, values: rows(connection, asked, values), config.core.datastore)
    except (LegacyUnavailable, psycopg2.Error):
        return []
