"""One connection: no deadline is outlived, no time-out is taken for a broken connection, none is left open."""

from __future__ import annotations

import datetime
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import REGISTRY
from pymysql import err
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from schemaless_core import Datastore, InvalidServer, NodeUnavailable, SchemaMissing
from schemaless_core.config import DeadlineConfig, PoolConfig, TlsConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, Login, connect, unconnected
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.urls import NodeUrl, parse_node_url
from tests.chaos.actors import wait_until
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores

SHARDS = 2
SLACK_SECONDS = 0.35
GREETING = (
    b"\x0a8.0.99-scripted\x00" + struct.pack("<I", 7) + b"12345678\x00"
    b"\xff\xf7\x2d\x02\x00\xff\xc1\x15" + bytes(10) + b"123456789012\x00mysql_native_password\x00"
)
OK = b"\x00\x00\x00\x02\x00\x00\x00"

Script = Callable[[socket.socket], None]


def packet(payload: bytes, number: int) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def receive_packet(client: socket.socket) -> bytes:
    head = client.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionResetError
    return client.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)


def let_in(client: socket.socket) -> None:
    """Greet a client and agree to everything up to our session's settings."""
    client.sendall(packet(GREETING, 0))
    receive_packet(client)
    client.sendall(packet(OK, 2))
    receive_packet(client)  # SET NAMES
    client.sendall(packet(OK, 1))
    receive_packet(client)  # two statements of ours
    more = OK[:3] + b"\x0a" + OK[4:]
    client.sendall(packet(more, 1) + packet(OK, 2))


@contextmanager
def scripted_server(script: Script) -> Iterator[NodeUrl]:
    """A server that does to each client what a script says."""
    listener = socket.create_server(("127.0.0.1", 0))
    clients: list[socket.socket] = []

    def serve(client: socket.socket) -> None:
        with suppress(OSError):
            script(client)
            while client.recv(65536):  # silent, until the client leaves
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _address = listener.accept()
                clients.append(client)
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield NodeUrl(engine="mysql", user="u", password="p€", host="127.0.0.1", port=listener.getsockname()[1])
    finally:
        for each in (listener, *clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def sessions_to(url: NodeUrl, **pool: int) -> Sessions:
    login = Login(url, TlsConfig(), DeadlineConfig(connect_seconds=5.0))
    return Sessions("scripted", login, PoolConfig(**pool) if pool else PoolConfig())


def ask(connection: DeadlineConnection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return len(cursor.fetchall())


def repeated_calls() -> float:
    labels = {"cause": "connection_broken"}
    return REGISTRY.get_sample_value("schemaless_repeats_total", labels) or 0.0


@contextmanager
def locked(store: Datastore, server_engine: ServerEngine, stores: Stores, shard: int) -> Iterator[None]:
    """Another session holds the counter row of a shard."""
    with stores.clusters(server_engine)[0].primary.connect() as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {store.config.datastore}_meta.shard_state WHERE shard = {shard} FOR UPDATE")
        yield
        holder.rollback()


def one_cluster(stores: Stores, server_engine: ServerEngine, **options: object) -> Datastore:
    config = stores.config(server_engine, shards=SHARDS, **options)
    del config["clusters"]["b"]
    store = Datastore.open(config)
    store.create_schema()
    return store


def test_a_deadline_a_little_longer_than_the_last_ones_is_no_broken_connection(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with one_cluster(stores, server_engine) as store:
        free, waiting = keys_in(store, 0), keys_in(store, 1)
        store.put_cell(next(free), "BASE", 1, "warm")
        repeated = repeated_calls()
        with locked(store, server_engine, stores, 1):
            for more_seconds in (0.001, 0.005, 0.009):
                store.using(deadline=0.3).put_cell(next(free), "BASE", 1, "leaves its time-out at the socket")
                with pytest.raises(NodeUnavailable, match="deadline") as caught:
                    store.using(deadline=0.3 + more_seconds).put_cell(next(waiting), "BASE", 1, "waits")
                assert caught.value.is_timeout
        assert repeated_calls() == repeated


def test_who_waited_for_the_pool_still_has_its_deadline_for_connecting(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The call before missed its deadline, so its connection is gone and the next one must open its own."""
    pool = {"size": 1, "overflow": 0}
    with one_cluster(stores, server_engine, pool=pool) as store, ThreadPoolExecutor(1) as thread:
        free, waiting = keys_in(store, 0), keys_in(store, 1)
        store.put_cell(next(free), "BASE", 1, "warm")
        with locked(store, server_engine, stores, 1):
            blocked = thread.submit(store.using(deadline=0.5).put_cell, next(waiting), "BASE", 1, "waits")
            time.sleep(0.1)
            assert store.using(deadline=0.3).put_cell(next(free), "BASE", 1, "in time").status == "CREATED"
            assert isinstance(blocked.exception(), NodeUnavailable)


def test_an_answer_that_keeps_coming_ends_with_the_deadline() -> None:
    def endless(client: socket.socket) -> None:
        let_in(client)
        receive_packet(client)
        column = b"\x03def\x00\x00\x00\x011\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x81\x00\x00\x00\x00"
        client.sendall(packet(b"\x01", 1) + packet(column, 2) + packet(b"\xfe\x00\x00\x02\x00", 3))
        number = 4
        while True:
            client.sendall(b"".join(packet(b"\x011", (number + n) % 256) for n in range(64)))
            number += 64

    with scripted_server(endless) as url:
        started = time.monotonic()
        with pytest.raises(NodeUnavailable, match="deadline"):
            sessions_to(url).run(ask, Deadline(0.25))
        assert time.monotonic() - started < 0.25 + SLACK_SECONDS


def test_a_greeting_that_trickles_ends_with_the_deadline() -> None:
    def trickle(client: socket.socket) -> None:
        for byte in packet(GREETING, 0):
            client.sendall(bytes([byte]))
            time.sleep(0.05)

    with scripted_server(trickle) as url:
        started = time.monotonic()
        with pytest.raises(NodeUnavailable):
            sessions_to(url).run(ask, Deadline(0.25))
        assert time.monotonic() - started < 0.25 + SLACK_SECONDS


def test_silent_addresses_of_a_host_share_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` does, a name may stand for several addresses."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] * 4
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: found)
        url = NodeUrl(engine="mysql", user="u", password="p", host="four-addresses", port=port)
        started = time.monotonic()

        with pytest.raises(NodeUnavailable):
            sessions_to(url).run(ask, Deadline(0.4))

        assert time.monotonic() - started < 0.4 + SLACK_SECONDS
        for filler in fillers:
            filler.close()


def test_a_connection_that_is_refused_its_settings_is_closed() -> None:
    opened: list[socket.socket] = []

    def refuse(client: socket.socket) -> None:
        opened.append(client)
        client.sendall(packet(GREETING, 0))
        receive_packet(client)
        client.sendall(packet(OK, 2))
        receive_packet(client)
        client.sendall(packet(OK, 1))
        receive_packet(client)
        client.sendall(packet(b"\xff\xa9\x04#HY000Unknown system variable", 1))
        assert client.recv(1) == b""
        opened.remove(client)

    with scripted_server(refuse) as url:
        for _ in range(5):
            with pytest.raises(NodeUnavailable, match="1193"):
                sessions_to(url).run(ask, Deadline(2.0))
        wait_until("the server has seen all of them leave", lambda: not opened)


#: Of every type that PyMySQL reads in a way of its own, with names and without.
ANSWER = """\
SELECT 1 AS one, 18446744073709551615 AS large, 1.5 AS `decimal`, 1e0 AS `double`, NULL AS nothing, 'ø' AS `naïve`,
 x'00ff' AS bytes, CAST('ø' AS BINARY) AS as_bytes, TIMESTAMP '2026-01-02 03:04:05.000006' AS moment,
 DATE '2026-01-02' AS day, TIME '-11:12:13.5' AS duration, b'101' AS bits, JSON_ARRAY('ø', 1) AS json,
 s.shard, s.state, 1, 'a' AS one FROM {state} s WHERE s.shard = 0"""


def test_what_a_failed_call_left_open_is_not_committed_by_the_next(server_engine: ServerEngine, stores: Stores) -> None:
    """The next packet begins by BEGIN, which commits whatever is open on its connection (I1, I2)."""
    with one_cluster(stores, server_engine) as store:
        url = parse_node_url("primary", stores.clusters(server_engine)[0].primary.url)
        sessions = sessions_to(url, size=1, overflow=0)
        table = f"{store.config.datastore}_0000.cell"

        def fail(connection: DeadlineConnection) -> None:
            with connection.cursor() as cursor:
                cursor.execute(f"BEGIN; INSERT INTO {table} VALUES (9, '0123456789abcdef', 'BASE', 1, '1', NOW(6))")
                cursor.nextset()
                cursor.execute("SELECT 1 FROM no_database.no_table")

        def commit(connection: DeadlineConnection) -> int:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN; COMMIT")
                cursor.nextset()
                return connection.session_number

        before = sessions.write(commit, Deadline(10.0))
        with pytest.raises(SchemaMissing):
            sessions.write(fail, Deadline(10.0))

        assert sessions.write(commit, Deadline(10.0)) == before  # the connection is as good as ever
        assert store.get_cells_for_shard(0, 0, 10).cells == []
        sessions.close()


def test_columns_are_what_the_driver_itself_takes_them_for(server_engine: ServerEngine, stores: Stores) -> None:
    primary = stores.clusters(server_engine)[0].primary
    with one_cluster(stores, server_engine) as store, primary.connect() as theirs, theirs.cursor() as cursor:
        answer = ANSWER.format(state=f"{store.config.datastore}_meta.shard_state")
        cursor.execute(answer)
        expected = cursor.fetchone()
        ours = connect(Login(parse_node_url("primary", primary.url), TlsConfig(), DeadlineConfig()), Deadline(5))
        with ours, ours.cursor(DictCursor) as named, ours.cursor() as plain:
            named.execute(answer)
            plain.execute(answer)

            assert expected is not None
            assert named.fetchone() == expected
            assert plain.fetchone() == tuple(expected.values())


def test_a_connection_that_comes_back_to_a_closed_store_is_closed(server_engine: ServerEngine, stores: Stores) -> None:
    with one_cluster(stores, server_engine) as store, ThreadPoolExecutor(1) as thread:
        next_row = keys_in(store, 1)
        store.put_cell(next(next_row), "BASE", 1, "warm")
        with locked(store, server_engine, stores, 1):
            blocked = thread.submit(store.using(deadline=20.0).put_cell, next(next_row), "BASE", 1, "in flight")
            time.sleep(0.1)
            store.close()
        assert blocked.result().status == "CREATED"
        assert store.clusters["a"].primary.node._sessions._pool._idle == []  # type: ignore[attr-defined]  # this very node's


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    path = folder / "ca.pem"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize("verify_hostname", [True, False])
def test_with_an_authority_the_servers_certificate_is_verified(tmp_path: Path, verify_hostname: bool) -> None:
    url = NodeUrl(engine="mysql", user="u", password="p", host="127.0.0.1", port=3306)
    tls = TlsConfig(ca=str(certificate(tmp_path)), verify_hostname=verify_hostname)

    context = unconnected(Login(url, tls, DeadlineConfig())).ctx  # type: ignore[attr-defined]  # the stubs leave it out

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, verify_hostname)


#: A server that asks for the password itself: nothing else tells it from one that is broken into.
ASKING = {"clear": b"\xfemysql_clear_password\x00", "dialog": b"\xfedialog\x00\x04Password: "}


def asking(plugin: str, heard: list[bytes]) -> Script:
    def ask_for_it(client: socket.socket) -> None:
        client.sendall(packet(GREETING, 0))
        receive_packet(client)
        client.sendall(packet(ASKING[plugin], 2))
        heard.append(receive_packet(client))

    return ask_for_it


def log_in(url: NodeUrl) -> None:
    sessions_to(url).run(ask, Deadline(5.0))


def log_in_to_control(url: NodeUrl) -> None:
    with closing(ControlDatabase(url, "trips", TlsConfig(), 1.0)) as control, control.begin():
        pass


@pytest.mark.parametrize("plugin", ASKING)
@pytest.mark.parametrize("call", [log_in, log_in_to_control])
def test_no_password_goes_over_a_bare_connection(plugin: str, call: Callable[[NodeUrl], None]) -> None:
    heard: list[bytes] = []
    with (
        scripted_server(asking(plugin, heard)) as url,
        pytest.raises(InvalidServer, match="asks for the password in plain text"),
    ):
        call(url)

    assert "p€".encode() not in b"".join(heard)


@pytest.mark.parametrize("plugin", ASKING)
def test_control_the_driver_itself_gives_it(plugin: str) -> None:
    heard: list[bytes] = []
    with scripted_server(asking(plugin, heard)) as url, suppress(err.MySQLError):
        password = url.password.encode()
        Connection(host=url.host, port=url.port, user="u", password=password, ssl_disabled=True, read_timeout=1)

    assert "p€".encode() in b"".join(heard)


def test_a_session_says_whose_it_is(server_engine: ServerEngine, stores: Stores) -> None:
    """What a server shows of it where its performance schema is on. Control: a login that names no datastore."""
    with Datastore.open(stores.config(server_engine, shards=1)) as store:
        node = store.clusters["a"].primary.node
        assert isinstance(node, MySQLNode)
        with closing(node._sessions._pool._connect(Deadline(5))) as connection:
            said = connection._connect_attrs["program_name"]  # type: ignore[attr-defined]  # the stubs leave it out
    anonymous = unconnected(
        Login(parse_node_url("primary", stores.clusters(server_engine)[0].primary.url), TlsConfig(), DeadlineConfig())
    )

    assert said == f"tripstore {store.config.datastore}"
    assert anonymous._connect_attrs["program_name"] == "tripstore"  # type: ignore[attr-defined]  # as above
