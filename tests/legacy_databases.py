"""Databases with our own tables for tests of the legacy store: one server per flavour and run, copies of a template."""

from __future__ import annotations

from contextlib import closing
from itertools import count

import psycopg2

from schemaless_core.config import DeadlineConfig
from tests.databases import create_database, kept
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.migrate import migrate
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FLAVOURS: dict[str, Flavour] = {"postgres": "machine", "postgres18": "wheel"}
TEMPLATE = "legacy_template"
#: Two cores carry everything: what is not about deadlines gets generous ones.
PATIENT = LegacySettings(DeadlineConfig(20.0, 0.01, 20.0, 60.0, 20.0, 10.0))

#: A table whose column no test of free columns uses.
UNUSED_TABLE = "CREATE TABLE things (id bigserial PRIMARY KEY, thing_uuid uuid UNIQUE, version bigint, text text)"
UNUSED = {
    "datastore": "trips",
    "row_key": {"table": "things", "id": "id", "uuid": "thing_uuid"},
    "columns": {
        "UNUSED": {"table": "things", "ref_key": {"version": "version"}, "fields": {"text": {"type": "string"}}},
    },
}

_numbers = count(1)


def postgres_server(servers: LocalServers, flavour: Flavour) -> PostgresServer:
    """This run's server of a flavour, with our tables in a template."""
    name = f"legacy-{flavour}"
    for server in servers.servers:
        if server.name == name and isinstance(server, PostgresServer):
            return server
    server = servers.postgres(name, flavour=flavour, settings={"max_prepared_transactions": "4"})
    # ANALYZE has a transaction of its own, wherever it runs, and would hold the emulated log back.
    server.query("ALTER SYSTEM SET autovacuum = off")
    # A subscription's worker that was refused comes back at once.
    server.query("ALTER SYSTEM SET wal_retrieve_retry_interval = '200ms'")
    server.query("SELECT pg_reload_conf()")
    with kept():
        create_database(server.url, TEMPLATE)
    create_own_tables(f"{server.url}/{TEMPLATE}")
    return server


def create_own_tables(url: str) -> None:
    """Schema `tripstore` as alembic makes it."""
    with connected(url, "test") as connection:
        migrate(connection)


def new_database(servers: LocalServers, flavour: Flavour, statements: str = "") -> str:
    """The URL of a new database with our tables and whatever the statements make."""
    server = postgres_server(servers, flavour)
    name = f"own{next(_numbers)}"
    create_database(server.url, name, TEMPLATE)
    if statements:
        server.query(statements, database=name)
    return f"{server.url}/{name}"


def free_backend(servers: LocalServers, engine: str, shards: int) -> PostgresBackend:
    """A store that knows free columns only."""
    url = new_database(servers, FLAVOURS[engine], UNUSED_TABLE)
    return PostgresBackend(LegacyDatabase(url, PATIENT), unused_layout(), shards=shards)


def unused_layout() -> Layout:
    return load_layout(UNUSED, "trips")


def run(url: str, statement: str, *values: object) -> list[tuple[object, ...]]:
    """SQL of a service's own."""
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []
