"""Primaries that take writes only under a lease (I9)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.cell.answers import PutStatus
from schemaless_core.control.database import ControlDatabase
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.remembered import IS_REMEMBERED
from schemaless_core.errors import PromotionRefused, SchemalessError
from schemaless_core.promotion.lease import Extension
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.promotion.voters import CONTROL, Promises, of_a_promotion, renew
from schemaless_core.urls import parse_node_url
from tests.chaos.test_unresponsive_server import rows_on
from tests.integration.primary_leases.leased import Pair, end_lease, failover_of, lease_rows, server_id
from tests.promoted import Promotable
from tests.stores import ServerEngine
from tripstore.local.binlog import BinlogServer

#: Where no server listens.
NOWHERE = parse_node_url("control", "mysql://root:x@127.0.0.1:1")


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


def test_a_session_looks_at_the_lease_now_and_then_and_not_for_each_call(leased: Promotable) -> None:
    """The control: one that remembers nothing."""
    looks = []
    for seconds in (60.0, 0.0):
        with patch("schemaless_core.engine.mysql.remembered.LOOK_SECONDS", seconds):
            leased.put(1)
            before = _selects(leased.old)
            for cell in leased.put(10):
                leased.store.get_cell_latest(*cell.key[:2])
        looks.append(_selects(leased.old) - before)

    remembered, not_remembered = looks
    assert not_remembered - remembered >= 15  # of ten puts and ten reads


def _selects(server: BinlogServer) -> int:
    return int(str(server.query("SHOW GLOBAL STATUS LIKE 'Com_select'")[0]["Value"]))


def test_i9_what_a_session_remembers_outlasts_no_lease(leased: Promotable) -> None:
    """The control: a session that goes by what it remembers, and not by the clock."""
    (row, other) = rows_on(leased.store, "a", 2)
    with _remembering(leased, "@tripstore_leased_until IS NOT NULL") as store:
        end_lease(leased.old)
        assert store.put_cell(other, "BASE", 1, "late").status is PutStatus.CREATED

    with _remembering(leased, IS_REMEMBERED) as store:
        Promises(leased.store.control).put("a", 1_000_000)  # no voter allows another one
        end_lease(leased.old)
        with pytest.raises(SchemalessError):
            store.using(deadline=0.5).put_cell(row, "BASE", 1, "late")
    assert leased.store.get_cell(row, "BASE", 1) is None


@contextmanager
def _remembering(leased: Promotable, condition: str) -> Iterator[Datastore]:
    """A process whose session has seen a lease, and does not look again by itself."""
    with (
        patch("schemaless_core.engine.mysql.names.IS_REMEMBERED", condition),
        patch("schemaless_core.engine.mysql.remembered.LOOK_SECONDS", 60.0),
        Datastore.open(leased.document) as store,
    ):
        leased.put(1)
        assert _renewed(leased) is Extension.EXTENDED
        store.put_cell(rows_on(store, "a", 1)[0], "BASE", 1, "x")
        yield store


#: For how long a lease lasts, how far the clock goes afterwards, and whether the session remembers one then.
REMEMBERED = {
    "it lasts": (2.0, 0.0, 1),
    "later than a session remembers": (2.0, 0.5, 0),
    "it ends soon": (0.1, 0.05, 1),
    "it has ended": (0.1, 0.2, 0),
    "the clock is set back": (2.0, -10.0, 0),
    "there is none": (-1.0, 0.0, 0),
}
MOMENT = 1_767_225_600.5


def test_i9_a_session_remembers_no_end_that_is_later_than_the_leases_own(leased: Promotable) -> None:
    """By the server's own clock, which is set for one session."""
    names, found = Names("trips", is_leased=True), {}
    until = "lasts_until = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND"
    end = f"UPDATE trips_meta.lease SET {until} WHERE server = @@server_id"
    with leased.old.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for name, (lasts, clock, _is_leased) in REMEMBERED.items():
            cursor.execute("SET timestamp = %s", (MOMENT,))
            cursor.execute(end, (round(lasts * 1e6),))
            cursor.execute(names.remember.rstrip("; "))
            cursor.execute("SET timestamp = %s", (MOMENT + clock,))
            cursor.execute(f"SELECT COALESCE({IS_REMEMBERED}, 0) AS remembered")
            found[name] = cursor.fetchone()

    assert found == {name: {"remembered": is_leased} for name, (_lasts, _clock, is_leased) in REMEMBERED.items()}


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


def test_it_is_off_again_once_the_primary_was_opened_without_one(leased: Promotable) -> None:
    leased.promote(PromotionOrder(to=leased.leads(), leases=False))

    assert lease_rows(leased.old) == {server_id(leased.old)}
    end_lease(leased.old)
    leased.put(3)
    assert leased.faults() == []


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
