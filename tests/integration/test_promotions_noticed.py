"""Of all that asks a promoted Postgres the first to look says so, by name and with the command to run (I9, I12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg2
import pytest

from schemaless_core.control.audit import AuditLog
from tests.chaos.actors import wait_until
from tests.facades import facts_of
from tests.promotions import check_accepted, compared
from tests.repairs import base
from tests.standbys import FAILING_OVER, FailingOver, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.handover.examination import examine_handover
from tripstore.backends.postgres.wire.connections import connected
from tripstore.facade import watch
from tripstore.handover.authority import Backend
from tripstore.handover.ports import Chunk
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.losses.losses import LookStart, Losses, Nothing
from tripstore.migration.repair.opening import Repairs

COMMAND = "tripstore cutover settle"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        made.hands.carry()
        made.make_durable()
        made.shadowed()
        yield made


def asks(failing_over: FailingOver) -> dict[str, Callable[[], object]]:
    """What believes Postgres, and raises when that is not accepted."""
    hands, key = failing_over.hands, failing_over.pair.row_key
    ports, backfill = hands.duo.ports, Backfill(hands.facade)

    def losses() -> None:
        with suppress(Nothing):  # no Postgres was accepted yet
            Losses(hands.facade).begin(LookStart())

    return {
        "the relay": lambda: ports.legacy.claim(1),
        "a backfill that begins": lambda: backfill.plan(EVERYTHING),
        "a backfill at work": lambda: ports.legacy.read_chunk(Chunk(rows=10)),
        "a diff": lambda: compared(hands),
        "a repair": lambda: Repairs(hands.facade).repairing(Backend.LEGACY).plan([base(key)]),
        "the look for what was lost": losses,
        "the row": ports.control.authority,
    }


def complaints(failing_over: FailingOver) -> list[str]:
    """Of doctor, and of the gates, those that name the command."""
    hands = failing_over.hands
    url = f"{failing_over.proxy.url}/{failing_over.pair.legacy.name}"
    with connected(url, "test") as connection:
        found = [f"doctor: {each.reason} {each.hint}" for each in examine_handover(connection, "trips")]
    verdicts = plan(Direction.FORWARD, facts_of(hands), hands.facade.config.cutover).verdicts
    found += [f"{each.name}: {each.said} {each.hint}" for each in verdicts if not each.is_passed]
    return [each for each in found if COMMAND in each]


def test_i9_i12_whatever_looks_first_says_that_postgres_is_not_accepted(failing_over: FailingOver) -> None:
    """Control: before the promotion, and when it is accepted, all of them get their answers."""
    asked = asks(failing_over)
    for ask in asked.values():
        ask()
    assert complaints(failing_over) == []
    failing_over.pair.standby.catch_up()
    failing_over.lose_the_primary()

    for who, ask in asked.items():
        with pytest.raises(PostgresNotAccepted) as told:
            ask()
        assert COMMAND in str(told.value), who
    found = complaints(failing_over)
    print(found)
    assert {each.partition(":")[0] for each in found} >= {"doctor", "authority", "phase"}

    failing_over.hands.duo.watch.look()
    check_accepted(failing_over.hands)
    for ask in asked.values():
        ask()
    assert complaints(failing_over) == []


def test_a_process_notices_at_its_next_look_and_writes_one_line_where_nothing_was_lost(
    failing_over: FailingOver,
) -> None:
    """It looks twice a second: that is within a second."""
    assert 2 * watch.LOOK_SECONDS <= 1.0
    hands = failing_over.hands
    audit = AuditLog(hands.facade.store.control)
    before = len(audit.newest(100))
    failing_over.pair.standby.catch_up()
    with hands.connect() as other:
        duo = other.facade.duo
        assert duo is not None
        looks = list[bool]()
        look_at_authority = duo.watch._look_at_authority

        def counted() -> None:
            looks.append(is_promoted.is_set())
            look_at_authority()

        is_promoted = threading.Event()
        duo.watch._look_at_authority = counted  # type: ignore[method-assign]  # each look is counted
        duo.watch.start()
        wait_until("it has looked", lambda: bool(looks))
        failing_over.lose_the_primary()
        is_promoted.set()
        wait_until("it is accepted", lambda: is_accepted(failing_over))

    assert sum(looks) <= 2, "the look that was under way when it was promoted, and the next one"
    check_accepted(hands)
    added = audit.newest(100)[: len(audit.newest(100)) - before]
    assert [entry.action for entry in added] == ["cutover.accept.end"]


def is_accepted(failing_over: FailingOver) -> bool:
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT timeline FROM tripstore.authority")
        return cursor.fetchall() == [(2,)]
