"""Postgres is promoted at each step of the relay and of the reverse mirror: nothing that is there is lost (I1, I8, I9).

The standby follows, or it was cut off before the change. Then the change is gone with the primary where Postgres is the
authority: the mirror has it, and the ledger of `cutover lost` names it, or neither store does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest

from schemaless_core import Cell, SchemalessError
from tests.facades import Migration
from tests.repairs import doing_at
from tests.scale import SCALE
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.handover import relay, reverse
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.local.servers import LocalServers
from tripstore.migration.losses.losses import LookStart, Losses
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

CHANGE = Cell(UUID(int=48), "FREE", 1, "on its way")
RELAY = (relay.CLAIM.name, relay.SEND.name, relay.MARK.name)
REVERSE = (reverse.LOOK.name, reverse.WRITE.name, "reverse.applied", "reverse.moved")


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        made.hands.carry()
        yield made


def guarded(failing_over: FailingOver, phase: Phase) -> Migration:
    """In this phase, with all carried; the standby has the guard and all else."""
    hands = failing_over.hands
    failing_over.follow()
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    assert control.guard() == []
    hands.phase(phase)
    hands.duo.watch.close()
    hands.carry()
    failing_over.pair.standby.catch_up()
    return hands


def lost_while_carrying(failing_over: FailingOver, hands: Migration, step: str, *, is_behind: bool) -> None:
    """A change is acknowledged, and Postgres is lost as it is carried."""
    if is_behind:
        cut_off(failing_over.pair.standby)
    failing_over.store.put_cell(*CHANGE.key, CHANGE.body)
    if not is_behind:
        failing_over.pair.standby.catch_up()
    # The relay gives up what it cannot send or mark: `carry` says so by an assertion.
    with doing_at(step, failing_over.lose_the_primary), suppress(SchemalessError, AssertionError):
        hands.carry()
    hands.duo.watch.look()
    row = hands.duo.ports.control.authority()
    assert row.is_open
    assert row.epoch == 2 * EPOCHS_PER_TIMELINE + 2


@pytest.mark.parametrize("is_behind", [False, True], ids=["following", "cut off"])
@pytest.mark.parametrize("step", RELAY if SCALE >= 1 else RELAY[1:2])
def test_i1_i8_postgres_is_lost_as_a_relay_carries_a_change(
    failing_over: FailingOver, step: str, is_behind: bool
) -> None:
    hands = guarded(failing_over, Phase.SHADOW)

    lost_while_carrying(failing_over, hands, step, is_behind=is_behind)
    hands.carry()

    mirror = hands.facade.store.as_copier()
    assert (hands.duo.legacy.get_cell(*CHANGE.key) == CHANGE) is not is_behind
    carried = mirror.get_cell(*CHANGE.key)
    losses = Losses(hands.facade)
    look = losses.begin(LookStart())
    losses.serve(look)
    listed = {found.row_key for found in losses.listed(look.id)}
    if is_behind:
        assert (carried == CHANGE) is (CHANGE.row_key in listed)
    else:
        assert carried == CHANGE
        assert listed == set()


@pytest.mark.parametrize("is_behind", [False, True], ids=["following", "cut off"])
@pytest.mark.parametrize("step", REVERSE if SCALE >= 1 else REVERSE[2:3])
def test_i1_postgres_is_lost_as_the_reverse_mirror_writes_a_cell(
    failing_over: FailingOver, step: str, is_behind: bool
) -> None:
    """Schemaless is the authority: whatever Postgres lost is written again, and the way back waits for that."""
    hands = guarded(failing_over, Phase.LIVE)

    lost_while_carrying(failing_over, hands, step, is_behind=is_behind)
    hands.reverse()

    assert hands.duo.legacy.get_cell(*CHANGE.key) == CHANGE
    assert failing_over.store.get_cell(*CHANGE.key) == CHANGE
