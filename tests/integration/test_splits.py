"""Splits on real servers: what is planned once, whatever is repeated, killed, or done by two at once (I9)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from schemaless_core import Datastore
from schemaless_core.control import tables
from schemaless_core.control.jobs.jobs import Job
from schemaless_core.control.jobs.records import JobState
from schemaless_core.errors import DocumentConflict, InvalidRequest, MoveRefused
from schemaless_core.failpoints import FailpointReached
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.runner import KIND
from schemaless_core.moves.splits import SplitOrder, Splits
from tests.fscks import kinds_in, row_of
from tests.repairs import failing_at
from tests.stores import ServerEngine, Stores

ORDER = SplitOrder("a", "b", hold_seconds=5.0)


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    """Shards 0 to 3 on a, of which 3 has most and 0 least."""
    made = stores.fresh(server_engine, shards=8)
    for shard in range(4):
        for ref_key in range(shard + 1):
            made.put_cell(row_of(made, shard), "BASE", ref_key, "x")
    return made


def splits_of(store: Datastore) -> Splits:
    return Splits(store.control, store.moves())


def run(splits: Splits, job: Job) -> None:
    assert splits.moves.runner(job, "test").run() is JobState.DONE


def owned_by_a(store: Datastore) -> set[int]:
    return set(store.moves().owned()["a"])


def test_a_split_that_is_killed_and_repeated_moves_no_more_than_the_half_that_was_planned(store: Datastore) -> None:
    splits = splits_of(store)
    with failing_at("jobs.created"), pytest.raises(FailpointReached):
        splits.begin(splits.plan(ORDER))
    for ref_key in range(20):  # by their sizes of now another half would go
        store.put_cell(row_of(store, 0), "BASE", ref_key, "x")

    again = splits.plan(ORDER)
    job = splits.begin(again)

    assert again.moves.order.shards == (1, 2)
    assert again.stored is not None
    assert again.stored.job == job.id
    run(splits, job)
    done = splits.plan(ORDER)
    assert (done.moves.moves, done.half, done.stay) == ((), (1, 2), (0, 3))
    assert owned_by_a(store) == {0, 3}
    assert len(splits.moves.jobs.all("move")) == 1
    assert kinds_in(store) == []


def test_of_two_splits_at_once_one_is_stored(store: Datastore) -> None:
    one, other = splits_of(store), splits_of(store)
    plan, late = one.plan(ORDER), other.plan(ORDER)
    job = one.begin(plan)

    with pytest.raises(DocumentConflict):
        other.begin(late)

    assert [each.id for each in one.moves.jobs.all("move")] == [job.id]
    assert other.begin(other.plan(ORDER)).id == job.id


def test_shards_that_stayed_go_when_the_split_is_repeated(store: Datastore) -> None:
    splits = splits_of(store)
    run(splits, splits.begin(splits.plan(ORDER._replace(hold_seconds=0.0))))
    assert owned_by_a(store) == {0, 1, 2, 3}

    run(splits, splits.begin(splits.plan(ORDER)))

    assert owned_by_a(store) == {0, 3}


def test_a_split_whose_job_was_cancelled_goes_on_with_the_rest_of_its_half(store: Datastore) -> None:
    splits = splits_of(store)
    job = splits.begin(splits.plan(ORDER))
    assert splits.moves.runner(job, "test").serve_part()
    splits.moves.jobs.cancel(KIND, job.id)
    run(splits, splits.moves.begin(splits.moves.plan(MoveOrder((1,), "a", hold_seconds=5.0))))

    again = splits.plan(ORDER)
    run(splits, splits.begin(again))

    assert ([each.shard for each in again.moves.moves], again.kept) == ([2], (1,))
    assert owned_by_a(store) == {0, 1, 3}


def test_a_split_whose_job_was_pruned_says_what_is_on_the_cluster(store: Datastore) -> None:
    splits = splits_of(store)
    job = splits.begin(splits.plan(ORDER))
    splits.moves.jobs.cancel(KIND, job.id)
    assert splits.plan(ORDER).kept == ()
    with store.control.begin() as connection:
        connection.execute(sa.delete(tables.job))

    again = splits.plan(ORDER)

    assert (again.moves.moves, again.kept) == ((), (1, 2))


def test_shards_that_were_moved_back_by_hand_go_forth_no_more(store: Datastore) -> None:
    splits = splits_of(store)
    run(splits, splits.begin(splits.plan(ORDER)))
    run(splits, splits.moves.begin(splits.moves.plan(MoveOrder((1,), "a", hold_seconds=5.0))))

    again = splits.plan(ORDER)
    assert (again.moves.moves, again.kept) == ((), (1,))
    assert [each.shard for each in splits.back(splits.get("a")).moves] == [2]


def test_a_split_is_taken_back_and_the_next_one_plans_anew(store: Datastore) -> None:
    splits = splits_of(store)
    job = splits.begin(splits.plan(ORDER))
    with pytest.raises(MoveRefused, match="under way"):
        splits.back(splits.get("a"))
    with pytest.raises(MoveRefused, match="being split into b"):
        splits._stored(splits.get("a"), ORDER._replace(into="c"))
    run(splits, job)
    stored = splits.get("a")
    assert splits._stored(stored, ORDER._replace(into="c")) is None, "the next one plans anew"

    back = splits.back(stored)
    splits.end(stored)
    run(splits, splits.moves.begin(back))

    assert owned_by_a(store) == {0, 1, 2, 3}
    anew = splits.plan(ORDER)
    assert (anew.stored, anew.moves.order.shards) == (None, (1, 2))


def test_what_is_no_split_is_refused(store: Datastore) -> None:
    splits = splits_of(store)

    for order, reason in [
        (ORDER._replace(into="a"), "the one that is to be split"),
        (ORDER._replace(into="c"), "no cluster c"),
        (ORDER._replace(cluster="c"), "no cluster c"),
    ]:
        with pytest.raises(InvalidRequest, match=reason):
            splits.plan(order)
    with pytest.raises(InvalidRequest, match="never split"):
        splits.get("a")
