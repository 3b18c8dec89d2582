"""Servers that are of another kind, silent, or not there, and files that hold something else."""

from __future__ import annotations

import contextlib
import copy
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from schemaless_core import (
    ControlUnavailable,
    Datastore,
    InvalidServer,
    NodeUnavailable,
    SchemalessError,
)
from tests.integration.written import Written
from tests.integration.wrong_input.refusing import Config, nowhere, refused
from tests.stores import ServerEngine, Stores
from tripstore.local.ports import free_port
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

#: A server that does not answer is given up soon.
IMPATIENT = {"connect_seconds": 0.3, "put_seconds": 1.0, "read_seconds": 1.0}


def at_port(url: str, port: int) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{port}")


@pytest.fixture(scope="session")
def postgres(servers: LocalServers) -> PostgresServer:
    return servers.postgres("wrong-kind")


@pytest.fixture
def half_wrong(server_engine: ServerEngine, stores: Stores) -> Callable[[int], tuple[Config, Written]]:
    """A configuration whose second cluster is whatever listens at a port; and a look at its first one."""

    def make(port: int) -> tuple[Config, Written]:
        config = stores.config(server_engine, deadlines=IMPATIENT)
        primary = config["clusters"]["a"]["primary"]
        alone = config | {"clusters": {"a": {"primary": primary}}}
        config["clusters"] = alone["clusters"] | {"b": {"primary": at_port(primary, port)}}
        return config, Written(alone)

    return make


def assert_not_created(config: Config, written: Written, kind: type[SchemalessError], *words: str) -> None:
    with Datastore.open(config) as datastore, refused(kind, *words, config=config):
        datastore.create_schema()
    assert written.now() == []


def test_a_postgres_server_is_refused(
    half_wrong: Callable[[int], tuple[Config, Written]], postgres: PostgresServer
) -> None:
    config, written = half_wrong(postgres.port)
    before = postgres.query("SELECT datname FROM pg_database")

    # Both wait for the other to speak first.
    assert_not_created(config, written, NodeUnavailable, str(postgres.port), "MySQL or MariaDB")

    assert postgres.query("SELECT datname FROM pg_database") == before


def test_an_http_server_is_refused(half_wrong: Callable[[int], tuple[Config, Written]]) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            config, written = half_wrong(server.server_port)
            assert_not_created(config, written, NodeUnavailable, str(server.server_port), "MySQL or MariaDB")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "greeting",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        b"\x05\x00\x00\x00\x0a\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\x09",
        b"\x00" * 64,
        b"\xff" * 64,
        b"",
    ],
    ids=["ssh", "http", "smtp", "truncated", "old protocol", "zeros", "ones", "nothing"],
)
def test_a_server_that_speaks_another_protocol_is_refused(stores: Stores, tmp_path: Path, greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=_greet, args=(listener, greeting))
        thread.start()
        try:
            config = stores.config("sqlite", deadlines=IMPATIENT)
            config["clusters"]["b"] = {"primary": f"mysql://root:S3cr3t@127.0.0.1:{port}"}
            with Datastore.open(config) as datastore, refused_by_port(config, port):
                datastore.create_schema()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def refused_by_port(config: Config, port: int) -> Iterator[None]:
    """Whether such a server is of the wrong kind or just broken cannot always be told."""
    with pytest.raises(SchemalessError) as raised:
        yield
    with refused(type(raised.value), str(port), "MySQL", config=config):
        raise raised.value
    assert isinstance(raised.value, InvalidServer | NodeUnavailable)


def _greet(listener: socket.socket, greeting: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _peer = listener.accept()
            with connection:
                connection.sendall(greeting)


def test_a_port_where_no_server_listens_is_refused(half_wrong: Callable[[int], tuple[Config, Written]]) -> None:
    port = free_port()
    config, written = half_wrong(port)

    assert_not_created(config, written, NodeUnavailable, str(port), "address")


def test_a_port_that_accepts_and_says_nothing_is_given_up(
    half_wrong: Callable[[int], tuple[Config, Written]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config, written = half_wrong(silent.getsockname()[1])

        assert_not_created(config, written, NodeUnavailable, str(silent.getsockname()[1]))


def test_a_folder_that_cannot_be_made_is_refused(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = stores.config("sqlite")
    written = Written(copy.deepcopy(config))
    config["clusters"]["b"] = {"primary": f"sqlite:///{tmp_path}/file/b"}

    with Datastore.open(config) as datastore, refused(InvalidServer, "file/b", "Not a directory"):
        datastore.create_schema()

    assert written.cells() == 0


def test_a_file_that_holds_something_else_is_refused_and_left_alone(stores: Stores, tmp_path: Path) -> None:
    config = stores.config("sqlite")
    file = tmp_path / f"{config['datastore']}.db"
    file.write_text("a diary, " * 1_000)
    config["clusters"]["b"] = {"primary": f"sqlite:///{tmp_path}"}

    with Datastore.open(config) as datastore, refused(InvalidServer, str(tmp_path), "something else"):
        datastore.create_schema()

    assert file.read_text() == "a diary, " * 1_000


@pytest.mark.parametrize(
    ("setting", "bad"),
    [
        ("innodb_flush_log_at_trx_commit", 2),
        ("innodb_flush_log_at_trx_commit", 0),
        ("sync_binlog", 0),
        ("max_allowed_packet", 1024 * 1024),
        ("read_only", 1),
    ],
)
def test_a_server_that_may_not_hold_cells_is_refused(
    server_engine: ServerEngine, stores: Stores, setting: str, bad: int
) -> None:
    config = stores.config(server_engine)
    server = stores.clusters(server_engine)[1].primary
    (row,) = server.query(f"SELECT @@GLOBAL.{setting} AS fine")
    server.query(f"SET GLOBAL {setting} = {bad}")

    try:
        with Datastore.open(config) as datastore, refused(InvalidServer, setting, "SET GLOBAL", config=config):
            datastore.create_schema()
    finally:
        server.query(f"SET GLOBAL {setting} = {row['fine']}")

    assert Written(config).now() == []


def test_nothing_is_created_without_the_control_database(datastore_engine: str, stores: Stores) -> None:
    config = stores.config(datastore_engine, control=nowhere())

    with Datastore.open(config) as datastore, refused(ControlUnavailable, "control database", config=config):
        datastore.create_schema()

    assert Written(config).now() == []


def test_nothing_is_created_while_the_control_database_keeps_silent(datastore_engine: str, stores: Stores) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql://root:S3cr3t@127.0.0.1:{silent.getsockname()[1]}"
        config = stores.config(datastore_engine, control=url, deadlines=IMPATIENT)

        with Datastore.open(config) as datastore, refused(ControlUnavailable, "control database", config=config):
            datastore.create_schema()

    assert Written(config).now() == []


def test_a_control_folder_that_cannot_be_made_is_refused(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = stores.config("sqlite", control=f"sqlite:///{tmp_path}/file/control")

    with Datastore.open(config) as datastore, refused(InvalidServer, "control database", "Not a directory"):
        datastore.create_schema()

    assert Written(config).now() == []


def test_a_control_file_that_holds_something_else_is_refused(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "control.db").write_text("a diary, " * 1_000)
    config = stores.config("sqlite", control=f"sqlite:///{tmp_path}")

    with Datastore.open(config) as datastore, refused(InvalidServer, "control database", "something else"):
        datastore.create_schema()

    assert Written(config).now() == []
    with pytest.raises(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(tmp_path / "control.db")) as control:
        control.execute("SELECT 1 FROM topology")
