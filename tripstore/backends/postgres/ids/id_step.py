"""`IdStep`: one step from ids to UUIDs as a revision of the company's own alembic names it.

It says in plain words which column it is about, so a revision means the same however the layout changes later. It works
on a connection of its own: in alembic's transaction it would wait for what alembic holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from psycopg2.extensions import make_dsn

from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.ddl.steps import SchemaStep, apply_all
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_triggers import FILL_TRIGGER
from tripstore.backends.postgres.ids.steps import steps_of
from tripstore.backends.postgres.layout.layout import RowKeySource, TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import connected, rows

_CAPTURED = """\
SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
 WHERE t.tgrelid = to_regclass(%s) AND p.pronamespace = to_regnamespace(%s) AND NOT starts_with(t.tgname, %s))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdStep:
    """What revisions hold; its words stay as they are from release to release."""

    kind: str  #: The name of the step's class.
    table: tuple[str, str]  #: Schema and name.
    uuid: str
    id: str  #: The id, or in a child the column that points to it.
    number: str | None = None  #: What tells child rows of one key apart.
    parent: tuple[str, str]  #: The table that gives the keys; of the parent itself the same once more.
    parent_id: str
    parent_uuid: str

    @property
    def step(self) -> SchemaStep:
        source = RowKeySource(TableName(*self.parent), self.parent_id, self.parent_uuid)
        column = KeyColumn(TableName(*self.table), self.uuid, self.id, source, self.number)
        return next(step for step in steps_of(column) if type(step).__name__ == self.kind)

    def apply(self, bind: sa.Connection) -> None:
        """Do what is not done yet. May be killed anywhere and repeated; no session waits for long."""
        with _beside(bind) as connection:
            list(apply_all([self.step], connection, lambda _step: lambda _done, _total: None))

    def revert(self, bind: sa.Connection) -> None:
        """Take it back, but for what was the company's before. May be killed and repeated, too."""
        with _beside(bind) as connection:
            table = TableName(*self.table)
            if rows(connection, _CAPTURED, (table.sql, SCHEMA, FILL_TRIGGER))[0][0]:
                raise LegacyRefused(
                    f"Changes of {table} are captured, and capture needs the row keys.", hint="Remove capture first."
                )
            self.step.revert(connection)


@contextmanager
def _beside(bind: sa.Connection) -> Iterator[Connection]:
    """A connection to the same database, as the same role."""
    if not isinstance(bind, sa.Connection):  # what alembic has in its place when it writes a script
        raise InvalidRequest(
            "The steps look at the database: no script can do them.", hint="Run alembic without --sql."
        )
    driver = bind.connection.driver_connection
    if isinstance(driver, Connection):  # it knows what the URL alone may not say
        dsn = make_dsn(**driver.info.dsn_parameters | {"password": driver.info.password})
    else:
        dsn = bind.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    role = bind.exec_driver_sql("SELECT current_setting('role')").scalar_one()
    with connected(dsn, "alembic", role=role) as connection:
        yield connection
