"""`tripstore diff`: every verb, with its exit codes and documents."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
import yaml

from schemaless_core import Cell, Json
from tests.acceptance.conftest import Ran, Shell
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.mirrors import QUICK
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import JobFacts
from tripstore.migration.cutover.look import DIFF, Looker, find_job_facts
from tripstore.migration.diff.diff import ROWS as PART_OF_ROWS
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

SHARDS = 4
ROWS = """
INSERT INTO trips (driver_id, status) SELECT 1 + n % 2, 'requested' FROM generate_series(1, 20) n;
UPDATE trips SET status = 'completed' WHERE id % 4 = 0;
"""


@contextmanager
def carried(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite."""
    with migration(servers, stores, shards=SHARDS, triggers=QUICK) as made:
        made.legacy.sql(ROWS)
        made.phase(Phase.DUALWRITE)
        made.carry()
        yield made


@pytest.fixture(scope="module")
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Every test leaves its latest cells equal."""
    with carried(servers, stores) as made:
        yield made


@pytest.fixture
def untouched(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with carried(servers, stores) as made:
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    return configured(shell, moving)


def configured(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    return shell


def ran(company: Shell, *arguments: str, code: int = 0) -> Ran:
    done = company.call("diff", *arguments)
    assert done.code == code, done.stdout + done.stderr
    return done


def make_different(moving: Migration) -> tuple[UUID, UUID]:
    """A trip that Schemaless lacks, and one that it has otherwise."""
    (_, lacking), (_, other) = moving.legacy.trip(), moving.legacy.trip()
    moving.legacy.deliver()
    store = moving.facade.store.as_copier()
    store.put_cells([cell for cell in moving.duo.legacy.get_row(other).values() if cell.column_name != "BASE"])
    store.put_cells([Cell(other, "BASE", 1, {"status": "wrong"})])
    return lacking, other


def make_equal(moving: Migration, lacking: UUID, other: UUID) -> None:
    moving.legacy.sql("UPDATE trips SET status = 'again' WHERE trip_uuid = %s", str(other))
    moving.carry()
    moving.facade.store.as_copier().put_cells(list(moving.duo.legacy.get_row(lacking).values()))


def test_equal_stores_are_fine_and_the_gate_hears_of_it(shell: Shell, untouched: Migration) -> None:
    company = configured(shell, untouched)

    document = ran(company, "start", "--older", "all", "--json").document

    assert document["is_equal"]
    assert document["cells"] == {"equal": 40, "missing": 0, "extra": 0, "differs": 0, "not_compared": 0}
    assert (document["progress"]["rows"], document["older"]["equal"], document["decoder"]["equal"]) == (40, 5, 20)
    noted = _noted(untouched)
    assert (noted.is_complete, noted.rows, noted.open, noted.not_compared) == (True, 40, 0, 0)
    said = ran(company, "status").stdout
    assert "equal" in said
    assert "postgres → schemaless" in said
    assert ran(company, "show").stdout.endswith("has no open finding.\n")


def test_differences_are_found_shown_written_and_rechecked(company: Shell, moving: Migration) -> None:
    lacking, other = make_different(moving)
    file = company.folder / "keys.jsonl"

    found = ran(company, "start", "--keys", "keys.jsonl", "--json", code=1).document

    assert not found["is_equal"]
    assert (found["cells"]["missing"], found["cells"]["differs"], found["open"]) == (
        2,
        1,
        4,
    )  # the decoder sees it, too
    assert _noted(moving).open == 4
    assert len(file.read_text().splitlines()) == 4
    shown = ran(company, "show", "--json", code=1).document["differences"]
    assert {(each["kind"], each["row_key"], each["column"], each["path"], each["seen_by"]) for each in shown} == {
        ("missing", str(lacking), "BASE", "", ""),
        ("missing", str(lacking), "_LEGACY_ID", "", ""),
        ("differs", str(other), "BASE", "status", ""),
        ("differs", str(other), "BASE", "status", "decoder"),
    }
    command = next(each["command"] for each in shown if each["kind"] == "differs")
    assert company.call(*command.split()[1:]).code == 0
    assert str(lacking) in ran(company, "show", "--kind", "missing", code=1).stdout
    assert "4 differences are open" in ran(company, "status", code=1).stdout

    still = ran(company, "recheck", "keys.jsonl", "--keys", "still.jsonl", code=1)
    assert "4 looked at: 0 are equal by now, 4 differ" in still.stdout
    assert len((company.folder / "still.jsonl").read_text().splitlines()) == 4
    make_equal(moving, lacking, other)
    document = ran(company, "recheck", "--json").document
    assert (document["looked_at"], document["solved"], document["not_compared"]) == (4, 4, 0)
    assert _noted(moving).open == 0
    assert ran(company, "start", "--json").document["is_equal"]


def test_what_is_not_compared_is_not_verified_enough(company: Shell, moving: Migration) -> None:
    """I12"""
    moving.legacy.trip()

    document = ran(company, "start", "--no-indexes", "--json", code=3).document

    assert document["cells"]["not_compared"] == 2
    assert not document["is_equal"]
    assert {each["kind"] for each in ran(company, "show", "--json", code=1).document["differences"]} == {"busy"}
    moving.carry()
    assert ran(company, "recheck", "--json").document["solved"] == 2
    assert ran(company, "status", "--json").document["is_equal"]


def test_older_versions_that_were_not_compared_are_not_verified_enough(shell: Shell, untouched: Migration) -> None:
    """I12"""
    company, moving = configured(shell, untouched), untouched
    ((key,),) = moving.legacy.sql("SELECT trip_uuid FROM trips WHERE id = 4")
    older = "WHERE row_key = %s AND column_name = 'BASE' AND ref_key = 1"
    ((row,),) = moving.legacy.sql(f"SELECT row FROM tripstore.log {older}", key)
    moving.legacy.sql(
        f"UPDATE tripstore.log SET row = %s {older}", str(row).replace('"status"', '"fare":true,"status"'), key
    )

    document = ran(company, "start", "--older", "all", "--no-indexes", "--json", code=3).document

    assert (document["cells"]["not_compared"], document["older"]["not_compared"]) == (0, 1)
    assert not document["is_equal"]
    assert "1 older versions were not compared" in ran(company, "status", code=3).stdout
    moving.legacy.sql(f"UPDATE tripstore.log SET row = %s {older}", str(row), key)
    assert ran(company, "start", "--older", "all", "--json").document["is_equal"]


def test_a_part_says_nothing_for_the_gate(company: Shell, moving: Migration) -> None:
    ran(company, "start", "--no-indexes")
    begun = _noted(moving).begun_at

    of_part = ran(company, "start", "--shards", "1-2", "--columns", "BASE", "--json").document

    assert of_part["progress"]["job"]["is_partial"]
    assert 0 < of_part["cells"]["equal"] < 20
    assert _noted(moving).begun_at == begun


def test_a_dry_run_compares_nothing(company: Shell, moving: Migration) -> None:
    before = len(Diffing(moving.facade).jobs.all("diff"))

    plan = ran(company, "start", "--dry-run", "--from", "schemaless", "--to", "postgres", "--json").document

    assert plan["spec"]["source"] == "schemaless"
    assert plan["parts"]
    assert "everything" in ran(company, "start", "--dry-run").stdout
    of_part = ran(company, "start", "--dry-run", "--shards", "0-1").stdout
    assert "a part" in of_part
    assert "no indexes" in of_part
    assert len(Diffing(moving.facade).jobs.all("diff")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["start", "--from", "postgres", "--to", "postgres"],
        ["start", "--shards", "9"],
        ["start", "--shards", "b"],
        ["start", "--shards", "3-1"],
        ["start", "--older", "2"],
        ["start", "--columns", "BASF"],
        ["start", "--detach", "--keys", "keys.jsonl"],
        ["start", "--shards", "1", "--indexes"],
        ["start", "--indexes", "--columns", "BASE"],
        ["status", "diff-nothing"],
        ["recheck", "diff-nothing"],
    ],
)
def test_what_makes_no_sense_is_a_wrong_call(company: Shell, arguments: list[str]) -> None:
    complaint = ran(company, *arguments, code=2).complaint

    assert complaint.startswith("Error: ")


def test_a_detached_diff_waits_until_a_worker_joins_it(company: Shell, moving: Migration) -> None:
    job = ran(company, "start", "--detach", "--json").document["progress"]["job"]
    assert job["state"] == "running"
    assert ran(company, "status", job["job"], "--json", code=5).document["progress"]["parts_done"] == 0

    resumed = ran(company, "resume", job["job"], "--processes", "2", "--json").document

    assert resumed["is_equal"]
    listed = ran(company, "list", "--json").document["jobs"]
    assert [listed[0]["job"], listed[0]["state"]] == [job["job"], "done"]
    assert job["job"] in ran(company, "list").stdout


def test_a_diff_that_was_given_up_never_goes_on(company: Shell, moving: Migration) -> None:
    job = ran(company, "start", "--detach", "--json").document["progress"]["job"]["job"]

    assert company.call("diff", "cancel", job, "--why", "a test", "--yes").code == 0
    assert ran(company, "status", job, "--json", code=1).document["progress"]["job"]["state"] == "cancelled"


def test_a_diff_that_was_interrupted_goes_on(company: Shell, failpoints: Path) -> None:
    (failpoints / "diff.summed").write_text("wait")
    process = company.start("diff", "start", "--json", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    wait_until("it compares", (failpoints / "diff.summed.hit").exists, seconds=30)
    process.send_signal(signal.SIGINT)
    (failpoints / "diff.summed.go").touch()
    _out, said = process.communicate(timeout=60)

    assert process.returncode == 5
    assert "`tripstore diff resume` goes on" in said
    assert ran(company, "resume", "--json").document["is_equal"]


def test_a_diff_whose_processes_all_ended_with_errors_has_failed(company: Shell, moving: Migration) -> None:
    """It was not interrupted: a resumed run meets the same error."""
    diffing = Diffing(moving.facade)
    plan = diffing.plan(Order(indexes=False, decoded=0, processes=2))
    nowhere: list[Json] = [{PART_OF_ROWS: [SHARDS, SHARDS + 1]}] * 2
    job = diffing.begin(msgspec.structs.replace(plan, parts=nowhere))

    failed = ran(company, "resume", job.id, "--processes", "2", "--json", code=1)

    assert failed.document["progress"]["job"]["state"] == "running"
    assert "2 of 2 processes ended with an error." in failed.complaint
    diffing.jobs.cancel("diff", job.id)


def test_a_key_list_that_another_machine_began_is_refused_before_anything_is_compared(
    company: Shell, moving: Migration
) -> None:
    """I12: without a part it would say that nothing of it differs."""
    diffing, keys = Diffing(moving.facade), company.folder / "elsewhere.jsonl"
    job = diffing.begin(diffing.plan(Order(indexes=False, processes=2, keys=str(keys))))
    diffing.runner(job, "of another machine").serve_part()
    folder = keys.with_name(f"{keys.name}.{job.id}")
    folder.rename(company.folder / "away")

    assert "part 0 " in ran(company, "resume", job.id, code=1).complaint
    assert diffing.jobs.progress(job.id).parts_done == 1
    assert not keys.exists()

    (company.folder / "away").rename(folder)
    assert ran(company, "resume", job.id, "--json").document["is_equal"]
    assert keys.exists()
    assert not folder.exists()


@pytest.mark.parametrize("verb", ["start", "recheck"])
@pytest.mark.parametrize("keys", ["/proc/keys.jsonl", "/dev/null", "nowhere/keys.jsonl"])
def test_a_key_list_without_a_place_is_refused_before_anything_is_compared(
    company: Shell, moving: Migration, verb: str, keys: str
) -> None:
    before = Diffing(moving.facade).jobs.all("diff")

    assert "Name a file in a folder that there is" in ran(company, verb, "--keys", keys, code=2).complaint

    assert Diffing(moving.facade).jobs.all("diff") == before
    assert not (company.folder / "nowhere").exists()


def test_a_key_list_leaves_nothing_else_beside_it(company: Shell) -> None:
    before = set(company.folder.iterdir())

    ran(company, "start", "--keys", "alone.jsonl")

    assert {each.name for each in set(company.folder.iterdir()) - before} == {"alone.jsonl"}


def test_a_key_list_is_of_one_machine(company: Shell) -> None:
    ran(company, "start", "--keys", "keys.jsonl")

    assert "on this machine" in ran(company, "resume", "--detach", code=2).complaint


def _noted(moving: Migration) -> JobFacts:
    """What the gates see of the last whole diff."""
    found = find_job_facts(moving.facade.store.control, DIFF)
    assert isinstance(found, JobFacts)
    return found


def _looker(moving: Migration) -> Looker:
    facade = moving.facade
    assert facade.config.legacy is not None
    return Looker(
        facade.config.legacy,
        moving.duo.legacy,
        facade.store,
        moving.duo.ports.control,
        facade.flags,
        facade.config.cutover,
    )
