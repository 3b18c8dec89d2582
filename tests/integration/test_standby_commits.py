"""What the standbys of Postgres confirm of a decision, what the plan says where none does, and what the pause costs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg2
import pytest

from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import InvalidConfig
from tests.chaos.actors import wait_until
from tests.facades import Migration, facts_of
from tests.standbys import FAILING_OVER, FailingOver, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.handover import authority
from tripstore.config import load_config
from tripstore.handover.authority import Backend
from tripstore.handover.steps import run
from tripstore.handover.switch import HandoverOutcome, switch
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.perform import HandoverOrder, perform
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.phase import Phase

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        made.follow()
        made.hands.carry()
        made.hands.phase(Phase.SHADOW)
        made.hands.duo.watch.close()
        yield made


@contextmanager
def committing(hands: Migration, level: str) -> Iterator[Migration]:
    """A process whose decisions are committed so."""
    document = dict(hands.document) | {"legacy": {**hands.document["legacy"], "synchronous_commit": level}}
    with replace(hands, document=document).connect() as store:
        yield replace(hands, store=store, document=document)


def confirm(failing_over: FailingOver) -> None:
    """From now on the standby confirms each commit before it is acknowledged."""
    failing_over.pair.legacy.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    failing_over.pair.legacy.sql("SELECT pg_reload_conf()")
    state = "SELECT sync_state FROM pg_stat_replication"
    wait_until("the standby confirms", lambda: failing_over.pair.legacy.sql(state) == [("sync",)])


def warnings(hands: Migration) -> tuple[str, ...]:
    return plan(Direction.FORWARD, facts_of(hands), hands.facade.config.cutover).warnings


def pause_ms(hands: Migration, direction: Direction) -> float:
    hands.carry()
    done = perform(
        hands.duo.ports,
        HandoverOrder(direction, "a test"),
        flags=hands.facade.flags,
        audit=AuditLog(hands.facade.store.control),
        max_pause_seconds=10.0,
    )
    assert done.is_decided, done.reason
    assert done.pause_seconds is not None
    return 1000 * done.pause_seconds


def test_i9_the_plan_says_what_asynchronous_standbys_risk_and_what_a_confirming_one_costs_is_measured(
    failing_over: FailingOver,
) -> None:
    hands, pauses = failing_over.hands, {}
    (said,) = warnings(hands)
    assert said.startswith("All standbys are asynchronous: ")
    assert "`tripstore cutover lost`" in said

    pauses["asynchronous"] = [pause_ms(hands, direction) for direction in Direction]
    confirm(failing_over)
    assert warnings(hands) == ()
    for level in ("on", "remote_apply"):
        with committing(hands, level) as other:
            pauses[level] = [pause_ms(other, direction) for direction in Direction]

    for level, (forward, back) in pauses.items():
        print(f"pause with a standby, {level}: switch {forward:.1f} ms, way back {back:.1f} ms")


def test_i9_a_decision_waits_until_the_standby_has_applied_it(failing_over: FailingOver) -> None:
    """Control: where flushing is enough the same switch is decided while the standby applies nothing."""
    hands = failing_over.hands
    confirm(failing_over)
    failing_over.pair.standby.query("SELECT pg_wal_replay_pause()")
    hands.switch()
    hands.duo.watch.close()
    failing_over.follow()
    hands.reverse()
    failing_over.pair.standby.catch_up()
    failing_over.pair.standby.query("SELECT pg_wal_replay_pause()")
    outcomes: list[HandoverOutcome] = []
    with committing(hands, "remote_apply") as other:
        thread = threading.Thread(target=lambda: outcomes.append(run(switch(other.duo.ports, "applied"))))
        thread.start()
        wait_until("the decision waits for the standby", lambda: bool(failing_over.pair.legacy.sql(WAITS)))
        assert hands.duo.ports.control.authority().target is Backend.STORE  # not decided
        assert not outcomes
        failing_over.pair.standby.query("SELECT pg_wal_replay_resume()")
        thread.join()
    assert outcomes[0].is_decided
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT backend FROM tripstore.authority")
        assert cursor.fetchall() == [("schemaless",)]


def test_control_a_session_that_does_not_have_the_setting_decides_nothing(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "_DURABLY", "SELECT '{level}'")
    with committing(failing_over.hands, "remote_apply") as other:
        outcome = run(switch(other.duo.ports, "not durable enough"))
    assert not outcome.is_decided
    assert failing_over.hands.duo.ports.control.authority().backend is Backend.LEGACY


def test_a_weaker_commit_is_no_configuration(failing_over: FailingOver) -> None:
    hands = failing_over.hands
    legacy = {**hands.document["legacy"], "synchronous_commit": "local"}
    with pytest.raises(InvalidConfig, match="synchronous_commit"):
        load_config(dict(hands.document) | {"legacy": legacy})
