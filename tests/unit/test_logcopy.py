"""What copies a log without a server: the throttle, the patience, and how a copy is compared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from schemaless_core.cell.standing import Gate, Kind, ShardHead, ShardState, ShardStatus
from schemaless_core.cell.stored import StoredCell
from schemaless_core.config import ClusterConfig, DatastoreConfig
from schemaless_core.engine.base import LogSlice
from schemaless_core.engine.copies import CopySeen, LogSum
from schemaless_core.engine.purged import page_end
from schemaless_core.errors import CopyDiffers, MoveRefused, StaleEpoch
from schemaless_core.logcopy.checks import check
from schemaless_core.logcopy.ends import LogPage
from schemaless_core.logcopy.throttle import LAG_SECONDS_MAX, CopyThrottle
from schemaless_core.moves.closed_time import ClosedTime
from schemaless_core.moves.entries import BucketSums
from schemaless_core.moves.ports import Placed
from schemaless_core.moves.record import place_of
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.promotion.ports import SILENT
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.topology import Placement, spread, with_place
from schemaless_core.urls import parse_node_url

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Goes on by what is slept."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


class KeptLog:
    """A source and a sink: the cells of one shard, by added id."""

    def __init__(self, bodies: dict[int, bytes], purged: Sequence[int] = (), *, is_stuck: bool = False) -> None:
        self.bodies = bodies
        self.purged = set(purged)
        self.is_stuck = is_stuck
        self.replaced: list[tuple[int, int]] = []

    def page(self, shard: int, after: int, limit: int) -> LogPage:
        ids = [added_id for added_id in sorted(self.bodies) if added_id > after][:limit]
        cells = [StoredCell(added_id, b"row", b"BASE", added_id, self.bodies[added_id], NOW) for added_id in ids]
        head = ShardHead(ShardState(1, 0, "RW"), max([*self.bodies, *self.purged], default=0))
        found = LogSlice(head, cells, frozenset(added_id for added_id in self.purged if added_id > after))
        return LogPage(found, page_end(found, after))

    def write(self, shard: int, after: int, epoch: int, page: LogPage) -> CopySeen:
        raise NotImplementedError("nothing is appended here")

    def replace(self, shard: int, first: int, page: LogPage, last: int) -> None:
        self.replaced.append((first, last))
        if not self.is_stuck:
            self.bodies = {key: body for key, body in self.bodies.items() if not first <= key <= last}
            self.bodies |= {cell.added_id: cell.body for cell in page.slice.cells}
            self.purged = {key for key in self.purged if not first <= key <= last} | page.slice.purged

    def sum(self, shard: int, first: int, last: int) -> LogSum:
        found = {key: body for key, body in self.bodies.items() if first <= key <= last}
        return LogSum(len(found), hash(frozenset(found.items())), sum(first <= key <= last for key in self.purged))


def test_a_copy_that_is_the_log_is_left_alone() -> None:
    log, copy = KeptLog({1: b"a", 2: b"b"}), KeptLog({1: b"a", 2: b"b"})

    assert check(log, copy, 0, 1, 2) == 0
    assert copy.replaced == []


def test_i2_what_repair_changed_meanwhile_is_copied_again() -> None:
    log, copy = KeptLog({1: b"a", 3: b"mended"}, purged=[2, 4]), KeptLog({1: b"a", 2: b"b", 3: b"old", 4: b"d"})

    assert check(log, copy, 0, 1, 4) == 1
    assert (copy.bodies, copy.purged) == (log.bodies, log.purged)


def test_control_a_copy_that_stays_different_is_refused() -> None:
    with pytest.raises(CopyDiffers, match="between added ids 1 and 2"):
        check(KeptLog({1: b"a", 2: b"b"}), KeptLog({1: b"a", 2: b"x"}, is_stuck=True), 0, 1, 2)


def test_a_rate_is_kept_to() -> None:
    clock = Clock()
    throttle = CopyThrottle(lambda: None, cells_per_second=100, clock=clock, sleep=clock.sleep)

    throttle.rest(50, read_seconds=0.01, seconds=0.1)

    assert clock.slept == [pytest.approx(0.4)]


def test_a_long_rest_ends_when_the_worker_is_to_end() -> None:
    clock, heard = Clock(), list[float]()

    def hear() -> None:
        heard.append(clock.now)
        if len(heard) == 3:
            raise InterruptedError("it is to end")

    throttle = CopyThrottle(lambda: None, cells_per_second=1, clock=clock, sleep=clock.sleep, hear=hear)
    with pytest.raises(InterruptedError):
        throttle.rest(2_000, read_seconds=0.01, seconds=0.1)

    assert sum(clock.slept) <= 3


def test_a_source_that_answers_slowly_has_rest() -> None:
    clock = Clock()
    throttle = CopyThrottle(lambda: None, clock=clock, sleep=clock.sleep)
    throttle.rest(1000, read_seconds=0.01, seconds=0.1)

    throttle.rest(1000, read_seconds=0.1, seconds=0.1)

    throttle.rest(1, read_seconds=0.1, seconds=0.1)

    assert clock.slept == [0.0, pytest.approx(0.3), 0.0]


def test_nothing_is_copied_while_replicas_of_the_target_are_behind() -> None:
    clock, lags = Clock(), iter([LAG_SECONDS_MAX + 5, LAG_SECONDS_MAX + 1, 0.0])
    throttle = CopyThrottle(lambda: next(lags), clock=clock, sleep=clock.sleep)

    throttle.rest(1, read_seconds=0.0, seconds=0.0)

    assert clock.slept == [0.0, 1.0, 1.0]


def test_a_shard_is_closed_for_no_longer_than_it_may_be() -> None:
    clock = Clock()
    patience = ClosedTime(0.5, clock)
    assert not patience.is_over()
    patience.close()
    clock.now += 0.4
    assert not patience.is_over()
    clock.now += 0.2

    assert patience.is_over()
    patience.open()
    assert patience.seconds_closed == pytest.approx(0.6)
    assert not patience.is_over()


def test_i5_a_call_that_a_closed_shard_waits_for_has_no_longer_than_it_may_be_closed() -> None:
    clock = Clock()
    patience = ClosedTime(0.5, clock)
    assert patience.deadline(30.0).remaining_seconds() == pytest.approx(30.0)
    patience.close()
    clock.now += 0.4

    assert patience.deadline(30.0).remaining_seconds() == pytest.approx(0.1)
    assert patience.deadline(0.05).remaining_seconds() == pytest.approx(0.05)
    clock.now += 0.2
    assert patience.deadline(30.0).is_over
    patience.is_decided = True
    assert patience.deadline(30.0).remaining_seconds() == pytest.approx(30.0), "it has gone: it is opened"
    patience.open()
    patience.close()
    assert patience.deadline(30.0).remaining_seconds() == pytest.approx(0.5), "another move"


@pytest.mark.parametrize("status", list(ShardStatus), ids=lambda status: status.value)
def test_only_a_shard_that_is_seen_open_ends_the_time_for_which_it_takes_no_writes(status: ShardStatus) -> None:
    """One that a promotion has fenced takes none yet; and so does a copy of it."""
    patience = ClosedTime(0.5, Clock())
    patience.close()

    patience.saw(status.value)

    assert patience.is_closed == (status not in (ShardStatus.RW, ShardStatus.COPY))


def test_a_wait_that_took_longer_than_a_closed_shard_may_wait_is_told() -> None:
    clock = Clock()
    patience = ClosedTime(0.5, clock)
    assert patience.was_quick()
    patience.is_over()
    clock.now += 0.4

    assert not patience.was_quick()
    assert patience.was_quick(), "the next wait begins"


def test_a_shard_that_a_dead_mover_left_is_closed_for_the_next_one_too() -> None:
    patience = ClosedTime(0.5, Clock())

    patience.saw(ShardStatus.GOING.value)

    assert patience.is_closed


def test_a_shard_that_was_opened_unheard_counts_as_closed() -> None:
    """The answer was lost: whether it takes writes is not known."""
    patience = ClosedTime(0.5, Clock())
    silent = ClusterConfig("b", parse_node_url("clusters.b.primary", "mysql://root@127.0.0.1:1"))
    rows = ClusterShards({"b": Cluster(silent, DatastoreConfig("trips", 4, (silent,), silent.primary))}, 0, 4, patience)
    patience.close()

    assert rows.open("b", 2, None) is SILENT

    assert patience.is_closed


def test_i9_a_copy_of_an_earlier_epoch_is_about_to_open() -> None:
    """It is what a process finds that has heard of the decision before the copy has arrived."""
    gate = Gate(0, 6, Kind.OWNER, 0)

    with pytest.raises(StaleEpoch) as coming:
        gate.check_read(ShardState(5, 0, "MOVED"))
    with pytest.raises(StaleEpoch) as gone:
        gate.check_read(ShardState(7, 0, "MOVED"))

    assert (coming.value.status, gone.value.status) == ("COMES", "MOVED")


@pytest.mark.parametrize("status", ["GOING", "COMES"])
def test_i9_a_shard_that_moves_takes_no_writes_and_answers_readers_of_its_epoch(status: str) -> None:
    gate, state = Gate(0, 5, Kind.COPIER, 0), ShardState(5, 0, status)

    gate.check_read(state)
    for check_it in (gate.check_write, gate.check_beside):
        with pytest.raises(StaleEpoch) as refusal:
            check_it(state)
        assert refusal.value.status == status


def test_a_moved_shard_has_a_place_of_its_own() -> None:
    before = spread(8, ["a", "b"])

    after = with_place(before, 2, "b", 2)

    assert after.version == before.version + 1
    assert after.placements == (
        Placement(0, 1, "a", 1),
        Placement(2, 2, "b", 2),
        Placement(3, 3, "a", 1),
        Placement(4, 7, "b", 1),
    )
    assert with_place(after, 2, "a", 1).placements == before.placements


def test_a_few_rows_that_changed_do_not_have_a_table_copied_as_a_whole() -> None:
    few, most = BucketSums({1: 3_000}, 100_000), BucketSums({1: 60_000}, 100_000)

    assert [each.is_to_be_copied_whole for each in (few, most, BucketSums({1: 100}, 100))] == [False, True, False]


def test_buckets_go_by_portions_of_so_many_entries_or_one_bucket() -> None:
    sums = BucketSums({3: 40, 1: 30, 2: 200, 4: 10}, 300)

    assert list(sums.portions(100)) == [[1], [2], [3, 4]]
    assert list(BucketSums({}, 300).portions(100)) == []


def test_a_shard_is_found_in_a_topology_of_many_runs() -> None:
    topology = spread(7, ["a", "b"])
    for shard in (1, 3, 6):
        topology = with_place(topology, shard, "c", 2)

    assert [place_of(topology, shard) for shard in range(7)] == [
        Placed(at.cluster, at.epoch) for _shard, at in sorted(topology, key=lambda each: each[0])
    ]
    for shard in (-1, 7):
        with pytest.raises(MoveRefused, match="no shard"):
            place_of(topology, shard)
