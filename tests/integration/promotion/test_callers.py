"""What processes see of a promotion: who follows it, what waits in a buffer, and who writes nothing (I5, I9)."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import BatchFailed, Cell, Datastore, PutStatus, Unavailable
from schemaless_core.cell.answers import PutResult
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import NodeUnavailable, StaleEpoch
from schemaless_core.promotion import steps
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.steps import Step
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.integration.indexed import indexed
from tests.integration.indexed import write as written
from tests.promoted import Promotable
from tripstore.cli.status.overview import look_at_servers
from tripstore.ports.store import SchemalessPort


def test_a_process_that_puts_nothing_follows_a_promotion_after_a_death(kept: Promotable) -> None:
    """One that only counts what waits, as a watcher does. The control: it goes to the old primary before."""
    with Datastore.open(kept.document) as watcher:
        counts = watcher.replayer().sizes
        assert all(isinstance(size, BufferSize) for size in counts().values())
        kept.old.kill()
        assert isinstance(counts()["a"], NodeUnavailable)

        kept.promote(kept.order(dead=(kept.old,)))

        wait_until("it asks the new primary", lambda: isinstance(counts()["a"], BufferSize))
        assert watcher.clusters["a"].primary.node.name == kept.name(kept.replica())


def test_a_process_that_begins_after_a_promotion_looks_at_the_replicas_of_now(made: Promotable) -> None:
    """A deep fsck named the new primary as a replica, could not look at it, and passed over the old one."""
    made.promote(made.order(to=made.replica(0)))
    with Datastore.open(made.document) as fresh:
        servers = {replica.node.name for replica in fresh.clusters["a"].replicas}
    assert servers == {made.name(made.old), made.name(made.replica(1))}


def test_what_status_shows_is_led_by_the_server_of_now(made: Promotable) -> None:
    """It named the first server of the configuration as the primary: an operator would have stopped the leader."""
    row = next(iter(rows_on(made.store, "a", 1)))
    made.promote(made.order(to=made.replica(0)))
    made.store.put_cell(row, "BASE", 1, "x")
    with Datastore.open(made.document) as fresh:
        view = look_at_servers(fresh)

    cluster = next(each for each in view.clusters if each.cluster == "a")
    assert [each.role for each in cluster.servers] == ["primary", "replica", "replica"]
    assert cluster.servers[0].server == made.name(made.replica(0))
    assert {each.server for each in cluster.servers[1:]} == {made.name(made.old), made.name(made.replica(1))}
    assert view.cells_of_shards == fresh.config.shards
    assert view.cells > 0


def test_an_append_to_a_dead_primary_says_that_no_buffer_keeps_it(kept: Promotable) -> None:
    """Its reading half failed first, with a hint that said nothing of that. The control: a put is kept."""
    row, other = rows_on(kept.store, "a", 2)
    kept.old.kill()

    with pytest.raises(NodeUnavailable, match="No buffer keeps it"):
        kept.store.append_cell(row, "BASE", "x")
    assert kept.store.put_cell(other, "BASE", 1, "x").status is PutStatus.BUFFERED


def test_i5_puts_in_between_wait_in_a_buffer_single_and_in_batches(kept: Promotable) -> None:
    cells = [Cell(row, "BASE", 1, "x") for row in rows_on(kept.store, "a", 4)]

    def put_while_fenced(step: Step) -> None:
        if step is steps.OPEN:
            one, *batch = cells
            assert kept.store.put_cell(*one.key, one.body).status is PutStatus.BUFFERED
            assert {each.status for each in kept.store.put_cells(batch)} == {PutStatus.BUFFERED}
            with pytest.raises((StaleEpoch, NodeUnavailable), match="what it expects, only the cell's own primary"):
                kept.store.put_cell(cells[0].row_key, "BASE", 2, "y", expect_latest=1)

    kept.store.promotions.promoter("a").promote(PromotionOrder(), put_while_fenced)
    carried = kept.store.replayer().round().cells

    assert carried == len(cells)
    assert kept.log() == sorted(((*cell.key, cell.body) for cell in cells), key=repr)


def test_i5_a_put_that_learns_too_late_of_a_promotion_waits_in_a_buffer(kept: Promotable) -> None:
    """The server says that the epoch is another one, and no source says it in time. It ended in `StaleEpoch`."""
    with Datastore.open(kept.document) as late:
        row, other = rows_on(late, "a", 2)
        late.put_cell(row, "BASE", 1, "before")
        kept.promote()
        with patch.object(late._places, "learn", return_value=set()):
            assert late.put_cell(row, "BASE", 2, "late").status is PutStatus.BUFFERED
            assert [each.status for each in late.put_cells([Cell(other, "BASE", 1, "late")])] == [PutStatus.BUFFERED]
            with pytest.raises((StaleEpoch, NodeUnavailable)):  # the control: a copier has no buffer
                late.as_copier().put_cell(row, "BASE", 3, "late")
        while late.replayer().round().left:
            pass
        assert late.get_cell(row, "BASE", 2) is not None


def test_without_buffers_a_put_waits_for_its_deadline_and_says_what_it_waits_for(made: Promotable) -> None:
    (row,) = rows_on(made.store, "a", 1)
    refusals: list[StaleEpoch] = []

    def put_while_fenced(step: Step) -> None:
        if step is steps.OPEN:
            with pytest.raises(StaleEpoch, match="it is RO and takes no writes") as refused:
                made.store.put_cell(row, "BASE", 1, "x")
            refusals.append(refused.value)

    made.store.promotions.promoter("a").promote(PromotionOrder(), put_while_fenced)

    assert [refusal.is_passing for refusal in refusals] == [True]
    assert made.store.put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED


def test_behind_the_facade_what_waited_for_a_promotion_in_vain_is_to_be_tried_again(made: Promotable) -> None:
    """Which server leads is no caller's business. The control is the store itself."""
    first, second = (Cell(row, "BASE", 1, "x") for row in rows_on(made.store, "a", 2))
    there = Cell(rows_on(made.store, "b", 1)[0], "BASE", 1, "x")
    store = made.store.using(deadline=0.5)
    port = SchemalessPort(made.store, lambda _cell, _why: None)

    def put_while_fenced(step: Step) -> None:
        if step is steps.OPEN:
            with pytest.raises(StaleEpoch):
                store.put_cell(*first.key, first.body)
            with pytest.raises(Unavailable, match="it is RO and takes no writes") as told:
                port.call(lambda s: s.using(deadline=0.5).put_cell(*first.key, first.body), 0)
            assert "tripstore shards status" in (told.value.hint or "")
            with pytest.raises(BatchFailed) as failed:
                port.call(lambda s: s.using(deadline=0.5).put_cells([there, second]), 0)
            stored, late = failed.value.results
            assert isinstance(stored, PutResult)
            assert isinstance(late, Unavailable)

    made.store.promotions.promoter("a").promote(PromotionOrder(), put_while_fenced)

    answers = port.call(lambda s: s.put_cells([first, second, there]), 0)
    assert isinstance(answers, list)
    assert [answer.status for answer in answers] == [PutStatus.CREATED, PutStatus.CREATED, PutStatus.EXISTS]


def test_i9_a_process_that_has_not_heard_of_it_writes_nothing_into_the_old_primary(made: Promotable) -> None:
    """A superuser passes `read_only` on MariaDB: the shards' epochs refuse."""
    with Datastore.open(made.document) as idle:
        (row,) = rows_on(made.store, "a", 1)
        idle.put_cell(row, "BASE", 1, "x")
        made.promote()
        made.wait_until_equal(made.old)

        assert idle.put_cell(row, "BASE", 2, "y").status is PutStatus.CREATED

        assert idle.clusters["a"].primary.node.name == made.leads()
        made.wait_until_equal(made.old)
        assert made.old.replica_failure() is None


def test_i5_a_server_that_is_fenced_takes_nothing_at_all_also_from_superusers(made: Promotable) -> None:
    """Entries and offsets ask no shard's row. One that the old primary had alone would keep it from following.

    Its control: what the server takes before the fence.
    """
    index = indexed(made.store)
    (node, shard), groups = (index.node, index.shards[0]), index.node.groups
    groups.begin("noted", "beginning", soon())
    writes: dict[str, Callable[[], object]] = {
        "entries": lambda: index.put(written()),
        "a group": lambda: groups.begin("other", "beginning", soon()),
        "a claim": lambda: groups.claim("noted", {shard: 2}, soon()),
        "an offset": lambda: groups.reset("noted", {shard: (1, 5)}, soon()),
        "a parked cell": lambda: groups.retry("noted", shard, None, soon()),
        "a note of calls": lambda: groups.note_claims("noted", [shard], soon()),
        "a document": lambda: node.put_document(StoredDocument("index:noted", 1, b"{}"), soon()),
    }
    for write in writes.values():
        write()
    refused: list[str] = []

    def write_while_fenced(step: Step) -> None:
        if step is steps.DECIDE:
            for name, write in writes.items():
                with pytest.raises(NodeUnavailable) as error:
                    write()
                assert error.value.is_read_only, name
                refused.append(name)

    made.store.promotions.promoter("a").promote(PromotionOrder(), write_while_fenced)

    node.close()
    assert set(refused) == set(writes)
    made.wait_until_equal(made.old)
    assert made.old.replica_failure() is None


def test_a_process_that_begins_while_the_leader_is_silent_writes_nowhere(made: Promotable) -> None:
    """Neither to the configured primary, which follows. It reads from replicas."""
    cells = made.put(2)
    made.promote(made.order(to=made.replica(0)))
    made.wait_until_equal(made.old, made.replica(1))
    (row,) = rows_on(made.store, "a", 1)
    made.replica(0).kill()
    with Datastore.open(made.document) as begun:
        with pytest.raises(NodeUnavailable, match="Cluster a is unavailable: promotion 1 made a server its primary"):
            begun.put_cell(row, "BASE", 1, "x")
        assert begun.get_cell(*cells[0].key) == cells[0]
        made.replica(0).start()
        made.replica(0).query("SET GLOBAL read_only = 0")  # its own configuration is still that of a replica
        wait_until("it is found", lambda: puts(begun, row))


def soon() -> Deadline:
    return Deadline(10.0)


def puts(store: Datastore, row: UUID) -> bool:
    try:
        store.put_cell(row, "BASE", 1, "x")
    except NodeUnavailable:
        return False
    return True
