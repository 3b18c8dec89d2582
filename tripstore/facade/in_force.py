"""The layout in force, as the stores know it: Postgres' row names it, and so does a server that is open.

A process goes by this one. What stands in its file is what the next `schema apply` puts in force.
"""

from __future__ import annotations

import json
from dataclasses import replace

import psycopg2

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.capture.state import IN_FORCE, document_of
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.config import TripstoreConfig

READ_SECONDS = 2.0


def with_layout_in_force(config: TripstoreConfig) -> TripstoreConfig:
    """The configuration with the layout in force; as it is while there is none, or no store can be asked."""
    if config.legacy is None:
        return config
    layout = _of_postgres(config.legacy.postgres.text, config.core.datastore) or _of_schemaless(config)
    return config if layout is None else replace(config, legacy=replace(config.legacy, layout=layout))


def said_of(digest: str, layout: Layout, database: LegacyDatabase) -> bytes:
    """What a server is told of a layout: its own words, when that is this process's layout."""
    if digest == layout.digest:
        return _said(digest, canonical_bytes(layout.to_document()).decode())
    return _said(digest, database.run(lambda found: document_of(found.rows, digest), Deadline(READ_SECONDS)))


def digest_said(said: bytes | None) -> str | None:
    """The digest of the layout that a server was told."""
    return None if said is None else str(json.loads(said)["digest"])


def layout_said(said: bytes, datastore: str) -> Layout:
    """The layout that a server was told."""
    return load_layout(json.loads(json.loads(said)["document"]), datastore)


def _said(digest: str, document: str) -> bytes:
    return canonical_bytes({"digest": digest, "document": document})


def _of_postgres(url: str, datastore: str) -> Layout | None:
    try:
        with connected(url, "layout") as connection:
            found = rows(connection, IN_FORCE)
    except LegacyUnavailable:
        return None
    except psycopg2.Error:  # before `schema apply` of this version there is no such column
        return None
    return load_layout(json.loads(found[0][1]), datastore) if found else None


def _of_schemaless(config: TripstoreConfig) -> Layout | None:
    """Of servers that are open, for a process that starts while Postgres is silent."""
    try:
        with Datastore(config.core) as store:
            seen = store.authority.find()
            said = None if seen is None or not seen.is_open else store.authority.said(seen.epoch)
    except SchemalessError:
        return None
    return None if said is None else layout_said(said, config.core.datastore)
