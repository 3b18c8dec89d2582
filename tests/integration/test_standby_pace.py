"""What a standby asks of the datastore that leads, and what it waits for: as much as changed, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partialmethod
from typing import NamedTuple
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mending import BodyChange, MendNote
from schemaless_core.errors import ReplicationRefused
from schemaless_core.failpoints import FailpointReached
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.replication import replicas, steps
from schemaless_core.replication.beside import runs
from schemaless_core.replication.replicas import LateReplicas, OwnReplicas
from schemaless_core.steps import Step
from tests.backups import empty, expire
from tests.chaos.actors import wait_until
from tests.damage import execute
from tests.following import (
    Follower,
    copied_logs,
    dying_at,
    following,
    logs_of,
    promoted,
    wait_until_whole,
)
from tests.fscks import row_of
from tests.integration.test_replication import filled, takes_puts
from tests.repairs import doing_at
from tests.stores import ServerEngine, Stores

SHARDS = 4
NOTE = MendNote("test", "a tester", "here")


def alone(stores: Stores, engine: ServerEngine, shards: int) -> Datastore:
    """A datastore on the first server, so that all it is asked is of this datastore."""
    config = stores.config(engine, shards=shards)
    config["clusters"] = {"a": config["clusters"]["a"]}
    store = Datastore.open(config)
    store.create_schema()
    return store


class Questions:
    """How many statements the first server was sent."""

    def __init__(self, stores: Stores, engine: ServerEngine) -> None:
        self._server = stores.primaries(engine)["a"]
        first = self._now()
        #: What it costs to ask.
        self._asking = self._now() - first

    def _now(self) -> int:
        return int(str(self._server.query("SHOW GLOBAL STATUS LIKE 'Questions'")[0]["Value"]))  # type: ignore[attr-defined]  # both engines have it

    def of(self, work: Callable[[], object]) -> int:
        before = self._now()
        work()
        return self._now() - before - self._asking


class Heard(NamedTuple):
    """A promotion in a thread: the steps that it told of, and what became of it."""

    told: list[Step]
    ended: list[int | BaseException]
    thread: threading.Thread


def promoting(standby: Datastore, store: Datastore) -> Heard:
    heard = Heard([], [], threading.Thread(target=lambda: run()))

    def run() -> None:
        try:
            heard.ended.append(standby.replication(store).promote(is_forced=False, hear=heard.told.append))
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            heard.ended.append(error)

    heard.thread.start()
    return heard


# ---- replicas of the standby -----------------------------------------------------------------------------------------


def test_i1_i9_a_late_replica_is_waited_for_while_the_first_one_takes_puts(
    server_engine: ServerEngine, stores: Stores
) -> None:
    late = stores.replicated
    store = stores.fresh(server_engine, shards=SHARDS)
    rows = filled(store)
    with empty(late, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        with late.not_applying(server_engine):
            rows += filled(store, 8)
            heard = promoting(standby, store)
            wait_until("it is told", lambda: heard.told.count(steps.REPLICATED) > 3, 60)
            is_open, given = takes_puts(store), steps.GIVE in heard.told
            rows += filled(store, 8)
        heard.thread.join(60)

        assert (is_open, given) == (True, False)
        assert heard.ended == [1000]
        late.wait_for_replicas(server_engine)
        assert all(standby.get_cell(row, "BASE", 1) is not None for row in rows)


def test_i1_i9_a_replica_that_is_late_behind_the_closing_is_waited_for_and_it_leads(
    server_engine: ServerEngine, stores: Stores
) -> None:
    late = stores.replicated
    store = stores.fresh(server_engine, shards=SHARDS)
    rows = filled(store)
    with empty(late, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        stopping = late.not_applying(server_engine)
        told: list[Step] = []

        def hear(step: Step) -> None:
            told.append(step)
            if step is steps.GIVE:
                rows.extend(filled(store, 8))
                stopping.__enter__()
            if step is steps.REPLICATED and told.count(step) == 5:
                stopping.__exit__(None, None, None)

        assert standby.replication(store).promote(is_forced=False, hear=hear) == 1000

        assert told.index(steps.DECIDE) > told.index(steps.REST)
        assert told.count(steps.REST) == 1, "nothing is asked of the first one once more"
        assert all(standby.get_cell(row, "BASE", 1) is not None for row in rows)


def test_i9_a_replica_that_never_comes_ends_the_wait_and_nothing_is_closed(
    server_engine: ServerEngine, stores: Stores
) -> None:
    late = stores.replicated
    store = stores.fresh(server_engine, shards=SHARDS)
    filled(store)
    with empty(late, server_engine, shards=SHARDS, clusters="b") as standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        with late.not_applying(server_engine):
            filled(store, 8)
            bounded = partialmethod(OwnReplicas.__init__, wait_seconds=0.5)
            with (
                patch.object(OwnReplicas, "__init__", bounded),
                pytest.raises(ReplicationRefused, match="Cluster b is unavailable: a replica lacks what was copied"),
            ):
                promoted(standby, store)
            assert takes_puts(store)

        assert promoted(standby, store) == 1000


def test_i9_replicas_that_are_far_behind_hold_a_page_up_for_a_minute_and_no_longer() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def clock() -> float:
        return now[0]

    said: list[float] = []
    its = OwnReplicas({}, (), clock=clock)
    its.tell = lambda: said.append(clock())
    throttle = CopyThrottle(lambda: 9.0, clock=clock, sleep=sleep, hear=its.waits)

    with pytest.raises(LateReplicas):
        throttle.rest(0, 0.0, 0.0)

    assert replicas.WAIT_SECONDS < now[0] <= replicas.WAIT_SECONDS + 3
    assert len(said) > replicas.WAIT_SECONDS / 2


# ---- what stands beside the logs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_changed", [False, True], ids=["nothing changed", "all offsets changed"])
def test_i7_i9_the_last_copy_asks_as_much_of_few_shards_as_of_many(
    is_changed: bool, server_engine: ServerEngine, stores: Stores
) -> None:
    counts = {shards: _asked_in_rest(stores, server_engine, shards, is_changed=is_changed) for shards in (8, 64)}

    print(f"standby: questions behind the closing, by shards: {counts}")
    assert counts[64] <= counts[8] + 8, counts
    assert counts[64] < 64, counts


def _asked_in_rest(stores: Stores, engine: ServerEngine, shards: int, *, is_changed: bool) -> int:
    with alone(stores, engine, shards) as store, empty(stores, engine, shards=shards, clusters="b") as standby:
        rows = [row_of(store, n) for n in range(shards)]
        store.put_cells([Cell(row, "BASE", 1, {}) for row in rows])
        store.triggers.register_group("noted", "beginning")
        with following(standby, store):
            wait_until_whole(standby, store)
        questions, counts = Questions(stores, engine), list[int]()

        def change() -> None:
            store.put_cells([Cell(row, "BASE", 2, {}) for row in rows])
            if is_changed:
                execute(store, 0, "UPDATE {offset} SET added_id = 1 WHERE group_name = 'noted'")

        def counted() -> None:
            counts.append(questions.of(lambda: promote_on()))

        def promote_on() -> None:
            try:
                with doing_at("replicate.decide", stop):
                    promoted(standby, store)
            except FailpointReached:
                pass

        def stop() -> None:
            raise FailpointReached("replicate.decide")

        with doing_at("replicate.leads", change), doing_at("replicate.rest", stop), pytest.raises(FailpointReached):
            promoted(standby, store)
        # Behind the closing: what a promotion that died there does anew, and its last copy.
        counted()
        promoted(standby, store)

        assert all(standby.get_cell(row, "BASE", 2) is not None for row in rows)
        offsets = {added_id for (added_id,) in execute(standby, 0, "SELECT added_id FROM {offset}")}
        assert offsets == ({1} if is_changed else {0})
    return counts[0]


PURGED = 20_000


def _purge_all(store: Datastore, shard: int) -> None:
    """As a job does: a line of the audit table for each cell."""
    deadline = Deadline(60)
    node = store.clusters["a"].primary.node
    after = 0
    while cells := node.log({shard: after}, 1_000, deadline)[shard].cells:
        _mend(store, shard, [BodyChange(cell, None) for cell in cells])
        after = cells[-1].added_id


def test_i2_i3_purges_cost_the_first_one_few_questions_over_a_restart_and_a_promotion(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with (
        alone(stores, server_engine, SHARDS) as store,
        empty(stores, server_engine, shards=SHARDS, clusters="b") as own,
    ):
        for _some in range(PURGED // 1_000):
            store.put_cells([Cell(row_of(store, 0), "BASE", 1, {}) for _ in range(1_000)])
        kept = filled(store)
        with following(own, store):
            wait_until_whole(own, store)
        job = own.replication(store).record.find().standby.job
        _purge_all(store, 0)
        filled(store, 8)
        questions = Questions(stores, server_engine)

        def followed() -> None:
            """What a process does that begins to follow, once."""
            its = own.replication(store)._following(job)
            while its.round().behind:
                pass
            its.beside()

        first, again = questions.of(followed), questions.of(followed)
        by_promotion = questions.of(lambda: promoted(own, store))

        print(f"standby: questions for {PURGED:,} purged cells: {first}, again {again}, by a promotion {by_promotion}")
        assert first < 100, "not one for each of them"
        assert again < 50, "another process begins with what the copy has"
        assert by_promotion < 200
        assert all(own.get_cell(row, "BASE", 1) is None for row in kept if own.shard_of(row) == 0)
        assert all(own.get_cell(row, "BASE", 1) is not None for row in kept if own.shard_of(row) != 0)
        ((purged, lines),) = execute(
            own, 0, "SELECT (SELECT COUNT(*) FROM {purged}), (SELECT COUNT(*) FROM {mended}) FROM DUAL"
        )
        assert (purged, lines) == (PURGED + 10, PURGED + 10)


@pytest.mark.parametrize(
    "point", ["replicate.mended", "replicate.lines_given", "replicate.beside_read", "replicate.beside_given"]
)
def test_i2_i3_a_follower_that_died_beside_the_logs_is_gone_on_with(
    point: str, server_engine: ServerEngine, stores: Stores
) -> None:
    with (
        alone(stores, server_engine, SHARDS) as store,
        empty(stores, server_engine, shards=SHARDS, clusters="b") as own,
    ):
        rows = filled(store)
        store.triggers.register_group("noted", "beginning")
        with following(own, store):
            wait_until_whole(own, store)
        _purge_all(store, 0)
        _change(store, 1, rows[1])
        execute(store, 0, "UPDATE {offset} SET added_id = 3")
        job = own.replication(store).jobs.find("replicate", "last")
        with dying_at(point), Follower(own.replication(store), job, "first") as first:
            wait_until("the first one is dead", lambda: first.ended is not None)
        assert isinstance(first.ended, FailpointReached)
        expire(own)

        promoted(own, store)

        assert own.get_cell(rows[0], "BASE", 1) is None
        assert own.get_cell(rows[1], "BASE", 1) == Cell(rows[1], "BASE", 1, {"driver": "driver 9"})
        assert execute(own, 0, "SELECT COUNT(*) FROM {mended}") == [(11,)]
        assert {each for (each,) in execute(own, 0, "SELECT added_id FROM {offset}")} == {3}


def _change(store: Datastore, shard: int, row: UUID) -> None:
    found = store.clusters["a"].primary.node.find(shard, row.bytes, b"BASE", 1, Deadline(5))
    _mend(store, shard, [BodyChange(found.cells[0], b'{"driver":"driver 9"}')])


def _mend(store: Datastore, shard: int, changes: list[BodyChange]) -> None:
    deadline = Deadline(20)
    store._router.write(
        shard, lambda node, gate: node.mending.change(gate, changes, NOTE, deadline), Standing(Kind.OWNER), deadline
    )


def test_i2_what_a_promotion_of_the_first_one_has_undone_is_undone_in_the_copy(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """The old primary had purged a cell, the standby had heard of it, and no replica had."""
    with (
        alone(stores, server_engine, SHARDS) as store,
        empty(stores, server_engine, shards=SHARDS, clusters="b") as own,
    ):
        filled(store)
        with following(own, store):
            wait_until_whole(own, store)
        before = logs_of(store)
        cells = store.clusters["a"].primary.node.log({2: 0}, 100, Deadline(5))[2].cells
        job = own.replication(store).record.find().standby.job
        copies = own.replication(store)._copies(job)
        copies.pass_over(2, [cells[3].added_id])
        line = (
            b"0123456789abcdef",
            2,
            cells[3].added_id,
            "purge",
            cells[3].row_key,
            b"BASE",
            1,
            None,
            None,
            "j",
            "w",
            "h",
        )
        copies.put_lines(2, [(*line, "2026-11-29 12:00:00.000001")])
        assert len(copied_logs(own)[2]) == len(before[2]) - 1

        its = own.replication(store)._following(job)
        its.round()
        its.beside()

        assert copied_logs(own) == before


def test_ids_that_are_near_to_each_other_are_copied_together() -> None:
    assert list(runs([7, 1, 2, 30, 31, 200], 20)) == [(1, 7), (30, 31), (200, 200)]
    assert list(runs([], 20)) == []
