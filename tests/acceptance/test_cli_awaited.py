"""A command that waits for a worker says so at once, and in its progress; with a worker it says nothing of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.mirrors import QUICK
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

NONE_RUNS = "No worker is running: "
IN_PROGRESS = r"^backfill-\S+: .*; waits: no worker is running$"


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite, with a change that no worker carries yet."""
    with migration(servers, stores, shards=2, triggers=QUICK) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.trip()
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    shell.call("schema", "apply")  # makes the reverse mirror's group
    return shell


def lines_until(shell: Shell, pattern: str, *arguments: str) -> list[str]:
    """What a command says on stderr until a line is of this pattern; then it is ended."""
    process = shell.start(*arguments)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return lines
        raise AssertionError(f"it ended without such a line: {lines}")
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_without_a_worker_a_job_says_so_first_and_in_its_progress(company: Shell, moving: Migration) -> None:
    for _ in range(20):  # at a row a second it has a progress to tell
        moving.legacy.trip()
    copied = lines_until(company, IN_PROGRESS, "backfill", "start", "--rate", "1")
    compared = lines_until(company, NONE_RUNS, "diff", "start")

    start = "`tripstore worker run` starts one."
    assert copied[1] == f"{NONE_RUNS}what services change meanwhile does not reach Schemaless. {start}"
    assert compared[1] == f"{NONE_RUNS}rows with changes that are not mirrored yet are not compared. {start}"


def test_without_a_worker_a_plan_says_so_before_it_looks(company: Shell) -> None:
    planned = company.call("cutover", "plan")

    assert planned.code == 4
    assert planned.stderr.startswith(f"{NONE_RUNS}the gates on the mirror will refuse.")


def test_control_beside_a_worker_nothing_is_said_of_it(company: Shell, moving: Migration) -> None:
    worker = company.start("worker", "run")
    try:
        triggers = moving.facade.store.triggers
        wait_until("the worker serves", lambda: all(each.unserved == 0 for each in triggers.status("mirror:reverse")))
        compared = company.call("diff", "start", "--no-indexes")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)

    assert compared.code == 0
    assert "worker is running" not in compared.stderr


def test_an_index_that_no_worker_keeps_is_named_before_it_is_waited_for(company: Shell, moving: Migration) -> None:
    (name, *_) = (definition.name for definition in moving.facade.store.config.indexes)

    verified = company.call("index", "verify", name, "--wait", "0")

    wanted = "the index does not catch up with its cells. `tripstore worker run` starts one."
    assert verified.stderr.startswith(NONE_RUNS + wanted)
