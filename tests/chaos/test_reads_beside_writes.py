"""A primary that takes no writes answers reads, and a reader who is short of time shuts no other caller out.

The control of each puts one breaker in place of the two, as there was before.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import pytest

from schemaless_core import (
    BatchFailed,
    Cell,
    CellKey,
    ColumnKey,
    Datastore,
    EncodedCell,
    Json,
    NodeUnavailable,
    Unavailable,
)
from schemaless_core.servers.guarded import GuardedNode
from tests.chaos.test_unresponsive_server import rows_on
from tests.factories import keys_in
from tests.scale import SCALE
from tests.stores import ServerEngine, Stores
from tripstore.local.server import Server

WRITERS, READERS = 4, 2
SECONDS = max(1.5, 15 * SCALE)
INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}


def _queries(store: Datastore, row: UUID) -> object:
    """Of many values: some of their shards are on the server that refuses writes."""
    return [store.query_index("trips_of_driver", f"driver {n}") for n in range(20)]


#: Every kind of read of a row's shard, or of a whole datastore.
READS: dict[str, Callable[[Datastore, UUID], object]] = {
    "a cell": lambda store, row: store.get_cell(row, "BASE", 1),
    "the latest cell": lambda store, row: store.get_cell_latest(row, "BASE"),
    "many cells": lambda store, row: store.get_cells([CellKey(row, "BASE", n) for n in range(50)]),
    "the latest of many": lambda store, row: store.get_cells_latest([ColumnKey(row, "BASE")] * 5),
    "a row": lambda store, row: store.get_row(row),
    "a history": lambda store, row: store.get_history(row, "BASE"),
    "a log": lambda store, row: store.get_cells_for_shard(store.shard_of(row), 0, 10),
    "all logs": lambda store, row: store.get_cells_for_shards(dict.fromkeys(range(4), 0), 10),
    "the end of a log": lambda store, row: store.end_of_log(store.shard_of(row)),
    "rows": lambda store, row: store.scan_rows(store.shard_of(row)),
    "a checksum": lambda store, row: store.checksum(store.shard_of(row)),
    "an index": _queries,
    "bytes": lambda store, row: store.find_unequal([EncodedCell(row.bytes, b"BASE", 1, b'"warm"')]),
}
#: Every kind of write.
WRITES: dict[str, Callable[[Datastore, UUID], object]] = {
    "a cell": lambda store, row: store.put_cell(row, "BASE", 2, "w"),
    "an appended cell": lambda store, row: store.append_cell(row, "BASE", "w"),
    "a batch": lambda store, row: store.put_cells([Cell(row, "BASE", n, "w") for n in range(2, 5)]),
    "cells together": lambda store, row: store.put_together(
        [Cell(row, "BASE", 2, "w")], store.end_of_log(store.shard_of(row))
    ),
}


@pytest.fixture
def lonely(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    """A datastore without replicas to flee to, by a user who is bound by read_only."""
    config = stores.config(server_engine, shards=4, indexes=[INDEX])
    Datastore.open(config).create_schema()
    for cluster, server in stores.primaries(server_engine).items():
        _let_in(server)
        _, _, address = server.url.partition("@")
        config["clusters"][cluster] = {"primary": f"mysql://plain:plain@{address}"}
    config["deadlines"] = {"put_seconds": 0.5, "read_seconds": 2.0}
    config["breaker"] = {"failures": 1}  # whatever counts against the server shuts it at once
    with Datastore.open(config) as store:
        for row in [*rows_on(store, "a", 5), *rows_on(store, "b", 5)]:
            store.using(deadline=10.0).put_cell(row, "BASE", 1, "warm")
        yield store


def _let_in(server: Server) -> None:
    with server.connect() as root, root.cursor() as cursor:  # type: ignore[attr-defined]  # both engines have it
        cursor.execute("CREATE USER IF NOT EXISTS plain@'%' IDENTIFIED BY 'plain'")
        cursor.execute("GRANT SELECT, INSERT, UPDATE, DELETE, PROCESS ON *.* TO plain@'%'")


@contextmanager
def read_only(server: Server) -> Iterator[None]:
    def set_to(value: int) -> None:
        with server.connect() as root, root.cursor() as cursor:  # type: ignore[attr-defined]  # both engines have it
            cursor.execute(f"SET GLOBAL read_only = {value}")

    set_to(1)
    try:
        yield
    finally:
        set_to(0)


def join_breakers(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: one breaker for reads and writes."""
    for cluster in store.clusters.values():
        monkeypatch.setattr(cluster.primary, "reads", cluster.primary.writes)


def _traffic(store: Datastore, rows: list[UUID]) -> tuple[Counter[str], Counter[str]]:
    """What became of reads, and of writes, made by threads side by side."""
    stop, reads, writes = time.monotonic() + SECONDS, Counter[str](), Counter[str]()

    def keep(counted: Counter[str], call: Callable[[], object]) -> None:
        while time.monotonic() < stop:
            try:
                call()
                counted["answered"] += 1
            except Unavailable:
                counted["refused"] += 1
                time.sleep(0.002)

    threads = [
        threading.Thread(target=keep, args=(writes, lambda: store.put_cell(_new(store, rows), "BASE", 1, "w")))
        for _ in range(WRITERS)
    ] + [
        threading.Thread(target=keep, args=(reads, lambda: store.get_cell_latest(rows[0], "BASE")))
        for _ in range(READERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return reads, writes


def _new(store: Datastore, rows: list[UUID]) -> UUID:
    """A new row of the same shard as the others."""
    shard = store.shard_of(rows[0])
    return next(keys_in(store, shard))


def _share(counted: Counter[str]) -> float:
    return counted["answered"] / max(1, counted.total())


def test_reads_of_a_server_that_refuses_writes_are_answered(
    server_engine: ServerEngine, stores: Stores, lonely: Datastore
) -> None:
    with read_only(stores.primaries(server_engine)["a"]):
        reads, writes = _traffic(lonely, rows_on(lonely, "a", 1))
        refusals = [_refusal(lonely) for _ in range(20)]  # a probe is let through now and then

    print(f"{server_engine}: read_only: reads {dict(reads)}, writes {dict(writes)}")
    assert any("its breaker for writes is open" in text for text in refusals), refusals[0]
    assert any("Reads have one of their own" in text for text in refusals)
    assert writes["answered"] == 0
    assert reads.total() > 100
    assert _share(reads) >= 0.99


def test_control_one_breaker_for_both_refuses_reads(
    server_engine: ServerEngine, stores: Stores, lonely: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = rows_on(lonely, "a", 1)[0]

    def outcomes() -> Counter[str]:
        counted = Counter[str]()
        for _ in range(10):
            _refusal(lonely)
            counted[_outcome(lonely, row)] += 1
        return counted

    with read_only(stores.primaries(server_engine)["a"]):
        assert outcomes().keys() == {"answered"}
        join_breakers(lonely, monkeypatch)
        assert outcomes()["refused"] > 0


@pytest.mark.parametrize("write", WRITES)
def test_every_kind_of_read_is_answered_beside_every_kind_of_refused_write(
    server_engine: ServerEngine, stores: Stores, lonely: Datastore, write: str
) -> None:
    row = rows_on(lonely, "a", 1)[0]
    lonely.using(deadline=10.0).put_cell(row, "BASE", 1, "warm")
    with read_only(stores.primaries(server_engine)["a"]):
        for name, read in READS.items():
            with pytest.raises((Unavailable, BatchFailed)):
                WRITES[write](lonely, row)
            assert read(lonely, row) is not None, name


def test_control_with_one_breaker_every_kind_of_read_is_refused(
    server_engine: ServerEngine, stores: Stores, lonely: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, refused = rows_on(lonely, "a", 1)[0], set[str]()
    join_breakers(lonely, monkeypatch)
    with read_only(stores.primaries(server_engine)["a"]):
        for name, read in READS.items():
            lonely.clusters["a"].primary.writes.trip()  # its pause begins anew, so that no probe is due
            with suppress(Unavailable):
                read(lonely, row)
                continue
            refused.add(name)

    assert refused == READS.keys()


def test_writes_go_on_by_themselves_when_the_server_takes_them_again(
    server_engine: ServerEngine, stores: Stores, lonely: Datastore
) -> None:
    with read_only(stores.primaries(server_engine)["a"]):
        _traffic(lonely, rows_on(lonely, "a", 1))

    give_up = time.monotonic() + 15
    while True:
        try:
            assert lonely.put_cell(rows_on(lonely, "a", 1)[0], "BASE", 1, "back").status == "CREATED"
            return
        except Unavailable:
            assert time.monotonic() < give_up


@pytest.fixture
def locked(lonely: Datastore, server_engine: ServerEngine, stores: Stores) -> Iterator[UUID]:
    """A row whose shard is locked: reads of it run out of time, and their server is well."""
    row = rows_on(lonely, "a", 1)[0]
    table = f"{lonely.config.datastore}_{lonely.shard_of(row):04d}.cell"
    with stores.primaries(server_engine)["a"].connect() as holder, holder.cursor() as cursor:  # type: ignore[attr-defined]  # both engines have it
        cursor.execute(f"LOCK TABLES {table} WRITE")
        yield row
        cursor.execute("UNLOCK TABLES")


def _other_reads(store: Datastore, locked: UUID) -> Counter[str]:
    """Reads of the server's other shard, each right after a reader of the locked one ran out of time."""
    others = [row for row in rows_on(store, "a", 40) if store.shard_of(row) != store.shard_of(locked)]
    counted = Counter[str]()
    for row in others[:15]:
        with pytest.raises(Unavailable):
            store.using(deadline=0.03).get_cell_latest(locked, "BASE")
        counted[_outcome(store, row)] += 1
    return counted


def _outcome(store: Datastore, row: UUID) -> str:
    try:
        store.get_cell_latest(row, "BASE")
    except NodeUnavailable as error:
        return "refused" if "breaker" in error.reason else "slow"
    return "answered"


def _refusal(store: Datastore) -> str:
    with pytest.raises(NodeUnavailable) as refused:
        store.put_cell(rows_on(store, "a", 1)[0], "BASE", 1, "w")
    return str(refused.value)


def test_a_reader_who_runs_out_of_time_shuts_no_caller_out(lonely: Datastore, locked: UUID) -> None:
    counted = _other_reads(lonely, locked)

    print(f"beside readers with a deadline of 30 ms: {dict(counted)}")
    assert counted.keys() == {"answered"}


def test_control_without_a_ping_such_a_reader_shuts_others_out(
    lonely: Datastore, locked: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(self: GuardedNode, error: NodeUnavailable, *, is_write: bool) -> None:
        self.reads.failed()

    monkeypatch.setattr(GuardedNode, "_failed", failed)

    assert _other_reads(lonely, locked)["refused"] > 0
