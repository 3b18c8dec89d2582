"""`tripstore backfill` and the jobs of `tripstore worker run`: copy, interrupt, go on, set aside, try again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
import yaml

from schemaless_core.control.jobs.jobs import Finding, Jobs
from tests.acceptance.conftest import Ran, Shell
from tests.acceptance.workers import WAIT_SECONDS
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.legacy_databases import FLAVOURS
from tests.mirrors import QUICK, missing
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

SHARDS = 4
#: A job that takes as long as a test wants to watch it.
SLOWLY = ("--rate", "20", "--chunk-rows", "1")


@pytest.fixture
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite; on Postgres 15, where a test says no other."""
    postgres: str = getattr(request, "param", "postgres")
    options: dict[str, Any] = {"triggers": QUICK, "backfill": {"parts": 4, "lease_seconds": 1.0}}
    with migration(servers, stores, postgres=postgres, shards=SHARDS, **options) as made:
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    return shell


def past(moving: Migration, trips: int = 12) -> list[UUID]:
    """Rows from before capture was installed: the relay will not carry them."""
    keys = [moving.legacy.trip()[1] for _ in range(trips)]
    moving.legacy.sql("DELETE FROM tripstore.queue")
    return keys


def uncaptured(moving: Migration, statement: str, *values: object) -> None:
    """A change that the relay will not carry."""
    moving.legacy.sql(statement, *values)
    moving.legacy.sql("DELETE FROM tripstore.queue")


def copied(moving: Migration, keys: list[UUID]) -> list[UUID]:
    return [key for key in keys if moving.facade.store.get_cell_latest(key, "BASE") is not None]


def rows_saved(moving: Migration) -> int:
    jobs = Jobs(moving.facade.store.control)
    return sum(jobs.progress(job.id).counts.get("rows", 0) for job in jobs.all("backfill")[:1])


@contextmanager
def started(shell: Shell, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until the end of the block, and does not outlive it."""
    process = shell.start(*arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def failed(ran: Ran) -> str:
    return ran.stdout + ran.stderr


def test_a_backfill_copies_everything_and_may_be_repeated(company: Shell, moving: Migration) -> None:
    keys = past(moving)

    ran = company.call("backfill", "start", "--verify", "all", "--json")
    again = company.call("backfill", "start")
    listed = company.call("backfill", "list", "--json").document["jobs"]

    assert ran.code == 0, failed(ran)
    seen = ran.document
    assert (seen["job"]["state"], seen["rows"], seen["open"], seen["job"]["is_partial"]) == ("done", 12, 0, False)
    assert seen["counts"] == {"rows": 12, "equal": 24, "verified": 24}
    assert seen["parts"] == seen["parts_done"]
    assert copied(moving, keys) == keys
    assert again.code == 0, failed(again)
    assert re.search(r"rows +12 of about", again.stdout)
    assert [each["state"] for each in listed] == ["done", "done"]
    assert listed[1]["job"] == seen["job"]["job"]


def test_two_processes_of_the_real_command_copy_a_job_together(company: Shell, moving: Migration) -> None:
    keys = past(moving, 40)

    ran = company.run("backfill", "start", "--processes", "2", "--chunk-rows", "3", "--json")

    assert ran.code == 0, failed(ran)
    assert (ran.document["rows"], ran.document["job"]["spec"]["processes"]) == (40, 2)
    assert copied(moving, keys) == keys


@pytest.mark.parametrize("moving", FLAVOURS, indirect=True)
def test_a_rate_holds_for_all_processes_together_from_the_first_chunk_on(company: Shell, moving: Migration) -> None:
    """In no five seconds more rows than the rate allows, and one chunk: half a second of the rate."""
    rate, rows = 800, 5_000
    moving.legacy.sql(f"INSERT INTO trips (status) SELECT 'old' FROM generate_series(1, {rows})")
    moving.legacy.sql("DELETE FROM tripstore.queue")
    saved = [(time.monotonic(), 0)]

    with started(company, "backfill", "start", "--rate", str(rate), "--processes", "3") as copying:
        while copying.poll() is None:
            saved.append((time.monotonic(), rows_saved(moving)))
            time.sleep(0.05)  # how far it is has no event, and two cores are its own

    begun = next(at for at, count in saved if count)
    print(f"{rows:,} rows in {saved[-1][0] - begun:.1f} s; in the worst five seconds {in_five_seconds(saved):,}")
    assert (copying.returncode, saved[-1][1]) == (0, rows)
    assert in_five_seconds(saved) <= 5 * rate + rate / 2


def in_five_seconds(saved: list[tuple[float, int]]) -> int:
    """Rows that were saved at most in so long."""
    return max(count - before for at, before in saved for until, count in saved if at <= until <= at + 5)


def test_a_dry_run_copies_nothing(company: Shell, moving: Migration) -> None:
    keys = past(moving)

    ran = company.call("backfill", "start", "--dry-run", "--rate", "500", "--processes", "3", "--verify", "all")
    document = company.call("backfill", "start", "--dry-run", "--where", "t.id > 5", "--json").document

    assert ran.code == 0
    assert "Nothing was copied." in ran.stdout
    for line in (
        r"parts +\d+, by 3 processes",
        r"verified +every row",
        r"rate +at most 500 rows/s",
        r"about [\d,]+, an",
    ):
        assert re.search(line, ran.stdout), ran.stdout
    assert (document["is_partial"], document["spec"]["where"]) == (True, "t.id > 5")
    assert company.call("backfill", "list", "--json").document == {"jobs": []}
    assert copied(moving, keys) == []


@pytest.mark.parametrize(
    ("phase", "complaint", "hint"),
    [
        (Phase.OFF, "no relay carries", "tripstore phase set dualwrite"),
        (Phase.LIVE, "Schemaless is the authority", "tripstore cutover reverse"),
    ],
)
def test_where_no_relay_carries_what_changes_meanwhile_it_is_refused(
    company: Shell, moving: Migration, phase: Phase, complaint: str, hint: str
) -> None:
    moving.phase(phase)

    ran = company.call("backfill", "start")

    assert ran.code == 4
    assert complaint in ran.complaint
    assert hint in ran.complaint


def test_without_capture_it_is_refused(company: Shell, moving: Migration) -> None:
    moving.legacy.sql("UPDATE tripstore.capture SET broken = 'a test'")

    ran = company.call("backfill", "start")

    assert ran.code == 4
    assert "not captured (a test)" in ran.complaint
    assert "tripstore doctor" in ran.complaint


def test_ctrl_c_leaves_it_resumable_and_its_counts_exact(company: Shell, moving: Migration) -> None:
    """I11."""
    trips = 200  # ten seconds of work: the command that looks at it meanwhile has to start first
    keys = past(moving, trips)
    with started(company, "backfill", "start", *SLOWLY) as copying:
        wait_until("something is saved", lambda: rows_saved(moving) > 0, seconds=30)
        seen = company.call("backfill", "status", "--json").document
        copying.send_signal(signal.SIGINT)
        _stdout, stderr = copying.communicate(timeout=WAIT_SECONDS)

    saved = rows_saved(moving)
    left = company.call("backfill", "status")
    assert copying.returncode == 5, stderr
    assert "`tripstore backfill resume backfill-" in stderr
    assert seen["job"]["state"] == "running"
    assert len(seen["workers"]) == 1
    assert 0 < saved < trips
    assert left.code == 1
    assert re.search(r"no process works at backfill-\w+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: `", left.stdout)
    shown = [left.stdout, *(company.call(*words).stdout for words in (("backfill", "list"), ("status",)))]
    assert [bool(re.search(r"backfill-\w+.*\bidle\b", each)) for each in shown] == [True] * 3, shown
    assert not any(re.search(r"backfill-\w+.*\brunning\b", each) for each in shown), shown

    ran = company.call("backfill", "resume", "--rate", "0", "--json")
    assert ran.code == 0, failed(ran)
    assert (ran.document["rows"], ran.document["job"]["state"]) == (trips, "done")
    assert copied(moving, keys) == keys
    assert company.call("backfill", "resume").code == 2


def test_one_that_waits_says_why_and_one_that_is_paused_ends_and_goes_on(company: Shell, moving: Migration) -> None:
    past(moving)
    with started(company, "backfill", "start", "--rate", "1", "--chunk-rows", "3") as copying:
        wait_until("it waits", lambda: bool(throttles(company)), seconds=30)
        waiting = throttles(company)
        screen = company.call("backfill", "status").stdout
        paused = company.call("backfill", "pause", "--why", "the sale begins", "--json")
        _stdout, stderr = copying.communicate(timeout=WAIT_SECONDS)

    assert waiting == ["rate limit of 1 rows/s"]
    assert "; waits: rate limit of 1 rows/s" in screen
    assert re.search(r"^backfill-\w+: \d+ of about \d+ \(est\.\) rows", stderr, re.MULTILINE), stderr
    assert copying.returncode == 5, stderr
    job = paused.document["job"]
    assert (paused.code, job["state"], job["why"]) == (0, "paused", "the sale begins")
    assert "paused (the sale begins)" in company.call("backfill", "status").stdout
    refused = company.call("backfill", "resume", "--rate", "500", "--detach")
    assert (refused.code, "leave --detach out" in refused.complaint) == (2, True)
    assert company.call("backfill", "resume", "--rate", "0").code == 0


def throttles(company: Shell) -> list[str]:
    """Why the last job waits, once there is one."""
    ran = company.call("backfill", "status", "--json")
    return list(ran.document.get("throttles", []))


def test_one_that_is_cancelled_never_goes_on(company: Shell, moving: Migration) -> None:
    past(moving)
    company.call("backfill", "start", "--detach")

    [seen] = [each for each in company.call("doctor", "--json").document["findings"] if "backfill" in each["name"]]
    assert (seen["value"], seen["is_fine"]) == ("idle", False)
    assert "`tripstore worker run` does" in seen["advice"]
    assert company.run("backfill", "cancel").code == 4  # no terminal to ask at
    ran = company.call("backfill", "cancel", "--yes", "--why", "wrong rows", "--json")

    assert ran.document["job"]["state"] == "cancelled"
    resumed = company.call("backfill", "resume")
    assert resumed.code == 2
    assert "it cannot resume" in resumed.complaint
    audit = company.call("status", "--json").document["control"]["audit"]
    assert [json.loads(entry["detail"])["why"] for entry in audit if entry["action"] == "backfill.cancel"] == [
        "wrong rows"
    ]


def test_what_cannot_be_copied_is_set_aside_and_copied_when_it_is_mended(company: Shell, moving: Migration) -> None:
    keys = past(moving)
    foreign, broken = keys[0], keys[1]
    moving.facade.store.as_copier().put_cell(foreign, "BASE", 1, {"status": "foreign"})
    uncaptured(moving, "UPDATE trips SET base_extra = '{\"huge\": 1e400}' WHERE trip_uuid = %s", str(broken))

    ran = company.call("backfill", "start", "--json")
    shown = company.call("backfill", "show")
    findings = company.call("backfill", "show", "--json").document["findings"]

    assert ran.code == 1, failed(ran)
    assert (ran.document["job"]["state"], ran.document["open"]) == ("done", 2)
    assert copied(moving, keys[2:]) == keys[2:]
    assert shown.code == 1
    assert "`tripstore backfill retry backfill-" in shown.stdout
    assert {(UUID(each["row_key"]), each["kind"]) for each in findings} == {
        (foreign, "conflict"),
        (broken, "unreadable"),
    }
    assert [each["field"] for each in findings if each["kind"] == "unreadable"] == ["base_extra.huge"]
    assert company.call("backfill", "status").code == 1

    uncaptured(moving, "UPDATE trips SET base_extra = NULL WHERE trip_uuid = %s", str(broken))
    job = ran.document["job"]["job"]
    retried = company.call("backfill", "retry", job, "--json")

    assert (retried.code, retried.document["rows"], retried.document["open"]) == (1, 2, 1), failed(retried)
    assert copied(moving, [broken]) == [broken]
    assert company.call("backfill", "status", job, "--json").document["open"] == 0
    [left] = company.call("backfill", "show", "--json").document["findings"]
    assert UUID(left["row_key"]) == foreign
    assert company.call("backfill", "show", job).stdout.strip() == f"Nothing of {job} is in quarantine."
    assert len(company.call("backfill", "show", job, "--solved", "--json").document["findings"]) == 2


@pytest.mark.parametrize("way", ["where", "keys", "lines", "diff"])
def test_a_part_of_the_rows_is_copied_and_says_that_it_is_a_part(company: Shell, moving: Migration, way: str) -> None:
    keys = past(moving)
    wanted = sorted(keys[:3])
    options = {
        "where": ("--where", f"t.trip_uuid IN ({', '.join(repr(str(key)) for key in wanted)})"),
        "keys": ("--keys", "keys.txt"),
        "lines": ("--from-diff", "keys.jsonl"),
        "diff": ("--from-diff", "last"),
    }[way]
    (company.folder / "keys.txt").write_text("".join(f"{key}\n" for key in wanted))
    (company.folder / "keys.jsonl").write_text("".join(f'{{"row_key": "{key}"}}\n' for key in wanted))
    jobs = Jobs(moving.facade.store.control)
    diff = jobs.create("diff", {}, [{}])
    part = jobs.claim(diff.id, "a test", 60.0)
    assert part is not None
    found = [Finding("missing", key, "BASE", 1) for key in wanted]
    jobs.save(part, "a test", checkpoint=None, counts={}, findings=found, is_done=True, lease_seconds=60.0)

    ran = company.call("backfill", "start", *options, "--json")

    assert ran.code == 0, failed(ran)
    assert (ran.document["rows"], ran.document["job"]["is_partial"]) == (3, True)
    assert sorted(copied(moving, keys)) == wanted


def test_some_columns_are_copied_and_others_left(company: Shell, moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    moving.legacy.sql("INSERT INTO attempts (trip_id, trip_uuid, attempt_no) VALUES (%s, %s, 1)", id_, str(key))
    moving.legacy.sql("DELETE FROM tripstore.queue")

    ran = company.call("backfill", "start", "--columns", "STATUS", "--json")

    assert ran.code == 0, failed(ran)
    assert ran.document["job"]["is_partial"] is True
    assert list(moving.facade.store.get_row(key)) == ["STATUS"]


def test_a_detached_one_is_served_by_any_worker(company: Shell, moving: Migration) -> None:
    keys = past(moving)

    detached = company.call("backfill", "start", "--detach")
    waiting = company.call("backfill", "status")
    status = company.call("status")
    with started(company, "worker", "run", "--only", "jobs") as worker:
        wait_until("all is copied", lambda: rows_saved(moving) == 12, seconds=60)
        wait_until(
            "it is done", lambda: company.call("backfill", "status", "--json").document["job"]["state"] == "done"
        )
        worker.send_signal(signal.SIGTERM)
        _stdout, stderr = worker.communicate(timeout=WAIT_SECONDS)

    assert detached.code == 0
    assert "is left to `tripstore worker run`" in detached.stdout
    assert waiting.code == 1
    assert "`tripstore worker run` does" in waiting.stdout
    assert "no process works at backfill-" in status.stdout
    assert worker.returncode == 0
    assert "serves detached jobs" in stderr
    assert copied(moving, keys) == keys


def test_a_watched_status_ends_with_the_job(company: Shell, moving: Migration) -> None:
    past(moving)
    company.call("backfill", "start")

    ran = company.call("backfill", "status", "--watch")

    assert ran.code == 0
    assert re.match(r"backfill-\w+: done", ran.stdout)


def test_what_is_deleted_meanwhile_stays_deleted(company: Shell, moving: Migration) -> None:
    """I4."""
    _id, key = moving.legacy.trip()
    moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))

    ran = company.call("backfill", "start")
    company.call("mirror", "drain")

    assert ran.code == 0, failed(ran)
    assert missing(moving) == []
    latest = moving.facade.store.get_cell_latest(key, "BASE")
    assert latest is not None
    assert latest.body is None


WRONG = {
    "start --keys none.txt": "none.txt",
    "start --verify most": "is no share",
    "start --columns BASE,,STATUS": "is no list of columns",
    "start --rate -1": "--rate",
    "start --keys tripstore.yaml --from-diff last": "give one",
    "start --keys tripstore.yaml": "is no row key",
    "start --from-diff last": "There is no diff yet",
    "start --where nonsense": "nonsense",
    "status": "There is no backfill yet",
    "status --watch --json": "--watch has no end",
    "resume backfill-0": "There is no backfill backfill-0",
    "retry": "There is no backfill yet",
    "show": "There is no backfill yet",
    "pause": "There is no backfill yet",
}


def test_wrong_input_is_named(company: Shell) -> None:
    for arguments, complaint in WRONG.items():
        ran = company.call("backfill", *arguments.split())

        assert ran.code == 2, failed(ran)
        assert complaint in ran.complaint


@pytest.mark.parametrize("command", [("backfill", "start"), ("worker", "run", "--only", "mirror")])
def test_without_a_legacy_store_there_is_nothing_to_copy(store: Shell, command: tuple[str, ...]) -> None:
    ran = store.call(*command)

    assert ran.code == 2
    assert "legacy" in ran.complaint


def test_before_there_was_one_the_list_is_empty(company: Shell) -> None:
    assert "There was no backfill yet" in company.call("backfill", "list").stdout
