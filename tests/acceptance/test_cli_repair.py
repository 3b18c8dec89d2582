"""`tripstore repair`: the plan of each cell, the repair itself, what is left, and how it goes on after a kill."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
import yaml

from schemaless_core import Cell, Json
from schemaless_core.cell.cell import REF_KEY_MAX
from schemaless_core.control.audit import AuditLog
from tests.acceptance.conftest import Shell
from tests.acceptance.repaired import compared, jobs_of, let_leases_end, trip
from tests.chaos.actors import wait_until
from tests.damage import lose, spoil
from tests.facades import Migration, migration
from tests.legacy import refused
from tests.mirrors import missing
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres import sqlstates
from tripstore.cli.repair.run import ENDING
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.job import TARGETS_PER_PART, begin
from tripstore.migration.repair.targets import Target
from tripstore.phase import Phase

SHARDS = 4
#: How long a command with processes of its own may take to begin or end on a busy machine.
PATIENCE_SECONDS = 150.0


@pytest.fixture(scope="module")
def damaged(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase shadow: Postgres is the authority."""
    with migration(servers, stores, shards=SHARDS) as made:
        made.phase(Phase.SHADOW)
        yield made


@pytest.fixture
def company(shell: Shell, damaged: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(damaged.document)))
    return shell


def scope(older: float) -> Json:
    """The note of a diff that looks at this share of the rows with their older versions."""
    return {"epoch": 0, "scope": {"older": older, "decoded": 0, "indexes": 0}}


def three_kinds(damaged: Migration) -> tuple[Cell, Cell, Cell, list[Difference]]:
    """A cell with other bytes, one that is lost, one that Postgres lacks."""
    changed, lost, extra = trip(damaged), trip(damaged), Cell(uuid4(), "BASE", 1, {"status": "foreign"})
    spoil(damaged.facade.store, changed, b'{"status":"foreign"}')
    lose(damaged.facade.store, lost)
    damaged.facade.store.as_copier().put_cell(*extra.key, extra.body)
    found = [
        Difference(CellClass.DIFFERS, changed.row_key, "BASE", 1, 1, "status"),
        Difference(CellClass.MISSING, lost.row_key, "BASE", 1, None),
        Difference(CellClass.EXTRA, extra.row_key, "BASE", None, 1),
    ]
    return changed, lost, extra, found


def steps(document: Any) -> list[tuple[UUID, str, int]]:
    return [(UUID(each["row_key"]), each["action"], each["ref_key"]) for each in document["steps"]]


def test_the_plan_says_of_each_cell_what_it_will_be_and_changes_nothing(company: Shell, damaged: Migration) -> None:
    changed, lost, extra, found = three_kinds(damaged)
    diff = compared(damaged, *found)

    ran = company.call("repair", "--dry-run", "--json")
    shown = company.call("repair", "--dry-run", "--diff", diff)

    assert (ran.code, shown.code) == (1, 1)
    assert ran.document["diff"] == diff
    assert ran.document["actions"] == {"lift": 1, "put": 1, "purge": 1}
    assert steps(ran.document) == [
        (changed.row_key, "lift", 2),
        (lost.row_key, "put", 1),
        (extra.row_key, "purge", 1),
    ]
    assert str(lost.row_key) in shown.stdout
    assert "1 to be put into the mirror." in shown.stdout
    assert damaged.facade.store.get_cell(*extra.key) == extra
    assert damaged.facade.store.get_cell(*lost.key) is None
    assert jobs_of(damaged).all("repair") == [] or all(job.spec["of"] != diff for job in jobs_of(damaged).all("repair"))


def test_what_differs_in_the_stores_is_no_fault_of_the_decoder_that_saw_it_too(
    company: Shell, damaged: Migration
) -> None:
    changed, odd = trip(damaged), trip(damaged)
    spoil(damaged.facade.store, changed, b'{"status":"foreign"}')
    both = [
        Difference(CellClass.DIFFERS, changed.row_key, "BASE", 1, 1, "status", seen_by=by) for by in ("", "decoder")
    ]
    diff = compared(damaged, *both)
    mended, again = company.call("repair", "--yes"), company.call("repair", "--diff", diff)
    compared(damaged, Difference(CellClass.DIFFERS, odd.row_key, "BASE", 1, 1, "status", seen_by="decoder"))
    reported = company.call("repair", "--dry-run")

    assert (mended.code, again.code, reported.code) == (0, 0, 0)
    assert "decoder" not in mended.stderr + again.stderr
    assert "Of the diff's findings 2 are closed, 0 still differ, 0 could not be compared." in mended.stdout
    assert jobs_of(damaged).open_kinds(diff) == {}
    assert "1 cells are equal in both stores, and a second decoder reads them otherwise" in reported.stderr


def test_a_repair_makes_them_equal_and_says_so(company: Shell, damaged: Migration) -> None:
    changed, lost, extra, found = three_kinds(damaged)
    diff = compared(damaged, *found)

    refused = company.call("repair")
    ran = company.call("repair", "--yes", "--json")

    assert refused.code == 4
    assert "--yes" in refused.complaint
    assert (ran.code, ran.document["state"]) == (0, "done")
    counts = {name: ran.document[name] for name in ("rows", "equal", "left", "not_compared")}
    assert counts == {"rows": 3, "equal": 3, "left": 0, "not_compared": 0}
    assert ran.document["actions"] == {"lift": 1, "put": 2, "purge": 1}
    store = damaged.facade.store
    assert store.get_cell_latest(changed.row_key, "BASE") == Cell(changed.row_key, "BASE", 2, changed.body)
    assert store.get_cell(*lost.key) == lost
    assert store.get_row(extra.row_key) == {}
    rechecked = {name: ran.document["recheck"][name] for name in ("looked_at", "solved", "remaining", "not_compared")}
    assert rechecked == {"looked_at": 3, "solved": 3, "remaining": 0, "not_compared": 0}
    again = company.call("repair", "--diff", diff, "--json")
    assert (again.code, again.document["targets"], again.document["steps"]) == (0, 0, [])


def test_a_diff_finds_it_a_repair_mends_it_and_the_next_diff_finds_nothing(
    shell: Shell, servers: LocalServers, stores: Stores
) -> None:
    """The commands a person runs, on every kind of damage at once, older versions included."""
    with migration(servers, stores, shards=SHARDS) as moving:
        moving.phase(Phase.SHADOW)
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
        three_kinds(moving)
        torn, older = trip(moving), trip(moving)
        spoil(moving.facade.store, torn, b"torn")
        moving.legacy.sql("UPDATE trips SET status = 'next' WHERE trip_uuid = %s", str(older.row_key))
        moving.carry()
        spoil(moving.facade.store, older, b'{"status":"foreign"}')

        found = shell.call("diff", "start", "--json")
        planned = shell.call("repair", "--dry-run", "--json")
        mended = shell.call("repair", "--yes", "--json")
        after = shell.call("diff", "start", "--json")

        assert (found.code, planned.code, mended.code, after.code) == (1, 1, 0, 0), mended
        assert planned.document["actions"] == {"lift": 1, "put": 1, "purge": 1, "mend": 1}
        assert mended.document["recheck"]["remaining"] == 0
        # A lift leaves what was wrong as history, and another cell was damaged there from the beginning.
        found = shell.call("diff", "start", "--older", "all", "--json")
        mended = shell.call("repair", "--yes", "--json")
        after = shell.call("diff", "start", "--older", "all", "--json")
        assert (found.code, mended.code, after.code) == (1, 0, 0), mended
        assert mended.document["actions"] == {"mend": 2}


def test_a_key_list_is_as_good_as_a_job(company: Shell, damaged: Migration) -> None:
    _changed, lost, _extra, found = three_kinds(damaged)
    path = company.folder / "keys.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each.document()) + b"\n" for each in found))

    ran = company.call("repair", "--diff", str(path), "--yes", "--json")

    assert (ran.code, ran.document["equal"]) == (0, 3)
    assert damaged.facade.store.get_cell(*lost.key) == lost
    path.write_text("no difference\n")
    refused = company.call("repair", "--diff", str(path), "--dry-run")
    assert refused.code != 0
    assert "Line 1" in refused.complaint


def test_a_key_list_may_have_the_name_of_a_diff(company: Shell, damaged: Migration, tmp_path: Path) -> None:
    """What a job was begun with stands in it: neither the command nor one that resumes it looks for such a diff."""
    path = company.folder / "diff-0f1e2d3c.jsonl"
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    for is_killed in (False, True):
        _changed, lost, _extra, found = three_kinds(damaged)
        path.write_bytes(b"".join(msgspec.json.encode(each.document()) + b"\n" for each in found))
        arguments = ["--diff", path.name, "--yes"]
        if is_killed:
            (failpoints / "jobs.saving").write_text("kill")
            environment = {"TRIPSTORE_FAILPOINTS": str(failpoints)}
            assert company.run("repair", *arguments, environment=environment).code == -signal.SIGKILL
            let_leases_end(damaged, jobs_of(damaged).all("repair")[0].id)
            arguments = ["--resume", "last"]

        ran = company.call("repair", *arguments, "--json")

        assert (ran.code, ran.document["equal"], ran.document["recheck"]) == (0, 3, None), ran.complaint
        assert damaged.facade.store.get_cell(*lost.key) == lost


def test_what_a_sample_left_out_is_said(company: Shell, damaged: Migration) -> None:
    compared(damaged, counts={"findings_left_out": 12})

    ran = company.call("repair", "--dry-run")

    assert ran.code == 1
    assert "12 more differences" in ran.complaint
    assert "--keys" in ran.complaint
    assert company.call("repair", "--dry-run", "--json").document["left_out"] == 12


def test_a_repair_of_a_sample_never_says_that_all_is_equal(company: Shell, damaged: Migration) -> None:
    _changed, _lost, _extra, found = three_kinds(damaged)
    compared(damaged, *found, counts={"findings_left_out": 12})

    ran = company.call("repair", "--yes", "--json")

    assert (ran.code, ran.document["equal"], ran.document["left"], ran.document["left_out"]) == (1, 3, 0, 12)
    again = company.call("repair", "--show", "last")
    assert again.code == 1
    assert "12 more" in again.stdout


def test_a_diff_without_differences_needs_no_repair(company: Shell, damaged: Migration) -> None:
    compared(damaged)

    ran = company.call("repair", "--yes")

    assert (ran.code, ran.stdout) == (0, "The diff has no open differences.\n")
    assert company.call("repair", "--diff", "diff-none", "--yes").code == 2


def test_i9_a_repair_that_was_begun_at_another_authority_is_refused(company: Shell, damaged: Migration) -> None:
    extra = Cell(uuid4(), "BASE", 1, {"status": "foreign"})
    damaged.facade.store.as_copier().put_cell(*extra.key, extra.body)
    job = begin(jobs_of(damaged), [Target(extra.row_key, "BASE")], authority=Backend.STORE, source="keys.jsonl")

    ran = company.call("repair", "--resume", job.id)

    assert ran.code == 4
    assert "postgres is the authority" in ran.complaint
    assert f"`tripstore repair --cancel {job.id}` gives it up." in ran.complaint
    assert "goes on" not in ran.complaint
    assert damaged.facade.store.get_cell(*extra.key) == extra
    status, doctor = company.call("status"), company.call("doctor")
    for advice in (f"tripstore repair --resume {job.id}", f"tripstore repair --cancel {job.id}"):
        assert advice in " ".join(status.stdout.split())
        assert advice in " ".join(doctor.stdout.split())
    given_up = company.call("repair", "--cancel", job.id, "--why", "another authority", "--yes", "--json")
    assert (given_up.code, given_up.document["state"]) == (0, "cancelled")
    refused = company.call("repair", "--resume", job.id)
    assert refused.code == 2
    assert "`tripstore repair --help`" in refused.complaint


def test_what_is_given_up_is_given_up_by_a_person_and_for_ever(company: Shell, damaged: Migration) -> None:
    """It needs neither store nor `legacy:`, and is audited like any other job."""
    job = begin(jobs_of(damaged), [Target(uuid4(), "BASE")], authority=Backend.LEGACY, source="/keys.jsonl")
    document = dict(damaged.document)
    del document["legacy"]
    (company.folder / "tripstore.yaml").write_text(yaml.safe_dump(document))

    refused = company.call("repair", "--cancel", job.id)
    running = company.call("repair", "--show", job.id)
    done = company.call("repair", "--cancel", job.id, "--why", "no mirror any more", "--yes")
    again = company.call("repair", "--show", job.id, "--json")

    assert (refused.code, running.code) == (4, 5)
    assert "no process works at" in running.stdout
    assert f"tripstore repair --cancel {job.id}" in " ".join(running.stdout.split())
    assert done.code == 0
    assert "cancelled (no mirror any more); 0 of 2 parts are done" in " ".join(done.stdout.split())
    assert (again.code, again.document["state"], again.document["progress"]["job"]["why"]) == (
        1,
        "cancelled",
        "no mirror any more",
    )
    (audited,) = AuditLog(damaged.facade.store.control).newest(1)
    assert audited.action == "repair.cancel"
    assert msgspec.json.decode(audited.detail) == {"job": job.id, "why": "no mirror any more"}
    assert f"no process works at {job.id}" not in company.call("status").stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--show", "last", "--resume", "last"],
        ["--cancel", "last", "--dry-run"],
        ["--show", "last", "--holes"],
        ["--resume", "last", "--mend-authority"],
        ["--show", "last", "--diff", "diff-1"],
        ["--why", "because"],
        ["--show", "last", "--why", "because"],
    ],
)
def test_a_repair_is_either_begun_or_looked_after(company: Shell, options: list[str]) -> None:
    ran = company.call("repair", *options, "--yes")

    assert ran.code == 2
    assert "leave the other options out" in ran.complaint or "--why goes with" in ran.complaint


def test_of_a_repair_that_there_is_not_it_is_said_how_one_begins(company: Shell) -> None:
    ran = company.call("repair", "--show", "repair-0")

    assert ran.code == 2
    assert "There is no repair repair-0. `tripstore repair` begins one" in " ".join(ran.complaint.split())


def test_what_a_person_must_decide_is_left_with_its_reason(company: Shell, damaged: Migration) -> None:
    """A row of the company's that no cell can be made of."""
    found = trip(damaged)
    damaged.legacy.sql("UPDATE trips SET base_extra = '{\"status\": 1}' WHERE trip_uuid = %s", str(found.row_key))
    closely = scope(older=1.0)
    compared(damaged, Difference(CellClass.DIFFERS, found.row_key, "BASE", 2, 1, "ref_key"), note=closely)

    ran = company.call("repair", "--yes", "--json")

    assert (ran.code, ran.document["left"], ran.document["equal"]) == (1, 1, 0)
    (left,) = ran.document["findings"]
    assert (left["kind"], UUID(left["row_key"])) == ("left", found.row_key)
    assert left["why"]
    shown, said = company.call("repair", "--show", "last", "--json"), company.call("repair", "--show", "last")
    assert (shown.code, shown.document["actions"]) == (1, {})
    assert shown.document == {**ran.document, "actions": {}, "progress": shown.document["progress"]}
    assert shown.document["recheck"]["looked_at"] == 1
    assert (said.code, str(found.row_key) in said.stdout, "2 of 2 parts are done" in said.stdout) == (1, True, True)

    def is_told() -> bool:
        return f"tripstore repair --show {ran.document['job']}" in " ".join(company.call("status").stdout.split())

    told = [is_told()]
    compared(damaged, is_partial=True, note=closely)
    told.append(is_told())
    compared(damaged, note=scope(older=0.0))  # it looked at no older version
    told.append(is_told())
    compared(damaged, note=closely)  # everything: what still differs it has found itself
    told.append(is_told())
    assert told == [True, True, True, False]
    damaged.legacy.sql("UPDATE trips SET base_extra = NULL WHERE trip_uuid = %s", str(found.row_key))
    damaged.legacy.sql("DELETE FROM tripstore.queue")


def test_holes_without_a_record_are_closed_when_the_operator_says_so(company: Shell, damaged: Migration) -> None:
    company.call("repair", "--holes", "--yes")  # those that other tests have left
    cell = Cell(uuid4(), "BASE", 1, {"status": "foreign"})
    damaged.facade.store.as_copier().put_cell(*cell.key, cell.body)
    hole = lose(damaged.facade.store, cell)
    shard = damaged.store.shard_of(cell.row_key)

    planned = company.call("repair", "--holes", "--dry-run", "--json")
    closed = company.call("repair", "--holes", "--yes", "--json")
    again = company.call("repair", "--holes")

    assert (planned.code, planned.document) == (
        1,
        {"is_closed": False, "holes": [{"shard": shard, "added_ids": [hole]}]},
    )
    assert (closed.code, closed.document["is_closed"]) == (0, True)
    assert (again.code, again.stdout) == (0, "No log has a hole.\n")
    page = damaged.facade.store.get_cells_for_shard(shard, 0, 1000)
    assert page.next_location == page.head


def test_holes_of_each_shard_have_a_line_of_the_audit_log(company: Shell, damaged: Migration) -> None:
    """One line for all of them has room for some ten thousand holes only, and MariaDB refuses a longer one."""
    company.call("repair", "--holes", "--yes")
    holes: dict[str, list[int]] = {}
    while len(holes) < 2:
        cell = Cell(uuid4(), "BASE", 1, {"status": "foreign"})
        damaged.facade.store.as_copier().put_cell(*cell.key, cell.body)
        hole = lose(damaged.facade.store, cell)
        holes.setdefault(str(damaged.store.shard_of(cell.row_key)), []).append(hole)

    assert company.call("repair", "--holes", "--yes").code == 0

    lines = AuditLog(damaged.facade.store.control).newest(len(holes))
    assert [line.action for line in lines] == ["repair.close_holes"] * len(holes)
    assert {shard: ids for line in lines for shard, ids in msgspec.json.decode(line.detail).items()} == holes


def test_rows_that_are_frozen_are_shown_and_lowered(company: Shell, damaged: Migration) -> None:
    """A login of tripstore's wrote the last version there is. The control: a service cannot change the row."""
    cell = trip(damaged)
    damaged.legacy.sql(
        "SELECT set_config('tripstore.origin', 'facade', true);UPDATE trips SET base_version = %s WHERE trip_uuid = %s",
        REF_KEY_MAX,
        str(cell.row_key),
    )
    damaged.carry()
    change = "UPDATE trips SET status = 'done' WHERE trip_uuid = %s"
    with refused(sqlstates.OUT_OF_RANGE):
        damaged.legacy.sql(change, str(cell.row_key))

    planned = company.call("repair", "--frozen", "--dry-run", "--json")
    lowered = company.call("repair", "--frozen", "--yes", "--json")
    again = company.call("repair", "--frozen")
    damaged.legacy.sql(change, str(cell.row_key))
    damaged.carry()

    row = {"row_key": str(cell.row_key), "column": "BASE", "ref_key": REF_KEY_MAX, "to": 2, "why": ""}
    assert (planned.code, planned.document) == (1, {"rows": [{**row, "is_lowered": False}], "left": 1})
    assert (lowered.code, lowered.document) == (0, {"rows": [{**row, "is_lowered": True}], "left": 0})
    assert (again.code, again.stdout) == (0, "No row is frozen.\n")
    assert [each.ref_key for each in damaged.facade.store.get_history(cell.row_key, "BASE")] == [3, 2, 1]
    assert company.call("repair", "--frozen", "--holes").code == 2


#: The other failpoints are met in the tests' own process: tests/integration/test_repair_job.py.
KILLED_AT = ["lift.committed", "mending.answered", "repair.rechecked", "jobs.saving"]


@pytest.mark.parametrize("point", KILLED_AT if SCALE >= 1 else KILLED_AT[1:3])
def test_i11_a_repair_that_was_killed_goes_on_and_counts_each_cell_once(
    company: Shell, damaged: Migration, point: str, tmp_path: Path
) -> None:
    _changed, _lost, extra, found = three_kinds(damaged)
    diff = compared(damaged, *found)
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    (failpoints / point).write_text("kill")

    killed = company.run("repair", "--yes", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    assert killed.code == -signal.SIGKILL
    (job,) = jobs_of(damaged).all("repair")[:1]
    let_leases_end(damaged, job.id)
    resumed = company.call("repair", "--resume", "last", "--json")

    assert resumed.code == 0
    counts = jobs_of(damaged).progress(job.id).counts
    assert counts == {"rows": 3, "equal": 3}
    assert jobs_of(damaged).progress(diff).findings_open == 0
    assert damaged.facade.store.get_row(extra.row_key) == {}
    actions = [line.action for line in damaged.facade.store.mends.lines(job.id)]
    assert len(actions) == len(set(actions))
    damaged.carry()
    assert not set(missing(damaged)) & {each.key for each in _of(damaged, found)}


def _of(damaged: Migration, found: Sequence[Difference]) -> list[Cell]:
    keys = [(each.row_key, each.column_name) for each in found]
    cells = (damaged.store.get_cell_latest(*key) for key in keys)
    return [cell for cell in cells if cell is not None]


def interrupt(process: subprocess.Popen[str]) -> None:
    """Once it says that it was told, it is: what waits may go on."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any(ENDING in line for line in process.stderr)


def test_ctrl_c_ends_it_after_the_part_at_hand(company: Shell, damaged: Migration, tmp_path: Path) -> None:
    """Exit code 5, and the rest is done by --resume."""
    lost = trip(damaged)
    lose(damaged.facade.store, lost)
    keys = [lost.row_key, *(uuid4() for _ in range(TARGETS_PER_PART))]  # what no side has is equal
    compared(damaged, *(Difference(CellClass.MISSING, key, "BASE", 1, None) for key in keys))
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    (failpoints / "repair.looked").write_text("wait")

    process = company.start("repair", "--yes", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    wait_until("it is at work", (failpoints / "repair.looked.hit").exists)
    interrupt(process)
    (failpoints / "repair.looked.go").touch()
    _stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 5, stderr
    assert "--resume" in stderr
    (job,) = jobs_of(damaged).all("repair")[:1]
    assert jobs_of(damaged).progress(job.id).counts == dict.fromkeys(("rows", "equal"), TARGETS_PER_PART)
    assert company.call("repair", "--resume", job.id).code == 0
    assert jobs_of(damaged).progress(job.id).counts == dict.fromkeys(("rows", "equal"), TARGETS_PER_PART + 1)
    assert damaged.facade.store.get_cell(*lost.key) == lost


def test_ctrl_c_reaches_its_end_too(company: Shell, damaged: Migration, tmp_path: Path) -> None:
    """Exit code 5 before the diff's findings are looked at, which --resume does."""
    lost = trip(damaged)
    lose(damaged.facade.store, lost)
    diff = compared(damaged, Difference(CellClass.MISSING, lost.row_key, "BASE", 1, None))
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    (failpoints / "repair.claimed").write_text("wait after=1")

    process = company.start("repair", "--yes", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    wait_until("it is at its end", (failpoints / "repair.claimed.hit").exists)
    interrupt(process)
    (failpoints / "repair.claimed.go").touch()
    _stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 5, stderr
    assert "--resume" in stderr
    assert jobs_of(damaged).progress(diff).findings_open == 1
    resumed = company.call("repair", "--resume", "last", "--json")
    assert (resumed.code, resumed.document["recheck"]["solved"]) == (0, 1)
    assert jobs_of(damaged).progress(diff).findings_open == 0
