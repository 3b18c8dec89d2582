"""Workers that have another server lead where a primary with a lease is silent (I1, I5, I9)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest.mock import Mock

import pytest
from prometheus_client import REGISTRY

from schemaless_core import Datastore
from schemaless_core.cell.answers import PutStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.leases import LEASE_SECONDS
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import ControlUnavailable, NodeUnavailable, PromotionOvertaken, PromotionRefused, StaleEpoch
from schemaless_core.promotion.failover import Failover
from schemaless_core.promotion.ports import Busy, PromotionOrder
from schemaless_core.promotion.record import ControlRecord
from schemaless_core.promotion.steps import END, OUTLAST
from schemaless_core.steps import Step
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.integration.primary_leases.leased import Pair, end_lease, failover_of, other_process
from tests.promoted import Promotable
from tests.stores import ServerEngine
from tests.unit.test_metrics import one_more
from tripstore.local.binlog import BinlogServer

#: Where no server listens.
NOWHERE = "mysql://root:x@127.0.0.1:1"
#: From a primary's death to the first cell that its successor stores.
STORED_SECONDS_MAX = 10.0


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


def test_i9_a_lease_that_is_extended_again_ends_the_silence_and_begins_no_promotion(leased: Promotable) -> None:
    """It lasts by the server's own clock, as long as a lease does. The control: a silent one stays silent."""
    server = leased.old
    end_lease(server)
    its, a_while_ago = leased.store, time.monotonic() - 0.5
    patient = Failover(its.clusters, its.control, its.promotions.promoter, silent_seconds=3600.0)

    with one_more("schemaless_lease_renewals_total", cluster="a", outcome="extended"):
        assert patient._look("a", a_while_ago) == 0.0

    (row,) = server.query(
        "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lasts_until) / 1000000 AS seconds FROM trips_meta.lease"
        " WHERE server = @@server_id"
    )
    assert 0.0 < float(str(row["seconds"])) <= LEASE_SECONDS
    assert leased.store.promotions.promoter("a").record().number == 1
    leased.put(1)
    server.pause()
    try:
        assert patient._look("a", a_while_ago) == a_while_ago
    finally:
        server.resume()


def test_i9_while_the_control_database_cannot_be_read_no_primary_is_replaced(leased: Promotable) -> None:
    """By the watch of a worker, and when it is asked for. The controls are the tests around: one that reads it does."""
    leased.cluster.wait_for_replicas()
    with Datastore.open(leased.document | {"control": NOWHERE}) as blind:
        blind.clusters["a"].find_primary(5.0)
        leased.old.kill()
        failover = failover_of(blind)
        with one_more("schemaless_failovers_total", cluster="a", outcome="refused"):
            failover._look("a", time.monotonic() - 60.0)
        with pytest.raises(ControlUnavailable):
            failover.promote("a")
    promoter = leased.store.promotions.promoter("a")
    assert promoter.record().number == 1, "it was begun by none"
    assert promoter.plan(PromotionOrder(given_up=(promoter.old(),), outlasts=True)).refusals == (), "it would be now"


def test_a_race_for_a_promotion_that_is_lost_is_no_refusal(leased: Promotable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are paged by refusals. The control: another reason counts as one."""
    failover = failover_of(leased.store)
    for error, counted in ((PromotionOvertaken("another has gone on"), 0), (PromotionRefused("too late"), 1)):
        monkeypatch.setattr(failover, "promote", Mock(side_effect=error))
        before = refusals()
        failover._promote("a", datetime.now(UTC))
        assert refusals() - before == counted


def refusals() -> float:
    labels = {"cluster": "a", "outcome": "refused"}
    return REGISTRY.get_sample_value("schemaless_failovers_total", labels) or 0.0


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
