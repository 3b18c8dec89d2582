"""The processes of a cast around a promotion: operators, callers, a hand-over, a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from schemaless_core.engine.primacy import FIRST, Lead
from schemaless_core.promotion import lease, steps
from schemaless_core.promotion.ports import LeasePorts, PromotionOrder, PromotionPorts
from schemaless_core.steps import Step, Steps
from tests.explorer.programs import SERVERS

VOUCH = Step("actor.vouch", "see that a server is gone for good")
LET_GO = Step("actor.let_go", "end the sessions")
PUT = Step("actor.put", "put a cell")
HEAR = Step("actor.hear", "ask a server who leads")
HOLD = Step("actor.hold", "begin a hand-over")
SHUT = Step("actor.shut", "close the primary")
DECIDE = Step("actor.decide", "decide the hand-over")
SWITCH = Step("actor.switch", "make Schemaless the authority")
OBEY = Step("actor.obey", "make the primary what the row says")
READ = Step("actor.read", "read, of the primary alone")
FAIL_OVER = Step("actor.fail_over", "give another cluster, which is a voter, another primary")


class ClientPort(Protocol):
    """What is asked of the world beside a promotion."""

    def let_go(self) -> None: ...
    def vouch(self, server: str) -> None: ...
    def put(self, server: int, cell: int, epoch: int) -> bool: ...
    def hear(self) -> tuple[Lead, int]: ...
    def hold(self) -> bool: ...
    def shut(self, server: int) -> bool: ...
    def decide(self, is_closed: bool) -> None: ...
    def switch(self) -> None: ...
    def obey(self) -> None: ...
    def heir(self) -> None: ...
    def rival(self) -> None: ...
    def read(self, server: int, epoch: int) -> bool: ...


class PrimaryTools(NamedTuple):
    """What the code of an actor may use."""

    ports: PromotionPorts
    client: ClientPort
    leases: LeasePorts


def tools_of(port: Callable[[str], Any]) -> PrimaryTools:
    promotes = PromotionPorts(port("record"), port("servers"), port("authority"), port("voters"))
    return PrimaryTools(promotes, port("client"), LeasePorts(port("leases"), port("voters")))


@dataclass(frozen=True)
class PrimaryActor:
    """One process."""

    name: str
    code: Callable[[PrimaryTools], Steps[Any]]
    may_stop: bool = False
    is_mortal: bool = True
    repeats: bool = False


ANY_OTHER = PromotionOrder()


def operator(
    name: str, order: PromotionOrder = ANY_OTHER, *, may_stop: bool = False, promote: Any = steps.promote
) -> PrimaryActor:
    """Asks for a promotion until it is done; of a server that is to be given up it sees first that it is gone."""

    def code(tools: PrimaryTools) -> Steps[None]:
        for server in order.given_up if not order.outlasts else ():
            yield VOUCH
            tools.client.vouch(server)
        wanted = order
        while True:
            result = yield from promote(tools.ports, wanted)
            yield LET_GO
            tools.client.let_go()
            if isinstance(result, steps.Promoted):
                return
            if result.why is steps.Stop.DECIDED:
                wanted = wanted._replace(to="")
            if result.why is steps.Stop.NO_TARGET:
                return

    return PrimaryActor(name, code, may_stop=may_stop)


def writer(name: str, cell: int, *, repeats: bool = True) -> PrimaryActor:
    """Puts a cell where it thinks that the primary is; asks around when it is refused. Who is killed begins anew."""

    def code(tools: PrimaryTools) -> Steps[None]:
        leader, epoch = FIRST, 1
        while True:
            yield PUT
            if tools.client.put(leader.server, cell, epoch) or not repeats:
                return
            yield HEAR
            said = tools.client.hear()
            if said[0] >= leader:
                leader, epoch = said

    return PrimaryActor(name, code)


def hand_over(name: str) -> PrimaryActor:
    """Gives the authority back to Postgres, or undoes it when the primary does not close."""

    def code(tools: PrimaryTools) -> Steps[None]:
        yield HOLD
        if not tools.client.hold():
            return
        yield HEAR
        leader, _epoch = tools.client.hear()
        yield SHUT
        is_closed = tools.client.shut(leader.server)
        yield DECIDE
        tools.client.decide(is_closed)

    return PrimaryActor(name, code, is_mortal=False)


def switch(name: str) -> PrimaryActor:
    def code(tools: PrimaryTools) -> Steps[None]:
        yield SWITCH
        tools.client.switch()

    return PrimaryActor(name, code, is_mortal=False)


def worker(name: str) -> PrimaryActor:
    def code(tools: PrimaryTools) -> Steps[None]:
        yield OBEY
        tools.client.obey()

    return PrimaryActor(name, code, repeats=True, is_mortal=False)


def renewer(name: str) -> PrimaryActor:
    def code(tools: PrimaryTools) -> Steps[None]:
        yield from lease.extend(tools.leases)

    return PrimaryActor(name, code, repeats=True)


def reader(name: str) -> PrimaryActor:
    """Reads where the first primary was."""

    def code(tools: PrimaryTools) -> Steps[None]:
        yield READ
        tools.client.read(FIRST.server, 1)

    return PrimaryActor(name, code, repeats=True, is_mortal=False)


def heir(name: str) -> PrimaryActor:
    def code(tools: PrimaryTools) -> Steps[None]:
        yield FAIL_OVER
        tools.client.heir()

    return PrimaryActor(name, code, is_mortal=False)


def rival(name: str) -> PrimaryActor:
    def code(tools: PrimaryTools) -> Steps[None]:
        yield FAIL_OVER
        tools.client.rival()

    return PrimaryActor(name, code, is_mortal=False)


def name_of(n: int) -> str:
    return SERVERS[n]
