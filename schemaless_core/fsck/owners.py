"""`OwnersLook`: whether each shard has one owner, who is where the control database says (I9)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import FENCED, PASSING, ShardHead, ShardStatus
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.errors import SchemalessError, SchemaMissing
from schemaless_core.fsck.faults import Fault, found, not_compared
from schemaless_core.fsck.walk import PAGE_SECONDS
from schemaless_core.servers.routing import Router
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Placement

#: A hand-over or a promotion is over by then, and what is wrong twice is wrong.
LOOKS = 4
PAUSE_SECONDS = 1.0


class _Wrong(NamedTuple):
    """A fault, and the shard that has it; None: they have it together."""

    fault: Fault
    shard: int | None
    reason: str
    cluster: str = ""


class OwnersLook:
    """All shards at once, as all clusters say."""

    def __init__(self, router: Router, control: ControlDatabase, sleep: Callable[[float], object] = time.sleep) -> None:
        self._router = router
        self._control = control
        self._sleep = sleep

    def __call__(self, bounds: Json) -> list[Finding]:
        """What is wrong at every one of several looks."""
        wrong, silent = self._look()
        for _again in range(1, LOOKS):
            if not (wrong or silent):
                break
            self._sleep(PAUSE_SECONDS)
            now, silent_now = self._look()
            places = {(each.fault, each.shard) for each in now}
            # What did not answer before is looked at for the first time.
            wrong = now if silent else [each for each in wrong if (each.fault, each.shard) in places]
            silent = silent_now
        findings = [found(each.fault, each.reason, shard=each.shard, cluster=each.cluster) for each in wrong]
        return [*findings, *(not_compared(reason) for reason in silent)]

    def _look(self) -> tuple[list[_Wrong], list[str]]:
        topology = Topologies(self._control).find_newest()
        if topology is None:
            raise SchemaMissing(
                "The control database says of no shard where it is.", hint="Run `tripstore schema apply`."
            )
        answers = self._router.ask_all(partial(_heads, Deadline(PAGE_SECONDS)))
        holders = defaultdict[int, dict[str, ShardHead]](dict)
        for cluster, heads in answers.items():
            for shard, head in {} if isinstance(heads, SchemalessError) else heads.items():
                if head.state.status != ShardStatus.MOVED.value:
                    holders[shard][cluster] = head
        silent = {name: str(each.message) for name, each in answers.items() if isinstance(each, SchemalessError)}
        silent |= {name: "it is not in the configuration" for name in topology.clusters if name not in answers}
        wrong = [each for shard, place in topology for each in _judged(shard, place, holders[shard], silent)]
        reasons = [f"Whether cluster {name} has shards of its own: {reason}" for name, reason in silent.items()]
        return [*wrong, *_mixed(holders)], reasons


def _judged(
    shard: int, place: Placement, holders: Mapping[str, ShardHead], silent: Mapping[str, str]
) -> Iterator[_Wrong]:
    takers = {name: head for name, head in holders.items() if head.state.status not in FENCED}
    if len(takers) > 1:
        names = " and ".join(takers)
        yield _Wrong(Fault.TWO_OWNERS, shard, f"clusters {names} both take calls of shard {shard}")
    elif len(holders) > 1:
        # One of them at most takes writes: a move is under way, maybe beside a promotion.
        said = " and ".join(f"{head.state.status} on cluster {name}" for name, head in holders.items())
        reason = f"shard {shard} is {said}: a move was begun, and not ended"
        yield _Wrong(Fault.FENCED, shard, reason, place.cluster)
        yield from _judged(shard, place, takers, silent) if takers else ()
    elif not holders:
        if place.cluster not in silent:
            yield _Wrong(Fault.NO_OWNER, shard, f"no cluster has shard {shard}", place.cluster)
    else:
        ((cluster, head),) = holders.items()
        if head.state.status == ShardStatus.RO.value:
            reason = f"shard {shard} is RO on cluster {cluster}: a promotion was begun, and not ended"
            yield _Wrong(Fault.FENCED, shard, reason, cluster)
        elif head.state.status in FENCED:
            reason = f"shard {shard} is {head.state.status} on cluster {cluster}: a move was begun, and not ended"
            yield _Wrong(Fault.FENCED, shard, reason, cluster)
        elif head.state.status == ShardStatus.UNLEASED.value:
            reason = f"shard {shard} takes no writes: the primary of cluster {cluster} has no lease"
            yield _Wrong(Fault.FENCED, shard, reason, cluster)
        elif (cluster, head.state.epoch) != (place.cluster, place.epoch):
            reason = (
                f"shard {shard} is on cluster {cluster} at epoch {head.state.epoch};"
                f" the control database says cluster {place.cluster}, epoch {place.epoch}"
            )
            yield _Wrong(Fault.MISPLACED, shard, reason, cluster)


def _mixed(holders: Mapping[int, Mapping[str, ShardHead]]) -> Iterator[_Wrong]:
    """Where one is open to owners, all are, at the same authority epoch. One that takes no writer says nothing of it.

    All closed, their epochs tell nothing: a server that is promoted then takes the epoch of the authority row, and the
    others keep the one at which they were closed.
    """
    states = defaultdict[tuple[str, int], list[int]](list)
    for shard, heads in holders.items():
        for head in heads.values():
            if head.state.status not in PASSING:
                states[head.state.status, head.state.authority_epoch].append(shard)
    if len(states) > 1 and any(status == ShardStatus.RW.value for status, _epoch in states):
        said = ", ".join(f"{len(shards)} are {status} at {epoch}" for (status, epoch), shards in sorted(states.items()))
        yield _Wrong(Fault.MIXED, None, f"shards are of several states and authority epochs: {said}")


def _heads(deadline: Deadline, node: Node) -> dict[int, ShardHead]:
    return node.heads(None, deadline)
