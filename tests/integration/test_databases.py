"""Databases of the suite itself: dropped after their file, but for those that are kept or in use; or copied."""

from __future__ import annotations

from contextlib import closing

import psycopg2

from schemaless_core.control.database import newest_version
from tests.chaos.actors import wait_until
from tests.databases import create_database, drop_databases, kept
from tests.legacy_databases import postgres_server
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers


def test_what_a_file_made_is_dropped_but_for_what_is_kept_or_in_use(servers: LocalServers) -> None:
    server = postgres_server(servers, "machine")
    create_database(server.url, "own_gone")
    create_database(server.url, "own_used")
    with kept():
        create_database(server.url, "own_kept")

    # The control: all three are there.
    assert own_databases(server) == {"own_gone", "own_used", "own_kept"}
    with closing(psycopg2.connect(f"{server.url}/own_used")):
        drop_databases()
        assert own_databases(server) == {"own_used", "own_kept"}
    wait_until_unused(server, "own_used")
    drop_databases()

    assert own_databases(server) == {"own_kept"}
    server.query("DROP DATABASE own_kept")


def test_a_database_with_a_prepared_transaction_stays_and_keeps_no_other(servers: LocalServers) -> None:
    server = postgres_server(servers, "machine")
    create_database(server.url, "own_a")
    create_database(server.url, "own_b")
    server.query("BEGIN; CREATE TABLE t (n int); PREPARE TRANSACTION 'own'", database="own_a")
    wait_until_unused(server, "own_a")

    drop_databases()

    assert own_databases(server) == {"own_a"}
    server.query("ROLLBACK PREPARED 'own'", database="own_a")
    server.query("DROP DATABASE own_a")


def test_a_control_database_that_is_copied_is_as_its_migration_leaves_it(
    server_engine: ServerEngine, stores: Stores
) -> None:
    server = stores.primaries(server_engine)["a"]
    assert isinstance(server, BinlogServer)
    with closing(stores.control_opener(server_engine)()) as copied:
        found = tables_of(server, copied._database)

        assert copied.version() == newest_version()

    assert found == tables_of(server, "migrated_control")
    # The control: what lacks one index differs.
    server.query("CREATE DATABASE copied_control")
    server.query("CREATE TABLE copied_control.job_part AS SELECT * FROM migrated_control.job_part")
    assert tables_of(server, "copied_control")["job_part"] != found["job_part"]
    server.query("DROP DATABASE copied_control")


def tables_of(server: BinlogServer, database: str) -> dict[str, tuple[str, object]]:
    """What makes each table, and its rows."""
    names = [str(*row.values()) for row in server.query(f"SHOW TABLES FROM `{database}`")]
    return {
        name: (
            str(server.query(f"SHOW CREATE TABLE `{database}`.`{name}`")[0]["Create Table"]),
            server.query(f"SELECT * FROM `{database}`.`{name}`"),
        )
        for name in names
    }


def own_databases(server: PostgresServer) -> set[object]:
    return {row["datname"] for row in server.query("SELECT datname FROM pg_database WHERE datname LIKE 'own\\_%'")}


def wait_until_unused(server: PostgresServer, name: str) -> None:
    query = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}'"
    wait_until(f"{name} has no session", lambda: not server.query(query))
