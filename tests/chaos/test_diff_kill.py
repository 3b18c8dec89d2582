"""kill -9 at every point of a diff: the process that goes on counts what an undisturbed diff counts (I11)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from schemaless_core.control.changes import make_change
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.control.jobs.parts import add_counts
from schemaless_core.failpoints import use_folder
from tests.facades import Migration, migration
from tests.forking import FORK_SERVER
from tests.integration.creation import finish
from tests.scale import scaled
from tests.stores import Stores
from tripstore.engines.validation.diff.keylist import read_key_list
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase
from tripstore.wiring import connect

KILLS = scaled(200, least=9)
#: From the claim of a part to the save of a step, and in between.
POINTS = [
    "jobs.claimed",
    "diff.step",
    "diff.summed",
    "diff.keyed",
    "diff.recheck",
    "diff.before_save",
    "jobs.saving",
    "jobs.saved",
    "diff.saved",
]
ROWS = """
INSERT INTO trips (driver_id, status) SELECT 1 + n % 2, 'requested' FROM generate_series(1, 80) n;
INSERT INTO notes (trip_id, trip_uuid, n, text)
SELECT id, trip_uuid, n, 'a note' FROM trips, generate_series(1, 3) n WHERE id % 2 = 0;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)
SELECT id, trip_uuid, n, 'captured' FROM trips, generate_series(1, 2) n WHERE id % 8 = 0;
UPDATE trips SET status = 'completed' WHERE id % 3 = 0;
"""


@pytest.fixture(scope="module")
def company(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Half of it is in Schemaless, and the other half will never be."""
    with migration(servers, stores, shards=8) as made:
        made.legacy.sql(ROWS)
        made.phase(Phase.DUALWRITE)
        # Of a parent's children each is lost by itself.
        made.legacy.sql("DELETE FROM tripstore.queue WHERE hashtext(row_key::text || ref_key) % 2 = 0")
        made.carry()
        yield made


def order(keys: Path) -> Order:
    return Order(indexes=False, older=1.0, sample=3, processes=8, keys=str(keys))


def compare(document: Mapping[str, Any], failpoints: str, job_id: str) -> None:
    """A process that serves a job. By its name it has again what the one before it held."""
    use_folder(Path(failpoints))
    with connect(document) as store:
        diffing = Diffing(store.facade)
        job = diffing.jobs.find("diff", job_id)
        diffing.runner(job, "worker").run()


def test_a_diff_that_is_killed_at_any_point_counts_what_an_undisturbed_one_counts(
    company: Migration, failpoints: Path, tmp_path: Path
) -> None:
    """I11"""
    diffing, chance = Diffing(company.facade), random.Random(11)
    whole = diffing.begin(diffing.plan(order(tmp_path / "whole.jsonl")))
    diffing.runner(whole, "test").run()
    diffing.finish(whole)
    killed = diffing.begin(diffing.plan(order(tmp_path / "killed.jsonl")))
    kills = Counter[str]()

    for number in range(KILLS):
        point = POINTS[number % len(POINTS)]
        (failpoints / point).write_text(f"kill after={chance.randrange(3)}")
        process = FORK_SERVER.Process(target=compare, args=(dict(company.document), str(failpoints), killed.id))
        process.start()
        kills[point] += finish(process) < 0
        (failpoints / point).unlink(missing_ok=True)
        if diffing.jobs.state(killed.id) is JobState.DONE:
            _check(diffing, killed, whole, tmp_path)
            killed = diffing.begin(diffing.plan(order(tmp_path / "killed.jsonl")))
    assert diffing.runner(killed, "worker").run() is JobState.DONE

    _check(diffing, killed, whole, tmp_path)
    assert kills.total() >= KILLS // 2
    print(f"sqlite: {kills.total()} kills of a diff, counts and key lists exact")


def _check(diffing: Diffing, killed: Job, whole: Job, folder: Path) -> None:
    diffing.finish(killed)
    counts = dict(diffing.jobs.progress(whole.id).counts)
    assert dict(diffing.jobs.progress(killed.id).counts) == counts
    assert counts["missing"] > 20
    assert counts["open"] > 20
    assert _findings(diffing.jobs, killed) == _findings(diffing.jobs, whole)
    listed = Counter(read_key_list(folder / "killed.jsonl"))
    assert listed == Counter(read_key_list(folder / "whole.jsonl"))
    assert listed.total() == counts["open"]


def _findings(jobs: Jobs, job: Job) -> list[tuple[Any, ...]]:
    found = jobs.findings(job.id, limit=100_000)
    return sorted((each.kind, str(each.row_key), str(each.column_name), str(each.body)) for each in found)


def test_counts_that_are_saved_beside_the_checkpoint_are_caught(
    company: Migration, failpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a step whose counts are kept before its checkpoint is counted twice after a crash."""
    diffing = Diffing(company.facade)
    whole = diffing.begin(diffing.plan(order(tmp_path / "whole.jsonl")))
    diffing.runner(whole, "test").run()
    diffing.finish(whole)
    broken = diffing.begin(diffing.plan(order(tmp_path / "killed.jsonl")))
    known = Jobs.save

    def save(jobs: Jobs, part: Any, worker: str, **more: Any) -> Any:
        make_change(company.facade.store.control, lambda connection: add_counts(connection, part.job, more["counts"]))
        if not crashed:
            crashed.append(part)
            raise KeyboardInterrupt
        return known(jobs, part, worker, **{**more, "counts": {}})

    crashed: list[Any] = []
    monkeypatch.setattr(Jobs, "save", save)
    with pytest.raises(KeyboardInterrupt):
        diffing.runner(broken, "worker").run()
    diffing.runner(broken, "worker").run()

    with pytest.raises(AssertionError):
        _check(diffing, broken, whole, tmp_path)
