"""Postgres is lost at a random moment of a switch or of a way back under load, and its standby promoted (I1, I9).

The standby is cut off at a random moment before that, so it has any prefix of the hand-over. Whatever it has: no two
owners, and what was acknowledged is at the authority. What Postgres alone acknowledged after the cut may be lost with
it: that is what an asynchronous standby means, and it is counted. What of it had been carried is in the ledger of
`cutover lost`, cell by cell; the rest is in neither store.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg2
import pytest

from schemaless_core.errors import SchemalessError
from tests.chaos.actors import wait_until
from tests.facades import Migration
from tests.legacy import FLAVOURS
from tests.scale import scaled
from tests.serving import serve
from tests.standbys import FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.cutover.plan import DECIDES
from tripstore.errors import TripstoreError
from tripstore.handover import accept
from tripstore.handover.authority import Backend
from tripstore.handover.ports import Ports
from tripstore.handover.relay import drain
from tripstore.handover.steps import Step, Steps, run
from tripstore.handover.switch import Outcome, reverse, switch
from tripstore.local.servers import LocalServers
from tripstore.losses.losses import Losses, Order
from tripstore.phase import Phase
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


@dataclass(frozen=True)
class Carrying:
    """Carries what the mirror lacks, in the direction of the moment, until it is over."""

    hands: Migration
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        ports = self.hands.duo.ports
        while not self.ended.wait(0.01):
            with suppress(*FAULTS):
                if ports.control.authority().backend is Backend.LEGACY:
                    run(drain(ports))
                else:
                    serve(self.hands.facade.store, self.hands.reverse_mirror)


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


class Loss(NamedTuple):
    """What became of one."""

    #: For which the promoted Postgres was accepted.
    backend: Backend
    #: Cells that were acknowledged and are not at the authority.
    lost: int
    #: How many of them the ledger names: the mirror has them.
    listed: int


@dataclass
class HandOver:
    """One that begins some time later, and remembers when it was decided, if it was."""

    hands: Migration
    procedure: Callable[[Ports, str], Steps[Outcome]]
    after_seconds: float
    decides_at: float = inf

    def __call__(self) -> None:
        time.sleep(self.after_seconds)  # before the cut, between cut and loss, or later: all are wanted
        with suppress(*FAULTS):
            run(self.procedure(self.hands.duo.ports, "random"), self._hear)

    def _hear(self, step: Step) -> None:
        if step in DECIDES:
            self.decides_at = time.monotonic()


@pytest.mark.timeout(scaled(3600, short=300))  # some four seconds for each promotion
@pytest.mark.parametrize("procedure", [switch, reverse])
def test_i1_i9_postgres_is_lost_at_any_moment_of_a_hand_over(
    servers: LocalServers, stores: Stores, procedure: Callable[[Ports, str], Steps[Outcome]]
) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    losses: list[Loss] = []
    for number in range(scaled(100, short=1)):
        with fail_over(servers, stores, FLAVOURS[0]) as failing_over:
            losses.append(lost_once(failing_over, dice, procedure, f"seed {seed}, round {number}"))
    ends = ", ".join(f"{sum(each.backend is end for each in losses)} times at {end.value}" for end in Backend)
    lost, listed = sum(each.lost for each in losses), sum(each.listed for each in losses)
    print(
        f"failovers in a {procedure.__name__}: seed {seed}, {len(losses)} promotions, accepted {ends}; of {lost} cells"
        f" that are lost the ledger names {listed}, {lost - listed} are in neither store"
    )


def lost_once(
    failing_over: FailingOver, dice: random.Random, procedure: Callable[[Ports, str], Steps[Outcome]], where: str
) -> Loss:
    hands = failing_over.hands
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    failing_over.follow()
    hands.carry()
    assert control.guard() == []
    if procedure is reverse:
        hands.phase(Phase.LIVE)
        hands.carry()
        failing_over.pair.standby.catch_up()
    writer = Writer(failing_over)
    hand_over = HandOver(hands, procedure, dice.uniform(0, 0.8))
    carrying = Carrying(hands)
    threads = [threading.Thread(target=each) for each in (writer, hand_over, carrying)]
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
    # A way back waits until all is carried, however long: the mirror goes last.
    for thread, ended in zip(threads, (writer.ended, threading.Event(), carrying.ended), strict=True):
        ended.set()
        thread.join()
    # A hand-over that began after the loss may have been decided since.
    (row,) = (each for each in control.history(9) if each.epoch == 2 * accept.EPOCHS_PER_TIMELINE + 2)
    lost = {key for key in writer.acknowledged if failing_over.store.get_cell(key, "FREE", 1) is None}
    # Schemaless loses nothing: what it has acknowledged before a way back was decided is not among these.
    may_be = {key for key in lost if cut_at <= writer.acknowledged[key] <= lost_at}
    if procedure is reverse:
        may_be = {key for key in may_be if writer.acknowledged[key] >= hand_over.decides_at}
    elif row.backend is Backend.STORE:
        may_be = set()
    assert lost == may_be, f"{where}: {len(lost)} lost, {len(may_be)} may be, accepted at {row}"
    return Loss(row.backend, len(lost), listed_of(hands, lost, where))


def listed_of(hands: Migration, lost: Collection[UUID], where: str) -> int:
    """Each lost cell that the mirror has is in the ledger, and none that Postgres has."""
    if hands.duo.ports.control.authority().backend is Backend.STORE:
        return 0  # all that Schemaless has is at the authority
    losses, mirror = Losses(hands.facade), hands.facade.store.as_copier()
    job = losses.begin(Order())
    losses.serve(job)
    listed = {found.row_key for found in losses.listed(job.id) if found.row_key is not None}
    carried = {key for key in lost if mirror.get_cell(key, "FREE", 1) is not None}
    assert listed.intersection(lost) == carried, where
    assert not any(hands.duo.legacy.get_cell(key, "FREE", 1) for key in listed), where
    return len(carried)


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
