"""Tasks on hosts of Dask, beside jobs: what passes a scheduler, an index that they fill, and who ends them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from schemaless_core import Cell, Datastore
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.errors import ControlUnavailable
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.crew import quick
from tests.dasks import DaskHosts, Recorder, dask_hosts
from tests.facades import migration
from tests.indexing import nothing_after_commit
from tests.mirrors import QUICK
from tests.stores import Stores
from tripstore.cli.elsewhere.presence import SILENT_SECONDS, Heeding, Presence
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

CELLS = 3_000
INDEX = {
    "table": "by_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}


def test_nothing_secret_passes_a_scheduler(servers: LocalServers, stores: Stores, tmp_path: Path) -> None:
    """Of what the command, the scheduler and a worker say to each other."""
    shell = Shell(tmp_path)
    moving = migration(servers, stores, engine="mariadb", shards=4, triggers=QUICK)
    with moving as made, dask_hosts(tmp_path / "dask") as hosts:
        made.legacy.sql("INSERT INTO trips (status) SELECT 'a secret state' FROM generate_series(1, 20)")
        made.legacy.sql("DELETE FROM tripstore.queue")
        made.phase(Phase.DUALWRITE)
        (tmp_path / "tripstore.yaml").write_text(yaml.safe_dump(dict(made.document)))
        urls = [made.legacy.url, *(each["primary"] for each in made.document["clusters"].values())]
        passwords = {found.group(1) for url in urls if (found := re.search(r"//[^:@/]+:([^@/]+)@", url))}
        assert passwords
        assert min(map(len, passwords)) >= 8, "the control: none is a word that is there by chance"
        with closing(Recorder((hosts.address.host, hosts.address.port))) as recorder:
            hosts.add(tmp_path / "tripstore.yaml", contact=f"tcp://127.0.0.1:{recorder.port}")
            hosts.wait_for(1)

            ran = shell.call("backfill", "start", "--on", f"dask://127.0.0.1:{recorder.port}", "--json")

            assert ran.code == 0, ran.stderr
            job = ran.document["job"]["job"]
            heard = recorder.heard
        assert ran.document["counts"]["rows"] == 20
        assert job.encode() in heard, "the control: it would be seen"
        for secret in (*passwords, "a secret state", "postgresql://", "mysql://"):
            assert secret.encode() not in heard


@pytest.fixture
def indexed(stores: Stores, tmp_path: Path) -> Iterator[tuple[Datastore, Path]]:
    """Cells, and an index that knows none of them."""
    config = {**stores.config("mariadb", shards=8), "triggers": quick(), "indexes": [INDEX]}
    file = tmp_path / "tripstore.yaml"
    file.write_text(yaml.safe_dump(config))
    with Datastore.open(file) as store, nothing_after_commit():
        store.create_schema()
        cells = [Cell(uuid4(), "BASE", 1, {"driver": f"driver {number % 50}"}) for number in range(CELLS)]
        for first in range(0, CELLS, 500):
            store.put_cells(cells[first : first + 500])
        assert store.indexes.create("by_driver") == 2
        yield store, file


@pytest.fixture
def hosts(indexed: tuple[Datastore, Path], tmp_path: Path) -> Iterator[DaskHosts]:
    with dask_hosts(tmp_path / "dask") as made:
        for _ in range(2):
            made.add(indexed[1])
        made.wait_for(2)
        yield made


def test_i6_tasks_fill_an_index_and_leave_it_to_the_workers(
    indexed: tuple[Datastore, Path], hosts: DaskHosts, tmp_path: Path
) -> None:
    store, _ = indexed
    shell, behind = Shell(tmp_path), store.indexes.behind("by_driver", 2)
    assert behind() == CELLS

    process = shell.start("index", "fill", "by_driver", "--on", hosts.url, "--json")
    wait_until("some of it is filled", lambda: behind() < CELLS or process.poll() is not None, seconds=90)
    hosts.kill_worker(0)
    stdout, stderr = process.communicate(timeout=120)

    assert process.returncode == 0, stderr + hosts.log
    assert '"lag_cells":0' in stdout
    verified = shell.call("index", "verify", "by_driver", "--version", "2", "--json")
    assert verified.code == 0, verified.stdout
    assert (verified.document["entries"], verified.document["differences"]) == (CELLS, 0)
    group = "index:by_driver:v2"
    # No leader is left that would take shards from the worker that was killed.
    wait_until("the living task has given its shards back", lambda: len(owners(store, group)) <= 1, seconds=30)
    again = shell.call("index", "fill", "by_driver", "--on", hosts.url)
    assert again.code == 0
    assert "has passed all cells" in again.stdout


def test_a_backup_and_its_restore_are_done_by_tasks(
    indexed: tuple[Datastore, Path], hosts: DaskHosts, stores: Stores, tmp_path: Path
) -> None:
    shell, folder = Shell(tmp_path), str(tmp_path / "backups")

    made = shell.call("backup", "create", folder, "--on", hosts.url, "--json")
    verified = shell.call("backup", "verify", folder)
    other = tmp_path / "other"
    other.mkdir()
    restored = {**stores.config("mariadb", shards=8), "triggers": quick()}
    (other / "tripstore.yaml").write_text(yaml.safe_dump(restored))
    hosts.kill_worker(0)
    hosts.kill_worker(1)
    hosts.add(other / "tripstore.yaml")
    hosts.wait_for(1)
    back = Shell(other).call("backup", "restore", folder, "--on", hosts.url, "--yes", "--json")

    assert made.code == 0, made.stderr
    assert made.document["progress"]["rows"] == CELLS
    assert verified.code == 0, verified.stdout
    assert back.code == 0, back.stderr + back.stdout
    with Datastore.open(other / "tripstore.yaml") as store:
        assert sum(store.get_cells_for_shard(shard, 0, 1).head for shard in range(8)) == CELLS


def owners(store: Datastore, group: str) -> set[str]:
    (status,) = store.triggers.status(group)
    return {shard.owner for shard in status.shards if shard.owner is not None}


# ------------------------------------------------------------------------------------------- who ends a task


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Said:
    """The control database as a task sees it."""

    def __init__(self) -> None:
        self.at: datetime | None = datetime(2026, 1, 1, tzinfo=UTC)
        self.is_away = False

    def tell(self, job_id: str, worker: str, news: object) -> None:
        raise AssertionError("a task tells nothing here")

    def leave(self, job_id: str, worker: str) -> None:
        raise AssertionError("a task tells nothing here")

    def told_at(self, job_id: str, worker: str) -> datetime | None:
        if self.is_away:
            raise ControlUnavailable("It is away.")
        return self.at


def test_a_submitter_without_a_word_for_long_is_gone_and_one_that_speaks_is_not() -> None:
    said, clock = Said(), Clock()
    heeding = Heeding(said, "job", "submitter", clock=clock)
    for _ in range(10):
        clock.now += SILENT_SECONDS - 1
        assert said.at is not None
        said.at += timedelta(seconds=1)
        assert heeding.is_wanted()

    clock.now += SILENT_SECONDS - 1
    assert heeding.is_wanted()
    clock.now += 2
    assert not heeding.is_wanted()


def test_a_control_database_that_was_away_makes_no_submitter_silent() -> None:
    said, clock = Said(), Clock()
    heeding = Heeding(said, "job", "submitter", clock=clock)
    assert heeding.is_wanted()
    said.is_away = True
    for _ in range(5):
        clock.now += SILENT_SECONDS
        assert heeding.is_wanted()

    said.is_away = False
    clock.now += SILENT_SECONDS - 1
    assert heeding.is_wanted()


def test_a_word_that_is_taken_back_ends_the_task_at_once(stores: Stores) -> None:
    store = stores.fresh("sqlite", shards=1)
    jobs = Jobs(store.control)
    job = jobs.create("fsck", {}, [1])
    heeding = Heeding(jobs, job.id, "here")
    assert not heeding.is_wanted()

    with Presence(jobs, job.id, "here"):
        assert heeding.is_wanted()
    assert not heeding.is_wanted()
    assert jobs.progress(job.id).workers == ()
