"""Postgres is lost at a random moment of a switch under load, and its standby promoted (I1, I9).

The standby is cut off at a random moment before that, so it has any prefix of the switch. Whatever it has: no two
owners, and what was acknowledged is at the authority. What Postgres alone acknowledged after the cut may be lost with
it, if the decision was not made: that is what an asynchronous standby means, and it is counted.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg2

from schemaless_core.errors import SchemalessError
from tests.chaos.actors import wait_until
from tests.facades import Migration
from tests.legacy import FLAVOURS
from tests.scale import scaled
from tests.standbys import FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.errors import TripstoreError
from tripstore.handover import accept
from tripstore.handover.authority import Backend
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort

FAULTS = (SchemalessError, TripstoreError)
#: No cut comes later than this after the switch began, no loss later than this after the cut.
CUT_SECONDS, LOSS_SECONDS = 0.3, 0.3
#: What was acknowledged so shortly before the cut may not have been streamed yet.
STREAM_SECONDS = 0.2
UPDATE = "UPDATE trips SET fare = fare + 1 WHERE trip_uuid = %s"


@dataclass
class Writer:
    """Puts cells of its own, one after the other, and remembers which were acknowledged, and when."""

    failing_over: FailingOver
    acknowledged: dict[UUID, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        while not self.ended.is_set():
            key = uuid4()
            with suppress(*FAULTS):
                self.failing_over.store.put_cell(key, "FREE", 1, "mine")
                self.acknowledged[key] = time.monotonic()
            self.ended.wait(0.005)


def is_open_to_sql(failing_over: FailingOver) -> bool:
    """Whether a program of the company can write on the promoted server."""
    with suppress(psycopg2.DatabaseError), psycopg2.connect(failing_over.pair.url) as connection:
        connection.cursor().execute(UPDATE, (str(failing_over.pair.row_key),))
        return True
    return False


def is_open_to_owners(hands: Migration) -> bool:
    seen = hands.facade.store.authority.find()
    assert seen is not None
    return seen.is_open


def has_two_owners(failing_over: FailingOver) -> bool:
    """Schemaless is open, then SQL is let in, and Schemaless is still open at the same epoch."""
    store = failing_over.hands.facade.store
    before = store.authority.find()
    is_open = is_open_to_sql(failing_over)
    after = store.authority.find()
    return before is not None and before.is_open and is_open and after == before


def settled(hands: Migration) -> None:
    """The watch where nothing was lost, else the operator."""

    def is_settled() -> bool:
        with suppress(*FAULTS):
            run(accept.accept(hands.duo.ports, settles=True))
            row = hands.duo.ports.control.authority()
            hands.duo.watch.look()
            return row.is_open
        return False

    wait_until("the promoted Postgres is accepted", is_settled)


def test_i1_i9_postgres_is_lost_at_any_moment_of_a_switch(servers: LocalServers, stores: Stores) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    ends = dict.fromkeys(Backend, 0)
    lost = 0
    for number in range(scaled(20, short=1)):
        with fail_over(servers, stores, FLAVOURS[0]) as failing_over:
            backend, cells = lost_once(failing_over, dice, f"seed {seed}, round {number}")
        ends[backend] += 1
        lost += cells
    said = ", ".join(f"{times} times at {backend.value}" for backend, times in ends.items())
    print(f"failovers: seed {seed}, ended {said}; {lost} cells that Postgres alone had acknowledged are lost")


def lost_once(failing_over: FailingOver, dice: random.Random, where: str) -> tuple[Backend, int]:
    """For which backend the promoted Postgres was accepted, and how many cells were lost that may be."""
    hands = failing_over.hands
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    failing_over.follow()
    hands.carry()
    assert control.guard() == []
    writer = Writer(failing_over)
    threads = [threading.Thread(target=writer), threading.Thread(target=switching, args=(hands, dice.uniform(0, 0.8)))]
    for thread in threads:
        thread.start()
    time.sleep(dice.uniform(0, CUT_SECONDS))  # the moment is what the test is about
    cut_at = time.monotonic() - STREAM_SECONDS
    cut_off(failing_over.pair.standby)
    time.sleep(dice.uniform(0, LOSS_SECONDS))  # this one as well
    failing_over.lose_the_primary()
    lost_at = time.monotonic()
    assert not any(has_two_owners(failing_over) for _ in range(5)), where
    settled(hands)
    wait_until("a cell is acknowledged again", lambda: max(writer.acknowledged.values(), default=0) > lost_at)
    assert not has_two_owners(failing_over), where
    writer.ended.set()
    for thread in threads:
        thread.join()
    # A switch that began after the loss may have been decided since.
    (row,) = (each for each in control.history(9) if each.epoch == 2 * accept.EPOCHS_PER_TIMELINE + 2)
    lost = {key for key in writer.acknowledged if failing_over.store.get_cell(key, "FREE", 1) is None}
    unmirrored = {key for key in lost if cut_at <= writer.acknowledged[key] <= lost_at}
    assert lost == (unmirrored if row.backend is Backend.LEGACY else set()), (
        f"{where}: {len(lost)} lost, accepted at {row}"
    )
    return row.backend, len(lost)


def switching(hands: Migration, after_seconds: float) -> None:
    time.sleep(after_seconds)  # a switch that begins before the cut, between cut and loss, or later
    with suppress(*FAULTS):
        run(switch(hands.duo.ports, "random"))


def test_control_a_standby_without_the_guard_is_a_second_owner(servers: LocalServers, stores: Stores) -> None:
    with fail_over(servers, stores, FLAVOURS[0]) as failing_over:
        hands = failing_over.hands
        failing_over.follow()
        hands.carry()
        cut_off(failing_over.pair.standby)
        hands.switch()
        hands.duo.watch.close()
        failing_over.lose_the_primary()

        assert is_open_to_owners(hands)
        assert has_two_owners(failing_over)
