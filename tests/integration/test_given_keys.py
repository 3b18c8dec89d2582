"""A key that a deleted pair had is given to no other value: changes that were captured before are rendered by it.

Capture asks an INSERT, and an UPDATE that makes a pair of a row that was none. That takes a column without NOT NULL:
`doctor` complains of it, and a company may drop it all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg2.errors
import pytest

from schemaless_core import Cell
from tests.legacy import FLAVOURS, USERS, Blocked, Legacy, layout, refused
from tests.legacy_backends import SHARDS, Company, company
from tests.legacy_databases import PATIENT, postgres_server
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.names import LOGGED, pair_slug
from tripstore.backends.postgres.checks.given_keys import check_given_keys
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

NULLABLE = "ALTER TABLE users ALTER user_uuid DROP NOT NULL"
#: As before, and a trigger of the company's gives a value that its UPDATE does not name.
FILLED = """
ALTER TABLE users ALTER user_uuid DROP NOT NULL;
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.name <> '' THEN NEW.user_uuid := NEW.name::uuid; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fill BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION fill()"""
#: By key.
PARTED = """
ALTER TABLE trips DROP CONSTRAINT trips_driver_id_fkey;
DROP TABLE users;
CREATE TABLE users (id int PRIMARY KEY, user_uuid uuid, name text) PARTITION BY RANGE (id);
CREATE TABLE users_low PARTITION OF users FOR VALUES FROM (0) TO (1000);
CREATE TABLE users_high PARTITION OF users FOR VALUES FROM (1000) TO (MAXVALUE);
INSERT INTO users VALUES (1, '11111111-1111-1111-1111-111111111111')"""
#: To the partition of the key, whose own row without a value goes first.
MOVE = "DELETE FROM users WHERE id = {key}; UPDATE users SET id = {key}, user_uuid = '{other}' WHERE id = 1000"
TRIGGER = f"{LOGGED}{pair_slug(USERS)}_updated"


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    flavour: Flavour = request.param
    return postgres_server(servers, flavour)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server, altered=FILLED) as made:
        yield made


class Pointing(NamedTuple):
    """A row whose first version points to a user; and the user."""

    key: int
    driver: UUID
    history: list[Cell]

    @property
    def row_key(self) -> UUID:
        return self.history[0].row_key


def pointing(trips: Company) -> Pointing:
    """To a new user, under a key that no other has or had."""
    (row_key, driver), legacy = (uuid4(), uuid4()), trips.legacy
    ((key,),) = legacy.sql(
        "INSERT INTO users SELECT 10 + max(n), %s FROM (SELECT id FROM users WHERE id < 900 UNION ALL"
        " SELECT key::int FROM tripstore.pair WHERE key::int < 900) AS taken (n) RETURNING id",
        str(driver),
    )
    cells = [Cell(row_key, "BASE", 1, {"driver_uuid": str(driver), "status": "a"}), Cell(row_key, "BASE", 2, {})]
    for cell in cells:
        trips.store.put_cell(*cell.key, cell.body)
    return Pointing(key, driver, cells[::-1])


def past(trips: Company) -> Pointing:
    """The same of a user who is gone."""
    found = pointing(trips)
    trips.legacy.sql("DELETE FROM users WHERE id = %s", found.key)
    return found


def shown(legacy: Legacy, row_key: UUID) -> list[Cell]:
    """What a store shows that has not looked anything up yet."""
    with PostgresBackend(LegacyDatabase(legacy.url, PATIENT), layout(), shards=SHARDS) as store:
        return store.get_history(row_key, "BASE")


def given(trips: Company) -> list[str]:
    """What `doctor` says of keys that were given away."""
    with closing(trips.legacy.connect()) as connection:
        live = LiveCatalogue.of_layout(connection, layout())
        return [each.reason for each in check_given_keys(connection, layout(), live)]


#: How a row without a value comes to the key and to a value; `{key}` was a deleted user's.
WAYS = {
    "update": "INSERT INTO users VALUES ({key}); UPDATE users SET user_uuid = '{other}' WHERE id = {key}",
    "on conflict": "INSERT INTO users VALUES ({key}); INSERT INTO users VALUES ({key}, '{other}')"
    " ON CONFLICT (id) DO UPDATE SET user_uuid = excluded.user_uuid",
    "another key": "INSERT INTO users VALUES (-{key});"
    " UPDATE users SET id = {key}, user_uuid = '{other}' WHERE id = -{key}",
    "key first": "INSERT INTO users VALUES (-{key}); UPDATE users SET id = {key} WHERE id = -{key};"
    " UPDATE users SET user_uuid = '{other}' WHERE id = {key}",
    "trigger": "INSERT INTO users VALUES ({key}); UPDATE users SET name = '{other}' WHERE id = {key}",
    "replica": "SET session_replication_role = replica; INSERT INTO users VALUES ({key});"
    " UPDATE users SET user_uuid = '{other}' WHERE id = {key}",
}


@pytest.mark.parametrize("way", WAYS)
def test_i2_no_update_gives_the_key_of_a_deleted_user_to_another(trips: Company, way: str) -> None:
    before = past(trips)
    with refused(sqlstates.PAIR_CHANGED) as caught:
        trips.legacy.sql(WAYS[way].format(key=before.key, other=uuid4()))

    assert f"id {before.key} of users was that of another row." in str(caught.value)
    assert shown(trips.legacy, before.row_key) == before.history


@pytest.mark.parametrize("way", WAYS)
def test_an_update_gives_a_key_that_no_deleted_user_had(trips: Company, way: str) -> None:
    key = 1_000_000 + list(WAYS).index(way)
    value = uuid4()
    trips.legacy.sql(WAYS[way].format(key=key, other=value))

    assert trips.legacy.sql("SELECT user_uuid::text FROM users WHERE id = %s", key) == [(str(value),)]
    trips.legacy.sql("UPDATE users SET name = '' WHERE id = %s", key)


def test_an_update_gives_the_key_of_a_deleted_user_to_a_row_with_the_same_value(trips: Company) -> None:
    before = past(trips)
    trips.legacy.sql(WAYS["update"].format(key=before.key, other=before.driver))

    assert given(trips) == []

    assert shown(trips.legacy, before.row_key) == before.history


def test_i2_no_update_gives_the_key_away_in_the_transaction_that_deletes(trips: Company) -> None:
    before = pointing(trips)
    with refused(sqlstates.PAIR_CHANGED):
        trips.legacy.sql(
            f"DELETE FROM users WHERE id = {before.key}; {WAYS['update'].format(key=before.key, other=uuid4())}"
        )

    assert shown(trips.legacy, before.row_key) == before.history
    assert trips.legacy.sql("SELECT user_uuid::text FROM users WHERE id = %s", before.key) == [(str(before.driver),)]


def test_i2_an_update_that_waited_for_the_deletion_gives_no_key_away(trips: Company) -> None:
    before = pointing(trips)
    trips.legacy.sql("INSERT INTO users VALUES (%s)", -before.key)
    with closing(trips.legacy.connect()) as deleting, closing(trips.legacy.connect()) as updating:
        rows(deleting, "DELETE FROM users WHERE id = %s", (before.key,))
        update = "UPDATE users SET id = %s, user_uuid = %s WHERE id = %s"
        waiting = Blocked(trips.legacy, updating, update, before.key, str(uuid4()), -before.key)
        waiting.wait_until_it_waits()
        deleting.commit()
        with refused(sqlstates.PAIR_CHANGED):
            waiting.result()

    assert shown(trips.legacy, before.row_key) == before.history


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_i2_an_update_whose_snapshot_does_not_see_the_deletion_gives_no_key_away(
    trips: Company, isolation: str
) -> None:
    before = pointing(trips)
    with closing(trips.legacy.connect(isolation=isolation)) as connection:
        rows(connection, "SELECT FROM trips LIMIT 1")  # the snapshot
        trips.legacy.sql("DELETE FROM users WHERE id = %s", before.key)
        rows(connection, "INSERT INTO users VALUES (%s)", (before.key,))

        # It does not meet the deleted row: that Postgres itself would refuse.
        update = "UPDATE users SET user_uuid = %s WHERE id = %s AND user_uuid IS NULL"
        with pytest.raises(psycopg2.errors.SerializationFailure):
            rows(connection, update, (str(uuid4()), before.key))


def test_an_update_of_an_old_snapshot_leaves_no_pair(trips: Company) -> None:
    with closing(trips.legacy.connect(isolation="REPEATABLE READ")) as connection:
        rows(connection, WAYS["update"].format(key=2_000_000, other=uuid4()))
        connection.commit()

    assert trips.legacy.sql("SELECT FROM tripstore.pair WHERE key = '2000000'") == []


@pytest.mark.parametrize(
    "statement", ["UPDATE users SET user_uuid = '{other}' WHERE id = {key}", MOVE], ids=["in place", "to another"]
)
def test_i2_no_update_of_a_partition_gives_the_key_away(server: PostgresServer, statement: str) -> None:
    with company(server, altered=PARTED) as trips:
        before = past(trips)
        trips.legacy.sql("INSERT INTO users VALUES (%s), (1000)", before.key)
        with refused(sqlstates.PAIR_CHANGED):
            trips.legacy.sql(statement.format(key=before.key, other=uuid4()))

        assert shown(trips.legacy, before.row_key) == before.history


def test_i2_control_without_the_trigger_the_change_is_shown_with_the_value_of_another(server: PostgresServer) -> None:
    with company(server, altered=NULLABLE) as trips:
        before, other = past(trips), uuid4()
        trips.legacy.sql(f'DROP TRIGGER "{TRIGGER}" ON users')
        trips.legacy.sql(WAYS["update"].format(key=before.key, other=other))

        first = shown(trips.legacy, before.row_key)[-1]
        assert first.key == before.history[-1].key
        assert first.body == {"driver_uuid": str(other), "status": "a"}

        # And what was let through then is found, once capture refuses it.
        found = given(trips)
        assert found == [f"other rows have keys of deleted ones by now, 1 in all: {before.key}"]
        trips.legacy.sql("UPDATE trips SET driver_id = NULL WHERE driver_id = %s", before.key)
        trips.legacy.sql("DELETE FROM users WHERE id = %s", before.key)
        assert given(trips) == []
