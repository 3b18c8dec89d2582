"""A replica becomes the primary: nothing acknowledged is lost, doubled or skipped, and one leads (I1, I3, I9)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import Cell, Datastore, PutStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.primacy import Opening, ReplicationLogin
from schemaless_core.errors import InvalidRequest, NodeUnavailable, PromotionRefused, SchemalessError, StaleEpoch
from schemaless_core.failpoints import FailpointReached, use_folder
from schemaless_core.promotion import steps
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.steps import Step
from schemaless_core.urls import parse_node_url
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.promoted import Promotable
from tripstore.local.binlog import REPLICATION_USER, BinlogServer

#: Where the old primary is there a replica has all of it, most often, when it is looked at.
OF_A_DEATH = (steps.CUT_OFF, steps.FETCH, steps.CATCH_UP)


def test_i1_i3_a_planned_promotion_loses_and_doubles_nothing_while_callers_put(made: Promotable) -> None:
    """Two processes, of which neither is told, and a reader that goes on by its positions."""
    acknowledged: list[Cell] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def keep_putting(store: Datastore) -> None:
        while not stop.is_set():
            cell = Cell(rows_on(made.store, "a", 1)[0], "BASE", 1, "x")
            try:
                store.put_cell(*cell.key, cell.body)
            except StaleEpoch as error:
                failures.extend([] if error.is_passing else [error])
            except Exception as error:  # noqa: BLE001  # the test looks at them
                failures.append(error)
            else:
                acknowledged.append(cell)

    with Datastore.open(made.document) as other:
        read = made.put(3)
        (shard,) = {other.shard_of(read[0].row_key)}
        position = other.get_cells_for_shard(shard, 0, 100).position
        threads = [threading.Thread(target=keep_putting, args=(store,)) for store in (made.store, other)]
        for thread in threads:
            thread.start()
        promoted = made.promote(made.order(to=made.replica(0)))
        count = len(acknowledged)
        wait_until("callers put at the new primary", lambda: len(acknowledged) > count + 20)
        stop.set()
        for thread in threads:
            thread.join()

        assert failures == []
        assert promoted.left == ()
        assert made.leads() == other.clusters["a"].primary.node.name == made.name(made.replica(0))
        assert made.log() == sorted(((*cell.key, cell.body) for cell in [*read, *acknowledged]), key=repr)
        rest = other.get_cells_for_shard(shard, position, 10_000)
        assert rest.position.epoch == position.epoch + 1
        assert len(rest.cells) == len(other.get_cells_for_shard(shard, 0, 10_000).cells) - position.added_id
    assert made.faults() == []


@pytest.mark.parametrize("server_engine", ["mysql"], indirect=True)
def test_i9_mysql_servers_that_start_anew_after_a_promotion_take_no_writes_by_themselves(made: Promotable) -> None:
    """The old primary's file says that it takes writes, and it is kept that it does not. The new one goes by its file.

    Nothing is kept above that: else `read_only` in the file of a primary that died would not count.
    """
    old, new = made.old, made.replica(0)
    made.promote(made.order(to=new))
    start_anew(old, new)
    assert [refuses_all(each) for each in made.cluster.servers] == [True, True, True]
    new.query("SET GLOBAL super_read_only = 0, read_only = 0")
    made.put(3)

    new.write_role(is_replica=False)
    start_anew(new)
    made.put(3)
    new.write_role(is_replica=True)
    start_anew(new)
    assert refuses_all(new)
    assert made.faults() == []


def start_anew(*servers: BinlogServer) -> None:
    for server in servers:
        server.kill()
        server.start()


def refuses_all(server: BinlogServer) -> bool:
    return bool(server.query("SELECT @@super_read_only AS it")[0]["it"])


def test_i1_what_a_dead_primary_alone_had_is_salvaged_or_in_the_ledger(made: Promotable) -> None:
    """Five cells reach no replica. One of them is put again with another body before the old disk is back."""
    store = made.store
    safe = made.put(10, "safe")
    made.cluster.wait_for_replicas()
    for replica in made.cluster.replicas:
        cut_off(replica)
    lost = made.put(5, "lost")
    made.old.kill()

    with pytest.raises(PromotionRefused, match="Give it up with --old-is-dead only if it is stopped"):
        made.promote()
    promoted = made.promote(made.order(dead=(made.old,)))

    assert promoted.record.given_up == (made.name(made.old),)
    assert all(store.get_cell(*cell.key) is None for cell in lost)
    new = made.put(3, "new")
    row = lost[0].row_key
    assert store.put_cell(row, "BASE", 1, "other").status is PutStatus.CREATED
    made.old.start()
    dry = salvage(made, is_dry=True)
    assert (dry.cells, dry.there, dry.salvaged, dry.conflicts) == (5, 0, 4, 1)
    found = salvage(made)

    assert found == dry._replace(index_entries=found.index_entries)
    store.replayer().round()
    assert sorted(made.log()) == sorted(
        (*cell.key, cell.body) for cell in [*safe, *new, *lost[1:], Cell(row, "BASE", 1, "other")]
    )
    ledger = store.replayer().conflicts(10)["a"]
    assert not isinstance(ledger, SchemalessError)
    (conflict,) = ledger
    assert (conflict.waiting.cell.body, conflict.stored) == (b'"lost"', b'"other"')
    again = salvage(made)
    assert (again.there, again.salvaged, again.conflicts) == (4, 0, 1)
    store.replayer().round()
    assert store.replayer().conflicts(10)["a"] == ledger, "it is there once, however often it is salvaged"
    assert made.leads() != made.name(made.old), "that is back and says nothing of promotions"


def cut_off(replica: BinlogServer) -> None:
    replica.query("STOP REPLICA IO_THREAD")


def salvage(made: Promotable, *, is_dry: bool = False) -> Any:
    url = parse_node_url("old", made.old.url)
    return made.store.promotions.salvage("a", url).run(lambda done, total: None, is_dry=is_dry)


def test_i1_a_replica_that_is_asked_for_fetches_first_what_another_one_has(made: Promotable, tmp_path: Path) -> None:
    """The old primary is dead, so it has it from nowhere else; killed at each step, too."""
    behind, ahead = made.cluster.replicas
    made.cluster.wait_for_replicas()
    cut_off(behind)
    cells = made.put(20)
    wait_until("one replica has them", lambda: ahead.wait_for_position(made.old.position(), 5))
    assert not behind.wait_for_position(made.old.position(), 0.1)
    made.old.kill()
    order = made.order(to=behind, dead=(made.old,))
    for step in OF_A_DEATH:
        (tmp_path / step.name).write_text("raise")
        use_folder(tmp_path)
        with pytest.raises(FailpointReached):
            made.promote(order)
        use_folder(None)

    made.promote(order)

    assert made.leads() == made.name(behind)
    assert made.log() == sorted(((*cell.key, cell.body) for cell in cells), key=repr)
    made.wait_until_equal(ahead)


def test_i1_a_replica_that_has_fetched_nothing_of_its_new_source_has_applied_it(made: Promotable) -> None:
    """A promotion that was killed as it made it follow another one, and was repeated at once, never ended (MySQL)."""
    one, other = made.cluster.replicas
    made.put(3)
    made.cluster.wait_for_replicas()
    node = next(each.node for each in made.store.clusters["a"].nodes if each.node.name == made.name(one))
    with closing(node.candidate()) as candidate:
        login = ReplicationLogin(REPLICATION_USER, other.password)
        candidate.follow("127.0.0.1", other.port, login, Deadline(10.0))

        wait_until("it is cut off, and has applied all", lambda: candidate.cut_off(Deadline(10.0)), 10)


def test_i1_i9_a_promotion_that_is_killed_at_any_step_is_gone_on_with(made: Promotable, tmp_path: Path) -> None:
    """There and back, over three servers. Between death and repetition callers wait, or find the old or the new one."""
    cells: list[Cell] = []
    servers = list(made.cluster.servers)
    for n, step in enumerate(each for each in steps.PROMOTE if each not in OF_A_DEATH):
        to = servers[(n + 1) % len(servers)]
        (tmp_path / step.name).write_text("raise")
        use_folder(tmp_path)
        try:
            with pytest.raises(FailpointReached):
                made.promote(made.order(to=to))
        finally:
            use_folder(None)

        promoted = made.promote(made.order(to=to))

        assert promoted.record.target == made.name(to), step.name
        assert promoted.record.is_done
        assert promoted.left == ()
        cells += made.put(2, step.name)
        assert made.leads() == made.name(to)
        made.wait_until_equal(*(each for each in servers if each is not to))

    assert made.faults() == []
    assert made.log() == sorted(((*cell.key, cell.body) for cell in cells), key=repr)


def test_i9_a_primary_that_follows_its_own_replica_is_fenced(made: Promotable) -> None:
    """In a ring, or by what is left of an earlier time: it takes writes all the same."""
    made.old.follow(made.replica(0))
    found: list[set[object]] = []

    def look(step: Step) -> None:
        if step is steps.OPEN:
            rows = made.old.query("SELECT state FROM trips_meta.shard_state WHERE shard < 2")
            found.append({row["state"] for row in rows})

    made.store.promotions.promoter("a").promote(made.order(to=made.replica(0)), look)

    assert found == [{"RO"}]
    cells = made.put(3)
    made.wait_until_equal(made.old, made.replica(1))
    assert made.log() == sorted(((*cell.key, cell.body) for cell in cells), key=repr)


def test_i9_a_server_that_was_away_follows_when_the_command_is_repeated(made: Promotable) -> None:
    """It is not in the way of the promotion when it is given up; the same command makes it a replica later."""
    away = made.replica(1)
    to = made.replica(0)

    def kill_it(step: Step) -> None:
        if step is steps.FOLLOW and away.is_running:
            away.kill()

    first = made.store.promotions.promoter("a").promote(made.order(to=to), kill_it)
    away.start()
    again = made.promote(made.order(to=to))

    assert made.name(away) in first.left
    assert (again.left, again.record) == ((), first.record)
    made.put(3)
    made.wait_until_equal(away, made.old)


def test_a_cluster_of_one_server_is_led_by_it_whatever_the_record_says(made: Promotable) -> None:
    """Its operator has written the promoted server into the configuration, and named no other."""
    cells = made.put(1)
    made.promote()
    alone = next(each for each in made.cluster.servers if made.name(each) == made.leads())
    document = made.document | {"clusters": made.document["clusters"] | {"a": {"primary": alone.url}}}
    with Datastore.open(document) as store:
        (row,) = rows_on(store, "a", 1)

        assert store.put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED
        assert store.get_cell(*cells[0].key) == cells[0]


def test_i9_two_promotions_at_once_make_one_primary(made: Promotable) -> None:
    first, second = made.cluster.replicas
    results: list[object] = []

    def promote(to: BinlogServer) -> None:
        with Datastore.open(made.document) as store:
            try:
                results.append(store.promotions.promoter("a").promote(made.order(to=to)))
            except PromotionRefused as refused:
                results.append(refused)

    threads = [threading.Thread(target=promote, args=(to,)) for to in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 2
    cells = made.put(5)
    made.promote(made.order(to=first))
    assert made.leads() == made.name(first)
    assert made.log() == sorted(((*cell.key, cell.body) for cell in cells), key=repr)
    assert made.faults() == []


def test_i9_a_server_that_does_not_lead_closes_nothing(made: Promotable) -> None:
    """A hand-over that asks the old primary must not hear that the shards are closed. Control: who leads does."""
    made.promote(made.order(to=made.replica(0)))
    made.wait_until_equal(made.old)
    with closing(node_of(made, made.old)) as old, closing(node_of(made, made.replica(0))) as leads:
        with pytest.raises(NodeUnavailable, match="read-only"):
            old.close_to_owners(1, Deadline(5.0))
        made.old.query("SET GLOBAL read_only = 0")  # an operator's mistake
        assert not old.close_to_owners(1, Deadline(5.0))

        assert leads.close_to_owners(2, Deadline(5.0))


def test_i9_a_hand_over_that_comes_as_the_next_primary_takes_writes_is_kept(made: Promotable, tmp_path: Path) -> None:
    """The promotion has asked who is the authority, and that ends before the shards are open: it asks anew."""
    to, openings = made.replica(0), [Opening(2, "COPY"), Opening(1, "RW")]
    (tmp_path / "promotion.writable").write_text("wait")
    use_folder(tmp_path)
    try:
        with ThreadPoolExecutor(1) as thread, closing(node_of(made, to)) as leads:
            promoter = made.store.promotions.promoter("a", OpeningInTurn(openings))
            promoting = thread.submit(promoter.promote, made.order(to=to))
            wait_until("it takes writes", (tmp_path / "promotion.writable.hit").exists)
            assert not leads.close_to_owners(2, Deadline(5.0)), "fenced shards are closed by who opens them"
            (tmp_path / "promotion.writable.go").touch()
            assert promoting.result(60).record.is_done
            histories = [leads.authority_history(shard, Deadline(5.0)) for shard in range(2)]
    finally:
        use_folder(None)

    assert openings == []
    rows = to.query("SELECT state, authority_epoch FROM trips_meta.shard_state WHERE shard < 2")
    assert {(row["state"], row["authority_epoch"]) for row in rows} == {("COPY", 2)}
    for history in histories:
        assert [change[:2] for change in history] == [(0, "RW"), (2, "COPY")], "no epoch is noted twice, or as fenced"


class OpeningInTurn:
    """An `AuthorityPort` that says what is next, from the last one on."""

    def __init__(self, openings: list[Opening]) -> None:
        self._openings = openings

    def opening(self) -> Opening:
        return self._openings.pop()


def node_of(made: Promotable, server: BinlogServer) -> Node:
    return next(
        each.node for each in Datastore.open(made.document).clusters["a"].nodes if each.node.name == made.name(server)
    )


def test_what_keeps_a_promotion_from_being_begun_is_said_and_changes_nothing(made: Promotable, tmp_path: Path) -> None:
    def refused(order: PromotionOrder | None = None, cluster: str = "a", **changes: Any) -> str:
        with (
            Datastore.open(made.document | changes) as store,
            pytest.raises((PromotionRefused, InvalidRequest)) as error,
        ):
            store.promotions.promoter(cluster).promote(order or PromotionOrder())
        return str(error.value)

    assert "There is no cluster c" in refused(cluster="c")
    assert "Cluster b has no replica" in refused(cluster="b")
    assert "replication.user is missing" in refused(replication={})
    assert "answers, so it is not dead" in refused(made.order(dead=(made.old,)))
    assert "has no server nowhere:1" in refused_name(made)
    stopped = made.replica(1)
    stopped.kill()
    assert f"--dead 127.0.0.1:{stopped.port} only if it is stopped" in refused()
    stopped.start()
    assert "The control database is on 127.0.0.1" in refused(control=made.old.url)
    made.old.query("DROP TABLE trips_meta.primacy")
    made.cluster.wait_for_replicas()
    assert "run `tripstore schema apply`" in refused()
    assert made.leads() == made.name(made.old)
    assert made.put(1)
    made.store.create_schema()
    made.cluster.wait_for_replicas()
    assert made.promote().record.number == 1


def refused_name(made: Promotable) -> str:
    with pytest.raises(PromotionRefused) as error:
        made.store.promotions.promoter("a").name_of("nowhere:1")
    return str(error.value)
