"""`Connections`: one worker's connections, one per service, opened when they are first needed. Not for threads."""

from __future__ import annotations

from typing import Any

import psycopg2
import psycopg2.extensions
import sqlalchemy as sa

from tripstore.demo.legacy.services import READER, Service
from tripstore.demo.legacy.urls import driver_url, sqlalchemy_url

Connection = psycopg2.extensions.connection
Cursor = psycopg2.extensions.cursor


class Connections:
    """Connections of the services, for the driver's own calls and for SQLAlchemy."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._raw: dict[Service, Connection] = {}
        self._engines: dict[Service, sa.Engine] = {}

    def raw(self, service: Service) -> Connection:
        """The service's connection for raw SQL; a transaction begins with its first statement."""
        if service not in self._raw or self._raw[service].closed:
            self._raw[service] = psycopg2.connect(
                driver_url(self._url), application_name=service.name, options=service.options
            )
        return self._raw[service]

    def engine(self, service: Service) -> sa.Engine:
        """The service's engine, which keeps one connection."""
        if service not in self._engines:
            self._engines[service] = sa.create_engine(
                sqlalchemy_url(self._url),
                pool_size=1,
                max_overflow=0,
                connect_args={"application_name": service.name, "options": service.options},
            )
        return self._engines[service]

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask outside of any transaction of the services."""
        connection = self.raw(READER)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall()

    def close(self) -> None:
        for connection in self._raw.values():
            connection.close()
        for engine in self._engines.values():
            engine.dispose()
        self._raw.clear()
        self._engines.clear()
