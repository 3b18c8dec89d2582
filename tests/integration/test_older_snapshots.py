"""A transaction whose snapshot is older than the row keys is told to repeat itself, by the SQLSTATE that it expects."""

from __future__ import annotations

import pytest
from psycopg2.errors import NotNullViolation, SerializationFailure

from tests.legacy import FLAVOURS, Legacy, apply, layout, legacy_server
from tripstore.backends.postgres.ids.key_indexes import UniqueIndex
from tripstore.backends.postgres.ids.key_triggers import MOVE_TRIGGER
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TABLES = """
CREATE TABLE users (id int PRIMARY KEY);
CREATE TABLE trips (id bigserial PRIMARY KEY, status text);
CREATE TABLE attempts (trip_id bigint NOT NULL REFERENCES trips, attempt_no int NOT NULL, UNIQUE (trip_id, attempt_no));
CREATE TABLE notes (trip_id bigint NOT NULL REFERENCES trips, n bigint NOT NULL, text text, PRIMARY KEY (trip_id, n));
INSERT INTO trips (status) VALUES ('a');
INSERT INTO attempts VALUES (1, 1); INSERT INTO notes VALUES (1, 1, 'a')
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("statement", ["UPDATE trips SET status = 'b'", "UPDATE notes SET text = 'b'"])
def test_an_update_of_rows_that_were_filled_since_is_to_be_repeated(
    servers: LocalServers, flavour: Flavour, statement: str
) -> None:
    legacy = Legacy(legacy_server(servers, flavour), tables=TABLES)
    olds = [legacy.connect(isolation="REPEATABLE READ") for _ in range(2)]
    for old in olds:
        rows(old, "SELECT count(*) FROM users")
    with legacy.ours() as connection:  # an index, built CONCURRENTLY, would wait for them
        apply([step for step in id_steps(layout()) if not isinstance(step, UniqueIndex)], connection)

    with pytest.raises(SerializationFailure):
        rows(olds[0], statement)
    olds[0].rollback()
    rows(olds[0], statement)
    olds[0].rollback()
    # The control: Postgres checks NOT NULL before it looks whether the row is another by now.
    table = statement.split()[1]
    legacy.sql(f"DROP TRIGGER {MOVE_TRIGGER} ON {table}")
    with pytest.raises(NotNullViolation):
        rows(olds[1], statement)
    for old in olds:
        old.close()
