"""A backfill by blocks that is ended anywhere, in any way, while services write and rows move: what goes on afterwards
makes both stores equal, loses no row that moved, and leaves no trigger (I4, I11, I12)."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from schemaless_core.failpoints import use_folder
from tests.block_walks import lacking, left_in_postgres
from tests.chaos.actors import running, wait_until
from tests.chaos.backfill_actors import check_saves, run_here
from tests.chaos.test_backfill_kills import ACCIDENTS, POINTS, Case, Scene, check_again, end_it, scene, services
from tests.forking import FORK_SERVER
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill import left_walks
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.walk import WalkKind
from tripstore.wiring import connect

ROWS = 300
BY_BLOCKS = Wanted(chunk_rows=7, verify=0.2, walk=WalkKind.BLOCKS)
#: Of the end of a walk alone: once for each table, and once.
AT_THE_END = ("walk.trigger_dropped", "walk.functions_dropped")
EVERY = [Case(accident, point, 7) for accident, point in product(ACCIDENTS, (*POINTS, *AT_THE_END))]
#: What no mapped column knows of.
MOVES = """
UPDATE trips SET memo = repeat('x', 200) WHERE id % 3 = {n};
UPDATE attempts SET memo = repeat('x', 200) WHERE id % 3 = {n};
UPDATE notes SET memo = repeat('x', 200) WHERE trip_id % 3 = {n};
"""
REWRITE = "VACUUM FULL attempts"


def chosen() -> list[Case]:
    """All of them; in CI two, others in every run, the same in all processes of it."""
    return EVERY if SCALE >= 1 else random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).sample(EVERY, 2)


@pytest.fixture
def found(servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path) -> Iterator[Scene]:
    with scene(servers, stores, tmp_path, failpoints, ROWS) as made:
        yield made


@pytest.mark.parametrize("case", chosen(), ids=str)
@pytest.mark.parametrize("is_rewritten", [False, True], ids=["moves", "written anew"])
def test_i11_i12_after_any_accident_nothing_is_missed_and_nothing_is_left(
    found: Scene, case: Case, is_rewritten: bool
) -> None:
    """Where a table is written anew, the end of the walk reads it by row keys."""
    sql = found.migration.legacy.sql
    job = found.backfill.begin(found.backfill.plan(BY_BLOCKS))
    with services(found):
        sql(MOVES.format(n=0))
        end_it(found, case, job)
        sql(MOVES.format(n=1))
        if is_rewritten:
            sql(REWRITE)
        ending = run_here(found.backfill, job, found.path)
    found.migration.carry()

    assert ending == "done"
    assert found.backfill.jobs.findings(job.id) == []
    progress = found.backfill.jobs.progress(job.id)
    assert progress.counts == check_saves(found.path, progress.parts)
    assert progress.counts["rows"] >= len(found.keys)
    assert lacking(found.migration) == set()
    assert left_in_postgres(found.migration) == []
    check_again(found, job)


@pytest.mark.parametrize("point", ["walk.table_made", "walk.before_trigger", "walk.noted"])
def test_what_a_command_left_that_was_killed_before_there_was_a_job_is_dropped_by_the_next_one(
    found: Scene, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found.failpoints / point).write_text("kill after=1" if point == "walk.before_trigger" else "kill")
    process = FORK_SERVER.Process(
        target=_begin, args=(dict(found.migration.document), str(found.failpoints)), daemon=True
    )
    with running([process]):
        wait_until("it was killed", lambda: not process.is_alive(), 60)
    assert process.exitcode == -signal.SIGKILL
    assert left_in_postgres(found.migration)
    assert found.backfill.jobs.all("backfill") == []
    monkeypatch.setattr(left_walks, "FORGOTTEN_SECONDS", 0.0)

    job = found.backfill.begin(found.backfill.plan(BY_BLOCKS))

    assert run_here(found.backfill, job, found.path) == "done"
    assert left_in_postgres(found.migration) == []
    assert lacking(found.migration) == set()


def _begin(document: Mapping[str, Any], failpoints: str) -> None:
    use_folder(Path(failpoints))
    with connect(document) as store:
        backfill = Backfill(store.facade)
        backfill.begin(backfill.plan(BY_BLOCKS))
