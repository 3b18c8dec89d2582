"""`--on dask://…`: jobs as tasks of a real scheduler and real workers; what is wrong is said, with a way out."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemaless_core.control.jobs.jobs import Jobs
from tests.acceptance.conftest import Shell
from tests.acceptance.test_cli_backfill import copied, failed, past, started
from tests.chaos.actors import wait_until
from tests.dasks import WITHOUT_TRIPSTORE, DaskHosts, dask_hosts
from tests.facades import Migration, migration
from tests.integration.test_certificates import signed
from tests.mirrors import QUICK
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

SHARDS = 4
TRIPS = 60
OTHER_PYTHON = """
import distributed.versions as versions

if not hasattr(versions, "sound"):
    versions.sound = versions.get_package_info
versions.get_package_info = lambda names: {**versions.sound(names), "python": "3.99.0.final.0"}
"""
SIDES = ("CLIENT", "SCHEDULER", "WORKER")
#: A job that takes as long as a test wants to watch it.
SLOWLY = ("--rate", "20", "--chunk-rows", "1")


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    options: dict[str, Any] = {"triggers": QUICK, "backfill": {"parts": 8, "lease_seconds": 1.0}}
    with migration(servers, stores, shards=SHARDS, **options) as made:
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    return shell


@pytest.fixture
def hosts(company: Shell, tmp_path: Path) -> Iterator[DaskHosts]:
    """Two workers that have the configuration."""
    with dask_hosts(tmp_path / "dask") as made:
        for _ in range(2):
            made.add(company.folder / "tripstore.yaml")
        made.wait_for(2)
        yield made


def claimed(moving: Migration, kind: str = "backfill") -> int:
    jobs = Jobs(moving.facade.store.control)
    return jobs.progress(jobs.find(kind, "last").id).parts_claimed


def rows(moving: Migration) -> int:
    jobs = Jobs(moving.facade.store.control)
    return sum(jobs.progress(job.id).counts.get("rows", 0) for job in jobs.all("backfill")[:1])


def test_backfill_diff_and_fsck_are_done_by_tasks(company: Shell, moving: Migration, hosts: DaskHosts) -> None:
    keys = past(moving, TRIPS)

    backfill = company.call("backfill", "start", "--on", hosts.url, "--verify", "all", "--json")
    diff = company.call("diff", "start", "--on", hosts.url, "--no-indexes", "--json")
    fsck = company.call("fsck", "--on", hosts.url, "--json")

    assert backfill.code == 0, failed(backfill)
    assert backfill.document["counts"] == {"rows": TRIPS, "equal": 2 * TRIPS, "verified": 2 * TRIPS}
    assert backfill.document["job"]["spec"]["processes"] == 2
    assert f"parts, {TRIPS} rows." in backfill.stderr
    assert copied(moving, keys) == keys
    assert diff.code == 0, failed(diff)
    assert diff.document["progress"]["job"]["state"] == "done"
    assert fsck.code == 0, failed(fsck)


def test_ctrl_c_leaves_a_job_that_is_resumed_here_or_there(company: Shell, moving: Migration, hosts: DaskHosts) -> None:
    keys = past(moving, TRIPS)

    with started(company, "backfill", "start", "--on", hosts.url, *SLOWLY) as copying:
        wait_until("something is copied", lambda: rows(moving) > 2, seconds=60)
        copying.send_signal(signal.SIGINT)
        _, said = copying.communicate(timeout=60)
    at_the_end = rows(moving)

    assert copying.returncode == 5, said
    assert "`tripstore backfill resume" in said
    assert claimed(moving) == 0
    assert 2 < at_the_end < TRIPS
    resumed = company.call("backfill", "resume", "--on", hosts.url, "--rate", "0", "--json")
    assert resumed.code == 0, failed(resumed)
    assert resumed.document["counts"]["rows"] == TRIPS
    assert copied(moving, keys) == keys


def test_a_scheduler_that_is_lost_leaves_a_job_that_is_resumed_without_it(
    company: Shell, moving: Migration, hosts: DaskHosts
) -> None:
    keys = past(moving, TRIPS)

    with started(company, "backfill", "start", "--on", hosts.url, *SLOWLY) as copying:
        wait_until("something is copied", lambda: rows(moving) > 2, seconds=60)
        hosts.kill_scheduler()
        _, said = copying.communicate(timeout=120)

    assert copying.returncode == 5, said
    assert f"{hosts.url} does not answer any more. `tripstore backfill resume" in said
    # No scheduler can tell the workers that they are wanted no more.
    wait_until("no task holds a part", lambda: claimed(moving) == 0, seconds=30)
    resumed = company.call("backfill", "resume", "--rate", "0", "--json")
    assert resumed.code == 0, failed(resumed)
    assert resumed.document["counts"]["rows"] == TRIPS
    assert copied(moving, keys) == keys


def refused(shell: Shell, *arguments: str) -> str:
    """What the command said that began nothing."""
    ran = shell.call("backfill", "start", *arguments)
    assert ran.code != 0, ran.stdout
    assert shell.call("backfill", "list").stdout.startswith("There was no backfill yet")
    return ran.complaint


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://scheduler:8786", "has the scheme 'http'. Write dask://scheduler:8786"),
        ("scheduler:8786", "is no address of an engine. Write dask://"),
        ("dask://user:secret@scheduler", "is no address of an engine"),
        ("dask://scheduler:0", "has a port that is none"),
        ("ray://head:10001", "Ray is not offered"),
    ],
)
def test_an_address_that_is_none_is_refused(store: Shell, address: str, said: str) -> None:
    ran = store.call("fsck", "--on", address)

    assert ran.code == 2
    assert said in ran.complaint
    assert "secret" not in ran.complaint


def test_two_places_at_once_are_refused(store: Shell) -> None:
    ran = store.call("fsck", "--on", "dask://scheduler", "--detach")

    assert ran.code == 2
    assert "give one" in ran.complaint


def test_what_does_not_answer_as_a_scheduler_is_named(company: Shell, moving: Migration) -> None:
    port = moving.legacy.url.rpartition(":")[2].partition("/")[0]

    for address in ("dask://127.0.0.1:1", f"dask://127.0.0.1:{port}"):
        assert f"No Dask scheduler answers at {address}" in refused(company, "--on", address)


def test_hosts_that_cannot_do_the_work_are_named_before_anything_begins(company: Shell, tmp_path: Path) -> None:
    config = company.folder / "tripstore.yaml"
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "datastore": "another"}))
    older = "import schemaless_core.version\nschemaless_core.version.VERSION = '0.0.9'\n"
    cases = [
        (None, "", "cannot be read", "$TRIPSTORE_CONFIG to the workers there"),
        (other, "", "another", "Give each of its hosts the configuration"),
        (config, older, "has tripstore 0.0.9, and this host", "Install one version"),
        (config, OTHER_PYTHON, "has Python 3.99 and distributed", "Install one version of both"),
        (config, WITHOUT_TRIPSTORE, "cannot run tasks of tripstore", "Install tripstore"),
    ]
    with dask_hosts(tmp_path / "dask") as hosts:
        for number, (path, preload, said, hint) in enumerate(cases):
            hosts.add(path, preload=preload)
            hosts.wait_for(1)
            complaint = refused(company, "--on", hosts.url)
            hosts.kill_worker(number)
            assert said in complaint
            assert hint in complaint


def test_without_the_extra_it_is_named(store: Shell) -> None:
    without = "import sys; sys.modules['distributed'] = None; from tripstore.cli import main; main()"
    command = [sys.executable, "-c", without, "fsck", "--on", "dask://127.0.0.1:1"]
    ran = subprocess.run(command, cwd=store.folder, capture_output=True, text=True, check=False, timeout=60)

    assert ran.returncode == 1
    assert "pip install 'tripstore[dask]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_dry_run_looks_at_the_hosts_and_begins_nothing(company: Shell, moving: Migration, hosts: DaskHosts) -> None:
    past(moving)

    ran = company.call("backfill", "start", "--on", hosts.url, "--dry-run", "--json")

    assert ran.code == 0, failed(ran)
    assert ran.document["processes"] == 2
    assert company.call("backfill", "list").stdout.startswith("There was no backfill yet")


def test_over_tls_with_certificates_of_both_sides(store: Shell, tmp_path: Path) -> None:
    """The control: without a certificate no scheduler answers."""
    own = signed(tmp_path, "dask")
    sides = {f"{side}__{what}": path for side in SIDES for what, path in (("CERT", own.certificate), ("KEY", own.key))}
    files = {"CA_FILE": own.certificate, **sides}
    environment = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in files.items()}
    with dask_hosts(tmp_path / "dask", ("--protocol", "tls"), environment) as hosts:
        hosts.add(store.folder / "tripstore.yaml", environment=environment)

        ran = store.run("fsck", "--on", hosts.url, "--json", environment=environment)
        without = store.run("fsck", "--on", hosts.url)

    assert hosts.url.startswith("tls+dask://")
    assert ran.code == 0, ran.stderr
    assert ran.document["progress"]["parts_done"] > 0
    assert without.code == 1
    assert "No Dask scheduler answers" in without.complaint
