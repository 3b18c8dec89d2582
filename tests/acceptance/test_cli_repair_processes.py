"""`tripstore repair --processes N`: one job in several processes, some of which are killed, interrupted or orphaned."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
import yaml

from schemaless_core.process.fleet import EXIT_AT_ONCE
from tests.acceptance.conftest import Shell
from tests.acceptance.repaired import (
    PATIENCE_SECONDS,
    Held,
    is_alive,
    is_repaired_once,
    jobs_of,
    let_leases_end,
    many_parts,
)
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.cli.repair.run import ENDING
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.job import TARGETS_PER_PART, begin
from tripstore.migration.repair.targets import Target, from_bounds
from tripstore.phase import Phase

SHARDS = 4

Hold = Callable[..., Held]


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


@pytest.fixture
def hold(company: Shell, damaged: Migration, tmp_path: Path) -> Iterator[Hold]:
    """A repair whose processes are all held; none of them outlives the test."""
    begun: list[Held] = []

    def start(processes: int, point: str = "repair.looked") -> Held:
        begun.append(Held(company, damaged, tmp_path, processes, point))
        return begun[-1]

    yield start
    for each in begun:
        each.kill_all()


@pytest.mark.parametrize("point", ["", "repair.before_save", "repair.before_end"])
def test_i4_i11_several_processes_repair_a_job_together_though_one_ends_by_an_error(
    company: Shell, damaged: Migration, point: str, tmp_path: Path
) -> None:
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    if point:
        (failpoints / point).write_text("raise")
    arguments = ["repair", "--diff", "keys.jsonl", "--yes", "--processes", "2", "--json"]
    ran = company.run(
        *arguments, environment={"TRIPSTORE_FAILPOINTS": str(failpoints), "TMPDIR": str(failpoints.parent)}
    )

    assert ran.code == 0, ran.stderr
    document = msgspec.json.decode(ran.stdout)
    counts = {name: document[name] for name in ("state", "rows", "equal", "left", "not_compared")}
    many = 2 * TARGETS_PER_PART + len(lost) + 1
    assert counts == {"state": "done", "rows": many, "equal": many, "left": 0, "not_compared": 0}
    assert (failpoints / f"{point}.hit").exists() is bool(point)
    assert point == "repair.before_save" or document["actions"] == {"put": len(lost), "purge": 1}
    assert [damaged.facade.store.get_cell(*cell.key) for cell in lost] == lost
    assert damaged.facade.store.get_row(extra.row_key) == {}
    mended = damaged.facade.store.mends.lines(document["job"])
    lines = [(line.action, line.shard, line.row_key, line.added_id) for line in mended]
    assert len(lines) == len(set(lines))  # nothing was done twice


def test_i11_the_part_of_a_process_that_was_killed_is_done_by_the_others(
    company: Shell, damaged: Migration, hold: Hold
) -> None:
    """kill -9 right after a commit: the part is free when its lease ends, and what was done is not done twice."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    held = hold(2, "mending.answered")
    (child,) = held.children
    os.kill(child, signal.SIGKILL)
    held.release()
    # Of three parts and the end: the others have done all that it does not hold.
    wait_until("the others are done", lambda: _done_and_held(damaged, held.job) == (2, 1), PATIENCE_SECONDS)
    let_leases_end(damaged, held.job)

    assert held.ended() == 0, held.said
    is_repaired_once(damaged, held.job, lost, extra)


def _done_and_held(damaged: Migration, job: str) -> tuple[int, int]:
    progress = jobs_of(damaged).progress(job)
    return progress.parts_done, progress.parts_claimed


def test_i11_the_first_ctrl_c_ends_all_processes_after_the_parts_at_hand(
    company: Shell, damaged: Migration, hold: Hold
) -> None:
    """Two of three parts are done and counted, exit code 5, and `--resume last` does the rest."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    held = hold(2)

    held.interrupt()
    held.wait_until_it_says(ENDING)
    held.release()

    assert held.ended() == 5
    assert "`tripstore repair --resume last` goes on." in held.said
    assert jobs_of(damaged).progress(held.job).counts == dict.fromkeys(("rows", "equal"), 2 * TARGETS_PER_PART)
    assert company.call("repair", "--resume", "last").code == 0
    is_repaired_once(damaged, held.job, lost, extra)


def test_control_a_ctrl_c_that_only_a_child_hears_ends_nothing(company: Shell, damaged: Migration, hold: Hold) -> None:
    """At a terminal all of them hear it: the command decides."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    held = hold(2)

    for pid in held.children:
        os.kill(pid, signal.SIGINT)
    held.release()

    assert held.ended() == 0
    assert ENDING not in held.said
    is_repaired_once(damaged, held.job, lost, extra)


@pytest.mark.parametrize("processes", [1, 2])
def test_i4_i11_the_second_ctrl_c_ends_all_processes_at_once(
    company: Shell, damaged: Migration, hold: Hold, processes: int
) -> None:
    """They are held in the middle of a part: one Ctrl-C ends none of them, two end all. Nothing is counted."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    held = hold(processes)

    held.interrupt()
    held.wait_until_it_says(ENDING)
    assert held.process.poll() is None
    held.interrupt()

    assert held.ended() == EXIT_AT_ONCE
    assert "`tripstore repair --resume last` goes on." in held.said
    assert jobs_of(damaged).progress(held.job).counts == {}
    let_leases_end(damaged, held.job)
    assert company.call("repair", "--resume", "last").code == 0
    is_repaired_once(damaged, held.job, lost, extra)


def test_i4_i11_a_repair_is_resumed_beside_the_orphans_of_a_killed_parent(
    company: Shell, damaged: Migration, hold: Hold
) -> None:
    """The orphan acts on what it saw before the resumed repair put all of it right, and ends."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    held = hold(2)
    held.process.kill()
    held.process.wait(PATIENCE_SECONDS)
    let_leases_end(damaged, held.job)  # the orphan's, too, unless it is faster and keeps it
    resumed = company.start("repair", "--resume", "last", "--processes", "1")
    wait_until("all but the orphan's part is done", lambda: _done_and_held(damaged, held.job)[0] >= 2, PATIENCE_SECONDS)

    assert any(map(is_alive, held.children))
    held.release()

    _stdout, stderr = resumed.communicate(timeout=PATIENCE_SECONDS)
    held.wait_until_orphans_end()
    assert resumed.returncode == 0, stderr
    is_repaired_once(damaged, held.job, lost, extra)


def test_control_a_part_that_counts_before_it_is_done_is_found_out(
    company: Shell, damaged: Migration, tmp_path: Path
) -> None:
    """Saved when it was claimed, say: no process does it after a kill, and what the other tests look at shows that."""
    lost, extra = many_parts(damaged, company.folder / "keys.jsonl")
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    (failpoints / "mending.before_send").write_text("kill")
    killed = company.run(
        "repair",
        "--diff",
        "keys.jsonl",
        "--yes",
        environment={"TRIPSTORE_FAILPOINTS": str(failpoints), "TMPDIR": str(failpoints.parent)},
    )
    assert killed.code == -signal.SIGKILL
    job, jobs = jobs_of(damaged).find("repair", "last").id, jobs_of(damaged)
    let_leases_end(damaged, job)
    part = jobs.claim(job, "test", 60)
    assert part is not None
    counts = dict.fromkeys(("rows", "equal"), len(from_bounds(part.bounds)))
    jobs.save(part, "test", checkpoint=True, counts=counts, is_done=True, lease_seconds=60)

    assert company.call("repair", "--resume", "last").code == 0

    with pytest.raises(AssertionError):
        is_repaired_once(damaged, job, lost, extra)


def test_i9_several_processes_are_refused_at_another_authority(company: Shell, damaged: Migration) -> None:
    job = begin(jobs_of(damaged), [Target(uuid4(), "BASE")], authority=Backend.STORE, source="/keys.jsonl")

    ran = company.run("repair", "--resume", job.id, "--processes", "2")

    assert ran.code == 4
    assert "postgres is the authority" in ran.stderr
    company.call("repair", "--cancel", job.id, "--yes")


def test_processes_are_of_a_repair_that_works(company: Shell) -> None:
    assert company.call("repair", "--show", "last", "--processes", "2").code == 2
    assert company.call("repair", "--dry-run", "--processes", "2").code == 2
