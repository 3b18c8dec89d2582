"""The job of a repair: what it counts, and what the next one finishes after an accident."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.errors import InvalidRequest, NodeUnavailable
from schemaless_core.failpoints import FailpointReached
from schemaless_core.indexes.verify import VerificationReport
from tests.damage import lose, spoil
from tests.facades import Migration, in_mirror
from tests.indexing import catch_up, only_maintained
from tests.repairs import STATUS_INDEX, base, doing_at, failing_at, foreign, in_shadow, mended, refreshed, stored, trip
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.ending import Ended, FindingsSeen, IndexMade, RepairEnding, find_ended
from tripstore.migration.repair.job import TRIES, RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import Target, to_bounds

#: Of failpoints; CI takes the first.
ACCIDENTS = [
    "repair.mirror_read",
    "lift.committed",
    "mends.before_purge",
    "mends.before_rebuild",
    "mending.answered",
    "repair.settled",
    "jobs.saving",
    "repair.claimed",
    "repair.looked",
    "repair.before_lift",
    "lift.before_commit",
    "mends.before_mend",
    "mends.before_put",
    "mends.done",
    "mending.before_send",
    "repair.before_save",
    "repair.saved",
]


#: The same when the cells are right; CI takes the first.
ACCIDENTS_AT_THE_END = [
    "repair.rebuilt",
    "repair.rechecked",
    "jobs.claimed",
    "repair.before_end",
    "repair.index_saved",
    "jobs.before_save",
    "jobs.saving",
    "jobs.saved",
    "repair.ended",
]
KEY_LIST = "/differences.jsonl"
#: The first is there, and wrong; the others were dropped.
INDEXES = ["status_index", "dropped_index", "another_index"]


@pytest.fixture(scope="module")
def shared(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with in_shadow(servers, stores, indexes=[STATUS_INDEX]) as made:
        only_maintained(made.facade.store)
        yield made


@pytest.fixture
def moving(shared: Migration) -> Migration:
    return refreshed(shared)


def worker(repairs: Repairs, job: Job) -> RepairRunner:
    return RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job))


def served(runner: RepairRunner) -> int:
    """How many parts there were to be had."""
    parts = 0
    while runner.serve_part():
        parts += 1
    return parts


class Damage(NamedTuple):
    """A cell is lost, and the entry of another row."""

    target: Target
    #: That found the cell, and is still open.
    diff: str


def damaged(moving: Migration) -> Damage:
    store, lost, other = moving.facade.store, trip(moving), trip(moving)
    catch_up(store)
    lose(store, stored(moving, lost))
    in_mirror(moving, "DELETE FROM index_status_index_v1 WHERE row_key = ?", other.bytes)
    jobs = Jobs(store.control)
    diff = jobs.create("diff", {}, [None]).id
    part = jobs.claim(diff, "test", 60)
    assert part is not None
    found = [Difference(CellClass.MISSING, lost, "BASE", 1, None).finding()]
    jobs.save(part, "test", checkpoint=1, counts={"open": 1}, findings=found, is_done=True, lease_seconds=60)
    return Damage(base(lost), diff)


def left(repairs: Repairs, moving: Migration, diff: str) -> tuple[int, bool]:
    """What is left of the damage: findings that are open, as the diff counts them, and whether entries are wrong."""
    seen = repairs.jobs.progress(diff)
    assert seen.counts["open"] == seen.findings_open
    is_clean = moving.facade.store.indexes.verify("status_index", patience_seconds=5).is_clean
    return seen.findings_open, not is_clean


def test_a_job_counts_what_its_last_look_found(moving: Migration) -> None:
    """I11: equal, left to a person, and nothing twice."""
    keys = [trip(moving) for _ in range(7)]
    for key in keys[:3]:
        foreign(moving, key, 3)
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [base(key) for key in keys], authority=Backend.LEGACY, source=KEY_LIST)
    runner = worker(repairs, job)

    assert served(runner) == 2

    seen = repairs.jobs.progress(job.id)
    assert seen.job.state is JobState.DONE
    assert seen.counts == {"rows": 7, "equal": 7}
    assert runner.actions == {Action.LIFT: 3, Action.PUT: 3}
    assert repairs.jobs.findings(job.id) == []


@pytest.mark.parametrize("point", ACCIDENTS if SCALE >= 1 else ACCIDENTS[:8])
def test_an_accident_anywhere_leaves_what_the_next_one_finishes(moving: Migration, point: str) -> None:
    """I4, I6, I11: entries, cells and counts are what they are without the accident."""
    store = moving.facade.store
    torn, lost, ahead, extra = trip(moving, "t"), trip(moving, "l"), trip(moving, "a"), foreign(moving, uuid4(), 1)
    catch_up(store)
    spoil(store, stored(moving, torn), b'{"status":"foreign" }')
    lose(store, stored(moving, lost))
    foreign(moving, ahead, 4)
    targets = [base(torn), base(lost), base(ahead), base(extra.row_key)]
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, targets, authority=Backend.LEGACY, source=KEY_LIST)

    with failing_at(point), pytest.raises(FailpointReached):
        worker(repairs, job).serve_part()
    again = Repairs(moving.facade)
    served(worker(again, job))

    assert again.jobs.progress(job.id).counts == {"rows": 4, "equal": 4}
    assert again.jobs.state(job.id) is JobState.DONE
    moving.carry()
    catch_up(store)
    foreigners = {entry.row_key for entry in store.query_index("status_index", "foreign").entries}
    assert foreigners.isdisjoint(target.row_key for target in targets)
    assert store.indexes.verify("status_index", patience_seconds=5).is_clean
    for key in (torn, lost, ahead):
        assert moving.store.get_cell_latest(key, "BASE") == store.get_cell_latest(key, "BASE")
    assert store.get_row(extra.row_key) == {}
    actions = [action for action, _old, _new in mended(moving)]
    assert sorted(actions, key=str) == sorted(set(actions), key=str)  # nothing was done twice
    assert again.holes() == {}
    assert all(store.get_cells_for_shard(shard, 0, 1000) for shard in range(store.config.shards))


def test_a_job_is_done_when_its_indexes_and_findings_are_seen_to(moving: Migration) -> None:
    target, diff = damaged(moving)
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [target], authority=Backend.LEGACY, source=diff, indexes=["status_index"])

    assert worker(repairs, job).serve_part()
    catch_up(moving.facade.store)
    seen, between = repairs.jobs.progress(job.id), left(repairs, moving, diff)
    assert served(worker(repairs, job)) == 1

    assert (seen.job.state, dict(seen.counts), between) == (JobState.RUNNING, {"rows": 1, "equal": 1}, (1, True))
    assert repairs.jobs.state(job.id) is JobState.DONE
    assert left(repairs, moving, diff) == (0, False)
    assert find_ended(repairs.jobs, job.id) == Ended([IndexMade("status_index", 1, 1, 0)], FindingsSeen(1, 1, 0, 0, 0))


@pytest.mark.parametrize("point", ACCIDENTS_AT_THE_END if SCALE >= 1 else ACCIDENTS_AT_THE_END[:2])
def test_an_accident_after_the_cells_leaves_an_end_that_the_next_one_comes_to(moving: Migration, point: str) -> None:
    target, diff = damaged(moving)
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [target], authority=Backend.LEGACY, source=diff, indexes=["status_index"])
    worker(repairs, job).serve_part()
    catch_up(moving.facade.store)

    with failing_at(point), pytest.raises(FailpointReached):
        worker(repairs, job).serve_part()
    again = Repairs(moving.facade)
    if again.jobs.state(job.id) is not JobState.DONE:
        _let_leases_end(moving)
        again.jobs.resume("repair", job.id)
    served(worker(again, job))

    assert again.jobs.state(job.id) is JobState.DONE
    assert again.jobs.progress(job.id).counts == {"rows": 1, "equal": 1}
    assert left(again, moving, diff) == (0, False)
    assert again.jobs.progress(diff).counts["solved"] == 1  # once, whichever process was killed


def test_a_job_without_an_end_is_done_and_leaves_what_ours_does_not(moving: Migration) -> None:
    """The control: done with its cells alone, there is nothing to resume, and the damage is seen."""
    target, diff = damaged(moving)
    repairs = Repairs(moving.facade)
    spec: dict[str, Json] = {"authority": "postgres", "of": diff, "mend_authority": False, "indexes": ["status_index"]}
    job = repairs.jobs.create("repair", spec, [to_bounds([target])])

    with failing_at("repair.saved"), pytest.raises(FailpointReached):
        worker(repairs, job).serve_part()
    catch_up(moving.facade.store)

    with pytest.raises(InvalidRequest, match="it cannot resume"):
        repairs.jobs.resume("repair", job.id)
    assert left(repairs, moving, diff) == (1, True)
    assert repairs.rebuild_index("status_index") is not None  # others find it as it was
    assert left(repairs, moving, diff) == (1, False)


def test_two_who_come_to_the_end_at_once_do_no_harm(moving: Migration) -> None:
    """One was away for longer than its lease: both make the entries right and close the findings, one says so."""
    target, diff = damaged(moving)
    repairs, others = Repairs(moving.facade), Repairs(moving.facade)
    job = begin(repairs.jobs, [target], authority=Backend.LEGACY, source=diff, indexes=["status_index"])
    worker(repairs, job).serve_part()
    catch_up(moving.facade.store)

    def overtake() -> None:
        _let_leases_end(moving)
        assert served(worker(others, job)) == 1

    with doing_at("repair.before_end", overtake):
        assert worker(repairs, job).serve_part()

    assert repairs.jobs.state(job.id) is JobState.DONE
    assert left(repairs, moving, diff) == (0, False)
    assert repairs.jobs.progress(diff).counts["solved"] == 1
    ended = find_ended(repairs.jobs, job.id)
    assert ended is not None
    assert ended.findings == FindingsSeen(1, 1, 0, 0, 0)


def test_an_end_that_no_store_answers_is_given_back_and_comes_later(moving: Migration) -> None:
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [], authority=Backend.LEGACY, source=KEY_LIST, indexes=["status_index"])
    pauses: list[float] = []

    def refuse(_name: str) -> None:
        raise NodeUnavailable("a", "down")

    ending = RepairEnding(job, refuse, repairs.recheck)
    with pytest.raises(NodeUnavailable):
        RepairRunner(repairs.jobs, job.id, repairs.of_job(job), ending, sleep=pauses.append).serve_part()

    seen = repairs.jobs.progress(job.id)
    assert (len(pauses), seen.parts_claimed, seen.job.state) == (TRIES - 1, 0, JobState.RUNNING)
    assert served(worker(repairs, job)) == 1
    assert repairs.jobs.state(job.id) is JobState.DONE


def test_an_index_that_was_dropped_meanwhile_does_not_keep_a_job_from_its_end(moving: Migration) -> None:
    repairs = Repairs(moving.facade)
    job = begin(repairs.jobs, [], authority=Backend.LEGACY, source=KEY_LIST, indexes=["dropped_index"])

    assert served(worker(repairs, job)) == 1

    assert repairs.jobs.state(job.id) is JobState.DONE
    assert find_ended(repairs.jobs, job.id) == Ended([IndexMade("dropped_index", 0, 0, 0)], None)


class Rebuilding:
    """Rebuilds as `Repairs` does, and says which indexes."""

    def __init__(self, repairs: Repairs, job: Job, before: Callable[[str], None] = lambda _name: None) -> None:
        self.seen: list[str] = []
        self._repairs = repairs
        self._before = before
        ending = RepairEnding(job, self._rebuild, repairs.recheck)
        self.runner = RepairRunner(repairs.jobs, job.id, repairs.of_job(job), ending, sleep=lambda _seconds: None)

    def _rebuild(self, name: str) -> VerificationReport | None:
        self.seen.append(name)
        self._before(name)
        return self._repairs.rebuild_index(name)


def with_indexes(repairs: Repairs, moving: Migration) -> tuple[Job, str]:
    """A repair whose cells are right, with three indexes; the diff that it is of."""
    target, diff = damaged(moving)
    job = begin(repairs.jobs, [target], authority=Backend.LEGACY, source=diff, indexes=INDEXES)
    worker(repairs, job).serve_part()
    catch_up(moving.facade.store)
    return job, diff


def ended_well(repairs: Repairs, moving: Migration, job: Job, diff: str) -> None:
    """As without a stop: the last look at each index and at the findings, and what is counted."""
    dropped = [IndexMade(name, 0, 0, 0) for name in INDEXES[1:]]
    assert repairs.jobs.state(job.id) is JobState.DONE
    assert repairs.jobs.progress(job.id).counts == {"rows": 1, "equal": 1}
    found = Ended([IndexMade("status_index", 1, 1, 0), *dropped], FindingsSeen(1, 1, 0, 0, 0))
    assert find_ended(repairs.jobs, job.id) == found
    assert left(repairs, moving, diff) == (0, False)
    assert repairs.jobs.progress(diff).counts["solved"] == 1


@pytest.mark.parametrize("indexes", [1, 2, 3])
def test_a_stop_between_two_indexes_gives_the_end_back_and_the_next_one_rebuilds_the_rest(
    moving: Migration, indexes: int
) -> None:
    """I11: after the last one, too, before the findings are looked at."""
    repairs, stop = Repairs(moving.facade), threading.Event()
    job, diff = with_indexes(repairs, moving)

    def ask_to_stop(name: str) -> None:
        if name == INDEXES[indexes - 1]:
            stop.set()

    stopped, resumed = Rebuilding(repairs, job, ask_to_stop), Rebuilding(repairs, job)
    assert stopped.runner.run(stop) is JobState.RUNNING

    seen = repairs.jobs.progress(job.id)
    assert (stopped.seen, seen.parts_claimed, seen.findings_open) == (INDEXES[:indexes], 0, 0)
    assert find_ended(repairs.jobs, job.id) is None
    assert repairs.jobs.progress(diff).findings_open == 1
    assert resumed.runner.run(threading.Event()) is JobState.DONE
    assert resumed.seen == INDEXES[indexes:]
    ended_well(repairs, moving, job, diff)


@pytest.mark.parametrize("hold", ["pause", "cancel"])
def test_an_end_whose_job_is_held_rebuilds_no_further_index(moving: Migration, hold: str) -> None:
    repairs = Repairs(moving.facade)
    job, diff = with_indexes(repairs, moving)
    held, resumed = Rebuilding(repairs, job), Rebuilding(repairs, job)

    with doing_at("repair.rebuilt", lambda: getattr(repairs.jobs, hold)("repair", job.id)):
        state = held.runner.run(threading.Event())

    assert (held.seen, repairs.jobs.progress(job.id).parts_claimed) == (INDEXES[:1], 0)
    assert find_ended(repairs.jobs, job.id) is None
    if hold == "cancel":
        assert state is JobState.CANCELLED
        return
    assert state is JobState.PAUSED
    repairs.jobs.resume("repair", job.id)
    assert resumed.runner.run(threading.Event()) is JobState.DONE
    assert resumed.seen == INDEXES[1:]
    ended_well(repairs, moving, job, diff)


@pytest.mark.parametrize(("point", "saved"), [("repair.index_saved", 1), ("jobs.saving", 0)])
def test_an_accident_after_an_index_leaves_only_the_others(moving: Migration, point: str, saved: int) -> None:
    """One that was not saved is looked at again, and found right."""
    repairs = Repairs(moving.facade)
    job, diff = with_indexes(repairs, moving)
    killed, again = Rebuilding(repairs, job), Repairs(moving.facade)

    with failing_at(point), pytest.raises(FailpointReached):
        killed.runner.serve_part()
    _let_leases_end(moving)
    resumed = Rebuilding(again, again.jobs.resume("repair", job.id))
    assert served(resumed.runner) == 1

    assert (killed.seen, resumed.seen) == (INDEXES[:1], INDEXES[saved:])
    assert again.jobs.state(job.id) is JobState.DONE
    assert left(again, moving, diff) == (0, False)
    if saved:
        ended_well(again, moving, job, diff)


def test_an_index_that_no_store_answers_for_keeps_those_before_it(moving: Migration) -> None:
    """Whatever ends the end: what was rebuilt before is not rebuilt again."""
    repairs = Repairs(moving.facade)
    job, diff = with_indexes(repairs, moving)

    def refuse(name: str) -> None:
        if name != INDEXES[0]:
            raise NodeUnavailable("a", "down")

    refused, resumed = Rebuilding(repairs, job, refuse), Rebuilding(repairs, job)
    with pytest.raises(NodeUnavailable):
        refused.runner.serve_part()
    assert served(resumed.runner) == 1

    assert refused.seen == [INDEXES[0], *[INDEXES[1]] * TRIES]
    assert resumed.seen == INDEXES[1:]
    ended_well(repairs, moving, job, diff)


def _let_leases_end(moving: Migration) -> None:
    """As if a minute had passed."""
    with moving.facade.store.control.begin() as connection:
        connection.exec_driver_sql("UPDATE job_part SET until_ms = 0")
