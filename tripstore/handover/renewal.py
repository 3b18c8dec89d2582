"""A Postgres that was promoted before a hand-over was ever prepared: from now on it is another one than before.

Nothing compares timelines then, so it was never shut, and went on. It takes a generation of epochs of its own, as by an
acceptance, but stays open: Schemaless was never the authority, so no decision can be lost. The row first: repeated, all
of it goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tripstore.handover import settle
from tripstore.handover.accept import (
    ACCEPT,
    EPOCHS_PER_TIMELINE,
    FENCE,
    LOOK,
    REACH,
    generation_above,
    generation_of,
)
from tripstore.handover.authority import Authority
from tripstore.handover.ports import Ports
from tripstore.handover.steps import Steps

#: The switch id of a row that was renewed: what the Postgres before it lost may be as old as the mirror.
UNSEEN = "unseen"


def renew(ports: Ports, renews: Callable[[Authority, Authority], bool]) -> Steps[str]:
    """Give this Postgres a generation of its own; "", or why not. `renews`: the compare-and-set, of a row without one.

    A relay or a backfill of before that sends late is refused by the shards, once those have acknowledged.
    """
    yield LOOK
    found, servers = ports.control.stated_authority(), ports.store.servers
    if found.given is None:
        reached = 0
        for server in servers:
            yield REACH
            reached = max(reached, ports.store.reached(server))
        epoch = generation_above(found, reached) * EPOCHS_PER_TIMELINE + 2
        yield ACCEPT
        if not renews(found.row, replace(found.row, epoch=epoch, switch_id=UNSEEN, since=None, who="")):
            return "another process was faster"
    row = yield from settle.settle(ports)
    if row.switch_id == UNSEEN:  # else a hand-over has fenced them since
        for server in servers:
            yield FENCE
            if not ports.store.close(server, generation_of(row.epoch) * EPOCHS_PER_TIMELINE + 1):
                return f"{server} did not acknowledge"
    return ""
