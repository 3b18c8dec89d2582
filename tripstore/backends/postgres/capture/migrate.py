"""Our own tables, brought to the newest revision by alembic. Any number of processes may do it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from sqlalchemy.pool import StaticPool

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.names import SCHEMA, VERSION_TABLE
from tripstore.backends.postgres.wire.connections import rows

if TYPE_CHECKING:
    from alembic.config import Config  # alembic itself is imported by what migrates: it loads slowly

#: No session of the company's holds these locks: only another run of ours does.
LOCK_TIMEOUT_SECONDS = 60
_KEY = "pg_catalog.hashtext('tripstore migrations')"
_PLACE = "tripstore.backends.postgres:migrations"

HAS_SCHEMA = "SELECT pg_catalog.to_regnamespace(%s) IS NOT NULL"
HAS_VERSIONS = "SELECT pg_catalog.to_regclass(%s) IS NOT NULL"


def is_newest(connection: Connection) -> bool:
    from alembic.script import ScriptDirectory

    return revision(connection) == ScriptDirectory.from_config(_config()).get_current_head()


def revision(connection: Connection) -> str | None:
    """The revision of our tables; None: there are none."""
    if not rows(connection, HAS_VERSIONS, (f"{SCHEMA}.{VERSION_TABLE}",))[0][0]:
        return None
    found = rows(connection, f"SELECT version_num FROM {SCHEMA}.{VERSION_TABLE}")
    return str(found[0][0]) if found else None


def migrate(connection: Connection) -> None:
    """Make what is missing, in one transaction."""
    from alembic import command

    with _alone(connection):
        if not is_newest(connection):
            rows(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            reach("capture.schema_made")
            with _handed_in(connection) as config:
                command.upgrade(config, "head")


def unmigrate(connection: Connection) -> None:
    """Drop our tables with everything in them."""
    from alembic import command

    with _alone(connection):
        if revision(connection) is not None:
            with _handed_in(connection) as config:
                command.downgrade(config, "base")
        rows(connection, f"DROP TABLE IF EXISTS {SCHEMA}.{VERSION_TABLE}")


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """A session lock: Postgres releases it when the holder is killed."""
    rows(connection, f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
    try:
        rows(connection, f"SELECT pg_catalog.pg_advisory_lock({_KEY})")
        try:
            yield
        finally:
            rows(connection, f"SELECT pg_catalog.pg_advisory_unlock({_KEY})")
    finally:
        rows(connection, "RESET lock_timeout")


@contextmanager
def _handed_in(connection: Connection) -> Iterator[Config]:
    """alembic works on our connection, which is given back as it was."""
    # The pool is left to itself: to dispose of it would close the connection.
    engine = sa.create_engine("postgresql+psycopg2://", creator=lambda: connection, poolclass=StaticPool)
    connection.autocommit = False
    try:
        with engine.connect() as shared:
            config = _config()
            config.attributes["connection"] = shared
            yield config
            reach("capture.migrated")
            shared.commit()
    finally:
        connection.rollback()
        connection.autocommit = True


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _PLACE)
    config.set_main_option("path_separator", "os")
    return config
