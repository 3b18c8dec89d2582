"""`tripstore dev` starts servers that outlive the command, and ends them without a trace."""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pymysql
import pytest
import yaml
from click.testing import CliRunner, Result

from tripstore.cli.dev import dev
from tripstore.local.dev import FOLDER, DevFolder
from tripstore.local.mariadb import find_mariadb
from tripstore.local.processes import birth


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The process would let everybody read what it writes."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "dev"
    yield folder
    for place in (folder, folder / FOLDER):
        DevFolder(place).down()


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(dev, [*arguments, "--folder", str(folder)])


def document(result: Result) -> Any:
    return json.loads(result.stdout)


def test_up_status_and_down_go_round(folder: Path) -> None:
    if find_mariadb() is None:
        pytest.skip("mariadb is not installed; run `python -m tripstore.local.install`")
    first = run("up", "--clusters", "1", "--shards", "16", "--json", folder=folder)
    assert first.exit_code == 0, first.stderr
    up = document(first)
    config_file = Path(up["config"])
    config = yaml.safe_load(config_file.read_text(encoding="utf-8"))

    assert [server["name"] for server in up["servers"]] == ["postgres", "a", "a-r1"]
    assert config["shards"] == 16
    assert list(config["clusters"]) == ["a"]
    assert len(config["clusters"]["a"]["replicas"]) == 1
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert readable_by_others(Path(json.loads((folder / "state.json").read_text())["data"])) == []

    again = document(run("up", "--clusters", "1", "--shards", "16", "--json", folder=folder))
    assert not again["changed"]
    assert again["servers"] == up["servers"]

    status = run("status", "--json", folder=folder)
    assert status.exit_code == 0
    assert all(server["up"] for server in document(status)["servers"])

    down = run("down", "--json", folder=folder)
    assert document(down)["changed"]
    assert all(birth(server["pid"]) is None for server in up["servers"])
    assert not config_file.exists()
    assert run("status", folder=folder).exit_code == 1


def test_status_sees_one_server_down(folder: Path) -> None:
    if find_mariadb() is None:
        pytest.skip("mariadb is not installed; run `python -m tripstore.local.install`")
    up = document(run("up", "--clusters", "1", "--replicas", "0", "--no-postgres", "--json", folder=folder))
    os.kill(up["servers"][0]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (status := run("status", folder=folder)).exit_code == 0 and time.monotonic() < deadline:
        time.sleep(0.02)

    assert status.exit_code == 1
    assert "down" in status.stdout
    # The text is for looking at: no passwords.
    assert up["servers"][0]["url"] not in status.stdout


def test_a_killed_owner_is_noticed_and_up_starts_anew(folder: Path) -> None:
    before = document(run("up", "--engine", "sqlite", "--no-postgres", "--json", folder=folder))
    state = DevFolder(folder).find()
    assert state is not None
    os.kill(state.owner_pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while DevFolder(folder).find() is not None and time.monotonic() < deadline:
        time.sleep(0.02)

    after = document(run("up", "--engine", "sqlite", "--no-postgres", "--json", folder=folder))

    assert after["changed"]
    assert after["servers"][0]["url"] != before["servers"][0]["url"]
    assert before["servers"][0]["url"].startswith("sqlite:///")


@pytest.mark.parametrize("umask", [0, 0o077])
def test_what_dev_up_writes_is_its_owners_alone(folder: Path, umask: int) -> None:
    """Whatever an earlier version left: state and configuration hold passwords, the log what
    servers say of statements.
    """
    folder.mkdir()
    (folder / "owner.log").write_text("of an earlier version")
    (folder / "owner.log").chmod(0o644)
    os.umask(umask)
    up = run("up", "--engine", "sqlite", "--json", folder=folder)
    assert up.exit_code == 0, up.stderr
    os.umask(0)
    (folder / "control").write_text("a file that is simply written is everybody's")
    state = DevFolder(folder).find()
    assert state is not None

    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert found.pop("control") == 0o666
    assert found == dict.fromkeys(("tripstore.yaml", "state.json", "owner.log", "lock"), 0o600)
    assert readable_by_others(Path(state.data)) == []


def readable_by_others(folder: Path) -> list[Path]:
    """Files that another user reaches who knows their names: servers of other users pass through the folder."""
    found = list[Path]()
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
            found += readable_by_others(path)
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            found.append(path)
    return found


def test_without_servers_status_fails_and_down_is_fine(folder: Path) -> None:
    assert run("status", folder=folder).exit_code == 1
    assert run("down", folder=folder).exit_code == 0
    assert run("up", "--engine", "oracle", folder=folder).exit_code == 2


def test_the_company_has_a_database_and_the_servers_are_found_from_below(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "src" / "app"
    below.mkdir(parents=True)
    monkeypatch.chdir(folder)
    runner = CliRunner()
    up = runner.invoke(dev, ["up", "--engine", "sqlite"])
    monkeypatch.chdir(below)

    line = runner.invoke(dev, ["env"]).stdout
    url = subprocess.run(["bash", "-c", f"{line}echo $COMPANY"], capture_output=True, text=True, check=True).stdout
    psycopg2.connect(url.strip()).close()

    assert 'eval "$(tripstore dev env)"' in up.stdout
    assert url.strip() not in up.stdout
    assert runner.invoke(dev, ["status"]).exit_code == 0
    assert document(runner.invoke(dev, ["env", "--json"])) == {"company": url.strip()}
    assert document(runner.invoke(dev, ["status", "--json"]))["company"] == url.strip()
    assert runner.invoke(dev, ["down"]).stdout == "The servers are gone.\n"
    # Nothing is up any more, and the sentence says where it looked.
    gone = runner.invoke(dev, ["env"])
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert f"No servers are up in {(folder / '.tripstore-dev').resolve()};" in gone.stderr


def test_without_postgres_there_is_no_database_to_name(folder: Path) -> None:
    run("up", "--engine", "sqlite", "--no-postgres", folder=folder)

    ran = run("env", folder=folder)

    assert (ran.exit_code, ran.stderr) == (1, "They were started with --no-postgres.\n")


def test_what_hinders_the_start_is_said_with_a_way_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))

    result = run("up", "--engine", "mysql", "--no-postgres", folder=folder)

    assert result.exit_code == 1
    assert "MySQL is not installed" in result.stderr
    assert "tripstore.local.install" in result.stderr
    assert result.stdout == ""
    assert not (folder / "state.json").exists()


def test_the_config_leads_to_the_servers(folder: Path) -> None:
    if find_mariadb() is None:
        pytest.skip("mariadb is not installed; run `python -m tripstore.local.install`")
    up = document(run("up", "--clusters", "1", "--replicas", "0", "--no-postgres", "--json", folder=folder))
    server = up["servers"][0]
    password = server["url"].partition("root:")[2].partition("@")[0]

    pymysql.connect(host="127.0.0.1", port=server["port"], user="root", password=password).close()
