"""Postgres is promoted while a repair or a backfill is at work: neither goes by what the lost one said (I1, I9)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import psycopg2
import pytest

from backfill.runner import Ending
from tests.facades import Migration
from tests.legacy import FLAVOURS
from tests.repairs import base, doing_at, foreign, plan, repair
from tests.standbys import FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.copying.backfill import EVERYTHING, Backfill
from tripstore.local.servers import LocalServers
from tripstore.losses.losses import Losses, Order
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort
from validation.repair import Action


@pytest.fixture
def failing_over(servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, FLAVOURS[0]) as made:
        made.hands.carry()
        yield made


def shadowed(failing_over: FailingOver, *, guards: bool = True) -> Migration:
    """In the phase shadow; the standby follows, and has the guard if there is one."""
    hands = failing_over.hands
    failing_over.follow()
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    if guards:
        assert control.guard() == []
    hands.phase(Phase.SHADOW)
    hands.duo.watch.close()
    failing_over.pair.standby.catch_up()
    return hands


def version_of(failing_over: FailingOver, row_key: UUID) -> int:
    """As the promoted server has it, whether it is accepted or not."""
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT base_version FROM trips WHERE trip_uuid = %s", (str(row_key),))
        return int(cursor.fetchall()[0][0])


def test_i9_a_repair_that_meets_the_promotion_lifts_nothing_before_it_is_accepted(failing_over: FailingOver) -> None:
    hands, key = shadowed(failing_over), failing_over.pair.row_key
    foreign(hands, key, 40)
    assert plan(hands, base(key)) == [Action.LIFT]

    with doing_at("repair.before_lift", failing_over.lose_the_primary), pytest.raises(PostgresNotAccepted):
        repair(hands, base(key))

    assert version_of(failing_over, key) < 40
    hands.duo.watch.look()
    (outcome,) = repair(hands, base(key))
    assert outcome.is_equal
    assert version_of(failing_over, key) > 40


def test_control_without_the_guard_the_repair_writes_into_a_postgres_that_was_not_accepted(
    failing_over: FailingOver,
) -> None:
    hands, key = shadowed(failing_over, guards=False), failing_over.pair.row_key
    foreign(hands, key, 40)

    with doing_at("repair.before_lift", failing_over.lose_the_primary):
        repair(hands, base(key))

    assert version_of(failing_over, key) > 40


def test_i1_i4_a_backfill_that_meets_the_promotion_goes_on_and_what_it_had_copied_is_listed(
    failing_over: FailingOver,
) -> None:
    """A row that only the lost Postgres had is copied before the loss; no relay has carried it."""
    hands = shadowed(failing_over)
    for ask in (hands.legacy.sql, failing_over.pair.standby.query):  # nothing is copied from a forgetful server
        ask("ALTER SYSTEM SET fsync = on")
        ask("SELECT pg_reload_conf()")
    kept = [hands.legacy.trip()[1] for _ in range(3)]
    failing_over.pair.standby.catch_up()
    cut_off(failing_over.pair.standby)
    _, gone = hands.legacy.trip()
    backfill = Backfill(hands.facade)
    job = backfill.begin(backfill.plan(EVERYTHING))

    def promote() -> None:
        failing_over.lose_the_primary()
        with pytest.raises(PostgresNotAccepted):
            hands.duo.ports.control.authority()
        hands.duo.watch.look()

    copying = backfill.copying(job.spec)
    with doing_at("backfill.written", promote):
        copying.copy({"after": None, "upto": None}, None, 10_000, 1.0)

    assert backfill.runner(job, "w").run() is Ending.DONE
    mirror, losses = hands.facade.store.as_copier(), Losses(hands.facade)
    for key in kept:
        cell = mirror.get_cell_latest(key, "BASE")
        assert cell is not None
        assert cell == hands.duo.legacy.get_cell_latest(key, "BASE")
    assert mirror.get_cell_latest(gone, "BASE") is not None
    look = losses.begin(Order())
    losses.serve(look)
    listed = {found.row_key for found in losses.listed(look.id)}
    assert gone in listed
    assert not listed.intersection(kept)
