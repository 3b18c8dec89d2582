"""Primaries die with cells that no replica has: each is salvaged or in the ledger; triggers get what is left (I1, I7).

Services write all the time, and a worker delivers. Each round cuts the replicas off, kills the primary by -9, promotes,
and finds the old disk again; then the old server is made anew from a replica, so that it may be the next primary.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Cell, CellKey, Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import ReplicationLogin
from schemaless_core.errors import SchemalessError
from schemaless_core.fsck.faults import Fault
from schemaless_core.triggers.registry import trigger
from schemaless_core.urls import parse_node_url
from tests.chaos.actors import Diary, drain, every_cell, running, wait_until, writer
from tests.chaos.switch_actors import is_stopped
from tests.forking import FORK_SERVER
from tests.fscks import DEEP, found_in, kinds_in
from tests.promoted import Promotable, promotable
from tests.scale import scaled
from tests.stores import ServerEngine
from tripstore.local.binlog import REPLICATION_USER, BinlogServer

ROUNDS = scaled(50, least=2)
#: That the test itself puts behind the cut, so that each round loses some.
LOST = 5


def serve(config: Mapping[str, Any], path: str) -> None:
    """A worker: notes the key of each cell that it delivers."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Datastore.open(config) as store:

        @trigger(column="BASE", start="beginning", name="noted")
        def noted(cell: Cell) -> None:
            os.write(file, f"{json.dumps([str(cell.row_key), cell.ref_key])}\n".encode())

        store.triggers.worker([noted]).run()


def delivered(path: Path) -> set[tuple[UUID, int]]:
    return {(UUID(row), ref_key) for row, ref_key in map(json.loads, path.read_text().splitlines())}


@pytest.mark.long
def test_i1_i7_what_dead_primaries_alone_had_is_found_again_or_named(
    server_engine: ServerEngine, tmp_path: Path
) -> None:
    notes, diaries = tmp_path / "delivered", [Diary(tmp_path / f"writer-{n}") for n in range(2)]
    with promotable(server_engine, tmp_path / "control", replicas=2, buffer={"put_seconds": 5.0}) as made:
        worker = FORK_SERVER.Process(target=serve, args=(made.document, str(notes)), daemon=True)
        processes: list[BaseProcess] = [writer(made.document, diary, n) for n, diary in enumerate(diaries)]
        own: list[Cell] = []
        conflicting: set[CellKey] = set()
        with running([worker, *processes]):
            # A group that is new begins in every cluster, so each has to live.
            wait_until("the worker's group is known", lambda: made.store.triggers.coordinator.find_group("noted"), 60)
            for number in range(ROUNDS):
                counts = [count_of(diary) for diary in diaries]
                wait_until("writers get on", lambda: _have_got_on(diaries, counts), 60)  # noqa: B023  # called before the variable changes
                lost = die_and_come_back(made, number, processes)
                own += lost
                conflicting.add(lost[0].key)
            for process in processes:
                process.kill()
                process.join()
            drain(made.store)
            cells = {cell.key: cell.body for cell in every_cell(made.store)}
            bases = {(row_key, ref_key) for row_key, column_name, ref_key in cells if column_name == "BASE"}
            wait_until("all that survived is delivered", lambda: bases <= delivered(notes), 600)
        ledger = conflicts(made.store)
        acknowledged = [*own, *(cell for diary in diaries for cell in diary.acknowledged())]
        missing = [cell for cell in acknowledged if cells.get(cell.key) != cell.body and cell.key not in ledger]

        assert missing == []
        assert ledger == conflicting
        assert [cell for diary in diaries for cell in diary.conflicts()] == []
        assert set(kinds_in(made.store, DEEP)) == {Fault.CONFLICT}
        print(f"{server_engine}: {ROUNDS} tails lost, {len(acknowledged):,} acknowledged, {len(ledger)} in the ledger")


def die_and_come_back(made: Promotable, number: int, writers: Sequence[BaseProcess]) -> list[Cell]:
    """Return what the primary alone had, as far as the test put it. The first of these has another body since."""
    old = server_of(made, made.leads())
    others = [each for each in made.cluster.servers if each is not old]
    for replica in others:
        replica.query("STOP REPLICA IO_THREAD")
    lost = made.put(LOST, f"lost {number}")
    old.kill()
    made.promote(made.order(dead=(old,)))
    assert [made.store.get_cell(*cell.key) for cell in lost] == [None] * LOST, "the control: no replica had them"
    made.store.using(deadline=10.0).put_cell(*lost[0].key, "another")

    settings = start_shut(old)
    with paused(made, writers):  # a look at all that they write would take longer with each round
        tails = [each.body for each in found_in(made.store) if each.kind == Fault.TAIL]
    assert {tail["shard"] for tail in tails} >= {made.store.shard_of(cell.row_key) for cell in lost}, "fsck names them"
    made.store.promotions.salvage("a", parse_node_url("old", old.url)).run(lambda done, total: None)
    with paused(made, writers):
        drain(made.store)
        assert made.store.promotions.lost_tails("a", made.name(old)) == []
        old.kill()
        (old.folder / "my.cnf").write_text(settings)
        make_anew(made, old, next(each for each in others if made.name(each) != made.leads()))
    return lost


def start_shut(server: BinlogServer) -> str:
    """Before it hears its first caller it takes no writes. Return its settings without that.

    `read_only` would not do: these services are superusers, whom MariaDB lets write.
    """
    before = (server.folder / "my.cnf").read_text()
    shut = server.folder / "shut.sql"
    shut.write_text("UPDATE trips_meta.shard_state SET state = 'RO' WHERE state IN ('RW', 'COPY');\n")
    shut.chmod(0o644)
    (server.folder / "my.cnf").write_text(f"{before}init-file = {shut}\n")
    server.start()
    return before


@contextmanager
def paused(made: Promotable, processes: Sequence[BaseProcess]) -> Iterator[None]:
    """None of them in the midst of a look at the file of the control database: its lock would last as long."""
    file = made.store.control.file
    assert file is not None
    while True:
        for process in processes:
            os.kill(process.pid or 0, signal.SIGSTOP)
        for process in processes:
            wait_until("it is stopped", lambda: is_stopped(process.pid), 20)  # noqa: B023  # called at once
        if _is_unlocked(file):
            break
        _go_on(processes)
    try:
        yield
    finally:
        _go_on(processes)


def _go_on(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        os.kill(process.pid or 0, signal.SIGCONT)


def _is_unlocked(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0.5)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return False
    return True


def server_of(made: Promotable, name: str) -> BinlogServer:
    return next(each for each in made.cluster.servers if made.name(each) == name)


def make_anew(made: Promotable, server: BinlogServer, like: BinlogServer) -> None:
    """A server that is stopped becomes a copy of a replica, which is stopped meanwhile, and follows the leader."""
    like.stop()
    shutil.rmtree(server.place.data)
    shutil.copytree(like.place.data, server.place.data)
    (server.place.data / "auto.cnf").unlink(missing_ok=True)  # MySQL's name for a server
    for log in (server.folder / "logs").iterdir():
        log.unlink()
    for state in (like.folder / "logs").glob("*.state"):  # MariaDB: which changes are older than its first log
        shutil.copy(state, server.folder / "logs")
    for each in (like, server):
        each.launch()
    for each in (like, server):
        each.wait_until_ready()
    leader = server_of(made, made.leads())
    node = next(each.node for each in made.store.clusters["a"].nodes if each.node.name == made.name(server))
    candidate = node.candidate()
    candidate.follow("127.0.0.1", leader.port, ReplicationLogin(REPLICATION_USER, leader.password), Deadline(10.0))
    candidate.close()
    made.wait_until_equal(server, like)


def conflicts(store: Datastore) -> set[CellKey]:
    found: set[CellKey] = set()
    for ledger in store.replayer().conflicts(10_000).values():
        assert not isinstance(ledger, SchemalessError)
        cells = [each.waiting.cell for each in ledger]
        found |= {CellKey(UUID(bytes=cell.row_key), cell.column_name.decode(), cell.ref_key) for cell in cells}
    return found


def _have_got_on(diaries: list[Diary], counts: list[int]) -> bool:
    return all(count_of(diary) >= count + 20 for diary, count in zip(diaries, counts, strict=True))


def count_of(diary: Diary) -> int:
    """What was acknowledged, without a look at each cell: there are more with each round."""
    return diary.path.read_bytes().count(b'["acknowledged"') if diary.path.exists() else 0
