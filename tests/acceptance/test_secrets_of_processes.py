"""The list of processes shows no secret: every user reads command lines, and a child gets its parent's environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration, copied, migration_template
from tests.chaos.actors import wait_until
from tests.promoted import promotable
from tests.stores import ServerEngine
from tripstore.local.postgres_programs import find_machine_postgres
from tripstore.local.servers import LocalServers

#: The command itself, as its user has it: its process is named by its own command line.
TRIPSTORE = Path(sys.executable).with_name("tripstore")
#: Put before all else that a Python imports: it writes down each program that the process starts, with its environment.
WRITES_DOWN = """
import os, sys

def heard(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        with open(os.environ["STARTED_PROGRAMS"], "a") as file:
            file.write(repr(arguments) + "\\n")

sys.addaudithook(heard)
"""


def processes_of(pid: int) -> list[int]:
    """A process and all below it."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def shown(pids: list[int]) -> str:
    """What the list of processes says of these, environments too, as their own user sees it."""
    listed = ["ps", "ewww", "-o", "args=", "-p", ",".join(map(str, pids))]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


def passwords(text: str) -> set[str]:
    """Of all the URLs that stand somewhere."""
    return set(re.findall(r"://\w+:(\w+)@", text))


@contextmanager
def started(shell: Shell, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own name, until the block ends."""
    process = subprocess.Popen(
        [str(TRIPSTORE), *arguments],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def migration(
    servers: LocalServers, server_engine: ServerEngine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Migration]:
    """Both stores are servers with passwords, which stand in the configuration."""
    made = copied(migration_template(servers, tmp_path_factory), tmp_path / "own")
    with promotable(server_engine, tmp_path / "control", replicas=1, datastore="beside") as stores:
        document = yaml.safe_load((made.shell.folder / "tripstore.yaml").read_text())
        clusters = {"a": stores.document["clusters"]["a"]}
        own = {"clusters": clusters, "control": f"sqlite:///{tmp_path}/own-control"}
        (made.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(document | own))
        made.run("schema", "apply")
        yield made


def test_no_process_at_work_shows_a_password(migration: Migration) -> None:
    planted = passwords((migration.shell.folder / "tripstore.yaml").read_text())
    assert len(planted) == 2
    migration.run("phase", "set", "dualwrite")
    seen = ""
    with started(migration.shell, "worker", "run", "--workers", "2") as worker:
        wait_until("both work", lambda: len(processes_of(worker.pid)) > 2)
        wait_until("the groups are served", lambda: served(migration))
        seen += shown(processes_of(worker.pid))
    for command in ("serve", "console"):
        with started(migration.shell, command, "--port", "0") as front:
            assert front.stdout is not None
            assert any("Listening at" in line for line in front.stdout)
            seen += shown(processes_of(front.pid))

    assert {word for word in ("worker run", "serve", "console") if word not in seen} == set()
    assert {password for password in planted if password in seen} == set()
    with started_with(planted) as control:
        assert {password for password in planted if password in shown([control.pid])} == planted


def served(migration: Migration) -> bool:
    with migration.datastore() as datastore:
        return all(status.unserved == 0 for status in datastore.triggers.status("mirror:reverse"))


@contextmanager
def started_with(secrets: set[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The control: half of them on a command line, half in an environment."""
    first, *others = sorted(secrets)
    script = "import sys; sys.stdin.read()"
    environment = {f"PASSWORD{n}": each for n, each in enumerate(others)}
    with subprocess.Popen([sys.executable, "-c", script, first], env=environment, stdin=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_no_server_on_this_machine_is_started_with_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The servers of tests, of `demo` and of `dev up`, with all programs that make them: some end at once."""
    heard: list[str] = []

    class Heard(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            heard.append(f"{arguments} {options}")
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Heard)
    with LocalServers() as made:
        clusters = [made.cluster(engine, engine, replicas=1) for engine in ("mariadb", "mysql")]
        postgres = made.postgres("postgres", flavour="machine" if find_machine_postgres() else "any")
        others = [made.standby("standby", postgres), made.pgbouncer("pooler", postgres, "session")]
        of_clusters = [server for cluster in clusters for server in cluster.servers]
        planted = {server.password for server in (*of_clusters, postgres, *others)}
        at_work = shown([pid for server in (*of_clusters, postgres, *others) for pid in server.pids])
    said = "\n".join(heard)

    assert {
        word for word in ("mariadbd", "mysqld", "postgres", "pg_basebackup", "pgbouncer") if word not in said
    } == set()
    assert all(planted)
    assert {password for password in planted if password in said or password in at_work} == set()


def test_dev_up_starts_no_program_with_a_password(shell: Shell) -> None:
    (shell.folder / "sitecustomize.py").write_text(WRITES_DOWN)
    log = shell.folder / "programs"
    hearing = {"PYTHONPATH": f"{shell.folder}:{shell.environment.get('PYTHONPATH', '')}", "STARTED_PROGRAMS": str(log)}
    environment = shell.environment | hearing
    command = [str(TRIPSTORE), "dev", "up", "--clusters", "1", "--json"]
    up = subprocess.run(command, cwd=shell.folder, env=environment, capture_output=True, text=True, check=True)
    try:
        planted = passwords(up.stdout)
        said = log.read_text()
        assert "mariadbd" in said
        assert len(planted) == 2
        assert {password for password in planted if password in said} == set()
    finally:
        subprocess.run([str(TRIPSTORE), "dev", "down"], cwd=shell.folder, env=environment, check=True)
        shutil.rmtree(shell.folder / ".tripstore-dev", ignore_errors=True)
