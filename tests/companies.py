"""Databases of the example company, one per test, copied from a template on the test's server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

import psycopg2
import pytest

from tests.databases import create_database, kept
from tripstore.demo.legacy.roles import create_roles
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Tables and the columns that tell their rows apart.
KEYS: Mapping[str, str] = {
    "users": "id",
    "cities": "id",
    "trips": "id",
    "billing_attempts": "id",
    "trip_notes": "id",
    "fare_adjustments": "trip_id, n",
    "trip_events": "trip_id, happened_at, kind",
}

#: Rows by table and key, without what a trigger sets to the time of day.
Rows = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Company:
    """A database of the company."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        return f"{self.server.url}/{self.name}"

    def query(self, statement: str, *values: object) -> list[dict[str, object]]:
        return self.server.query(statement, *values, database=self.name)

    def rows(self) -> Rows:
        """Every row of the company, as text."""
        found: Rows = {}
        connection = psycopg2.connect(self.url)
        with connection, connection.cursor() as cursor:
            for table, key in KEYS.items():
                cursor.execute(f"SELECT ROW({key})::text, (to_jsonb(t) - 'updated_at')::text FROM {table} AS t")
                found |= {(table, row_key): row for row_key, row in cursor.fetchall()}
        connection.close()
        return found


class Companies:
    """Makes companies on one server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._numbers = count(1)
        self._templates: dict[int, str] = {}
        self._made: list[Company] = []

    def empty(self) -> Company:
        """A database without a table."""
        return self._new(f"company_{next(self._numbers)}", "template1")

    def seeded(self, trips: int = 80) -> Company:
        """The company at its newest revision, with its roles, people and so many trips: each time the same."""
        if trips not in self._templates:
            self._templates[trips] = self._template(trips)
        return self._new(f"company_{next(self._numbers)}", self._templates[trips])

    def drop(self) -> None:
        """Drop the databases that were made, and keep the templates."""
        while self._made:
            self.server.query(f"DROP DATABASE {self._made.pop().name} WITH (FORCE)")

    def _new(self, name: str, template: str) -> Company:
        with kept():  # `drop` is for that
            create_database(self.server.url, name, template)
        self._made.append(Company(self.server, name))
        return self._made[-1]

    def _template(self, trips: int) -> str:
        template = self._new(f"company_template_{trips}", "template1")
        self._made.remove(template)
        CompanySchema(template.url).upgrade()
        create_roles(template.url)
        Seeds(template.url, users=40).plant(trips)
        return template.name


def companies_on(servers: LocalServers, flavour: Flavour, name: str = "companies") -> Companies:
    """Companies on a Postgres of this flavour. A missing one fails in CI; elsewhere the test is skipped."""
    try:
        return Companies(servers.postgres(f"{name}-{flavour}", flavour=flavour))
    except LocalServerError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def effects(before: Rows, after: Rows) -> set[str]:
    """What happened to rows, by table: "insert trips", "update trips", "delete trips"."""
    inserted = {f"insert {table}" for table, _ in after.keys() - before.keys()}
    deleted = {f"delete {table}" for table, _ in before.keys() - after.keys()}
    updated = {f"update {key[0]}" for key in before.keys() & after.keys() if before[key] != after[key]}
    return inserted | deleted | updated
