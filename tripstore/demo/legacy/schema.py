"""`CompanySchema`: the company's database, brought to one of its revisions."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.pool import NullPool

from tripstore.demo.legacy.models import Base
from tripstore.demo.legacy.urls import sqlalchemy_url

MIGRATIONS = Path(__file__).parent / "migrations"

#: Partitions come and go with their table.
PARTITION = re.compile(r"fare_adjustments_p\d+|trip_events_\w+")

#: What tripstore's steps add to the company's tables, by the names of `layout.yaml`.
ADDED = frozenset({"trip_uuid", "base_version", "base_extra", "note_version", "adjustment_version"})

#: The newest revision of the company's own. Those above it are tripstore's: trips get UUIDs, as `schema apply` does it.
OWN = "0005"

#: alembic keeps its state in module variables: one migration at a time in a process.
_MIGRATING = threading.Lock()


class CompanySchema:
    """The tables of the company in the database of a URL. The version table is `public.alembic_version`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def upgrade(self, revision: str = OWN) -> None:
        """Bring the tables to a revision; nothing happens when they are there."""
        with self._configured() as config:
            command.upgrade(config, revision)

    def downgrade(self, revision: str = "base") -> None:
        """Take revisions back, the newest first."""
        with self._configured() as config:
            command.downgrade(config, revision)

    def revision(self) -> str | None:
        """The revision of the tables, None when there are none."""
        with self._connected() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def differences(self) -> list[Any]:
        """What `alembic revision --autogenerate` would write: how the tables differ from the models."""
        with self._connected() as connection:
            context = MigrationContext.configure(connection, opts={"include_object": is_ours})
            return list(compare_metadata(context, Base.metadata))

    @contextmanager
    def _configured(self) -> Iterator[Config]:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with _MIGRATING, self._connected() as connection:
            config.attributes["connection"] = connection
            yield config

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        """Transactions are alembic's: some revisions do their work outside of one."""
        engine = sa.create_engine(sqlalchemy_url(self._url), poolclass=NullPool)
        with engine.connect() as connection:
            yield connection


def is_ours(thing: object, name: str | None, kind: str, is_reflected: bool, _other: object) -> bool:
    """Whether autogenerate is to look at this: alembic's filter `include_object`.

    A company that ran autogenerate without it would drop its partitions, and what tripstore added to its tables.
    """
    if not is_reflected:
        return True
    match kind, thing:
        case "table", sa.Table():
            return PARTITION.fullmatch(thing.name) is None
        case "column", sa.Column():
            return thing.name not in ADDED
        case _, sa.Index() | sa.UniqueConstraint():
            return ADDED.isdisjoint(column.name for column in thing.columns)
    return True
