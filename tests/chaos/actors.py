"""Processes that write to and tail a datastore while accidents happen to them, and what they wrote down of it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pymysql

from schemaless_core import BatchFailed, Cell, CellConflict, Datastore, Position, PutResult, Unavailable
from schemaless_core import failpoints as failpoints_of_process
from schemaless_core.errors import SchemalessError
from tests.forking import FORK_SERVER
from tripstore.local.binlog import BinlogServer


@dataclass
class Diary:
    """A file in which a writer notes each cell before it puts it and after the put was acknowledged.

    It outlives a kill -9 of the writer: what the kernel was given, it keeps.
    """

    path: Path

    def note(self, word: str, cell: Cell) -> None:
        line = json.dumps([word, str(cell.row_key), cell.column_name, cell.ref_key, cell.body])
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def entries(self) -> Iterator[tuple[str, Cell]]:
        if not self.path.exists():
            return
        # What follows the last line end is being written just now.
        for line in self.path.read_text().split("\n")[:-1]:
            word, row_key, column_name, ref_key, body = json.loads(line)
            yield word, Cell(UUID(row_key), column_name, ref_key, body)

    def acknowledged(self) -> list[Cell]:
        return [cell for word, cell in self.entries() if word == "acknowledged"]

    def conflicts(self) -> list[Cell]:
        return [cell for word, cell in self.entries() if word == "conflict"]

    def unknown(self) -> list[Cell]:
        """Cells whose writer did not live to hear what became of them."""
        known = {cell.key for word, cell in self.entries() if word != "intended"}
        return [cell for word, cell in self.entries() if word == "intended" and cell.key not in known]


def write_for_ever(config: Mapping[str, Any], diary_path: str, seed: int) -> None:
    """Put new cells, one by one and in batches, repeating each until it is acknowledged. Ends when killed."""
    diary, choose = Diary(Path(diary_path)), random.Random(seed)
    with Datastore.open(config) as store:
        leftover = diary.unknown()
        if leftover:
            put_until_acknowledged(store, diary, leftover)
        while True:
            cells = [
                Cell(uuid4(), choose.choice(["BASE", "STATUS"]), choose.randrange(3), {"n": choose.random()})
                for _ in range(choose.choice([1, 1, 1, 1, 7, 30]))
            ]
            for cell in cells:
                diary.note("intended", cell)
            put_until_acknowledged(store, diary, cells)


def put_until_acknowledged(store: Datastore, diary: Diary, cells: list[Cell]) -> None:
    """A write whose outcome is unknown may always be repeated: so it is, as a service would."""
    pending = cells
    while pending:
        pending = (
            [cell for cell in pending if not _is_settled(store, diary, cell)]
            if len(pending) == 1
            else (_put_batch(store, diary, pending))
        )


def _is_settled(store: Datastore, diary: Diary, cell: Cell) -> bool:
    try:
        store.put_cell(*cell.key, cell.body)
    except Unavailable:
        return False
    except CellConflict:
        diary.note("conflict", cell)
        return True
    diary.note("acknowledged", cell)
    return True


def _put_batch(store: Datastore, diary: Diary, cells: list[Cell]) -> list[Cell]:
    """Put a batch; note what became of each cell and return those to repeat."""
    try:
        results: list[Any] = list(store.put_cells(cells))
    except BatchFailed as failed:
        results = list(failed.results)
    except Unavailable:
        return cells
    again = []
    for cell, result in zip(cells, results, strict=True):
        if isinstance(result, PutResult):
            diary.note("acknowledged", cell)
        elif isinstance(result, CellConflict):
            diary.note("conflict", cell)
        else:
            again.append(cell)
    return again


@dataclass
class Tailer:
    """Follows the logs of all shards and checks what it is given, cell by cell."""

    store: Datastore
    delivered: dict[int, list[Cell]] = field(default_factory=lambda: defaultdict(list))
    positions: dict[int, Position | int] = field(default_factory=dict)

    def poll(self, limit: int = 500) -> int:
        """Read one page of every shard; return how many cells came."""
        shards = range(self.store.config.shards)
        pages = self.store.get_cells_for_shards({shard: self.positions.get(shard, 0) for shard in shards}, limit)
        for shard, page in pages.items():
            self.delivered[shard] += page.cells
            self.positions[shard] = page.position
        return sum(len(page.cells) for page in pages.values())

    def catch_up(self) -> None:
        """Read until there is nothing more; a server that is just back may need a moment."""
        give_up_at = time.monotonic() + 30
        while True:
            try:
                if self.poll() == 0:
                    return
            except Unavailable:
                if time.monotonic() > give_up_at:
                    raise


def check_log(delivered: Mapping[int, list[Cell]]) -> int:
    """I3: ids are 1, 2, 3 … and times never fall. Return the number of cells."""
    for cells in delivered.values():
        assert [cell.added_id for cell in cells] == list(range(1, len(cells) + 1))
        times = [cell.created_at for cell in cells if cell.created_at]
        assert times == sorted(times)
        assert len(times) == len(cells)
    return sum(len(cells) for cells in delivered.values())


def every_cell(store: Datastore) -> list[Cell]:
    """All that is in the logs, each once (I3)."""
    tailer = Tailer(store)
    tailer.catch_up()
    count = check_log(tailer.delivered)
    cells = [cell for found in tailer.delivered.values() for cell in found]
    assert len({cell.key for cell in cells}) == count, "I3: a cell is in the log twice"
    return cells


def drain(store: Datastore, seconds: float = 60) -> None:
    """Carry what waits in buffers until no cell does."""

    def is_empty() -> bool:
        store.replayer().round()
        sizes = store.replayer().sizes().values()
        return all(not isinstance(size, SchemalessError) and size.cells == 0 for size in sizes)

    wait_until("no cell waits in a buffer", is_empty, seconds)


@contextmanager
def running(processes: Sequence[BaseProcess]) -> Iterator[Sequence[BaseProcess]]:
    """Start processes; whatever happens, none outlives the block."""
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            end(process)


def writer(config: Mapping[str, Any], diary: Diary, seed: int) -> BaseProcess:
    return FORK_SERVER.Process(target=write_for_ever, args=(config, str(diary.path), seed), daemon=True)


def end(process: BaseProcess) -> None:
    """Kill -9 a process of ours, stopped or not, and reap it."""
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    assert process.exitcode is not None


def clients_of(server: BinlogServer) -> list[tuple[int, str]]:
    """Id and command of each connection of root. The text of its statement beside them is no text in any charset."""
    connection = pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", password=server.password, use_unicode=False
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SET character_set_results = NULL")
        cursor.execute("SHOW PROCESSLIST")
        return [(int(row[0]), bytes(row[4]).decode()) for row in cursor.fetchall() if row[1] == b"root"]


def wait_until(what: str, is_so: Any, seconds: float = 30) -> None:
    """Poll for a condition; fail with its name when it does not come.

    Who waits long looks less often, and who looks long pauses as long, so that those who are waited for get on.
    """
    begun_at = looked_at = time.monotonic()
    while not is_so():
        now = time.monotonic()
        waited, looked = now - begun_at, now - looked_at
        assert waited < seconds, f"timed out waiting until {what}"
        time.sleep(max(min(max(0.005, waited / 10), 0.02), looked))  # other processes have no event
        looked_at = time.monotonic()


def wait_for_a_lock_wait(server: BinlogServer) -> None:
    """Return when a transaction of the server waits for a lock.

    The list of transactions has their statements beside it, which MySQL fails to show when they are no text.
    """

    def waits() -> bool:
        (row,) = server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return str(row["Value"]) != "0"

    wait_until("a transaction waits for a lock", waits)


def with_failpoints(folder: str, function: Any, *arguments: Any) -> None:
    """Run a function in a process whose failpoints look into a folder."""
    failpoints_of_process.use_folder(Path(folder))
    function(*arguments)
