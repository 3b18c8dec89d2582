"""Databases for tests of layouts: one server per flavour and run, one database per test, with a company's tables."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.databases import create_database
from tests.scale import SCALE
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: What no version of Postgres does differently runs on both at full scale only.
FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel") if SCALE >= 1 else ("machine",)

#: A company in short: a row, facts, child rows that change, people who have UUIDs.
COMPANY = """
CREATE TYPE trip_status AS ENUM ('requested', 'completed');
CREATE DOMAIN money_amount AS numeric(12, 2) CHECK (VALUE >= 0);
CREATE TABLE users (id bigint PRIMARY KEY, user_uuid uuid NOT NULL UNIQUE, name text);
CREATE TABLE trips (
    id bigserial PRIMARY KEY,
    driver_id bigint REFERENCES users (id),
    status trip_status NOT NULL DEFAULT 'requested',
    fare_amount money_amount,
    request_at timestamptz NOT NULL DEFAULT now(),
    tags text[],
    client jsonb,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE billing_attempts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trip_id bigint NOT NULL REFERENCES trips (id) ON DELETE CASCADE,
    attempt_no int NOT NULL,
    result text NOT NULL,
    amount numeric(12, 2),
    UNIQUE (trip_id, attempt_no)
);
CREATE TABLE trip_notes (
    id bigserial PRIMARY KEY,
    trip_id bigint NOT NULL REFERENCES trips (id) ON DELETE CASCADE,
    n int NOT NULL,
    text text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (trip_id, n)
);
"""

_NUMBERS = count(1)


def document() -> dict[str, Any]:
    """The layout of these tables; each call makes a new one, to be changed."""
    return {
        "datastore": "trips",
        "row_key": {"table": "trips", "id": "id", "uuid": "trip_uuid"},
        "columns": {
            "BASE": {
                "table": "trips",
                "ref_key": {"version": "base_version"},
                "fields": {
                    "driver_uuid": {
                        "column": "driver_id",
                        "type": "uuid",
                        "lookup": {"table": "users", "key": "id", "value": "user_uuid"},
                    },
                    "status": {"column": "status", "type": "string"},
                    "fare": {"column": "fare_amount", "type": "decimal"},
                    "trip_created_at": {"column": "request_at", "type": "datetime"},
                    "tags": {"column": "tags", "type": "array"},
                    "client": {"column": "client", "type": "json"},
                },
                "extra": "base_extra",
            },
            "STATUS": {
                "table": "billing_attempts",
                "parent": {"column": "trip_id"},
                "ref_key": {"column": "attempt_no"},
                "fields": {"result": {"type": "string"}, "amount": {"type": "decimal"}},
            },
            "NOTES": {
                "table": "trip_notes",
                "parent": {"column": "trip_id"},
                "ref_key": {"column": "n", "version": "note_version"},
                "fields": {"text": {"type": "string", "null": "keep"}},
            },
        },
    }


def company_database(servers: LocalServers, flavour: Flavour, statements: str = COMPANY) -> str:
    """A new database with these tables on this run's server of a flavour; returns its URL."""
    server = _server(servers, flavour)
    name = f"layout{next(_NUMBERS)}"
    create_database(server.url, name)
    if statements:
        server.query(statements, database=name)
    return f"{server.url}/{name}"


def _server(servers: LocalServers, flavour: Flavour) -> PostgresServer:
    name = f"layouts-{flavour}"
    for server in servers.servers:
        if server.name == name and isinstance(server, PostgresServer):
            return server
    # A launcher that visits hundreds of databases in turn would take a tenth of a core.
    settings = {"max_prepared_transactions": "4", "autovacuum": "off"}
    return servers.postgres(name, flavour=flavour, settings=settings)


def shop_layout(datastore: str) -> dict[str, Any]:
    """Customers and their orders, whose numbers Postgres draws from a sequence."""
    return {
        "datastore": datastore,
        "row_key": {"table": "customers", "id": "id", "uuid": "uuid"},
        "columns": {
            "BASE": {"table": "customers", "ref_key": {"version": "v"}, "fields": {"name": {"type": "string"}}},
            "ORDERS": {
                "table": "orders",
                "parent": {"column": "customer_id", "uuid": "customer_uuid"},
                "ref_key": {"column": "id", "version": "v"},
                "fields": {"total": {"type": "int"}},
            },
        },
    }
