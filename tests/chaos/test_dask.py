"""Jobs as tasks of a real Dask scheduler whose workers are killed, and that repeats tasks: counters are exact (I11)."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import yaml

from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.version import VERSION
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.dasks import DaskHosts, dask_hosts
from tests.facades import Migration, migration
from tests.mirrors import QUICK
from tests.scale import scaled
from tests.stores import Stores
from tripstore.cli.elsewhere.dask_engine import DaskEngine
from tripstore.cli.elsewhere.engine import SubmittedTask, TaskOrder, TaskOutcome
from tripstore.cli.elsewhere.presence import Presence
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

TRIPS = scaled(6_000, least=240)
PARTS = 12
LEASE_SECONDS = 1.0
CHUNK_ROWS = 5
#: Killed there, a worker has claimed, copied, or half saved.
POINTS = ("backfill.before_save", "jobs.saving", "jobs.saved", "jobs.claimed")
WAIT_SECONDS = 120.0

#: What is unsound: a chunk counts before, and beside, the save that moves its part.
COUNTS_BESIDE = """
from schemaless_core.control.changes import make_change
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.parts import add_counts

if not hasattr(Jobs, "sound"):
    Jobs.sound = Jobs.save


def save(self, part, worker, *, counts, **more):
    make_change(self._control, lambda connection: add_counts(connection, part.job, counts))
    return self.sound(part, worker, counts={}, **more)


Jobs.save = save
"""


class Scene(NamedTuple):
    """A migration with a past that nothing carries, and hosts of Dask that have its configuration."""

    migration: Migration
    shell: Shell
    hosts: DaskHosts
    failpoints: Path

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.migration.facade.store.control)

    @property
    def config(self) -> Path:
        return self.shell.folder / "tripstore.yaml"

    def add(self, preload: str = "") -> None:
        self.hosts.add(self.config, failpoints=self.failpoints, preload=preload)

    def keys(self) -> list[UUID]:
        return [UUID(str(key)) for (key,) in self.migration.legacy.sql("SELECT trip_uuid FROM trips")]

    def copied(self) -> int:
        store = self.migration.facade.store
        return sum(store.get_cell_latest(key, "BASE") is not None for key in self.keys())

    def counts(self, kind: str) -> dict[str, int]:
        """Of the newest; nothing of one that a command has not begun yet."""
        if not self.jobs.all(kind):
            return {}
        return dict(self.jobs.progress(self.jobs.find(kind, "last").id).counts)

    def arm(self, point: str, action: str) -> Path:
        """It is hit when the file that is returned is there."""
        (self.failpoints / f"{point}.hit").unlink(missing_ok=True)
        (self.failpoints / point).write_text(action)
        return self.failpoints / f"{point}.hit"

    def release(self, point: str) -> None:
        """What waits there goes on."""
        (self.failpoints / f"{point}.go").touch()


@contextmanager
def scene(
    servers: LocalServers, stores: Stores, folder: Path, failpoints: Path, engine: str = "sqlite", workers: int = 2
) -> Iterator[Scene]:
    options: dict[str, Any] = {"triggers": QUICK, "backfill": {"parts": PARTS, "lease_seconds": LEASE_SECONDS}}
    with ExitStack() as made:
        moving = made.enter_context(migration(servers, stores, engine=engine, shards=4, **options))
        moving.legacy.sql(f"INSERT INTO trips (status) SELECT 'old' FROM generate_series(1, {TRIPS})")
        moving.legacy.sql("DELETE FROM tripstore.queue")
        moving.phase(Phase.DUALWRITE)
        (folder / "shell").mkdir()
        shell = Shell(folder / "shell")
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
        hosts = made.enter_context(dask_hosts(folder / "dask"))
        found = Scene(moving, shell, hosts, failpoints)
        for _ in range(workers):
            found.add()
        hosts.wait_for(workers)
        yield found


def kills(
    scene: Scene, command: subprocess.Popen[str], points: tuple[str, ...], lot: random.Random, visits: int = 6
) -> int:
    """Have a worker die at each of these points in turn, and another one come; how many died before it was done."""
    died = 0
    for point in points:
        hit = scene.arm(point, f"kill after={lot.randrange(visits)}")
        wait_until(f"{point} is reached", lambda hit=hit: hit.exists() or command.poll() is not None, WAIT_SECONDS)
        if not hit.exists():
            (scene.failpoints / point).unlink(missing_ok=True)
            break
        died += 1
        scene.add()
    return died


@pytest.mark.parametrize(("workers", "engine"), [(1, "sqlite"), (2, "mariadb"), (4, "mysql")])
def test_i11_a_backfill_counts_exactly_with_so_many_workers_of_which_some_are_killed(
    workers: int, engine: str, servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    lot = random.Random(workers)
    with scene(servers, stores, tmp_path, failpoints, engine, workers) as made:
        begun = time.monotonic()
        said = ("backfill", "start", "--on", made.hosts.url, "--chunk-rows", str(CHUNK_ROWS), "--verify", "all")
        command = made.shell.start(*said, "--json")
        with closing_command(command):
            died = kills(made, command, POINTS, lot)
            _, stderr = command.communicate(timeout=WAIT_SECONDS)
        seconds = time.monotonic() - begun

        assert command.returncode == 0, stderr + made.hosts.log
        assert made.counts("backfill") == {"rows": TRIPS, "equal": 2 * TRIPS, "verified": 2 * TRIPS}
        assert made.copied() == TRIPS
        assert died >= 2
        assert made.jobs.find("backfill", "last").state is JobState.DONE
        print(f"{engine}: {workers} workers of Dask, {died} killed, {TRIPS:,} rows in {seconds:.0f} s, counters exact")


@contextmanager
def closing_command(command: subprocess.Popen[str]) -> Iterator[None]:
    """It does not outlive the block."""
    try:
        yield
    finally:
        if command.poll() is None:
            command.kill()
            command.communicate(timeout=WAIT_SECONDS)


def test_control_counts_beside_the_save_are_found_out(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    """The control of the one above: what a killed worker had counted is counted again."""
    with scene(servers, stores, tmp_path, failpoints, workers=0) as made:
        made.add(COUNTS_BESIDE)
        made.hosts.wait_for(1)
        hit = made.arm("jobs.saving", "kill after=3")
        said = ("backfill", "start", "--on", made.hosts.url, "--chunk-rows", str(CHUNK_ROWS), "--json")
        command = made.shell.start(*said)
        with closing_command(command):
            wait_until("the worker is killed", hit.exists, WAIT_SECONDS)
            made.add(COUNTS_BESIDE)
            command.communicate(timeout=WAIT_SECONDS)

        assert command.returncode == 0
        assert made.counts("backfill")["rows"] > TRIPS


def test_i11_a_diff_that_loses_workers_counts_what_an_undisturbed_one_counts(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    with scene(servers, stores, tmp_path, failpoints) as made:
        diffing = Diffing(made.migration.facade)
        whole = diffing.begin(diffing.plan(Order(indexes=False, processes=8)))
        diffing.runner(whole, "test").run()
        command = made.shell.start("diff", "start", "--on", made.hosts.url, "--no-indexes", "--processes", "8")
        with closing_command(command):
            died = kills(made, command, ("diff.before_save", "jobs.saving"), random.Random(26), 1)
            _, stderr = command.communicate(timeout=WAIT_SECONDS)

        assert command.returncode == 1, stderr + made.hosts.log
        counts = made.counts("diff")
        assert counts == dict(diffing.jobs.progress(whole.id).counts)
        assert counts["missing"] >= TRIPS
        assert died >= 1


# --------------------------------------------------------------------------------------- tasks that are run twice


class Doubling(NamedTuple):
    """An engine, and a backfill that its tasks are to do."""

    scene: Scene
    engine: DaskEngine
    job: Job

    @property
    def order(self) -> TaskOrder:
        return TaskOrder(VERSION, kind="backfill", subject=self.job.id, submitter="here", parts_max=PARTS)

    @property
    def parts(self) -> int:
        """Fewer than are asked for where there are few rows."""
        return self.scene.jobs.progress(self.job.id).parts

    def present(self) -> Presence:
        return Presence(self.scene.jobs, self.job.id, "here")

    def ended(self, tasks: Sequence[SubmittedTask]) -> list[TaskOutcome]:
        outcomes = dict[int, TaskOutcome]()

        def are_all() -> bool:
            for number, task in enumerate(tasks):
                if number not in outcomes and (outcome := task.look()) is not None:
                    outcomes[number] = outcome
            return len(outcomes) == len(tasks)

        wait_until("all tasks have ended", are_all, WAIT_SECONDS)
        return [outcomes[number] for number in range(len(tasks))]


@contextmanager
def doubling(made: Scene) -> Iterator[Doubling]:
    backfill = Backfill(made.migration.facade)
    job = backfill.begin(backfill.plan(Wanted(chunk_rows=CHUNK_ROWS, verify=1.0)))
    with closing(DaskEngine(made.hosts.address)) as engine:
        yield Doubling(made, engine, job)


def test_i4_i11_a_task_that_is_run_twice_at_once_counts_once(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    with scene(servers, stores, tmp_path, failpoints) as made, doubling(made) as found:
        begun, claimed = made.arm("elsewhere.begun", "wait"), made.arm("backfill.claimed", "wait")
        with found.present():
            tasks = [found.engine.submit(found.order), found.engine.submit(found.order)]
            wait_until(
                "one has begun, and the other one has a part", lambda: begun.exists() and claimed.exists(), WAIT_SECONDS
            )
            made.release("elsewhere.begun")
            wait_until("the one has done something", lambda: made.counts("backfill").get("rows", 0) > 0, WAIT_SECONDS)
            made.release("backfill.claimed")
            first, second = found.ended(tasks)

        assert (first.reason, second.reason) == ("", "")
        assert first.worker != second.worker
        assert first.parts + second.parts == found.parts
        assert min(first.parts, second.parts) > 0, "they were not at it at the same time"
        assert first.counts["rows"] + second.counts["rows"] == TRIPS
        assert made.counts("backfill") == {"rows": TRIPS, "equal": 2 * TRIPS, "verified": 2 * TRIPS}


def test_i11_a_worker_that_sleeps_past_its_lease_counts_nothing_that_another_counts(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    """To its scheduler it is alive: only the lease says that its part is another's."""
    with scene(servers, stores, tmp_path, failpoints) as made, doubling(made) as found:
        hit = made.arm("backfill.before_save", "wait after=2")
        with found.present():
            tasks: list[SubmittedTask] = [found.engine.submit(found.order), found.engine.submit(found.order)]
            wait_until("one sleeps", hit.exists, WAIT_SECONDS)
            wait_until("the other has done all", lambda: is_done_with_more(made, found, tasks), WAIT_SECONDS)
            made.release("backfill.before_save")
            found.ended(tasks)

        assert made.counts("backfill") == {"rows": TRIPS, "equal": 2 * TRIPS, "verified": 2 * TRIPS}


def is_done_with_more(made: Scene, found: Doubling, tasks: list[SubmittedTask]) -> bool:
    """A quick task ends before the lease of the sleeping one does: as a command does, give another one then."""
    if sum(each.look() is None for each in tasks) < 2:
        tasks.append(found.engine.submit(found.order))
    return made.jobs.state(found.job.id) is JobState.DONE


def test_i11_a_task_that_begins_when_its_command_has_ended_does_nothing(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    """As one that was queued, or is repeated since its answer was lost with a worker."""
    with scene(servers, stores, tmp_path, failpoints, workers=1) as made, doubling(made) as found:
        with found.present():
            pass
        (late,) = found.ended([found.engine.submit(found.order)])
        assert (late.parts, late.reason, made.counts("backfill")) == (0, "", {})

        with found.present():  # the control: while it is there, the same task does all
            (wanted,) = found.ended([found.engine.submit(found.order)])
        assert wanted.parts == found.parts


def test_i11_what_a_command_leaves_that_is_killed_ends_by_itself_and_is_gone_on_with(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    slowly = ("--rate", "40", "--chunk-rows", "1")
    with scene(servers, stores, tmp_path, failpoints) as made:
        command = made.shell.start("backfill", "start", "--on", made.hosts.url, *slowly)
        with closing_command(command):
            wait_until("something is copied", lambda: made.counts("backfill").get("rows", 0) > 2, WAIT_SECONDS)
            command.kill()
        resumed = made.shell.call("backfill", "resume", "--on", made.hosts.url, "--rate", "0", "--verify", "all")

        assert resumed.code == 0, resumed.stderr
        assert made.counts("backfill")["rows"] == TRIPS
        assert made.copied() == TRIPS


def test_a_task_of_another_control_database_is_told_of_and_ends_the_command(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    """No look at a configuration shows it; the job's own name does."""
    with scene(servers, stores, tmp_path, failpoints, workers=0) as made:
        elsewhere = {"a": {"primary": f"sqlite:///{tmp_path / 'elsewhere'}"}}
        other: Mapping[str, Any] = {**made.migration.document, "clusters": elsewhere}
        other = {name: value for name, value in other.items() if name not in ("legacy", "backfill", "control")}
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(dict(other)))
        assert Shell(tmp_path).call("-c", "other.yaml", "schema", "apply").code == 0
        made.hosts.add(tmp_path / "other.yaml")
        made.hosts.wait_for(1)

        ran = made.shell.call("backfill", "start", "--on", made.hosts.url)

        assert ran.code == 1, ran.stderr
        assert "its control database is another one" in ran.stderr
        assert "`tripstore backfill resume" in ran.stderr
        assert made.jobs.find("backfill", "last").state is JobState.RUNNING
