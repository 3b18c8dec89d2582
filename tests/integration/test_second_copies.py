"""`durability="double"`: a put is acknowledged when two servers have its cell; the loss of one loses nothing (I1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from schemaless_core import BatchFailed, Cell, CellKey, Datastore, InvalidRequest, Position, PutStatus
from schemaless_core.buffers.ports import Waiting
from schemaless_core.buffers.replayer import _Hands
from schemaless_core.deadline import Deadline
from schemaless_core.errors import NodeUnavailable, Unavailable
from schemaless_core.failpoints import FailpointReached, use_folder
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.promoted import DEADLINES, Promotable, promotable
from tests.stores import ServerEngine, Stores
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers

CREATED, EXISTS, BUFFERED = PutStatus.CREATED, PutStatus.EXISTS, PutStatus.BUFFERED


def copies(store: Datastore) -> dict[str, int]:
    """How many second copies wait at each cluster."""
    deadline = Deadline(5.0)
    found = {
        name: cluster.ask(lambda node: node.buffers.waiting(None, 1000, 1 << 30, deadline))
        for name, cluster in store.clusters.items()
    }
    counts = {name: sum(each.is_second for each in cells) for name, cells in found.items()}
    return {name: count for name, count in counts.items() if count}


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """Cluster a has a replica; cluster b has none, and keeps second copies of a's cells."""
    with promotable(server_engine, tmp_path / "control", replicas=1, buffer={"put_seconds": 5.0}) as it:
        yield it


def stop_applying(made: Promotable, engine: ServerEngine, *, is_stopped: bool = True) -> None:
    word = "SLAVE" if engine == "mariadb" else "REPLICA"
    made.replica().query(f"{'STOP' if is_stopped else 'START'} {word} SQL_THREAD")


def carry(store: Datastore) -> int:
    """One round of a worker."""
    return store.replayer().round().cells


def test_i1_a_second_copy_waits_until_the_replica_has_the_cell(made: Promotable, server_engine: ServerEngine) -> None:
    made.cluster.wait_for_replicas()
    stop_applying(made, server_engine)
    double = made.store.using(durability="double")
    rows = rows_on(made.store, "a", 7)

    assert double.put_cell(rows[0], "BASE", 1, "x").status is CREATED
    assert double.put_cell(rows[0], "BASE", 1, "x").status is EXISTS
    assert double.put_cell(rows[1], "BASE", 1, "x", expect_latest=None).status is CREATED
    assert double.append_cell(rows[2], "BASE", "x").status is CREATED
    assert [each.status for each in double.put_cells([Cell(row, "BASE", 1, "x") for row in rows[3:5]])] == [CREATED] * 2
    shard = made.store.shard_of(rows[5])
    seen = made.store.end_of_log(shard)
    assert isinstance(seen, Position)
    together = double.put_together([Cell(rows[5], "BASE", n, "x") for n in (1, 2)], seen)
    assert together is not None
    made.store.put_cell(rows[6], "BASE", 1, "x")  # without
    assert copies(made.store) == {"b": 7}
    assert [carry(made.store) for _round in range(3)] == [0, 0, 0]
    assert copies(made.store) == {"b": 7}

    stop_applying(made, server_engine, is_stopped=False)
    made.cluster.wait_for_replicas()

    assert carry(made.store) == 7
    assert copies(made.store) == {}
    assert made.store.clusters["b"].primary.node.buffers.size(Deadline(5.0))[:2] == (0, 0)


def test_i1_what_a_dead_primary_alone_had_is_stored_again(made: Promotable, server_engine: ServerEngine) -> None:
    """The control: a put without a second copy is on the old disk alone."""
    made.cluster.wait_for_replicas()
    made.replica().query(f"STOP {'SLAVE' if server_engine == 'mariadb' else 'REPLICA'} IO_THREAD")
    rows = rows_on(made.store, "a", 2)
    made.store.using(durability="double").put_cell(rows[0], "BASE", 1, "double")
    made.store.put_cell(rows[1], "BASE", 1, "single")
    assert carry(made.store) == 0

    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    assert made.store.get_cell(rows[0], "BASE", 1) is None
    assert made.store.using(include_buffered=True).get_cell(rows[0], "BASE", 1) is not None
    carry(made.store)

    assert made.store.get_cell(rows[0], "BASE", 1) == Cell(rows[0], "BASE", 1, "double")
    assert made.store.get_cell(rows[1], "BASE", 1) is None
    # The old primary is named as a replica, and silent: it could lead again.
    assert copies(made.store) == {"b": 1}


def test_i1_a_promotion_between_the_copy_and_the_question_settles_nothing(made: Promotable) -> None:
    """Who is a replica now led when the cell was found, and says nothing of others. The control: the next round."""
    (row,) = rows_on(made.store, "a", 1)
    made.store.using(durability="double").put_cell(row, "BASE", 1, "x")
    made.cluster.wait_for_replicas()

    def promoted_first(hands: _Hands, cells: tuple[Waiting, ...]) -> tuple[bool, ...]:
        made.promote(made.order(to=made.replica()))
        return _REPLICATED(hands, cells)

    with patch.object(_Hands, "replicated", promoted_first):
        assert carry(made.store) == 0
    assert copies(made.store) == {"b": 1}
    made.wait_until_equal(made.old)

    assert carry(made.store) == 1
    assert copies(made.store) == {}


class Three(NamedTuple):
    """Three clusters without replicas."""

    store: Datastore
    clusters: list[LocalCluster]

    def kill(self, name: str) -> None:
        self.clusters["abc".index(name)].primary.kill()

    def others_of(self, row: Any) -> tuple[str, ...]:
        """Where a cell of the row waits first, and then."""
        its = self.store.schema.plan().topology
        own = next(name for name in "abc" if self.store.shard_of(row) in its.shards_of(name))
        return tuple(name for name in "abc" if name != own)


@pytest.fixture
def three(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Three]:
    with LocalServers() as servers:
        clusters = servers.clusters(server_engine, ["a", "b", "c"], replicas=0)
        document = {
            "datastore": "trips",
            "shards": 6,
            "clusters": {name: {"primary": its.primary.url} for name, its in zip("abc", clusters, strict=True)},
            "control": f"sqlite:///{tmp_path}/control",
            "deadlines": DEADLINES,
            "buffer": {"put_seconds": 5.0},
        }
        with Datastore.open(document) as store:
            store.create_schema()
            yield Three(store, clusters)


@pytest.mark.parametrize("durability", ["double", "single"])
def test_i1_i5_with_its_own_cluster_down_two_buffers_keep_a_cell(three: Three, durability: Any) -> None:
    """One of them may be lost then. The control: a single put is kept by one."""
    (row, other) = rows_on(three.store, "a", 2)
    three.store.put_cell(row, "WARM", 1, "x")
    three.kill("a")
    caller = three.store.using(durability=durability, deadline=5.0)

    assert caller.put_cell(row, "BASE", 1, "x").status is BUFFERED
    assert [each.status for each in caller.put_cells([Cell(other, "BASE", 1, "x")])] == [BUFFERED]

    waiting = {name: its.ask(_count) for name, its in three.store.clusters.items() if name != "a"}
    assert sum(waiting.values()) == (4 if durability == "double" else 2), waiting
    assert copies(Datastore.open(without(three, "a"))) == ({"b": 2, "c": 2} if durability == "double" else {})


def test_i5_both_halves_are_offered_to_their_shard_twice_and_stored_once(three: Three, tmp_path: Path) -> None:
    """Each half waits in a buffer of its own. A worker dies when both were put, before either is removed."""
    store = three.store
    (row,) = rows_on(store, "a", 1)
    store.put_cell(row, "WARM", 1, "x")
    three.kill("a")
    double = store.using(durability="double", deadline=5.0)
    assert double.put_cell(row, "BASE", 1, "x").status is BUFFERED
    assert double.put_cell(row, "BASE", 1, "x").status is BUFFERED, "a caller that heard no answer"
    three.clusters[0].primary.start()
    with Datastore.open(without(three, "")) as worker:
        use_folder(tmp_path)
        try:
            (tmp_path / "replay.settle").write_text("raise")
            with pytest.raises(FailpointReached):
                worker.replayer().round()
        finally:
            use_folder(None)
        assert copies(worker) == {"b": 1, "c": 1}

        assert carry(worker) == 2

        assert copies(worker) == {}
        assert [size.conflicts for size in worker.replayer().sizes().values()] == [0, 0, 0]  # type: ignore[union-attr]  # all answer
        page = worker.get_cells_for_shard(worker.shard_of(row), 0, 100)
        assert [cell.key for cell in page.cells].count(CellKey(row, "BASE", 1)) == 1


def _count(node: Any) -> int:
    count: int = node.buffers.size(Deadline(5.0)).bytes // len(b'"x"')
    return count


def without(three: Three, name: str) -> dict[str, Any]:
    """A configuration of the clusters that are there."""
    names = [each for each in "abc" if each != name]
    return {
        "datastore": "trips",
        "shards": 6,
        "clusters": {each: {"primary": three.clusters["abc".index(each)].primary.url} for each in names},
        "control": str(three.store.config.control),
    }


def test_i1_nothing_is_acknowledged_that_one_server_alone_has(three: Three) -> None:
    store = three.store
    (row, later) = rows_on(store, "a", 2)
    store.put_cell(row, "WARM", 1, "x")
    double = store.using(durability="double", deadline=5.0)
    three.kill("b")
    three.kill("c")

    with pytest.raises(Unavailable, match="no other one keeps the second copy") as alone:
        double.put_cell(row, "BASE", 1, "x")
    with pytest.raises(BatchFailed) as batch:
        double.put_cells([Cell(later, "BASE", 1, "x")])
    with pytest.raises(Unavailable, match="no other one keeps the second copy") as appended:
        double.append_cell(row, "NOTES", "x")

    assert "Repeat the put" in str(alone.value.hint)
    assert "It is stored under ref key 1: put the same cell there" in str(appended.value.hint)
    assert isinstance(batch.value.results[0], Unavailable)
    assert store.get_cell(row, "BASE", 1) is not None, "as the error says"
    for name in "bc":
        three.clusters["abc".index(name)].primary.start()
    wait_until("a buffer is there again", lambda: _is_doubled(double, row), 20.0)


def _is_doubled(double: Datastore, row: Any) -> bool:
    try:
        return double.put_cell(row, "BASE", 1, "x").status is EXISTS
    except Unavailable:
        return False


def test_i1_two_buffers_are_wanted_of_a_dead_cluster_and_one_is_not_enough(three: Three) -> None:
    (row,) = rows_on(three.store, "a", 1)
    three.store.put_cell(row, "WARM", 1, "x")
    three.kill("a")
    three.kill("c")

    with pytest.raises(NodeUnavailable):
        three.store.using(durability="double", deadline=5.0).put_cell(row, "BASE", 1, "x")
    assert three.store.using(deadline=5.0).put_cell(row, "BASE", 1, "x").status is BUFFERED


def test_i5_what_waits_for_its_cluster_does_not_wait_behind_second_copies(
    made: Promotable, server_engine: ServerEngine
) -> None:
    """The control: where none is passed, a portion is full of them for as long as the replica stands still."""
    made.cluster.wait_for_replicas()
    stop_applying(made, server_engine)
    (row, *others) = rows_on(made.store, "a", 2)
    shard = made.store.shard_of(row)
    same = [each for each in rows_on(made.store, "a", 40) if made.store.shard_of(each) == shard][:6]
    made.store.using(durability="double").put_cells([Cell(each, "BASE", 1, "x") for each in same])
    made.old.pause()
    try:
        assert made.store.using(deadline=2.0).put_cell(row, "LATE", 1, "x").status is BUFFERED
    finally:
        made.old.resume()

    with patch("schemaless_core.buffers.replayer.CELLS_PER_TAKE", 2):
        with patch.object(_Hands, "replicated", _passing_none):
            fixed = made.store.replayer()
            assert sum(fixed.round().cells for _round in range(6)) == 0
        replayer = made.store.replayer()
        wait_until("it is carried", lambda: replayer.round().cells == 1, 20.0)
    assert made.store.get_cell(row, "LATE", 1) is not None
    assert copies(made.store) == {"b": len(same)}
    assert others


_REPLICATED = _Hands.replicated


def _passing_none(hands: _Hands, cells: tuple[Waiting, ...]) -> tuple[bool, ...]:
    found = _REPLICATED(hands, cells)
    hands._lacking.passed.clear()
    return found


def test_servers_of_a_version_before_keep_cells_and_no_second_copies(
    stores: Stores, server_engine: ServerEngine
) -> None:
    store = stores.fresh(server_engine, buffer={})
    for cluster in stores.clusters(server_engine):
        cluster.primary.query(f"DROP TABLE {store.config.datastore}_meta.second_copy")
    (row,) = rows_on(store, "a", 1)

    with pytest.raises(Unavailable, match="no other one keeps the second copy"):
        store.using(durability="double").put_cell(row, "BASE", 1, "x")
    assert store.replayer().round().cells == 0
    assert store.clusters["b"].primary.node.buffers.size(Deadline(5.0)).cells == 0


def test_a_datastore_without_buffers_refuses_it(stores: Stores) -> None:
    with pytest.raises(InvalidRequest, match="keeps second copies in buffers, and there are none"):
        stores.fresh("sqlite").using(durability="double")


def test_on_files_a_second_copy_goes_at_once(stores: Stores) -> None:
    """They have no replicas: none could lead instead."""
    store = stores.fresh("sqlite", buffer={})
    (row,) = rows_on(store, "a", 1)

    assert store.using(durability="double").put_cell(row, "BASE", 1, "x").status is CREATED
    assert copies(store) == {"b": 1}
    assert carry(store) == 1
    assert copies(store) == {}
