"""Real servers on this machine do what other tests rely on: live, die, freeze, fill up, replicate, vanish."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from tests.absence import absent
from tripstore.local.binlog import BinlogServer
from tripstore.local.distribution import find_mysql
from tripstore.local.errors import LocalServerError
from tripstore.local.mariadb import find_mariadb
from tripstore.local.ports import free_port, release
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour, find_programs
from tripstore.local.processes import TOKEN_VARIABLE, Mark
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import Engine, LocalServers

ENGINES: tuple[Engine, ...] = ("mariadb", "mysql")

# An owner in a process of its own: says where its things are, then waits to be killed.
OWNER = """
import os, signal
from tripstore.local.servers import LocalServers
servers = LocalServers()
servers.cluster("mariadb", "a", replicas=0, disk_megabytes=256 if os.geteuid() == 0 else None)
servers.postgres().query("SELECT 1")
if os.fork() == 0:  # a forked child lives on, and must not keep the pipe open
    os.execvp("sleep", ["sleep", "60"])
print(servers.token, servers.folder, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServers]:
    with LocalServers() as servers:
        yield servers


@pytest.fixture(scope="module")
def clusters() -> dict[Engine, LocalCluster]:
    """Those that run already: with several test processes, an engine's turn may come more than once."""
    return {}


@pytest.fixture(scope="module", params=ENGINES)
def cluster(
    request: pytest.FixtureRequest, servers: LocalServers, clusters: dict[Engine, LocalCluster]
) -> LocalCluster:
    engine: Engine = request.param
    require(engine)
    if engine not in clusters:
        clusters[engine] = servers.cluster(engine, f"{engine}-cluster")
        clusters[engine].primary.query("CREATE DATABASE trips")
        clusters[engine].primary.query("CREATE TABLE trips.cells (id INT PRIMARY KEY AUTO_INCREMENT, body LONGBLOB)")
    return clusters[engine]


def require(engine: Engine) -> None:
    """Skip with the reason, except in CI, where a missing server is a failure."""
    found = find_mariadb() if engine == "mariadb" else find_mysql()
    if found is None:
        absent(f"{engine} is not installed; run `python -m tripstore.local.install`")


def insert(server: BinlogServer, body: bytes = b"{}") -> None:
    server.query("INSERT INTO trips.cells (body) VALUES (%s)", body)


def insert_many(server: BinlogServer, rows: int) -> None:
    for _ in range(rows):
        insert(server, bytes(7_000))


def count(server: BinlogServer) -> int:
    return int(str(server.query("SELECT COUNT(*) AS rows_there FROM trips.cells")[0]["rows_there"]))


def login(port: int, password: str, timeout_seconds: int = 1) -> None:
    pymysql.connect(
        host="127.0.0.1",
        port=port,
        user="root",
        password=password,
        connect_timeout=timeout_seconds,
        read_timeout=timeout_seconds,
    ).close()


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


# --- the end of the owner -----------------------------------------------------------------------------------


def start_owner() -> tuple[subprocess.Popen[str], Mark]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    token, folder = owner.stdout.readline().split()
    return owner, Mark(TOKEN_VARIABLE, token, Path(folder))


def kill_owner(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.wait()
    assert owner.stdout is not None
    owner.stdout.close()


def test_kill_9_of_the_owner_leaves_no_process_and_no_file() -> None:
    require("mariadb")
    owner, mark = start_owner()
    pids, mounts = mark.pids(), Path("/proc/mounts")

    # The control: as long as the owner lives, everything else does.
    assert len(pids) > 3
    assert mark.folder.exists()

    kill_owner(owner)

    wait_until(lambda: not mark.folder.exists())
    assert mark.pids() == []
    assert str(mark.folder) not in mounts.read_text(encoding="utf-8")


def test_the_janitor_outlives_signals_meant_for_the_owners_group() -> None:
    with LocalServers() as servers:
        janitor = servers.janitor_pid
        wait_until(lambda: b"janitor" in Path(f"/proc/{janitor}/cmdline").read_bytes())
        wait_until(lambda: ignores(janitor, signal.SIGTERM))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(janitor, number)
        folder = servers.folder
        (folder / "file").touch()

        assert os.getsid(janitor) != os.getsid(0)

    assert not folder.exists()


def test_closing_without_waiting_leaves_the_files_to_the_janitor() -> None:
    servers = LocalServers()
    mark = Mark(TOKEN_VARIABLE, servers.token, servers.folder)
    servers.mariadb("one", shards=1)

    servers.close(waits=False)

    wait_until(lambda: not mark.folder.exists() and not mark.pids())


#: As in a run of tests, what is there by then is not looked through for garbage before the process ends.
LEAVES = """
import gc
from tripstore.local.servers import LocalServers
LocalServers().close(waits=False)
gc.freeze()
"""
#: The control: a process whose end is waited for by no thread.
FORGETS = "import subprocess; subprocess.Popen(['sleep', '1'], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)"


@pytest.mark.parametrize(("program", "complains"), [(LEAVES, False), (FORGETS, True)], ids=["leaves", "control"])
def test_a_process_may_end_before_the_janitor_that_it_leaves(program: str, complains: bool) -> None:
    command = [sys.executable, "-W", "error", "-c", program]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ("is still running" in done.stderr) is complains, done.stderr


def test_closing_twice_is_fine_and_a_forked_child_closes_nothing() -> None:
    with LocalServers() as servers:
        child = os.fork()
        if child == 0:
            servers.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert servers.folder.exists()
    servers.close()


def ignores(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (number - 1) & 1)


# --- one server ---------------------------------------------------------------------------------------------


def test_a_server_says_which_engine_and_version_it_is(cluster: LocalCluster) -> None:
    expected = "MariaDB" if cluster.primary.engine == "mariadb" else "9."

    assert expected in cluster.primary.version


BIND = "import socket, sys; socket.socket().bind(('127.0.0.1', int(sys.argv[1])))"


def test_a_port_is_given_to_one_process_until_its_server_listens() -> None:
    port = free_port()

    other = subprocess.run([sys.executable, "-c", BIND, str(port)], capture_output=True, text=True, check=False)

    assert "Address already in use" in other.stderr
    with socket.create_server(("127.0.0.1", port)):
        assert port != free_port()
    release(port)
    subprocess.run([sys.executable, "-c", BIND, str(port)], check=True)


def test_a_killed_server_comes_back_with_its_data_on_its_port(cluster: LocalCluster) -> None:
    primary = cluster.primary
    insert(primary)
    before, port = count(primary), primary.port

    primary.kill()
    assert not primary.is_running
    assert primary.pids == []
    with pytest.raises(pymysql.OperationalError):
        login(port, primary.password)
    primary.start()

    assert (count(primary), primary.port) == (before, port)


def test_a_paused_server_accepts_and_is_silent_until_resumed(cluster: LocalCluster) -> None:
    primary = cluster.primary

    primary.pause()
    try:
        with pytest.raises(pymysql.OperationalError):
            login(primary.port, primary.password)
        assert primary.is_running
    finally:
        primary.resume()

    login(primary.port, primary.password, timeout_seconds=5)


def test_the_settings_are_durable_and_strict(cluster: LocalCluster) -> None:
    settings = cluster.primary.query(
        "SELECT @@sync_binlog AS sync_binlog, @@innodb_flush_log_at_trx_commit AS flush_log,"
        " @@binlog_format AS binlog_format, @@sql_mode AS sql_mode, @@max_connections AS connections"
    )[0]

    assert (settings["sync_binlog"], settings["flush_log"], settings["binlog_format"]) == (1, 1, "ROW")
    assert "STRICT_TRANS_TABLES" in str(settings["sql_mode"])
    assert settings["connections"] == 300


def test_a_server_that_cannot_start_says_what_its_log_says(servers: LocalServers) -> None:
    require("mariadb")

    with pytest.raises(LocalServerError, match="no_such_setting"):
        servers.mariadb("broken", settings={"no_such_setting": "1"})


def test_a_name_is_given_once(servers: LocalServers, cluster: LocalCluster) -> None:
    with pytest.raises(LocalServerError, match="already"):
        servers.mariadb(cluster.name)


# --- replication --------------------------------------------------------------------------------------------


def test_a_replica_gets_rows_also_after_restarts_of_either(cluster: LocalCluster) -> None:
    primary, replica = cluster.primary, cluster.replicas[0]
    insert(primary)
    cluster.wait_for_replicas()
    assert count(replica) == count(primary)

    primary.restart()
    insert(primary)
    cluster.wait_for_replicas()
    assert count(replica) == count(primary)

    replica.kill()
    insert(primary)
    replica.start()
    cluster.wait_for_replicas()
    assert count(replica) == count(primary)


def test_a_replica_is_read_only_and_has_an_id_of_its_own(cluster: LocalCluster) -> None:
    ids = {server.query("SELECT @@server_id AS id")[0]["id"] for server in cluster.servers}

    assert len(ids) == 2
    assert cluster.replicas[0].query("SELECT @@read_only AS read_only")[0]["read_only"] == 1


def test_a_paused_replica_is_missed(cluster: LocalCluster) -> None:
    replica = cluster.replicas[0]
    replica.query("STOP SLAVE SQL_THREAD" if replica.engine == "mariadb" else "STOP REPLICA SQL_THREAD")
    try:
        insert(cluster.primary)

        with pytest.raises(LocalServerError, match="did not reach"):
            cluster.wait_for_replicas(timeout_seconds=0.2)
    finally:
        replica.query("START SLAVE" if replica.engine == "mariadb" else "START REPLICA")
    cluster.wait_for_replicas()


# --- disk ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_refuses_inserts_until_it_is_freed(servers: LocalServers, engine: Engine) -> None:
    require(engine)
    make = servers.mariadb if engine == "mariadb" else servers.mysql
    server: BinlogServer = make(f"{engine}-small", disk_megabytes=256)
    server.query("CREATE DATABASE trips")
    server.query("CREATE TABLE trips.cells (id INT PRIMARY KEY AUTO_INCREMENT, body LONGBLOB)")
    insert(server)

    server.fill_disk()
    # Many, as the first ones find free pages. The control: with room for them all of these fit.
    with pytest.raises(pymysql.MySQLError):
        insert_many(server, 100)
    server.free_disk()

    before = count(server)
    insert_many(server, 100)
    assert count(server) == before + 100


def test_a_server_that_is_about_to_end_is_started_anew(cluster: LocalCluster) -> None:
    """As one that gave up on a full disk, whose process takes a moment to go."""
    server = cluster.primary
    server.pause()
    going = server.pid
    assert going is not None
    ending = threading.Timer(0.1, os.kill, (going, signal.SIGKILL))
    ending.start()

    server.start()

    ending.join()
    assert server.pid not in (None, going)
    assert server.query("SELECT 1") == [{"1": 1}]


def test_a_server_on_the_shared_disk_refuses_to_fill_it(cluster: LocalCluster) -> None:
    with pytest.raises(LocalServerError, match="no disk of its own"):
        cluster.primary.fill_disk()


# --- Postgres -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", ["machine", "wheel"])
def test_postgres_lives_dies_and_freezes_whole(servers: LocalServers, flavour: Flavour) -> None:
    try:
        find_programs(flavour, servers.folder)
    except LocalServerError as error:
        absent(error.message)
    server = servers.postgres(f"postgres-{flavour}", flavour=flavour)
    server.query("CREATE TABLE trips (id INT)")
    server.query("INSERT INTO trips VALUES (%s)", 1)

    server.kill()
    assert server.pids == []
    server.start()
    assert server.query("SELECT id FROM trips") == [{"id": 1}]
    assert server.query("SHOW wal_level") == [{"wal_level": "logical"}]

    server.pause()
    assert states(server) == {"T"}
    server.resume()
    server.restart()
    assert server.query("SELECT id FROM trips") == [{"id": 1}]
    server.stop()
    assert not server.is_running


def states(server: PostgresServer) -> set[str]:
    stats = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8") for pid in server.pids]
    assert len(stats) > 3
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def test_two_builders_of_one_template_do_not_disturb_each_other(tmp_path: Path) -> None:
    require("mariadb")
    script = "from tripstore.local.servers import LocalServers as L\nwith L() as s: s.mariadb('a')"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(2)]

    assert [one.wait() for one in both] == [0, 0]
    left = [path for path in (tmp_path / "tripstore/templates").iterdir() if path.is_dir()]
    assert [path.name.startswith("mariadb-") for path in left] == [True]
