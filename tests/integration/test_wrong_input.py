"""Wrong input of every kind: one sentence that names the thing, a way out, no password, and nothing written."""

from __future__ import annotations

import contextlib
import copy
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    Cell,
    CellKey,
    CellStore,
    ColumnKey,
    ControlUnavailable,
    Datastore,
    InvalidCell,
    InvalidConfig,
    InvalidServer,
    NodeUnavailable,
    SchemalessError,
    SchemaMissing,
    Unavailable,
)
from tests.factories import make_cell
from tests.integration.written import Written
from tests.stores import ServerEngine, Stores
from tripstore.local.ports import free_port
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

#: A server that does not answer is given up soon.
IMPATIENT = {"connect_seconds": 0.3, "put_seconds": 1.0, "read_seconds": 1.0}

ROW = UUID(int=1)

Config = dict[str, Any]


@contextlib.contextmanager
def refused(kind: type[SchemalessError], *words: str, config: Mapping[str, Any] | None = None) -> Iterator[None]:
    """The block raises exactly this error of ours: one sentence with these words, a hint, and no password."""
    with pytest.raises(SchemalessError) as raised:
        yield
    error = raised.value
    assert type(error) is kind, repr(error)
    assert "\n" not in error.message
    assert error.message.endswith(".")
    assert error.hint
    for word in words:
        assert word in str(error)
    for password in _passwords(config or {}):
        assert password not in "".join(_texts(error))


def _texts(error: BaseException | None) -> Iterator[str]:
    """What a log would show: the error and whatever it came from."""
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def _passwords(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _passwords(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _passwords(inner)
    elif isinstance(value, str) and (password := urlsplit(value).password if "://" in value else None):
        yield password


def with_password(url: str, password: str) -> str:
    return url.replace(f":{urlsplit(url).password}@", f":{password}@")


def at_port(url: str, port: int) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{port}")


def everything_refuses(
    config: Config, kind: type[SchemalessError], *words: str, written: Written | None = None
) -> None:
    """Creation, reads and writes all meet the same error, and leave the servers as they were."""
    written = written or Written(config)
    before = written.now(), written.cells()
    with Datastore.open(config) as datastore:
        with refused(kind, *words, config=config):
            datastore.create_schema()
        with refused(kind, *words, config=config):
            datastore.get_cell_latest(ROW, "BASE")
        with refused(kind, *words, config=config):
            datastore.put_cell(ROW, "BASE", 1, "body")
    assert (written.now(), written.cells()) == before


# ------------------------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shard": 8}, ["shard", "Did you mean shards?"]),
        ({"clusters": {"a": {"primary": "mysql://u:S3cr3t@h:port"}}}, ["clusters.a.primary", "mysql://"]),
        ({"clusters": {"a": {"primary": "postgresql://u:S3cr3t@h:5432"}}}, ["clusters.a.primary", "postgresql"]),
        ({"clusters": "mysql://u:S3cr3t@h"}, ["clusters", "primary"]),
        ({"control": "u:S3cr3t@h"}, ["control", "mysql://"]),
        ({"shards": 0}, ["shards", "0"]),
        ({"shards": True}, ["shards", "True"]),
        ({"datastore": "Trips!"}, ["datastore", "Trips!"]),
        ({"deadlines": {"put_seconds": "soon"}}, ["deadlines.put_seconds", "'soon'"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, Mapping) else "",
)
def test_a_configuration_that_cannot_be_is_refused_before_anything_is_opened(
    stores: Stores, changes: Config, words: list[str]
) -> None:
    config = stores.config("sqlite") | changes

    with refused(InvalidConfig, *words, config={"password": "mysql://u:S3cr3t@h"}):
        Datastore.open(config)

    assert Written(stores.config("sqlite")).now() == []


# ------------------------------------------------------------------------------------------------------- logins


def test_a_wrong_password_is_told_and_not_shown(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    wrong = copy.deepcopy(config)
    wrong["clusters"]["a"]["primary"] = with_password(config["clusters"]["a"]["primary"], "wr0ng-passw0rd")

    everything_refuses(wrong, InvalidServer, "password", written=Written(config))


def test_a_wrong_password_on_the_last_server_keeps_the_first_untouched(
    server_engine: ServerEngine, stores: Stores
) -> None:
    config = stores.config(server_engine)
    wrong = copy.deepcopy(config)
    wrong["clusters"]["b"]["primary"] = with_password(config["clusters"]["b"]["primary"], "wr0ng-passw0rd")

    with Datastore.open(wrong) as datastore, refused(InvalidServer, "password or user is wrong", config=wrong):
        datastore.create_schema()

    assert Written(config).now() == []


def test_a_wrong_password_of_the_control_database_is_told(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    config["control"] = with_password(config["clusters"]["a"]["primary"], "wr0ng-passw0rd")

    everything_refuses(config, InvalidServer, "control database", "login is refused")


def test_a_user_without_rights_is_told(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    server = stores.clusters(server_engine)[0].primary
    server.query("CREATE USER guest@'127.0.0.1' IDENTIFIED BY 'gu3st-passw0rd'")
    guest = copy.deepcopy(config)
    guest["clusters"]["a"]["primary"] = f"mysql://guest:gu3st-passw0rd@127.0.0.1:{server.port}"

    try:
        with Datastore.open(guest) as datastore, refused(InvalidServer, "guest", config=guest):
            datastore.create_schema()
    finally:
        server.query("DROP USER guest@'127.0.0.1'")

    assert Written(config).now() == []


# -------------------------------------------------------------------------------------- what is no server of ours


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


def test_a_port_where_nobody_listens_is_refused(half_wrong: Callable[[int], tuple[Config, Written]]) -> None:
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


# --------------------------------------------------------------------------------------- the number of shards


@pytest.fixture(scope="session")
def created(stores: Stores) -> Callable[[str], Config]:
    """The configuration of a datastore of four shards with one cell in each of many rows; one per engine."""
    made: dict[str, Config] = {}

    def make(engine: str) -> Config:
        if engine not in made:
            made[engine] = stores.config(engine, shards=4)
            with Datastore.open(made[engine]) as datastore:
                datastore.create_schema()
                datastore.put_cells([make_cell() for _ in range(20)])
        return copy.deepcopy(made[engine])

    return make


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_than_created_is_refused(
    datastore_engine: str, created: Callable[[str], Config], shards: int
) -> None:
    config = created(datastore_engine) | {"shards": shards}

    everything_refuses(config, InvalidConfig, f"shards: is {shards}", "created with 4", "Write shards: 4.")


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_is_refused_by_the_servers_when_the_control_database_is_gone(
    datastore_engine: str, created: Callable[[str], Config], shards: int
) -> None:
    config = created(datastore_engine) | {"shards": shards, "control": _nowhere()}
    written = Written(config)
    before = written.now(), written.cells()

    with Datastore.open(config) as datastore:
        with refused(InvalidConfig, "created with 4", config=config):
            datastore.get_cell_latest(ROW, "BASE")
        with refused(InvalidConfig, "created with 4", config=config):
            datastore.put_cell(ROW, "BASE", 1, "body")
    with Datastore.open(config) as datastore, refused(ControlUnavailable, "control database", config=config):
        datastore.create_schema()

    assert (written.now(), written.cells()) == before


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_is_refused_by_the_servers_when_the_control_database_is_another(
    datastore_engine: str, created: Callable[[str], Config], shards: int, tmp_path: Path
) -> None:
    config = created(datastore_engine) | {"shards": shards, "control": f"sqlite:///{tmp_path}/new"}

    everything_refuses(config, InvalidConfig, f"shards: is {shards}", "created with 4", "Write shards: 4.")

    assert not (tmp_path / "new").exists()


def _nowhere() -> str:
    return f"mysql://root:S3cr3t@127.0.0.1:{free_port()}"


# --------------------------------------------------------------------------------------------- keys and bodies

TOO_LARGE = "x" * (4 * 1024 * 1024 - 1)  # with its quotes one byte over

BAD_BODIES: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": [float("inf")],
    "an int over 64 bits": {"n": 2**64},
    "an int under 64 bits": -(2**63) - 1,
    "bytes": b"bytes",
    "a tuple": (1, 2),
    "a set": {1},
    "a UUID": [uuid4()],
    "a time": datetime(2026, 1, 1, tzinfo=UTC),
    "a decimal": Decimal("1.5"),
    "an int as a key": {1: "one"},
    "a lone surrogate": ["\ud800"],
    "one byte too many": TOO_LARGE,
}
BAD_ROWS: dict[str, Any] = {"a UUID as text": str(ROW), "bytes": ROW.bytes, "no row key": None}
BAD_NAMES: dict[str, Any] = {
    "an empty name": "", "65 bytes": "x" * 65, "an unprintable name": "a\nb", "a surrogate": "\ud800",
    "bytes as a name": b"BASE", "no name": None,
}  # fmt: skip
BAD_REFS: dict[str, Any] = {
    "a bool as ref key": True, "a ref key over int64": 2**63, "a ref key under int64": -(2**63) - 1,
    "a float as ref key": 1.0, "text as ref key": "1", "no ref key": None,
}  # fmt: skip

Call = Callable[[CellStore], object]


def _bad_body(body: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(ROW, "BASE", 1, body),
        lambda store: store.put_cells([make_cell(), make_cell(body=body)]),
        lambda store: store.append_cell(ROW, "BASE", body),
    ]


def _bad_row(row_key: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(row_key, "BASE", 1, "body"),
        lambda store: store.put_cells([make_cell(), Cell(row_key, "BASE", 1, "body")]),
        lambda store: store.append_cell(row_key, "BASE", "body"),
        lambda store: store.get_cell(row_key, "BASE", 1),
        lambda store: store.get_cell_latest(row_key, "BASE"),
        lambda store: store.get_cells([CellKey(ROW, "BASE", 1), CellKey(row_key, "BASE", 1)]),
        lambda store: store.get_cells_latest([ColumnKey(ROW, "BASE"), ColumnKey(row_key, "BASE")]),
        lambda store: store.get_row(row_key),
        lambda store: store.get_history(row_key, "BASE"),
        lambda store: store.shard_of(row_key),
    ]


def _bad_name(name: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(ROW, name, 1, "body"),
        lambda store: store.put_cells([make_cell(), make_cell(column_name=name)]),
        lambda store: store.append_cell(ROW, name, "body"),
        lambda store: store.get_cell(ROW, name, 1),
        lambda store: store.get_cell_latest(ROW, name),
        lambda store: store.get_cells([CellKey(ROW, name, 1)]),
        lambda store: store.get_cells_latest([ColumnKey(ROW, name)]),
        lambda store: store.get_row(ROW, ["BASE", name]),
        lambda store: store.get_history(ROW, name),
        lambda store: store.scan_rows(0, columns=[name]),
        lambda store: store.checksum(0, [name]),
    ]


def _bad_ref(ref_key: Any) -> list[Call]:
    calls: list[Call] = [
        lambda store: store.put_cell(ROW, "BASE", ref_key, "body"),
        lambda store: store.put_cells([make_cell(), make_cell(ref_key=ref_key)]),
        lambda store: store.get_cell(ROW, "BASE", ref_key),
        lambda store: store.get_cells([CellKey(ROW, "BASE", ref_key)]),
    ]
    if ref_key is not None:  # to these None says something
        calls.append(lambda store: store.put_cell(ROW, "BASE", 1, "body", expect_latest=ref_key))
        calls.append(lambda store: store.get_history(ROW, "BASE", before=ref_key))
    return calls


BAD_CALLS: dict[str, list[Call]] = {
    **{f"body: {name}": _bad_body(value) for name, value in BAD_BODIES.items()},
    **{f"row key: {name}": _bad_row(value) for name, value in BAD_ROWS.items()},
    **{f"column: {name}": _bad_name(value) for name, value in BAD_NAMES.items()},
    **{f"ref key: {name}": _bad_ref(value) for name, value in BAD_REFS.items()},
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_what_no_cell_may_have_is_refused_by_every_call_and_nothing_is_written(store: CellStore, case: str) -> None:
    before = _heads(store)

    for call in BAD_CALLS[case]:
        with refused(InvalidCell):
            call(store)

    assert _heads(store) == before


@pytest.mark.parametrize("case", BAD_CALLS)
def test_what_no_cell_may_have_is_refused_before_a_server_is_asked(case: str) -> None:
    """With nobody to ask, whatever asks fails as unavailable."""
    config = {"datastore": "trips", "shards": 4, "clusters": {"a": {"primary": _nowhere()}}}

    with Datastore.open(config) as unreachable:
        for call in BAD_CALLS[case]:
            with refused(InvalidCell):
                call(unreachable)


def _heads(store: CellStore) -> list[int]:
    return [page.head for page in store.get_cells_for_shards(dict.fromkeys(range(8), 0), 1).values()]


# ------------------------------------------------------------------------------------------------ unfit servers


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


# ---------------------------------------------------------------------------------------- what was not created


CALLS: dict[str, Call] = {
    "get_cell": lambda store: store.get_cell(ROW, "BASE", 1),
    "get_cell_latest": lambda store: store.get_cell_latest(ROW, "BASE"),
    "get_cells": lambda store: store.get_cells([CellKey(ROW, "BASE", 1)]),
    "get_cells_latest": lambda store: store.get_cells_latest([ColumnKey(ROW, "BASE")]),
    "get_row": lambda store: store.get_row(ROW),
    "get_history": lambda store: store.get_history(ROW, "BASE"),
    "get_cells_for_shard": lambda store: store.get_cells_for_shard(0, 0, 1),
    "get_cells_for_shards": lambda store: store.get_cells_for_shards({0: 0, 1: datetime.now(UTC)}, 1),
    "scan_rows": lambda store: store.scan_rows(0),
    "checksum": lambda store: store.checksum(0),
    "put_cell": lambda store: store.put_cell(ROW, "BASE", 1, "body"),
    "put_cells": lambda store: store.put_cells([make_cell()]),
    "append_cell": lambda store: store.append_cell(ROW, "BASE", "body"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_before_the_schema_was_created_says_how_to_create_it(
    datastore_engine: str, stores: Stores, verb: str
) -> None:
    config = stores.config(datastore_engine)
    written = Written(config)

    with Datastore.open(config) as datastore, refused(SchemaMissing, "schema apply", config=config):
        CALLS[verb](datastore)

    assert written.now() == []


def test_a_look_into_an_existing_folder_makes_no_file(stores: Stores) -> None:
    config = stores.config("sqlite")
    for cluster in config["clusters"].values():
        Path(cluster["primary"].removeprefix("sqlite:///")).mkdir(parents=True)

    with Datastore.open(config) as datastore, refused(SchemaMissing, "schema apply"):
        datastore.get_cell(ROW, "BASE", 1)
    with Datastore.open(config) as datastore:
        assert not datastore.schema.plan().is_done

    assert Written(config).now() == []


def test_a_configuration_without_a_cluster_that_holds_shards_is_refused(
    datastore_engine: str, created: Callable[[str], Config]
) -> None:
    config = created(datastore_engine)
    written = Written(copy.deepcopy(config))
    del config["clusters"]["b"]

    everything_refuses(config, InvalidConfig, "lacks 'b', which holds shards 2 to 3", "Add b:", written=written)


def test_without_that_cluster_and_the_control_database_its_shards_are_unavailable_and_the_others_are_not(
    datastore_engine: str, created: Callable[[str], Config]
) -> None:
    config = created(datastore_engine) | {"control": _nowhere()}
    del config["clusters"]["b"]

    with Datastore.open(config) as datastore:
        assert datastore.get_cells_for_shard(0, 0, 1).position.epoch == 1
        with refused(Unavailable, "shard 3", "cluster", config=config):
            datastore.get_cells_for_shard(3, 0, 1)


# ---------------------------------------------------------------------------------------- the control database


def test_nothing_is_created_without_the_control_database(datastore_engine: str, stores: Stores) -> None:
    config = stores.config(datastore_engine, control=_nowhere())

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
