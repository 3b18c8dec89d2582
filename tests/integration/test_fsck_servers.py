"""fsck of what is not in the log of a shard: owners, offsets, buffers, ledgers, replicas, old primaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from schemaless_core import Cell, CellKey, Datastore
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.standing import Gate, Kind, ShardStatus
from schemaless_core.cell.stored import NewCell
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.buffers import Offered
from schemaless_core.engine.groups import GroupStep
from schemaless_core.errors import NodeUnavailable
from schemaless_core.fsck.faults import NOT_COMPARED, Fault, commands_of
from schemaless_core.fsck.fsck import FsckOrder
from schemaless_core.fsck.mending import MendOutcome
from schemaless_core.fsck.owners import OwnersLook
from schemaless_core.promotion import steps
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.triggers.held import parked_cell
from schemaless_core.urls import parse_node_url
from tests.chaos.test_unresponsive_server import rows_on
from tests.crew import Notebook, noting
from tests.damage import execute, lose, spoil
from tests.fscks import DEEP, found_in, kinds_in, mend, row_of
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine, Stores

SHARD = 0


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    made = stores.fresh(datastore_engine, buffer={})
    made.put_cells([Cell(row_of(made, shard), "BASE", 1, "x") for shard in range(8)])
    return made


def soon() -> Deadline:
    return Deadline(20.0)


# Owners (I9).


def owners(store: Datastore, sleep: Callable[[float], object] = lambda seconds: None) -> list[Finding]:
    return OwnersLook(store._router, store.control, sleep)(None)


def set_state(store: Datastore, change: str) -> None:
    execute(store, SHARD, f"UPDATE {{state}} SET {change} WHERE shard = %s", SHARD)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("state = 'MOVED'", Fault.NO_OWNER),
        ("state = 'RO'", Fault.FENCED),
        ("epoch = 2", Fault.MISPLACED),
        ("state = 'COPY'", Fault.MIXED),
        ("authority_epoch = 4", Fault.MIXED),
    ],
    ids=lambda value: str(value),
)
def test_i9_a_shard_without_one_owner_where_it_belongs_is_found(store: Datastore, change: str, fault: Fault) -> None:
    assert owners(store) == []
    set_state(store, change)

    (found,) = owners(store)

    assert found.kind == fault
    assert found.body["shard"] == (None if fault is Fault.MIXED else SHARD)
    assert commands_of(found, "last", is_beside_postgres=False)[0] == "I9"
    if fault is Fault.MIXED:  # as the page says: the few get what the many have
        set_state(store, "state = 'RW', authority_epoch = 0")
        assert owners(store) == []


def test_i9_closed_shards_may_be_of_several_authority_epochs(store: Datastore) -> None:
    """As a promotion beside Postgres leaves them. The control: as soon as one is open, a fault."""
    execute(store, SHARD, "UPDATE {state} SET state = 'COPY', authority_epoch = 4")
    execute(store, 7, "UPDATE {state} SET state = 'COPY', authority_epoch = 4")
    set_state(store, "authority_epoch = 3")
    assert owners(store) == []

    set_state(store, "state = 'RW'")

    assert [each.kind for each in owners(store)] == [Fault.MIXED]


def test_i9_a_shard_on_two_clusters_is_found(store: Datastore) -> None:
    node: Node = store.clusters["b"].primary.node
    node.create_shards([SHARD], ShardStatus.RW)

    (found,) = owners(store)

    assert (found.kind, found.body["shard"]) == (Fault.TWO_OWNERS, SHARD)
    shut = "UPDATE {state} SET state = 'MOVED' WHERE shard = %s"  # as the page says, on the server that is wrong
    execute(store, store.schema.plan().topology.shards_of("b")[0], shut, SHARD)
    assert owners(store) == []


@pytest.mark.parametrize(
    ("here", "there"), [("RO", "RO"), ("GOING", "COMES"), ("GOING", "RO")], ids=lambda value: str(value)
)
def test_i9_a_shard_that_moves_beside_a_promotion_has_no_two_owners(store: Datastore, here: str, there: str) -> None:
    """Neither takes writes. The control is above: two that do are found."""
    store.clusters["b"].primary.node.create_shards([SHARD], ShardStatus[there])
    set_state(store, f"state = '{here}'")

    (found,) = owners(store)

    assert (found.kind, found.body["shard"]) == (Fault.FENCED, SHARD)


def test_i9_a_shard_that_has_gone_to_another_cluster_than_control_says_is_misplaced(store: Datastore) -> None:
    store.clusters["b"].primary.node.create_shards([SHARD], ShardStatus.RW)
    set_state(store, "state = 'GOING'")

    assert [each.kind for each in owners(store)] == [Fault.FENCED, Fault.MISPLACED]


def test_i12_what_is_over_at_the_next_look_is_no_finding(store: Datastore) -> None:
    """A promotion that is under way. The control is above: what stays is found."""
    set_state(store, "state = 'RO'")

    assert owners(store, lambda seconds: set_state(store, "state = 'RW'")) == []


def test_i12_a_cluster_that_answers_at_the_second_look_is_looked_at(store: Datastore) -> None:
    """It has a shard too few. The control: of one that never answers nothing is said but that."""
    execute(store, 7, "UPDATE {state} SET state = 'MOVED' WHERE shard = 7")
    ask_all = store._router.ask_all
    calls = list[int]()

    def silent_for(looks: int) -> Any:
        def ask(verb: Any) -> Any:
            calls.append(1)
            answers = ask_all(verb)
            return answers | {"b": NodeUnavailable("b", "a test")} if len(calls) <= looks else answers

        return ask

    with patch.object(store._router, "ask_all", silent_for(1)):
        assert [(each.kind, each.body["shard"]) for each in owners(store)] == [(Fault.NO_OWNER, 7)]
    calls.clear()
    with patch.object(store._router, "ask_all", silent_for(9)):
        assert [each.kind for each in owners(store)] == [NOT_COMPARED]


# Beside the cells.


def test_i7_an_offset_above_the_head_is_found_and_reset(store: Datastore) -> None:
    store.triggers.register(noting(Notebook()))
    execute(store, SHARD, "UPDATE {offset} SET added_id = 99 WHERE {of}")
    (found,) = found_in(store)
    assert (found.kind, found.body["shard"], found.body["added_id"]) == (Fault.OFFSET, SHARD, 99)
    assert (
        commands_of(found, "last", is_beside_postgres=False)[2] == "tripstore triggers reset noted --shard 0 --to TIME"
    )

    store.triggers.reset("noted", "beginning")

    assert kinds_in(store) == []


def test_i7_parked_cells_are_found(store: Datastore) -> None:
    store.triggers.register(noting(Notebook()))
    (cell,) = store.get_cells_for_shard(SHARD, 0, 1).cells
    store.triggers.offsets.claim("noted", {SHARD: 1})
    step = GroupStep(1, 1, 1, 1, (parked_cell(cell, 0, "it failed", 0.0, is_waiting=False),))
    store.triggers.offsets.advance("noted", {SHARD: step})

    (found,) = found_in(store)

    assert (found.kind, found.body["cells"]) == (Fault.PARKED, 1)
    assert commands_of(found, "last", is_beside_postgres=False)[2] == "tripstore triggers retry noted --all"


def test_i5_what_waits_for_long_and_conflicts_are_found_and_gone_when_they_are_settled(store: Datastore) -> None:
    waits = Cell(row_of(store, SHARD), "BASE", 1, "waits")
    stored = Cell(row_of(store, SHARD), "BASE", 1, "stored")
    store.put_cell(*stored.key, stored.body)
    keep_on_b(store, waits, Cell(*stored.key, "other"))
    assert kinds_in(store) == [], "they are young"
    with patch("schemaless_core.fsck.beside.OLD_SECONDS", 0.0):
        assert kinds_in(store) == [Fault.WAITING]

    store.replayer().round()

    (found,) = found_in(store)
    assert (found.kind, found.body["cluster"]) == (Fault.CONFLICT, "b")
    conflicts = store.replayer().conflicts(10)["b"]
    store.clusters["b"].write(
        lambda node: node.buffers.close_conflicts([each.waiting.number for each in as_list(conflicts)], soon())
    )
    assert kinds_in(store) == []


def as_list(answer: Any) -> list[Any]:
    assert isinstance(answer, list)
    return answer


def keep_on_b(store: Datastore, *cells: Cell) -> None:
    """Put cells of cluster a into the buffer of cluster b."""
    node = store.clusters["b"].primary.node
    gate = Gate(min(node.heads(None, soon())), 1, Kind.OWNER, 0)
    new = [NewCell(each.row_key.bytes, b"BASE", each.ref_key, canonical_bytes(each.body)) for each in cells]
    node.buffers.keep(gate, [Offered(SHARD, each) for each in new], soon())


def test_i12_what_a_silent_cluster_has_is_not_compared_and_the_others_is(
    server_engine: ServerEngine, stores: Stores
) -> None:
    made = stores.config(server_engine)
    with Datastore.open(made) as whole:
        whole.create_schema()
        cells = [Cell(row_of(whole, shard), "BASE", 1, "x") for shard in range(8)]
        whole.put_cells(cells)
        spoil(whole, cells[0], b"{")
    clusters = made["clusters"] | {"b": {"primary": "mysql://root:x@127.0.0.1:1"}}  # nothing listens there
    with Datastore.open(made | {"clusters": clusters, "deadlines": {"connect_seconds": 1.0}}) as cut_off:
        found = found_in(cut_off)

    assert [each.row_key for each in found if each.kind == Fault.BYTES] == [cells[0].row_key]
    assert {each.kind for each in found} == {Fault.BYTES, NOT_COMPARED}
    assert {each.body["shard"] for each in found if "log of shard" in str(each.body["reason"])} == {4, 5, 6, 7}


# Replicas (I1).


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as it:
        yield it


def test_i1_a_replica_that_differs_is_found_by_a_deep_look(made: Promotable) -> None:
    cells = made.put(10)
    made.cluster.wait_for_replicas()
    assert kinds_in(made.store, DEEP) == []
    shard = made.store.shard_of(cells[4].row_key)
    made.replica().query("SET GLOBAL read_only = 0")
    made.replica().query(
        f"UPDATE {table_of(made.store, shard)} SET body = %s WHERE row_key = %s", b'"other"', cells[4].row_key.bytes
    )

    assert kinds_in(made.store) == []
    (found,) = found_in(made.store, DEEP)

    assert (found.kind, found.row_key) == (Fault.REPLICA, cells[4].row_key)
    assert made.name(made.replica()) in str(found.body["reason"])


def test_i12_a_replica_that_is_behind_a_repair_is_not_compared(made: Promotable) -> None:
    (cell,) = made.put(1)
    made.cluster.wait_for_replicas()
    cut_off(made)
    raw = made.store.mends.find(CellKey(*cell.key))
    assert raw is not None
    assert made.store.mends.mend(raw, b'"y"')

    with patch("schemaless_core.fsck.replicas.PAUSE_SECONDS", 0.01):
        assert kinds_in(made.store, DEEP) == [NOT_COMPARED]


def test_i1_a_replica_with_cells_that_its_primary_lacks_is_found(made: Promotable) -> None:
    (cell,) = made.put(1)
    made.cluster.wait_for_replicas()
    shard = made.store.shard_of(cell.row_key)
    made.replica().query("SET GLOBAL read_only = 0")
    name = made.store.config.datastore
    made.replica().query(f"UPDATE {name}_meta.shard_state SET next_added_id = 9 WHERE shard = %s", shard)

    (found,) = found_in(made.store)

    assert (found.kind, found.body["shard"]) == (Fault.REPLICA, shard)


def cut_off(made: Promotable) -> None:
    made.replica().query("STOP REPLICA IO_THREAD")


def table_of(store: Datastore, shard: int) -> str:
    node: Any = store.clusters["a"].primary.node
    return str(node._names.cell(shard))


def test_i1_a_replica_that_lacks_its_newest_cells_is_found_by_its_counter(made: Promotable) -> None:
    """It says that it has them; one that is behind says nothing of the kind, and is a prefix."""
    cells = made.put(6)
    made.cluster.wait_for_replicas()
    shard = made.store.shard_of(cells[0].row_key)
    last = made.store.get_cells_for_shard(shard, 0, 100).cells[-1]
    made.replica().query("SET GLOBAL read_only = 0")
    made.replica().query(f"DELETE FROM {table_of(made.store, shard)} WHERE added_id = %s", last.added_id)

    (found,) = found_in(made.store, DEEP)

    assert (found.kind, found.body["shard"], found.row_key) == (Fault.REPLICA, shard, last.row_key)


def test_i2_the_bytes_of_a_replica_go_before_a_value_that_is_torn_and_parses(made: Promotable) -> None:
    """Of 10 a disk made 1 and a space."""
    (cell,) = made.put(1, {"a": 10})
    made.cluster.wait_for_replicas()
    cut_off(made)
    spoil(made.store, cell, b'{"a":1 }')

    assert mend(made.store) == [MendOutcome.MENDED]

    assert made.store.get_cell(*cell.key) == cell


def test_i1_nothing_is_given_up_while_a_replica_has_not_come_so_far(made: Promotable) -> None:
    cut_off(made)
    cells = made.put(4)
    lose(made.store, cells[1])
    spoil(made.store, cells[2], b"{")

    assert mend(made.store, may_give_up=True) == [MendOutcome.LEFT, MendOutcome.LEFT]


def test_i1_a_hole_is_filled_with_what_a_replica_has(made: Promotable) -> None:
    """The damage is the primary's disk alone: its replica never heard of it."""
    cells = made.put(6, {"n": 1})
    made.cluster.wait_for_replicas()
    cut_off(made)
    lose(made.store, cells[2])
    spoil(made.store, cells[3], b"{")
    assert {each.kind for each in found_in(made.store)} >= {Fault.HOLE, Fault.BYTES}

    assert mend(made.store) == [MendOutcome.MENDED, MendOutcome.MENDED]

    assert made.store.get_cells([CellKey(*each.key) for each in cells]) == cells
    assert kinds_in(made.store) == []


# A primary that was given up (I1).


def test_i1_what_a_dead_primary_alone_had_is_named_until_it_is_salvaged(made: Promotable) -> None:
    safe = made.put(4, "safe")
    made.cluster.wait_for_replicas()
    cut_off(made)
    lost = made.put(5, "lost")
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    assert NOT_COMPARED in kinds_in(made.store), "its disk is not there"
    conflicting = lost[0]
    made.store.put_cell(*conflicting.key, "other")
    made.old.start()

    tails = [each for each in found_in(made.store) if each.kind == Fault.TAIL]

    assert sum(int(str(each.body["cells"])) for each in tails) == 5
    shard = made.store.shard_of(lost[1].row_key)
    (tail,) = [each for each in tails if each.body["shard"] == shard]
    assert tail.body["first"] == 1 + sum(made.store.shard_of(each.row_key) == shard for each in safe)
    assert "shards salvage a --from" in commands_of(tail, "last", is_beside_postgres=False)[2]
    url = parse_node_url("old", made.old.url)
    made.store.promotions.salvage("a", url).run(lambda done, total: None)
    assert kinds_in(made.store) == [], "one waits for the ledger"
    made.store.replayer().round()
    assert kinds_in(made.store) == [Fault.CONFLICT]


def test_i9_a_promotion_that_stopped_is_found_and_gone_on_with(made: Promotable) -> None:
    rows_on(made.store, "a", 1)

    class Interrupted(Exception):
        pass

    def interrupt(step: Any) -> None:
        if step is steps.OPEN:
            raise Interrupted

    with pytest.raises(Interrupted):
        made.store.promotions.promoter("a").promote(PromotionOrder(), interrupt)
    with patch("schemaless_core.fsck.owners.PAUSE_SECONDS", 0.01):
        found = [each for each in found_in(made.store) if each.kind == Fault.FENCED]
    assert {each.body["shard"] for each in found} == {0, 1}
    assert commands_of(found[0], "last", is_beside_postgres=False)[2] == "tripstore shards promote a"

    made.promote()

    made.wait_until_equal(made.old)
    assert kinds_in(made.store, FsckOrder(is_deep=True)) == []
