"""Settings that stand in the way of writes, the largest packet and a log of statements, are said by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from pymysql.connections import Connection

from schemaless_core import BatchFailed, Cell, Datastore, InvalidServer, PacketTooLarge, Unavailable, canonical_bytes
from schemaless_core.cell.cell import encoded_name
from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.engine.mysql.wire import sessions
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.servers.doctor import Doctor
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores

MEBIBYTE = 1024 * 1024
#: JSON of quotes: escaped it is twice as long, and one more for each backslash.
LARGE = "x" * (MEBIBYTE + 100_000)
MEDIUM = "y" * 300_000


@contextmanager
def setting(stores: Stores, engine: ServerEngine, name: str, value: object) -> Iterator[None]:
    servers = [cluster.primary for cluster in stores.clusters(engine)]
    before = [server.query(f"SELECT @@GLOBAL.{name} AS v")[0]["v"] for server in servers]
    try:
        for server in servers:
            server.query(f"SET GLOBAL {name} = {value}")
        yield
    finally:
        for server, old in zip(servers, before, strict=True):
            server.query(f"SET GLOBAL {name} = {old}")


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    """A datastore whose connections are all made later."""
    config = stores.config(server_engine, shards=4)
    with Datastore.open(config) as made:
        made.create_schema()
    with Datastore.open(config) as store:
        yield store


def send_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: whatever it is, it is sent."""
    monkeypatch.setattr(DeadlineConnection, "_execute_command", Connection._execute_command)  # type: ignore[attr-defined]  # the stubs leave it out


def test_a_body_that_does_not_fit_is_refused_by_name_until_the_setting_is_raised(
    server_engine: ServerEngine, stores: Stores, store: Datastore, caplog: pytest.LogCaptureFixture
) -> None:
    row = uuid4()
    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE):
        for _ in range(5):
            with pytest.raises(PacketTooLarge, match=r"does not fit .* SET GLOBAL max_allowed_packet = \d+") as refused:
                store.put_cell(row, "BASE", 1, LARGE)
        assert store.put_cell(row, "BASE", 2, "small").status == "CREATED"
        assert refused.value.bytes_max == MEBIBYTE < refused.value.packet_bytes
        warnings = [record for record in caplog.records if getattr(record, "event", "") == "node.packets_too_small"]
        assert 0 < len(warnings) <= 4, "once per server"

    assert store.put_cell(row, "BASE", 1, LARGE).status == "CREATED"
    assert store.get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, LARGE)


@pytest.mark.parametrize("asks", [False, True], ids=["control", "asks"])
def test_a_body_that_does_not_fit_leaves_the_pool_as_it_was(
    server_engine: ServerEngine, stores: Stores, store: Datastore, monkeypatch: pytest.MonkeyPatch, *, asks: bool
) -> None:
    """A caller that puts it again and again must cost no connection each time."""
    if not asks:
        monkeypatch.setattr(sessions.Sessions, "_packet_bytes_now", lambda *_: sys.maxsize)
    row = uuid4()
    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE):
        numbers = set[int]()
        for ref_key in range(3):
            store.put_cell(row, "BASE", ref_key, "small")
            with pytest.raises(PacketTooLarge):
                store.put_cell(row, "BASE", 9, LARGE)
            numbers |= {
                connection.session_number
                for cluster in store.clusters.values()
                for connection in cluster.primary.node._sessions._pool._idle  # type: ignore[attr-defined]  # both engines have it
            }
        by_server = len(store.clusters)

    assert (len(numbers) <= by_server) is asks, numbers


def test_control_a_packet_that_is_sent_all_the_same_breaks_the_connection(
    server_engine: ServerEngine, stores: Stores, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_without_a_look(monkeypatch)
    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE), pytest.raises(Unavailable):
        store.put_cell(uuid4(), "BASE", 1, LARGE)


def test_the_largest_packet_is_one_byte_below_the_setting(server_engine: ServerEngine, stores: Stores) -> None:
    server = stores.clusters(server_engine)[0].primary

    def send(packet_bytes: int) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT '" + "x" * (packet_bytes - 10) + "'")

    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE):
        send(MEBIBYTE - 1)
        with pytest.raises((pymysql.err.OperationalError, pymysql.err.InterfaceError, BrokenPipeError)):
            send(MEBIBYTE)


@pytest.mark.parametrize("is_one_shard", [True, False])
def test_a_batch_is_cut_into_packets_that_fit(
    server_engine: ServerEngine, stores: Stores, store: Datastore, is_one_shard: bool
) -> None:
    rows = list(islice(keys_in(store, 1), 9)) if is_one_shard else [uuid4() for _ in range(9)]
    cells = [Cell(row, "BASE", 1, [MEDIUM, n]) for n, row in enumerate(rows)]
    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE):
        assert {result.status for result in store.put_cells(cells)} == {"CREATED"}
        assert store.get_cells([cell.key for cell in cells]) == cells


def test_of_a_batch_only_what_does_not_fit_is_refused(
    server_engine: ServerEngine, stores: Stores, store: Datastore
) -> None:
    cells = [Cell(row, "BASE", 1, "small") for row in islice(keys_in(store, 1), 8)]
    cells[5] = Cell(cells[5].row_key, "BASE", 1, LARGE)
    with setting(stores, server_engine, "max_allowed_packet", MEBIBYTE):
        with pytest.raises(BatchFailed) as failed:
            store.put_cells(cells)
        outcome = store.put_encoded([encoded(cell) for cell in cells])

    assert [n for n, result in enumerate(failed.value.results) if isinstance(result, PacketTooLarge)] == [5]
    assert [problem.position for problem in outcome.problems] == [5]
    assert outcome.existed == 7


def encoded(cell: Cell) -> EncodedCell:
    return EncodedCell(cell.row_key.bytes, encoded_name(cell.column_name), cell.ref_key, canonical_bytes(cell.body))


def test_a_server_that_logs_statements_refuses_writes_by_name_and_answers_reads(
    server_engine: ServerEngine, stores: Stores, store: Datastore
) -> None:
    with setting(stores, server_engine, "binlog_format", "'STATEMENT'"):
        for _ in range(5):
            with pytest.raises(InvalidServer, match="SET GLOBAL binlog_format = ROW"):
                store.put_cell(uuid4(), "BASE", 1, "x")
        assert store.get_cell_latest(uuid4(), "BASE") is None
        told = [
            found.fact
            for found in Doctor(store.config, store.clusters, store.control).findings()
            if found.fact.name == "binlog_format"
        ]
        assert any(fact.is_refusal and not fact.is_fine and "ROW" in fact.advice for fact in told)

    assert store.put_cell(uuid4(), "BASE", 1, "x").status == "CREATED"


def test_a_write_that_meets_such_a_log_all_the_same_says_so(
    server_engine: ServerEngine, stores: Stores, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect: Any = vars(sessions)["connect"]

    def unsuspecting(*arguments: Any) -> DeadlineConnection:
        made: DeadlineConnection = connect(*arguments)
        made.logs_statements = False
        return made

    monkeypatch.setattr(sessions, "connect", unsuspecting)
    with (
        setting(stores, server_engine, "binlog_format", "'STATEMENT'"),
        pytest.raises(InvalidServer, match="SET GLOBAL binlog_format = ROW"),
    ):
        store.put_cell(uuid4(), "BASE", 1, "x")
