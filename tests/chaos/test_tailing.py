"""Tailers lose nothing while eight writers race and connections are killed (I3). With controls that do lose."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from pymysql.constants import CLIENT

from schemaless_core import ANY, BatchFailed, Cell, Datastore, Json, Unavailable
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.mysql import writes
from schemaless_core.engine.mysql.names import Names
from tests.chaos.actors import Diary, Tailer, check_log, clients_of, running, wait_until, writer
from tests.forking import FORK_SERVER
from tests.scale import scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import BinlogServer

WRITERS = 8
TAILERS = 2
SECONDS = scaled(60, least=3)


def test_two_tailers_see_every_cell_of_eight_writers(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    config = stores.config(server_engine, shards=6)
    store = Datastore.open(config)
    store.create_schema()
    diaries = [Diary(tmp_path / f"writer-{n}") for n in range(WRITERS)]
    rivals = [writer(config, diary, n) for n, diary in enumerate(diaries)]
    tailers = [Tailer(Datastore.open(config)) for _ in range(TAILERS)]
    primaries = [cluster.primary for cluster in stores.clusters(server_engine)]
    killed: list[int] = []

    with running(rivals):
        wait_until("all writers write", lambda: all(diary.path.exists() for diary in diaries))
        with background(lambda: collide(store, diaries)), background(lambda: kill_connections(primaries, killed)):
            end_at = time.monotonic() + SECONDS
            while time.monotonic() < end_at or len(killed) <= SECONDS:  # a busy machine kills slowly
                for tailer in tailers:
                    poll(tailer)
        assert all(rival.is_alive() for rival in rivals)

    stored = Tailer(store)
    stored.catch_up()
    cells = check_log(stored.delivered)
    for tailer in tailers:
        tailer.catch_up()
        # What a writer had sent when it was ended may be committed later still: that comes after all this.
        assert check_log(tailer.delivered) >= cells
        for shard, found in stored.delivered.items():
            assert tailer.delivered[shard][: len(found)] == found
        tailer.store.close()
    keys = {cell.key: cell for found in stored.delivered.values() for cell in found}
    assert len(keys) == cells
    acknowledged = [cell for diary in diaries for cell in diary.acknowledged()]
    assert all(keys[cell.key] == cell for cell in acknowledged)
    assert [cell for diary in diaries for cell in diary.conflicts()] == []
    store.close()
    figures = f"{len(acknowledged):,} acknowledged, {len(killed)} connections killed"
    print(f"{server_engine}: {cells:,} cells of {WRITERS} writers delivered twice, none lost, {figures}")
    assert cells > 50 * SECONDS


def poll(tailer: Tailer) -> None:
    # When its connection is killed twice in a row, the next poll goes on from the same positions.
    with suppress(Unavailable):
        tailer.poll(random.choice([1, 20, 500]))


def collide(store: Datastore, diaries: list[Diary]) -> None:
    """Put cells of the writers again, equal and different: duplicates and conflicts among the puts."""
    for diary in diaries:
        for _word, cell in list(diary.entries())[-5:]:
            bodies: list[Json] = [cell.body, {"another": "body"}]
            for body in bodies:
                with suppress(BatchFailed, Unavailable):  # conflicts and killed connections are the point
                    store.put_cells([Cell(*cell.key, body), Cell(uuid4(), "BASE", 1, body)])


def kill_connections(primaries: list[BinlogServer], killed: list[int]) -> None:
    """Kill a random connection of a client on each server."""
    for primary in primaries:
        clients = [number for number, command in clients_of(primary) if "Binlog" not in command]
        with suppress(pymysql.err.MySQLError):  # it has just ended by itself, or it is our own
            primary.query(f"KILL {random.choice(clients)}")
            killed.append(1)


class background:  # noqa: N801  # reads as a word in a with statement
    """Repeat something in a thread until the block ends; what it raises is raised at the end."""

    def __init__(self, action: Any) -> None:
        self._action = action
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.wait(0.03):
                self._action()
        except BaseException as failure:  # noqa: BLE001  # carried to the test's own thread
            self._failure = failure


# ----------------------------------------------------------------------------------------------------- controls


def test_plain_auto_increment_loses_cells(server_engine: ServerEngine, stores: Stores) -> None:
    """The control: the same race on an AUTO_INCREMENT table, tailed by `added_id > last`, loses rows."""
    server = stores.clusters(server_engine)[0].primary
    database = f"control_{uuid4().hex[:8]}"
    server.query(f"CREATE DATABASE {database}")
    server.query(
        f"CREATE TABLE {database}.cell (added_id BIGINT AUTO_INCREMENT PRIMARY KEY, body VARCHAR(40)) ENGINE=InnoDB"
    )
    seconds = 1.5
    rivals = [
        FORK_SERVER.Process(target=_insert_plainly, args=(_address(server), database, seconds), daemon=True)
        for _ in range(WRITERS)
    ]
    seen: set[int] = set()
    last = 0
    with running(rivals), server.connect(database) as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        while any(rival.is_alive() for rival in rivals):
            cursor.execute("SELECT added_id FROM cell WHERE added_id > %s ORDER BY added_id LIMIT 500", (last,))
            for row in cursor.fetchall():
                last = row["added_id"]
                seen.add(last)
        cursor.execute("SELECT added_id FROM cell WHERE added_id <= %s", (last,))
        stored = {row["added_id"] for row in cursor.fetchall()}

    print(f"{server_engine}: plain AUTO_INCREMENT lost {len(stored - seen):,} of {len(stored):,}")
    assert stored - seen


def _address(server: BinlogServer) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": server.port, "user": "root", "password": server.password}


def _insert_plainly(address: dict[str, Any], database: str, seconds: float) -> None:
    connection = pymysql.connect(**address, database=database, autocommit=False)
    end_at = time.monotonic() + seconds
    with connection, connection.cursor() as cursor:
        while time.monotonic() < end_at:
            cursor.execute("INSERT INTO cell (body) VALUES (UUID())")
            connection.commit()


def test_a_put_by_last_insert_id_leaks_through_the_fence(server_engine: ServerEngine, stores: Stores) -> None:
    """The control: with LAST_INSERT_ID() in the insert, a fenced writer stores its cell under another shard's id."""
    store = stores.fresh(server_engine, shards=2)
    server = stores.clusters(server_engine)[0].primary
    name = store.config.datastore
    for shard in (0, 1):
        server.query(f"CREATE TABLE IF NOT EXISTS {name}_meta.naive (shard INT PRIMARY KEY, epoch INT, next BIGINT)")
        server.query(f"REPLACE INTO {name}_meta.naive VALUES ({shard}, 1, {shard * 1000})")
    server.query(f"CREATE TABLE {name}_meta.log (shard INT, added_id BIGINT, body VARCHAR(20))")
    naive = (
        f"BEGIN; UPDATE {name}_meta.naive SET next = LAST_INSERT_ID(next + 1) WHERE shard = %s AND epoch = %s;"
        f"INSERT INTO {name}_meta.log VALUES (%s, LAST_INSERT_ID(), %s); COMMIT"
    )
    connection = pymysql.connect(**_address(server), client_flag=CLIENT.MULTI_STATEMENTS, autocommit=True)
    with connection, connection.cursor() as cursor:
        for values in ((1, 1, 1, "fine"), (0, 0, 0, "fenced")):  # epoch 0 is stale for shard 0
            cursor.execute(naive, values)
            while cursor.nextset():
                pass
        cursor.execute(f"SELECT added_id FROM {name}_meta.log WHERE body = 'fenced'")
        assert cursor.fetchall() == ((1001,),)


def test_a_fenced_put_of_ours_stores_nothing(server_engine: ServerEngine, stores: Stores) -> None:
    """The same with our put: the connection just served another shard, the epoch is stale, nothing is stored (I9)."""
    store = stores.fresh(server_engine, shards=1)
    name = store.config.datastore
    served = [store.put_cell(uuid4(), "BASE", 1, n).added_id for n in range(5)]
    server = stores.clusters(server_engine)[0].primary
    other = stores.fresh(server_engine, shards=1)
    other.put_cell(uuid4(), "BASE", 1, "warm")
    server.query(f"UPDATE {name}_meta.shard_state SET epoch = 2, state = 'MOVED'")

    refusals = []
    for attempt in ("put", "batch", "expecting"):
        row_key = uuid4()
        try:
            if attempt == "put":
                store.put_cell(row_key, "BASE", 1, "stale")
            elif attempt == "batch":
                store.put_cells([Cell(row_key, "BASE", 1, "stale")])
            else:
                store.put_cell(row_key, "BASE", 1, "stale", expect_latest=None)
        except Exception as error:  # noqa: BLE001  # whichever refusal: what counts is what is stored
            refusals.append(str(error))

    assert len(refusals) == 3
    (count,) = server.query(f"SELECT COUNT(*) AS cells, MAX(added_id) AS head FROM {name}_0000.cell")
    assert (count["cells"], count["head"]) == (5, served[-1])


@pytest.mark.parametrize("has_found_rows", [False, True])
def test_a_conflict_is_told_from_a_new_cell_only_without_found_rows(
    server_engine: ServerEngine, stores: Stores, has_found_rows: bool
) -> None:
    """Why connections are opened without FOUND_ROWS: with it the row count of a duplicate is that of a new cell."""
    store = stores.fresh(server_engine, shards=1)
    server = stores.clusters(server_engine)[0].primary
    names, gate = Names(store.config.datastore), Gate(0, 1, Kind.OWNER, 0)
    flags = CLIENT.MULTI_STATEMENTS | (CLIENT.FOUND_ROWS if has_found_rows else 0)
    row_key = uuid4().bytes
    with WithFlags(**_address(server), client_flag=flags, autocommit=True) as connection:
        answers = [
            writes.put(connection, names, gate, NewCell(row_key, b"BASE", 1, body), ANY)  # type: ignore[arg-type]  # a plain connection will do
            for body in (b"1", b"1", b"2")
        ]

    assert [answer.is_created for answer in answers] == [True, has_found_rows, has_found_rows]


class WithFlags(pymysql.connections.Connection):
    """A connection as ours, but for the flags."""

    @property
    def hot_cursor(self) -> Any:
        return self.cursor()
