"""A purge ends when each server that may lead has it, or names the one that has not (I1, I2, I12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.engine.primacy import Reached
from schemaless_core.failpoints import FailpointReached
from schemaless_core.purging import purge_jobs, replicas
from schemaless_core.purging.replicas import LackingReplica, PurgeReplicas
from schemaless_core.purging.runner import BEHIND, LEFT
from schemaless_core.servers.guarded import GuardedNode
from tests.backups import expire
from tests.fscks import row_of
from tests.integration.test_purged_salvage import shard_of_a, superseded
from tests.integration.test_second_copies import stop_applying
from tests.promoted import Promotable, promotable
from tests.purges import SHARDS, begun, check_gone, is_back, person
from tests.repairs import failing_at
from tests.stores import ServerEngine

_LOOK = replicas._look


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """Its shards have no index, so no part waits for writers of entries."""
    with promotable(server_engine, tmp_path / "control", replicas=1, shards=SHARDS) as it:
        yield it


def rows(made: Promotable, count: int = 1) -> list[UUID]:
    """That the replica has as well."""
    found = [row_of(made.store, shard_of_a(made)) for _ in range(count)]
    for row_key in found:
        made.store.put_cells(person(row_key))
    made.cluster.wait_for_replicas()
    return found


def ended(made: Promotable, job: Job, replica_seconds: float = 0.0) -> list[str]:
    """To its end; the servers that are named then."""
    runner = made.store.purge_jobs.runner(job, "test", settle_seconds=0.0, replica_seconds=replica_seconds)
    assert runner.run() is JobState.DONE
    found = made.store.purge_jobs.jobs.findings(job.id, kinds=[BEHIND])
    return [str(each.body["server"]) for each in found]


def die_and_promote(made: Promotable) -> None:
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))


def after_a_look(act: Callable[[], object]) -> Callable[[GuardedNode, Reached], LackingReplica | None]:
    """What a look at a replica does instead: the first one that finds it late is followed by this."""
    done = list[object]()

    def look(replica: GuardedNode, reached: Reached) -> LackingReplica | None:
        found = _LOOK(replica, reached)
        if found is not None and not done:
            done.append(act())
        return found

    return look


def test_i1_a_purge_ends_when_the_replica_has_it(made: Promotable, server_engine: ServerEngine) -> None:
    (row_key,) = rows(made)
    stop_applying(made, server_engine)
    late = list[str]()

    def go_on() -> None:
        late.append("it was late")
        stop_applying(made, server_engine, is_stopped=False)

    with patch.object(replicas, "_look", after_a_look(go_on)):
        assert ended(made, begun(made.store, row_key), replica_seconds=60.0) == []
    assert late == ["it was late"], "control: it was waited for"
    die_and_promote(made)

    check_gone(made.store, row_key)


def test_i12_a_replica_that_lacks_a_purge_is_named_until_it_has_it(
    made: Promotable, server_engine: ServerEngine
) -> None:
    (row_key,) = rows(made)
    stop_applying(made, server_engine)

    assert ended(made, begun(made.store, row_key)) == [made.name(made.replica())]

    made.replica().kill()
    assert ended(made, begun(made.store, row_key)) == [made.name(made.replica())], "it does not say"
    made.replica().start()
    stop_applying(made, server_engine, is_stopped=False)
    made.cluster.wait_for_replicas()
    assert ended(made, begun(made.store, row_key)) == []


def test_i12_a_replica_that_has_it_by_the_end_of_a_later_part_is_named_no_more(
    made: Promotable, server_engine: ServerEngine
) -> None:
    found = rows(made, 2)
    stop_applying(made, server_engine)

    def go_on() -> None:
        stop_applying(made, server_engine, is_stopped=False)

    def caught_up(its: PurgeReplicas, *how: object) -> list[LackingReplica] | None:
        if how[2]:
            made.cluster.wait_for_replicas()
        return lacking(its, *how)  # type: ignore[arg-type]  # as it was called

    lacking = PurgeReplicas.lacking
    with (
        patch.object(purge_jobs, "ROWS_PER_PART", 1),
        patch.object(replicas, "_look", after_a_look(go_on)),
        patch.object(PurgeReplicas, "lacking", caught_up),
    ):
        job = begun(made.store, *found)
        assert ended(made, job) == []
    closed = made.store.purge_jobs.jobs.findings(job.id, kinds=[BEHIND], open_only=False)
    assert [each.body["server"] for each in closed] == [made.name(made.replica())], "control: the first part named it"


POINTS = ("purge.saved", "purge.before_replicas", "purge.replicated")


@pytest.mark.parametrize("point", POINTS)
def test_i1_i2_a_part_that_a_promotion_came_before_begins_anew(made: Promotable, point: str) -> None:
    """The replica that leads then has none of it. The worker died, and another one goes on."""
    (row_key,) = rows(made)
    made.replica().query("STOP REPLICA IO_THREAD")
    job = begun(made.store, row_key)
    died_at(made, job, point)
    die_and_promote(made)
    assert is_back(made.store, row_key), "control: it is whole"

    ended(made, job)

    check_gone(made.store, row_key)
    assert made.store.purge_jobs.jobs.findings(job.id, kinds=[LEFT]) == []
    counts = made.store.purge_jobs.jobs.progress(job.id).counts
    assert counts == {"cells": 8, "purged": 2, "rows": 1}, "deleted from two logs, and looked through once"


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "control: no promotion is heard of"])
def test_i2_versions_that_a_promotion_brought_back_are_purged_again(made: Promotable, is_known: bool) -> None:
    (row_key,) = rows(made)
    made.replica().query("STOP REPLICA IO_THREAD")
    purges = made.store.purge_jobs
    job = purges.begin(purges.plan(superseded()))
    died_at(made, job, "purge.replicated")
    die_and_promote(made)
    assert len(made.store.get_history(row_key, "BASE")) == 3

    if is_known:
        ended(made, job)
    else:
        with patch.object(PurgeReplicas, "promotions", lambda its: 0):
            ended(made, job)

    assert len(made.store.get_history(row_key, "BASE")) == (1 if is_known else 3)


def died_at(made: Promotable, job: Job, point: str) -> None:
    with failing_at(point), pytest.raises(FailpointReached):
        made.store.purge_jobs.runner(job, "killed", settle_seconds=0.0, replica_seconds=0.0).run()
    expire(made.store)
