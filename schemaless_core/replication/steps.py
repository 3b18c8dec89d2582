"""How a standby comes to lead, and how the one that led comes back, step by step.

A process may die or be stopped at any of them, and any number may run at once. Decision 88 says why each stands where
it does.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from schemaless_core.promotion.ports import HandingOver, Unheard
from schemaless_core.replication.ports import (
    LeadAnswer,
    PromotePorts,
    ReturnPorts,
    Standby,
    StandbySeen,
    StandbyState,
)
from schemaless_core.steps import Step, Steps

LOOK = Step("replicate.look", "read what this datastore is", 0.05)
NUMBER = Step("replicate.number", "find an epoch that is later than all that the other one may come to")
LEADS = Step("replicate.leads", "see whether the other one leads still")
BEGIN = Step("replicate.begin", "write down that it is to lead")
NEAR = Step("replicate.near", "copy what there is, while the other one takes writes", 0.05)
GIVE = Step("replicate.give", "write down at the other one that this one leads")
BACK = Step("replicate.back", "write down that it is not to lead: another datastore does")
CLOSE = Step("replicate.close", "close the other one's shards for good")
REST = Step("replicate.rest", "copy the last cells")
REPLICATED = Step("replicate.replicated", "wait until own replicas have them, for a minute at most", 0.05)
DECIDE = Step("replicate.decide", "write down that this datastore leads")
ARRIVE = Step("replicate.arrive", "make the copies shards", 0.05)
ASK = Step("replicate.ask", "ask which backend is the authority", 0.2)
OPEN = Step("replicate.open", "open all shards")
SEEN = Step("replicate.seen", "see that all shards are open on the servers that lead now", 0.05)
BUFFERS = Step("replicate.buffers", "bring what waits in the other one's buffers")
END = Step("replicate.end", "write down that it is done")

SHUT = Step("replicate.shut", "close the own shards")
BRING = Step("replicate.bring", "put what is here alone into the one that leads")
LEAVE = Step("replicate.leave", "take entries and aliases from own indexes")
FOLLOW = Step("replicate.follow", "write down that this datastore follows from now on")

#: In order. Of one that is forced: LOOK, NUMBER, BEGIN, DECIDE and what comes after it.
PROMOTE = (
    LOOK,
    NUMBER,
    LEADS,
    BEGIN,
    NEAR,
    REPLICATED,
    GIVE,
    CLOSE,
    REST,
    DECIDE,
    ARRIVE,
    ASK,
    OPEN,
    BUFFERS,
    SEEN,
    END,
)
RETURN = (LOOK, SHUT, BRING, LEAVE, FOLLOW)

#: Nothing is decided yet.
LED_OFF = (StandbyState.FOLLOWS, StandbyState.LEFT, StandbyState.RETURNS)


class StandbyStop(Enum):
    """Why it did not go on."""

    SILENT = "silent"  #: A server, or the other control database, does not answer.
    NO_STANDBY = "no standby"  #: The datastore follows none.
    RETURNS = "returns"  #: It has not brought all yet that it alone has.
    FENCED = "fenced"  #: The other one's shards are at another epoch: a promotion or a move goes on there.
    TAKEN = "taken"  #: Another standby has the lead, or the other one leads at a later epoch.
    FOLLOWS_ANOTHER = "follows another"  #: The one to which cells are brought does not lead.
    UNOPENED = "unopened"  #: A shard is fenced, or knows a later authority epoch than the authority row.


class StandbyStopped(NamedTuple):
    """It may be gone on with: what is done stays done."""

    why: StandbyStop


class Leading(NamedTuple):
    """It is done."""

    epoch: int


class Followed(NamedTuple):
    """It is done."""


def promote(ports: PromotePorts, *, is_forced: bool) -> Steps[Leading | StandbyStopped]:
    """Have this datastore lead, or go on with that. `is_forced`: without a word of the other one.

    By force also one that gave the lead away, or brings what it alone has: where the one that took it is lost, it has
    all its cells, and no other one leads.
    """
    is_begun = False
    while True:
        yield LOOK
        seen = ports.record.find()
        standby = seen.standby
        ended: Leading | StandbyStopped | None = None
        if standby.state is StandbyState.LEADS:
            return Leading(standby.epoch)
        if standby.state in LED_OFF and is_begun:
            return StandbyStopped(StandbyStop.TAKEN)  # it slept, and what its operator asked for was long ago
        is_begun = standby.state not in LED_OFF
        if standby.state is StandbyState.RETURNS and not is_forced:
            return StandbyStopped(StandbyStop.RETURNS)
        if standby.state is StandbyState.NONE or (standby.state is StandbyState.LEFT and not is_forced):
            return StandbyStopped(StandbyStop.NO_STANDBY)
        if standby.state in LED_OFF:
            ended = yield from _begin(ports, seen, is_forced=is_forced)
        elif standby.state is StandbyState.CLOSING and is_forced and not standby.is_forced:
            yield BEGIN
            ports.record.change(seen, standby._replace(is_forced=True))
        elif standby.state is StandbyState.CLOSING:
            ended = yield from _close(ports, seen)
        else:
            ended = yield from _open(ports, seen, is_forced=is_forced)
        if ended is not None:
            return ended


def _begin(ports: PromotePorts, seen: StandbySeen, *, is_forced: bool) -> Steps[StandbyStopped | None]:
    yield NUMBER
    epoch = ports.copies.next_epoch(seen.standby.epoch)
    if isinstance(epoch, Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    if not is_forced:
        yield LEADS
        lead = ports.other.leads(epoch, seen.standby.job)
        if isinstance(lead, Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        if lead is LeadAnswer.TAKEN:
            return StandbyStopped(StandbyStop.TAKEN)
    yield BEGIN
    ports.record.change(seen, _about_to_lead(seen.standby, epoch, is_forced=is_forced))
    return None


def _about_to_lead(standby: Standby, epoch: int, *, is_forced: bool) -> Standby:
    """Of one that leads again no job is to go on: it would copy, and cut what is here alone."""
    job = standby.job if standby.state is StandbyState.FOLLOWS else ""
    return standby._replace(state=StandbyState.CLOSING, epoch=epoch, is_forced=is_forced, job=job, taker="")


def _close(ports: PromotePorts, seen: StandbySeen) -> Steps[StandbyStopped | None]:
    """None: look again."""
    if not seen.standby.is_forced:
        stopped = yield from _closed(ports, seen.standby.epoch, seen.standby.job)
        if stopped is not None:
            return (yield from _back(ports, seen)) if stopped.why is StandbyStop.TAKEN else stopped
    yield DECIDE
    ports.record.decide(seen, seen.standby._replace(state=StandbyState.OPENING))
    return None


def _closed(ports: PromotePorts, epoch: int, job: str) -> Steps[StandbyStopped | None]:
    """The other one leads no more, its shards are closed, and the copies have all of them."""
    yield LEADS
    lead = ports.other.leads(epoch, job)
    if lead is LeadAnswer.HELD:
        if (stopped := (yield from _near(ports))) is not None:
            return stopped
        yield GIVE
        lead = ports.other.give(epoch, job)
    if lead is not LeadAnswer.GIVEN:
        return StandbyStopped(_not_given(lead))
    yield CLOSE
    if isinstance(ports.other.close(epoch), Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    yield REST
    if (stopped := _unless(ports.copies.catch_up())) is not None:
        return stopped
    return (yield from _replicated(ports))


def _near(ports: PromotePorts) -> Steps[StandbyStopped | None]:
    """Until own replicas are near, too: nothing is closed to wait for those."""
    while True:
        yield NEAR
        if (stopped := _unless(ports.copies.catch_up())) is not None:
            return stopped
        yield REPLICATED
        has = ports.copies.replicated()
        if isinstance(has, Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        if has:
            return None


def _replicated(ports: PromotePorts) -> Steps[StandbyStopped | None]:
    """Until a replica that is promoted has all of the copies."""
    while True:
        yield REPLICATED
        has = ports.copies.replicated()
        if isinstance(has, Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        if has:
            return None


def _not_given(lead: LeadAnswer | Unheard) -> StandbyStop:
    if isinstance(lead, Unheard):
        return StandbyStop.SILENT
    return StandbyStop.TAKEN if lead is LeadAnswer.TAKEN else StandbyStop.FENCED


def _back(ports: PromotePorts, seen: StandbySeen) -> Steps[StandbyStopped | None]:
    """At this epoch it is never given the lead, so it may follow again. None: it was changed meanwhile, look again."""
    yield BACK
    is_back = ports.record.change(seen, seen.standby._replace(state=StandbyState.FOLLOWS))
    return StandbyStopped(StandbyStop.TAKEN) if is_back else None


def _unless(answer: bool | Unheard) -> StandbyStopped | None:
    if isinstance(answer, Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    return None if answer else StandbyStopped(StandbyStop.FENCED)


def _open(ports: PromotePorts, seen: StandbySeen, *, is_forced: bool) -> Steps[StandbyStopped | None]:
    """It is decided: every process that comes along carries it out."""
    epoch = seen.standby.epoch
    yield ARRIVE
    arrived = ports.copies.arrive(epoch)
    if isinstance(arrived, Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    if not arrived:
        return None
    yield ASK
    opening = ports.authority.opening()
    if isinstance(opening, HandingOver):
        return None
    yield OPEN
    opened = ports.copies.open(epoch, opening)
    if isinstance(opened, Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    if not opened:
        return StandbyStopped(StandbyStop.UNOPENED)
    if not (seen.standby.is_forced or is_forced):
        yield BUFFERS
        if isinstance(ports.other.bring(), Unheard):
            return StandbyStopped(StandbyStop.SILENT)
    # A replica that knows of copies alone, and is promoted, would have no shard; and no command looks once it leads.
    stopped = yield from _replicated(ports)
    if stopped is not None:
        return stopped
    yield SEEN
    are_open = ports.copies.are_open(epoch)
    if isinstance(are_open, Unheard):
        return StandbyStopped(StandbyStop.SILENT)
    if not are_open:
        return None
    yield END
    ports.record.change(seen, seen.standby._replace(state=StandbyState.LEADS))
    return None


def come_back(ports: ReturnPorts) -> Steps[Followed | StandbyStopped]:
    """Have a datastore that led before follow: bring what it alone has, then be a copy."""
    while True:
        yield LOOK
        seen = ports.record.find()
        if seen.standby.state is StandbyState.FOLLOWS:
            return Followed()
        if seen.standby.state is not StandbyState.RETURNS:
            return StandbyStopped(StandbyStop.NO_STANDBY)
        yield SHUT
        if isinstance(ports.own.close(seen.standby.epoch), Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        # Behind the closing: what was acknowledged before is in the logs, and nothing comes after it.
        yield BRING
        brought = ports.own.bring()
        if isinstance(brought, Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        if not brought:
            return StandbyStopped(StandbyStop.FOLLOWS_ANOTHER)
        # Before it may lead again: an alias of before would answer from entries of before.
        yield LEAVE
        if isinstance(ports.own.leave(), Unheard):
            return StandbyStopped(StandbyStop.SILENT)
        yield FOLLOW
        ports.record.change(seen, seen.standby._replace(state=StandbyState.FOLLOWS))
