"""Limits by what hurts, as an operator meets them: real processes, workers and tasks that go slowly and say why."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemaless_core.control.jobs.jobs import Jobs
from tests.acceptance.conftest import Shell
from tests.acceptance.test_cli_backfill import failed, rows_saved, started
from tests.chaos.actors import wait_until
from tests.dasks import dask_hosts
from tests.facades import Migration, migration
from tests.mirrors import QUICK
from tests.sparing import (
    CONTENDED,
    DEADLINE_SECONDS,
    LIMIT_SECONDS,
    NO_ANSWER,
    PROBING,
    RELEASED,
    WIDE,
    chill,
    heap_blocks,
    services_wait,
)
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

TRIPS = 600
BLOCKS_MAX = 20
LIMITED = ("--max-probe-seconds", f"{LIMIT_SECONDS:g}", "--chunk-rows", "5")


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    options: dict[str, Any] = {"triggers": QUICK, "backfill": {"parts": 4, "lease_seconds": 2.0, "verify": 0}}
    probe = {name: value for name, value in PROBING.items() if name != "probe_seconds_max"}
    with migration(servers, stores, shards=4, throttle=probe, **options) as made:
        made.legacy.sql(CONTENDED)
        made.legacy.sql(WIDE.format(trips=TRIPS))
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    return shell


def workers_held_by(shell: Shell, kind: str, limit: str) -> int:
    """How many workers of the last job say that this limit holds."""
    seen = shell.call(kind, "status", "--json").document
    return sum(each["limit"] == limit for each in seen.get("progress", seen)["workers"])


def seconds_of(moving: Migration) -> float:
    """That the last backfill took."""
    job = Jobs(moving.facade.store.control).find("backfill", "last")
    assert job.ended_at is not None
    return (job.ended_at - job.begun_at).total_seconds()


def test_two_processes_together_read_no_more_blocks_than_they_may(company: Shell, moving: Migration) -> None:
    """Of a table of which nothing is in memory."""
    least = (heap_blocks(moving, "trips") - 2 * BLOCKS_MAX) / BLOCKS_MAX
    assert least > 2
    company.call("backfill", "start", "--detach", "--max-blocks", str(BLOCKS_MAX))
    chill(moving, "trips")  # a plan would read all of so small a table

    ran = company.run("backfill", "resume", "--processes", "2", "--json")

    assert ran.code == 0, failed(ran)
    assert ran.document["rows"] == TRIPS
    assert seconds_of(moving) >= least
    assert f"; waits: limit of {BLOCKS_MAX} blocks/s that Postgres reads" in ran.stderr


def test_workers_and_commands_that_resume_go_by_the_probe_of_the_job(company: Shell, moving: Migration) -> None:
    """While services wait; two processes of `worker run`, then two of `resume`."""
    assert company.call("backfill", "start", "--detach", *LIMITED).code == 0
    with services_wait(moving):
        refused = company.call("backfill", "start", *LIMITED)
        assert refused.code == 2
        assert f"no answer within {DEADLINE_SECONDS:g} s" in refused.complaint
        with started(company, "worker", "run", "--only", "jobs", "--workers", "2") as working:
            wait_until("both go slowly", lambda: workers_held_by(company, "backfill", "probe") == 2, seconds=40)
            screen = company.call("backfill", "status").stdout
            working.send_signal(signal.SIGINT)
            working.communicate(timeout=40)
        assert f"; waits: {NO_ANSWER}" in screen

        with started(company, "backfill", "resume", "--processes", "2", "--json") as resumed:
            wait_until("both go slowly", lambda: workers_held_by(company, "backfill", "probe") == 2, seconds=40)
            assert rows_saved(moving) < TRIPS / 2
            moving.legacy.sql(RELEASED)
            said, stderr = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, stderr
    assert f'"rows":{TRIPS}' in said


def test_what_a_dry_run_says_and_what_is_refused(company: Shell, moving: Migration) -> None:
    plan = company.call("backfill", "start", "--dry-run", "--max-blocks", "2000", "--max-probe-seconds", "0.1")
    document = company.call("backfill", "start", "--dry-run", "--json", "--max-blocks", "2000").document
    wrong = company.call("diff", "start", "--max-probe-seconds", f"{DEADLINE_SECONDS:g}")
    config = {**moving.document, "throttle": {"probe": "UPDATE trips SET status = 'seen'", "probe_seconds_max": 0.1}}
    (company.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
    writes = [company.call(kind, "start") for kind in ("backfill", "diff")]

    assert "at most 2,000 read by Postgres per second" in plan.stdout
    assert f"at most 100 ms for {PROBING['probe']}" in plan.stdout
    assert (document["limits"]["blocks_max"], document["limits"]["probe_seconds_max"]) == (2000, 0)
    assert (wrong.code, f"is ended after {DEADLINE_SECONDS:g} s" in wrong.complaint) == (2, True)
    for each in writes:
        assert each.code == 2
        assert "The probe (throttle.probe) is refused: cannot open UPDATE query as cursor" in each.complaint
    detached = company.call("diff", "resume", "--detach", "--max-blocks", "5")
    assert (detached.code, "leave --detach out" in detached.complaint) == (2, True)


def test_tasks_of_dask_go_by_the_probe_of_the_job_whatever_their_host_has(
    company: Shell, moving: Migration, tmp_path: Path
) -> None:
    """The configuration of the workers has no probe. Control: so a backfill that begins there has none."""
    without = tmp_path / "without.yaml"
    without.write_text(yaml.safe_dump({key: value for key, value in moving.document.items() if key != "throttle"}))
    with dask_hosts(tmp_path / "dask") as hosts:
        for _ in range(2):
            hosts.add(without)
        hosts.wait_for(2)
        elsewhere = company.call("-c", str(without), "backfill", "start", *LIMITED)
        assert (elsewhere.code, "and no probe" in elsewhere.complaint) == (2, True)

        with started(company, "backfill", "start", "--on", hosts.url, "--rate", "40", *LIMITED) as copying:
            wait_until("something is copied", lambda: rows_saved(moving) > 5, seconds=60)
            with services_wait(moving):
                wait_until("tasks go slowly", lambda: workers_held_by(company, "backfill", "probe") > 0, seconds=40)
                copying.send_signal(signal.SIGINT)
                _said, stderr = copying.communicate(timeout=60)
        assert copying.returncode == 5, stderr
        assert 5 < rows_saved(moving) < TRIPS
        resumed = company.call("backfill", "resume", "--on", hosts.url, "--rate", "0", "--max-probe-seconds", "0")
        assert resumed.code == 0, failed(resumed)
    assert rows_saved(moving) == TRIPS
