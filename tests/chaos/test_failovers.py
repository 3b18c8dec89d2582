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
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.chaos.actors import wait_until
from tests.chaos.failover_actors import FAULTS, Carrying, Company, Writer, has_two_owners, is_open_to_owners, settled
from tests.facades import Migration
from tests.legacy import FLAVOURS
from tests.scale import SCALE, scaled
from tests.standbys import FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.handover import accept
from tripstore.handover.authority import Backend
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Step, Steps, run
from tripstore.handover.switch import BACK, FORWARD, HandoverOutcome, reverse, switch
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.plan import DECIDES
from tripstore.migration.losses.losses import LookStart, Losses
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

Procedure = Callable[[Ports, str], Steps[HandoverOutcome]]
#: No cut comes later than this after the switch began, no loss later than this after the cut.
CUT_SECONDS, LOSS_SECONDS = 0.3, 0.3
#: What was acknowledged so shortly before the cut may not have been streamed yet.
STREAM_SECONDS = 0.2


class Loss(NamedTuple):
    """What became of one."""

    #: For which the promoted Postgres was accepted.
    backend: Backend
    #: Cells that were acknowledged and are not at the authority.
    lost: int
    #: How many of them the ledger names: the mirror has them.
    listed: int
    acknowledged: int
    #: By SQL of the company, and how many of them made it a second owner.
    statements: int
    second_owners: int


class Cut(NamedTuple):
    """What was acknowledged from the first moment to the second one Postgres may lack."""

    at: float
    lost_at: float


@dataclass
class AtRandom:
    """The standby is cut off, and Postgres is lost, at any moment."""

    dice: random.Random

    def __call__(self, failing_over: FailingOver) -> Cut:
        time.sleep(self.dice.uniform(0, CUT_SECONDS))  # the moment is what the test is about
        at = time.monotonic() - STREAM_SECONDS
        cut_off(failing_over.pair.standby)
        time.sleep(self.dice.uniform(0, LOSS_SECONDS))  # this one as well
        failing_over.lose_the_primary()
        return Cut(at, time.monotonic())

    def hear(self, failing_over: FailingOver, step: Step) -> None:
        """Goes by no step."""


@dataclass
class AtStep:
    """Who hands over comes to a step: Postgres is lost before that is done. Carries nothing until then."""

    cut: Step
    loss: Step
    at: float = inf
    lost_at: float = inf
    is_lost: threading.Event = field(default_factory=threading.Event)

    def __call__(self, failing_over: FailingOver) -> Cut:
        wait_until(f"{self.loss.name} is reached", self.is_lost.is_set)
        return Cut(self.at, self.lost_at)

    def hear(self, failing_over: FailingOver, step: Step) -> None:
        if step == self.cut and self.at == inf:
            self.at = time.monotonic() - STREAM_SECONDS
            cut_off(failing_over.pair.standby)
        if step == self.loss and self.lost_at == inf:
            failing_over.lose_the_primary()
            self.lost_at = time.monotonic()
            self.is_lost.set()


@dataclass
class HandOver:
    """One that begins some time later, and remembers when it was decided, if it was."""

    failing_over: FailingOver
    procedure: Procedure
    moment: AtRandom | AtStep
    after_seconds: float
    decides_at: float = inf

    def __call__(self) -> None:
        time.sleep(self.after_seconds)  # before the cut, between cut and loss, or later: all are wanted
        with suppress(*FAULTS):
            run(self.procedure(self.failing_over.hands.duo.ports, "a hand-over"), self._hear)

    def _hear(self, step: Step) -> None:
        if step in DECIDES:
            self.decides_at = time.monotonic()
        self.moment.hear(self.failing_over, step)


@pytest.mark.timeout(scaled(3600, short=300))  # three seconds for each promotion, ten on busy cores
@pytest.mark.parametrize("procedure", [switch, reverse])
def test_i1_i9_postgres_is_lost_at_any_moment_of_a_hand_over(
    servers: LocalServers, stores: Stores, procedure: Procedure
) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    losses: list[Loss] = []
    try:
        for number in range(scaled(100, short=1)):
            with fail_over(servers, stores, FLAVOURS[number % 2]) as failing_over:
                hand_over = HandOver(failing_over, procedure, AtRandom(dice), dice.uniform(0, 0.8))
                losses.append(lost_once(hand_over, f"seed {seed}, round {number}"))
    finally:  # of a run that its time limit ends, too
        print_sum(f"failovers in a {procedure.__name__}: seed {seed}", losses)
    assert sum(each.second_owners for each in losses) == 0


def print_sum(title: str, losses: Sequence[Loss]) -> None:
    ends = ", ".join(f"{sum(each.backend is end for each in losses)} times at {end.value}" for end in Backend)
    lost, listed = sum(each.lost for each in losses), sum(each.listed for each in losses)
    print(
        f"{title}, {len(losses)} promotions, accepted {ends};"
        f" {sum(each.acknowledged for each in losses)} cells acknowledged, {lost} of them lost: the ledger names"
        f" {listed}, {lost - listed} are in neither store;"
        f" {sum(each.statements for each in losses)} statements of SQL,"
        f" {sum(each.second_owners for each in losses)} of a second owner"
    )


#: At full scale Postgres is lost before each step: the standby has all until then, or nothing of the hand-over.
STEPS = [
    (procedure, step, cut)
    for procedure, steps in ((switch, FORWARD), (reverse, BACK))
    for step in (steps if SCALE >= 1 else steps[-2:-1])
    for cut in ((step, steps[0]) if SCALE >= 1 else steps[:1])
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("procedure", "step", "cut"),
    STEPS,
    ids=[f"{procedure.__name__} {step.name}, cut off at {cut.name}" for procedure, step, cut in STEPS],
)
def test_i1_i9_postgres_is_lost_at_a_step_of_a_hand_over(
    servers: LocalServers, stores: Stores, procedure: Procedure, step: Step, cut: Step
) -> None:
    with fail_over(servers, stores, FLAVOURS[0]) as failing_over:
        hand_over = HandOver(failing_over, procedure, AtStep(cut, step), 0.1)
        loss = lost_once(hand_over, f"{step.name}, cut off at {cut.name}")
    print_sum(f"failovers in a {procedure.__name__}: {step.name}, cut off at {cut.name}", [loss])


def lost_once(hand_over: HandOver, where: str) -> Loss:
    failing_over, procedure = hand_over.failing_over, hand_over.procedure
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
    carrying = Carrying(hands)
    company = Company(failing_over)
    threads = [threading.Thread(target=each) for each in (writer, company, hand_over, carrying)]
    for thread in threads:
        thread.start()
    if procedure is reverse or isinstance(hand_over.moment, AtRandom):
        carrying.begins.set()  # else the switch finds its queue empty
    cut_at, lost_at = hand_over.moment(failing_over)
    carrying.begins.set()
    assert not any(has_two_owners(failing_over, failing_over.pair.url) for _ in range(5)), where
    settled(hands)
    wait_until("a cell is acknowledged again", lambda: max(writer.acknowledged.values(), default=0) > lost_at)
    assert not has_two_owners(failing_over, failing_over.pair.url), where
    # A way back waits until all is carried, however long: the mirror goes last.
    ends = (writer.ended, company.ended, threading.Event(), carrying.ended)
    for thread, ended in zip(threads, ends, strict=True):
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
    assert company.second_owners == 0, f"{where}: {company}"
    listed = listed_of(hands, lost, where)
    counted = (len(writer.acknowledged), company.statements, company.second_owners)
    return Loss(row.backend, len(lost), listed, *counted)


def listed_of(hands: Migration, lost: Collection[UUID], where: str) -> int:
    """Each lost cell that the mirror has is in the ledger, and none that Postgres has."""
    if hands.duo.ports.control.authority().backend is Backend.STORE:
        return 0  # all that Schemaless has is at the authority
    losses, mirror = Losses(hands.facade), hands.facade.store.as_copier()
    job = losses.begin(LookStart())
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
        assert has_two_owners(failing_over, failing_over.pair.url)
