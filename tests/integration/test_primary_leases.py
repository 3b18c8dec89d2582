"""Primaries that take writes only under a lease, and workers that have another server lead where one is silent (I9)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.cell.answers import PutStatus
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import NodeUnavailable, PromotionRefused, SchemalessError, StaleEpoch
from schemaless_core.promotion.failover import STALE_SECONDS, Failover
from schemaless_core.promotion.lease import Extension
from schemaless_core.promotion.ports import Busy, PromotionOrder
from schemaless_core.promotion.record import ControlRecord
from schemaless_core.promotion.steps import END, OUTLAST
from schemaless_core.promotion.voters import CONTROL, Promises, of_a_promotion, renew
from schemaless_core.steps import Step
from schemaless_core.urls import parse_node_url
from tests.chaos.actors import wait_until
from tests.chaos.test_promotions_in_switches import config_of
from tests.chaos.test_unresponsive_server import rows_on
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine
from tripstore.local.binlog import BinlogServer
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers

#: Where no server listens.
NOWHERE = parse_node_url("control", "mysql://root:x@127.0.0.1:1")
#: From a primary's death to the first cell that its successor stores.
STORED_SECONDS_MAX = 10.0


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as it:
        yield it


@pytest.fixture
def leased(made: Promotable) -> Promotable:
    """Its cluster a has a lease; cluster b has no replica, and needs none."""
    made.promote(PromotionOrder(to=made.leads(), leases=True))
    return made


def lease_rows(server: BinlogServer) -> set[int]:
    return {int(str(row["server"])) for row in server.query("SELECT server FROM trips_meta.lease")}


def server_id(server: BinlogServer) -> int:
    return int(str(server.query("SELECT @@server_id AS id")[0]["id"]))


def end_lease(server: BinlogServer) -> None:
    """As its clock would. Replicas do not have that row, and would stop at a change of it."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("UPDATE trips_meta.lease SET lasts_until = UTC_TIMESTAMP(6) WHERE server = @@server_id")


def failover_of(store: Datastore, *, stale_seconds: float = STALE_SECONDS) -> Failover:
    seconds = {"silent_seconds": 1.0, "again_seconds": 0.0, "stale_seconds": stale_seconds}
    return Failover(store.clusters, store.control, store.promotions.promoter, **seconds)


@contextmanager
def other_process(made: Promotable) -> Iterator[Datastore]:
    """A store that has heard of everything so far, and of nothing from now on but what servers refuse."""
    with Datastore.open(made.document) as store:
        store.put_cell(rows_on(store, "a", 1)[0], "BASE", 1, "before")
        with patch.object(store._places, "learn", return_value=set()):
            yield store


def test_i9_it_is_on_once_the_primary_was_opened_anew_and_replicas_have_no_lease(leased: Promotable) -> None:
    leased.put(20)
    leased.cluster.wait_for_replicas()

    (primary, replica) = leased.cluster.servers
    assert lease_rows(primary) == {0, server_id(primary)}
    assert lease_rows(replica) == {0}
    assert leased.faults() == []


def test_i9_a_primary_whose_lease_has_ended_takes_no_puts_of_any_kind_and_closes_nothing(leased: Promotable) -> None:
    store = leased.store.using(deadline=1.0)
    Promises(leased.store.control).put("a", 1_000_000)  # no voter allows another one
    end_lease(leased.old)
    rows = rows_on(leased.store, "a", 3)

    for put in (
        lambda: store.put_cell(rows[0], "BASE", 1, "x"),
        lambda: store.put_cell(rows[0], "BASE", 1, "x", expect_latest=None),
        lambda: store.as_copier().put_cell(rows[1], "BASE", 1, "x"),
        lambda: store.put_cells([Cell(row, "BASE", 1, "x") for row in rows]),
    ):
        with pytest.raises(SchemalessError):
            put()
    assert [leased.store.get_cell(row, "BASE", 1) for row in rows] == [None] * 3
    assert not leased.store.authority.close("a", 7)


def test_control_a_process_that_does_not_look_at_the_lease_puts_into_that_primary(leased: Promotable) -> None:
    Promises(leased.store.control).put("a", 1_000_000)  # no voter allows another one
    end_lease(leased.old)
    for node in leased.store.clusters["a"].nodes:
        node.node.go_by_leases(False)
    (row,) = rows_on(leased.store, "a", 1)

    assert leased.store.put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED
    assert not leased.store.authority.close("a", 7), "the server says it of itself, whatever the process has heard"


@pytest.mark.parametrize("is_control_there", [True, False], ids=["control", "no control"])
def test_i9_a_process_that_knows_the_primary_alone_goes_by_its_lease(
    leased: Promotable, is_control_there: bool
) -> None:
    """No promotion is possible for all that it knows, and there was one: the server itself says so."""
    clusters = {name: {"primary": its["primary"]} for name, its in _clusters(leased)}
    control = leased.document["control"] if is_control_there else f"mysql://root:x@127.0.0.1:{NOWHERE.port}"
    document = {**leased.document, "clusters": clusters, "control": control}
    with Datastore.open(document) as alone:
        (row, other) = rows_on(leased.store, "a", 2)
        alone.put_cell(row, "BASE", 1, "x")
        Promises(leased.store.control).put("a", 1_000_000)  # no voter allows another one
        end_lease(leased.old)

        with pytest.raises(SchemalessError):
            alone.using(deadline=1.0).put_cell(other, "BASE", 1, "x")
    assert leased.store.get_cell(other, "BASE", 1) is None


def _clusters(made: Promotable) -> Iterable[tuple[str, dict[str, object]]]:
    clusters: dict[str, dict[str, object]] = made.document["clusters"]
    return clusters.items()


def test_a_put_does_not_wait_for_who_extends_the_lease(leased: Promotable) -> None:
    """The look at the lease takes no lock."""
    with leased.old.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        connection.begin()
        cursor.execute("UPDATE trips_meta.lease SET server = server WHERE server = @@server_id")
        cursor.execute("SELECT * FROM trips_meta.lease WHERE server = @@server_id FOR UPDATE")
        (row,) = rows_on(leased.store, "a", 1)
        assert leased.store.put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED
        connection.rollback()


def test_a_lease_is_extended_after_a_rest_in_which_the_server_ended_the_session(leased: Promotable) -> None:
    """The control: a session that is taken to be there still."""
    unlogged = "SET SESSION sql_log_bin = 0, wait_timeout = 1"
    for rest_seconds, outcome in ((60.0, Extension.SILENT), (0.5, Extension.EXTENDED)):
        rested = patch("schemaless_core.engine.mysql.leases.REST_SECONDS", rest_seconds)
        with patch("schemaless_core.engine.mysql.leases.UNLOGGED", unlogged), rested:
            for node in leased.store.clusters["a"].nodes:
                assert node.node.leases is not None
                node.node.leases.close()
            assert _renewed(leased) is Extension.EXTENDED
            time.sleep(2.0)  # the server's own patience is what is shown
            assert _renewed(leased) is outcome


def _renewed(made: Promotable) -> Extension:
    return renew(made.store.clusters["a"], made.store.clusters, made.store.control)


def test_a_server_that_may_keep_no_lease_is_named_before_anything_is_done(
    made: Promotable, server_engine: ServerEngine
) -> None:
    made.old.query("CREATE USER clerk@'%' IDENTIFIED BY 'x'")
    looks = "REPLICATION CLIENT, SLAVE MONITOR" if server_engine == "mariadb" else "REPLICATION CLIENT"
    made.old.query(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, {looks} ON *.* TO clerk@'%'")
    made.cluster.wait_for_replicas()
    text = re.sub(r"mysql://root:[^@]*@", "mysql://clerk:x@", json.dumps(made.document))
    right = "BINLOG ADMIN" if server_engine == "mariadb" else "SESSION_VARIABLES_ADMIN"
    order = PromotionOrder(to=made.leads(), leases=True)

    for granted, count in ("", 2), (right, 0):
        if granted:
            made.old.query(f"GRANT {granted} ON *.* TO clerk@'%'")
            made.cluster.wait_for_replicas()
        with Datastore.open(json.loads(text)) as clerk:
            refusals = clerk.promotions.promoter("a").plan(order).refusals
        assert sum("can keep no lease" in refusal for refusal in refusals) == count, refusals


def test_a_refused_put_has_the_lease_extended_where_no_worker_does(leased: Promotable) -> None:
    end_lease(leased.old)

    leased.put(1)

    left = leased.store.promotions.promoter("a").lease_seconds()
    assert left is not None
    assert left > 0


def test_i9_an_answer_that_comes_late_does_not_count(leased: Promotable) -> None:
    """The control: where no lease is needed it does."""
    (row,) = rows_on(leased.store, "a", 1)

    with patch("schemaless_core.servers.clusters.ANSWER_SECONDS", 0.0):
        with pytest.raises(SchemalessError):
            leased.store.put_cell(row, "BASE", 1, "x")
        (other,) = rows_on(leased.store, "b", 1)
        assert leased.store.put_cell(other, "BASE", 1, "x").status is PutStatus.CREATED
    assert leased.store.get_cell(row, "BASE", 1) is not None  # it may be there, as the error says


def test_i9_what_needs_no_lease_is_not_outlasted(made: Promotable) -> None:
    made.old.pause()
    try:
        with pytest.raises(PromotionRefused, match="may be alive, and takes writes without a lease"):
            failover_of(made.store).promote("a")
    finally:
        made.old.resume()
    assert made.store.promotions.promoter("a").record().number == 0


def test_i9_a_voter_that_has_promised_allows_no_lease_to_what_was_opened_before(leased: Promotable) -> None:
    cluster, clusters, control = leased.store.clusters["a"], leased.store.clusters, leased.store.control
    assert renew(cluster, clusters, control) is Extension.EXTENDED

    Promises(control).put("a", cluster.leader.number + 1)

    assert renew(cluster, clusters, control) is Extension.DENIED


def test_i1_i9_a_silent_primary_is_outlasted_and_writes_nothing_when_it_is_back(leased: Promotable) -> None:
    cells = leased.put(20)
    leased.cluster.wait_for_replicas()
    old = leased.old
    with other_process(leased) as stale:
        old.pause()
        failover_of(leased.store).promote("a")
        old.resume()
        new = leased.put(5)
        (row,) = rows_on(stale, "a", 1)

        with pytest.raises((StaleEpoch, NodeUnavailable)):
            stale.using(deadline=1.0).put_cell(row, "BASE", 1, "late")

        assert leased.leads() != leased.name(old)
        assert leased.store.get_cell(row, "BASE", 1) is None
    assert [leased.store.get_cell(*each.key) is not None for each in (*cells, *new)] == [True] * 25


def test_i1_i9_a_primary_that_dies_has_a_successor_without_an_operator(leased: Promotable) -> None:
    cells = leased.put(20)
    leased.cluster.wait_for_replicas()
    with failover_of(leased.store):
        leased.old.kill()
        died_at = time.monotonic()
        wait_until("another server leads", lambda: leased.leads() != leased.name(leased.old), STORED_SECONDS_MAX)
        leased.put(1)
        seconds = time.monotonic() - died_at
        print(f"the first cell was stored {seconds:.1f} s after the primary had died")
        time.sleep(4.0)  # longer than a lease: workers extend the next one, too
        leased.put(1)

    assert seconds < STORED_SECONDS_MAX
    assert [leased.store.get_cell(*each.key) is not None for each in cells] == [True] * 20


def test_i1_a_replica_that_stopped_long_before_is_made_no_primary(
    leased: Promotable, server_engine: ServerEngine
) -> None:
    """The control is the test before: replicas that had heard of the primary."""
    stop = "STOP SLAVE" if server_engine == "mariadb" else "STOP REPLICA"
    patient = failover_of(leased.store, stale_seconds=2.0)
    for replica in leased.cluster.replicas:
        replica.query(stop)
    heard = [_heard_at(leased, replica) for replica in leased.cluster.replicas]
    with patient:
        wait_until("the primary says that it lives", lambda: _heard_at(leased, leased.old) > max(heard) + STALE, 20.0)
    leased.old.kill()

    with pytest.raises(PromotionRefused, match="a replica may lack more than the last 2 s before that: the best one"):
        patient.promote("a")
    assert leased.store.promotions.promoter("a").record().number == 1  # by which it was switched on


STALE = timedelta(seconds=3.0)


def _heard_at(made: Promotable, server: BinlogServer) -> datetime:
    leases = next(each.node.leases for each in made.store.clusters["a"].nodes if each.node.name == made.name(server))
    assert leases is not None
    at = leases.beaten_at(Deadline(5.0))
    assert at is not None
    return at


def test_i1_a_server_that_is_fenced_says_no_more_that_it_lives(leased: Promotable) -> None:
    """What it had then is measured: a change that came after would be on no other server. The control: unfenced."""
    leases = next(each.node.leases for each in leased.store.clusters["a"].nodes if each.node.name == leased.leads())
    assert leases is not None
    before = _heard_at(leased, leased.old)
    leases.beat(Deadline(5.0))
    assert (since := _heard_at(leased, leased.old)) > before

    leased.old.query("UPDATE trips_meta.shard_state SET state = 'RO'")
    leases.beat(Deadline(5.0))
    assert _heard_at(leased, leased.old) == since


def test_i9_what_a_worker_had_promised_and_not_ended_is_gone_on_with(leased: Promotable) -> None:
    """The old primary lives, and gets no lease any more: without a successor its shards would take no writes."""
    promoter = leased.store.promotions.promoter("a")

    def die(step: Step) -> None:
        if step is OUTLAST:
            raise KeyboardInterrupt

    leased.old.pause()
    with pytest.raises(KeyboardInterrupt):
        promoter.promote(PromotionOrder(given_up=(leased.name(leased.old),), outlasts=True), die)
    leased.old.resume()
    assert not promoter.record().is_done

    with failover_of(leased.store):
        wait_until("another server leads", lambda: leased.leads() != leased.name(leased.old), 20)
        leased.put(1)


def test_i5_what_a_worker_had_opened_and_not_ended_is_ended_while_its_primary_answers(leased: Promotable) -> None:
    """Until it is, no other cluster is promoted without an operator: that is the control."""
    promoter, other = leased.store.promotions.promoter("a"), ControlRecord(leased.store.control, "b", lambda _name: 1)

    def die(step: Step) -> None:
        if step is END:
            raise KeyboardInterrupt

    leased.cluster.wait_for_replicas()
    leased.old.kill()
    with pytest.raises(KeyboardInterrupt):
        promoter.promote(PromotionOrder(given_up=(leased.name(leased.old),), outlasts=True), die)
    assert leased.leads() != leased.name(leased.old)
    leased.put(1)
    assert not promoter.record().is_done
    assert other.other_alone() == Busy("a")

    with failover_of(leased.store):
        wait_until("it is done", lambda: promoter.record().is_done, 30.0)
        leased.put(1)
    assert other.other_alone() is None


def test_of_one_cluster_no_two_promotions_follow_each_other_at_once(leased: Promotable) -> None:
    promotions = leased.store.promotions
    patient = Failover(leased.store.clusters, leased.store.control, promotions.promoter)
    leased.cluster.wait_for_replicas()
    leased.old.kill()
    assert patient.outlook("a").refusals == (), "the promotion by which it was switched on does not count"
    patient.promote("a")

    with pytest.raises(PromotionRefused, match="The newest promotion was decided at"):
        patient.promote("a")
    refusals = patient.outlook("a").refusals

    assert any("The newest promotion was decided at" in refusal for refusal in refusals)


def test_it_is_off_again_once_the_primary_was_opened_without_one(leased: Promotable) -> None:
    leased.promote(PromotionOrder(to=leased.leads(), leases=False))

    assert lease_rows(leased.old) == {server_id(leased.old)}
    end_lease(leased.old)
    leased.put(3)
    assert leased.faults() == []


class Pair(NamedTuple):
    """A datastore of two clusters whose primaries need a lease each."""

    store: Datastore
    clusters: list[LocalCluster]


@pytest.fixture
def pair(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Pair]:
    with LocalServers() as servers:
        clusters = servers.clusters(server_engine, ["a", "b"], replicas=1)
        document = {"datastore": "trips", "shards": 4} | config_of(clusters, tmp_path)
        with Datastore.open(document) as store:
            store.create_schema()
            for cluster in clusters:
                cluster.wait_for_replicas()
            for name in "ab":
                promoter = store.promotions.promoter(name)
                promoter.promote(PromotionOrder(to=promoter.old(), leases=True))
            yield Pair(store, clusters)


def test_i9_while_the_control_database_is_down_another_primary_allows_it(pair: Pair) -> None:
    """And promises, as a voter: it takes over what the control database has promised. The control: alone, none does."""
    store = pair.store
    its, control = store.clusters, ControlDatabase(NOWHERE, "trips", store.config.tls, 0.5)
    assert renew(its["a"], its, control) is Extension.EXTENDED
    assert renew(its["a"], {"a": its["a"]}, control) is Extension.ALONE

    voters = of_a_promotion("a", its, store.control)
    assert [*voters.names] == [CONTROL, "b"]
    assert voters.block("b", its["a"].leader.number + 1) is None
    assert renew(its["a"], its, control) is Extension.DENIED
    assert renew(its["a"], {"a": its["a"]}, store.control) is Extension.EXTENDED  # which had promised nothing

    assert voters.block(CONTROL, its["a"].leader.number + 1) is None
    promoter = store.promotions.promoter("b")
    promoter.promote(PromotionOrder(leases=True))  # to its replica, which has never been asked
    assert renew(its["a"], its, control) is Extension.DENIED


def test_a_lease_is_extended_in_time_while_the_control_database_says_nothing(pair: Pair) -> None:
    """It is asked last: it has a patience of its own, in which the lease would end."""
    store = pair.store

    with patch.object(Promises, "find", side_effect=AssertionError("it is asked")):
        assert renew(store.clusters["a"], store.clusters, store.control) is Extension.EXTENDED


def test_i5_no_promotion_is_begun_that_another_cluster_cannot_promise(pair: Pair) -> None:
    """One that is begun closes the cluster, and could not be ended: what only looks dead from here goes on."""
    store, (a, b) = pair.store, pair.clusters
    (row,) = rows_on(store, "a", 1)
    a.wait_for_replicas()
    b.primary.kill()
    a.primary.pause()
    try:
        with pytest.raises(PromotionRefused, match="Cluster b has no primary with a lease that answers from here"):
            failover_of(store).promote("a")
    finally:
        a.primary.resume()

    assert store.promotions.promoter("a").record().is_done
    assert store.using(deadline=10.0).put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED


def test_i5_two_primaries_that_die_one_after_the_other_have_successors(pair: Pair) -> None:
    """Each is the other's voter. The first one's is the next one's, once it leads."""
    store = pair.store
    with failover_of(store):
        for name, cluster in zip("ab", pair.clusters, strict=True):
            cluster.wait_for_replicas()
            old = store.clusters[name].leader
            cluster.primary.kill()
            wait_until(f"another server leads {name}", partial(_is_led_anew, store, name, old), 30.0)
        rows = [*rows_on(store, "a", 1), *rows_on(store, "b", 1)]
        done = [store.using(deadline=10.0).put_cell(row, "BASE", 1, "x").status for row in rows]

    assert done == [PutStatus.CREATED] * 2


def _is_led_anew(store: Datastore, name: str, old: Lead) -> bool:
    store.clusters[name].find_primary(1.0)
    return store.clusters[name].leader > old
