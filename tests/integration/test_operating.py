"""What `docs/howto/operate.md` tells a database administrator: DDL in use, whose query it is."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql
import pytest

from schemaless_core import Datastore, NodeUnavailable
from schemaless_core.servers.doctor import Doctor
from tests.chaos.actors import wait_until
from tests.stores import ServerEngine, Stores
from tripstore.local.servers import LocalServers

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "operate.md").read_text()
SHARDS = 4


def statement(beginning: str) -> str:
    """A statement as the page shows it."""
    (found,) = re.findall(rf"^{beginning}[^;]*;", PAGE, re.MULTILINE)
    return str(found)


def administrator(stores: Stores, engine: str) -> Any:
    (server, *_others) = stores.primaries(engine).values()
    return connected(server)


def connected(server: Any) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password, autocommit=True)


class Putting:
    """A caller that puts and reads in all shards for as long as the block lasts."""

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._put)
        self.done, self.failures = 0, list[Exception]()

    def __enter__(self) -> Putting:
        self._thread.start()
        return self

    def __exit__(self, *_how: object) -> None:
        self._ends.set()
        self._thread.join()

    def _put(self) -> None:
        while not self._ends.is_set():
            row_key = uuid4()
            try:
                self._store.put_cell(row_key, "BASE", 1, {"n": self.done})
                assert self._store.get_cell(row_key, "BASE", 1) is not None
                self.done += 1
            except Exception as error:  # noqa: BLE001  # carried to the test
                self.failures.append(error)


def test_shards_are_altered_one_after_the_other_while_callers_put(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=SHARDS)
    name = store.config.datastore
    alter = statement("ALTER TABLE").replace("trips_0000", f"{name}_{{shard:04d}}")

    with administrator(stores, server_engine) as connection, connection.cursor() as cursor, Putting(store) as putting:
        cursor.execute(statement("SET SESSION lock_wait_timeout"))
        cursor.execute(f"SELECT shard FROM {name}_meta.shard_state ORDER BY shard")
        for (shard,) in cursor.fetchall():
            before = putting.done
            cursor.execute(alter.format(shard=shard))
            wait_until("puts go on", lambda before=before: putting.done > before or bool(putting.failures))
        cursor.execute(f"ALTER TABLE {name}_0000.cell ADD COLUMN note INT NULL, ALGORITHM = INSTANT")
        wait_until("puts go on", lambda: putting.done > before + 5 or bool(putting.failures))

    assert putting.failures == []
    findings = Doctor(store.config, store.clusters, store.control).findings()
    assert [finding.fact.value for finding in findings if finding.fact.name == "columns"] == []


def test_an_alter_that_a_transaction_is_in_the_way_of_gives_up_and_callers_go_on(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Control: with the server's own patience it waits on, and puts of the shard queue behind it until they give up."""
    store = stores.fresh(server_engine, shards=1)
    name = store.config.datastore
    alter = statement("ALTER TABLE").replace("trips_0000", f"{name}_0000")
    store.put_cell(uuid4(), "BASE", 1, "a cell")

    with (
        administrator(stores, server_engine) as holder,
        administrator(stores, server_engine) as hasty,
        administrator(stores, server_engine) as patient,
    ):
        holder.begin()
        holder.query(f"SELECT COUNT(*) FROM {name}_0000.cell")
        hasty.query(statement("SET SESSION lock_wait_timeout"))
        with pytest.raises(pymysql.OperationalError) as given_up:
            hasty.query(alter)
        assert given_up.value.args[0] == 1205
        assert store.put_cell(uuid4(), "BASE", 1, "it goes on").status == "CREATED"

        waiting = threading.Thread(target=patient.query, args=(alter,))
        waiting.start()
        wait_until("it waits", lambda: "metadata lock" in states(stores, server_engine))
        with pytest.raises(NodeUnavailable):
            store.put_cell(uuid4(), "BASE", 1, "it does not")
        holder.rollback()
        waiting.join()


def states(stores: Stores, engine: str) -> str:
    with administrator(stores, engine) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT LOWER(GROUP_CONCAT(state)) FROM information_schema.processlist WHERE info LIKE 'ALTER%'")
        (found,) = cursor.fetchone()
        return str(found)


def test_the_page_finds_whose_query_it_is(server_engine: ServerEngine, servers: LocalServers) -> None:
    """Control: the administrator's own session names no datastore."""
    start = servers.mariadb if server_engine == "mariadb" else servers.mysql
    server = start(f"{server_engine}-attributes", shards=1, settings={"performance-schema": "1"})
    config = {"datastore": "trips", "shards": 1, "clusters": {"a": {"primary": server.url}}}
    with Datastore.open(config) as store, closing(connected(server)) as connection, connection.cursor() as cursor:
        store.create_schema()
        cursor.execute(statement("SELECT p.id"))
        programs = {str(id_): program for id_, *_rest, program in cursor.fetchall()}

    assert "tripstore trips" in programs.values()
    assert programs.get(str(connection.thread_id())) != "tripstore trips"
