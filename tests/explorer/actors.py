"""The processes of a cast: the production steps, and who asks for them.

What an actor keeps between two rounds is nothing: a process that begins anew reads what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from schemaless_core.errors import StaleEpoch
from tests.explorer.programs import Code, Tools
from tests.explorer.rules import Actor
from tests.explorer.world import Get, Put, World, cell, chunk_of
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.errors import StaleLayout
from tripstore.handover import backfill, relay, reverse, settle, switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.call import call
from tripstore.handover.relayout import relayout
from tripstore.handover.steps import Step, Steps

STATEMENT = Step("sql.statement", "a statement of a service's own SQL")
COMMIT = Step("sql.commit", "commit it")
READ_LOG = Step("log.read", "read what follows the offset")
ADVANCE = Step("log.advance", "save the offset")


#: Of scenarios that are about layouts: the one in force at the beginning, and another one.
OLD_LAYOUT, NEW = "A", "B"

#: The row as it is at the beginning.
AT_POSTGRES, AT_SCHEMALESS = Authority(1, Backend.LEGACY), Authority(1, Backend.STORE)
#: Of a process that has yet to look.
NOWHERE = Authority(0, Backend.LEGACY)


def put(name: str, key: int, version: int) -> Put:
    return Put(cell(key, version, name))


def get(key: int) -> Get:
    return Get(key)


def service(name: str, *operations: Put | Get, knows: Authority = AT_POSTGRES) -> Actor:
    """A process with the facade inside. One that is killed begins anew and repeats what it had done (I4)."""

    def code(tools: Tools) -> Steps[None]:
        known = knows
        left: tuple[Put | Get, ...] = operations
        while left:
            answer = yield from call(tools.ports, known, left[0])
            known = answer.authority
            left = left[1:]
            del answer

    return Actor(name, code, may_stop=True)


def sql(name: str, *statements: tuple[str, int]) -> Actor:
    """One transaction of a service's own SQL; a service that is refused begins it anew."""

    def code(tools: Tools) -> Steps[None]:
        left: Sequence[tuple[str, int]] = statements
        while left:
            verb, key = left[0]
            yield STATEMENT
            if tools.sql.statement(verb, key):
                left = left[1:]
            else:
                left = statements
        yield COMMIT
        tools.sql.commit()

    return Actor(name, code)


def relay_(name: str = "L", limit: int = 1) -> Actor:
    return Actor(name, lambda tools: relay.deliver(tools.ports, limit), repeats=True, carries="queue")


def mirror(name: str, key: int) -> Actor:
    """The reverse mirror's group, as a trigger worker serves a shard to it."""

    def code(tools: Tools) -> Steps[None]:
        yield READ_LOG
        page = tools.log.read(key, 1)
        try:
            yield from reverse.deliver(tools.ports.control, tools.hands, page.cells, tools.ports.layout)
        except StaleEpoch:  # the gate is behind the row: the watch of its process sees to that
            yield from settle.mend(tools.ports)
            return
        yield ADVANCE
        tools.log.advance(key, page.position)

    return Actor(name, code, repeats=True, carries=key)


def copier(name: str, key: int) -> Actor:
    """A backfill of one chunk, done over until it is copied."""

    def code(tools: Tools) -> Steps[None]:
        is_copied = False
        while not is_copied:
            try:
                copied = yield from backfill.copy_chunk(tools.ports, chunk_of(key))
            except StaleEpoch:
                continue
            is_copied = copied.is_whole
            del copied

    return Actor(name, code, copies=True)


def switcher(name: str) -> Actor:
    code: Code = lambda tools: switch.switch(tools.ports, name, 1, 1)  # noqa: E731
    return Actor(name, code, restarts=False, may_stop=True)


def reverser(name: str) -> Actor:
    return Actor(name, lambda tools: switch.reverse(tools.ports, name), restarts=False, may_stop=True)


def relayer(name: str, layout: str = NEW) -> Actor:
    """Puts a layout in force, as `schema apply` does."""
    code: Code = lambda tools: relayout(tools.ports, name, layout, tools.cells.objection, 1)  # noqa: E731
    return Actor(name, code, restarts=False, may_stop=True)


def old(actor: Actor) -> Actor:
    """The same process, which goes by the old layout and ends as soon as it hears of another one."""

    def code(tools: Tools) -> Steps[None]:
        with suppress(StaleLayout):
            yield from actor.code(tools)

    return replace(actor, code=code, layout=OLD_LAYOUT, copies=False, carries=None)


def new(actor: Actor) -> Actor:
    """The same process, which goes by the new layout and begins again until that is in force."""

    def code(tools: Tools) -> Steps[None]:
        while True:
            with suppress(StaleLayout):
                yield from actor.code(tools)
                return

    return replace(actor, code=code, layout=NEW)


def helper(name: str = "H") -> Actor:
    """Any process that finds something unfinished."""
    return Actor(name, lambda tools: settle.mend(tools.ports), repeats=True, watches=True)


def is_troubled(w: World) -> bool:
    """Whether there is something for a helper to do."""
    if not w.row.is_open or w.barrier is not None or not w.accepted == w.given == w.timeline:
        return True
    state = GateState.OPEN if w.row.backend is Backend.LEGACY else GateState.CLOSED
    if w.gate != GateReading(w.row.epoch, state):
        return True
    return w.row.backend is Backend.STORE and any(shard.up and shard.epoch < w.row.epoch for shard in w.shards)
