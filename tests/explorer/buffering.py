"""The processes of a cast that buffer cells, carry them to their shards, and read both."""

from __future__ import annotations

from schemaless_core.buffers import steps
from schemaless_core.buffers.ports import Fate, OnHold
from schemaless_core.buffers.ports import Kept as Answer
from tests.explorer.actors import AT_SCHEMALESS
from tests.explorer.buffers import new_cell
from tests.explorer.programs import SERVERS, Asked, Tools
from tests.explorer.rules import Actor
from tests.explorer.world import Put, cell
from tripstore.handover import settle, switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.call import ASK
from tripstore.handover.ports import REFUSED, Refusal
from tripstore.handover.steps import Step, Steps

READ = Step("read.next", "ask a buffer, or the shard")


def others(key: int, servers: int) -> tuple[str, ...]:
    """In which order the buffers of other servers are offered a cell of a row."""
    return tuple(SERVERS[(key + n) % servers] for n in range(1, servers))


def caller(
    name: str, key: int, version: int, *, servers: int = 2, body: str = "", knows: Authority = AT_SCHEMALESS
) -> Actor:
    """A process with the facade inside that puts a cell; who is killed begins anew and repeats it."""
    wanted = cell(key, version, body or name)

    def code(tools: Tools) -> Steps[None]:
        known = knows
        while True:
            known.check_layout(tools.ports.layout)
            if known.backend is Backend.LEGACY:
                yield ASK
                if tools.ports.legacy.call(Put(wanted), known.epoch) is not REFUSED:
                    return
            else:
                yield ASK
                answer = tools.client.put(wanted, known.epoch)
                if answer is REFUSED:
                    pass
                elif isinstance(answer, str):
                    return
                else:
                    offered = (new_cell(wanted),)
                    _server, kept = yield from steps.keep(tools.keeping, others(key, servers), offered, known.epoch)
                    if isinstance(kept, tuple) and kept != (Answer.REFUSED,):
                        return
                    if not isinstance(kept, tuple):
                        continue  # nothing was acknowledged; it tries again at the same place
            known = yield from settle.follow(tools.ports, known)

    return Actor(name, code, may_stop=True)


def replayer(name: str, server: int, limit: int = 1) -> Actor:
    """The replayer of one buffer, as a worker runs it."""
    return Actor(
        name, lambda tools: steps.replay(tools.buffering, SERVERS[server], limit), repeats=True, carries="buffers"
    )


def reader(name: str, key: int, *, servers: int = 2, is_wrong: bool = False) -> Actor:
    """Reads the latest version, buffers included: these first, since what leaves a buffer is in the shard by then."""
    places: tuple[str, ...] = ("", *others(key, servers)) if is_wrong else (*others(key, servers), "")

    def code(tools: Tools) -> Steps[None]:
        asked: Asked | Refusal = Asked()
        for server in places:
            yield READ
            assert isinstance(asked, Asked)
            is_last = server == places[-1]
            if server:
                asked = tools.client.ask_buffer(server, key, asked, is_last)
            else:
                asked = tools.client.ask_shard(key, AT_SCHEMALESS.epoch, asked, is_last)
            if isinstance(asked, Refusal):
                return  # where the authority is by now, nothing waits in a buffer

    return Actor(name, code, may_stop=True)


# ---- procedures with one mistake each ---------------------------------------------------------------------------


def replay_that_removes_first(tools: Tools, server: str) -> Steps[None]:
    yield steps.TAKE
    waiting = tools.buffering.buffers.waiting(server, 1)
    yield steps.SETTLE
    tools.buffering.buffers.settle(server, waiting, ())
    yield steps.LOOK
    epoch = tools.buffering.present.epoch()
    yield steps.COPY
    tools.buffering.own.copy(waiting, None if isinstance(epoch, OnHold) else epoch)


def replay_at_the_old_epoch(tools: Tools, server: str) -> Steps[None]:
    """By the epoch at which the cells were taken."""
    yield steps.TAKE
    waiting = tools.buffering.buffers.waiting(server, 1)
    yield steps.COPY
    fates = tools.buffering.own.copy(waiting, AT_SCHEMALESS.epoch)
    if fates == (Fate.THERE,):
        yield steps.SETTLE
        tools.buffering.buffers.settle(server, waiting, ())


def replay_that_drops_conflicts(tools: Tools, server: str) -> Steps[None]:
    yield steps.LOOK
    epoch = tools.buffering.present.epoch()
    yield steps.TAKE
    waiting = tools.buffering.buffers.waiting(server, 1)
    yield steps.COPY
    fates = tools.buffering.own.copy(waiting, None if isinstance(epoch, OnHold) else epoch)
    if fates != (Fate.NOT_YET,):
        yield steps.SETTLE
        tools.buffering.buffers.settle(server, waiting, ())


def reverse_with(name: str, *, counts: bool = True, buffers_last: bool = False, closes_last: bool = False) -> Actor:
    """A way back that counts buffers at the wrong moment, or not at all."""

    def code(tools: Tools) -> Steps[None]:
        ports = tools.ports
        servers = ports.store.servers
        yield switch.BACK_LOOK
        found = ports.control.authority()
        if not found.is_open_for(Backend.STORE):
            return
        closing = found.closing(name)
        yield switch.BACK_CLOSE
        if not ports.control.close(found, closing):
            return
        order: tuple[str, ...] = ("shut", "count", "replay") if buffers_last else ("shut", "replay", "count")
        if closes_last:
            order = ("replay", "shut", "count")
        if not counts:
            order = ("shut", "count")
        for what in order:
            for server in servers:
                if what == "shut":
                    yield switch.BACK_SHUT
                    if not ports.store.close(server, closing.epoch):
                        yield from settle.undo(ports, closing)
                        return
                elif what == "count":
                    yield switch.BACK_COUNT
                    while ports.store.unmirrored(server):
                        yield switch.BACK_COUNT
                else:
                    yield switch.BACK_REPLAY
                    while ports.store.buffered(server):
                        yield switch.BACK_REPLAY
        yield switch.BACK_DECIDE
        ports.control.decide(closing, closing.decided())
        yield from settle.settle(ports)

    return Actor(name, code, restarts=False, may_stop=True)
