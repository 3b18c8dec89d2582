"""`Offsets`: how far groups have come in each shard, kept on the shards' own servers under fences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import GroupStart, GroupStep, OffsetSeen
from schemaless_core.errors import SchemalessError
from schemaless_core.servers.routing import Router
from schemaless_core.triggers.registry import Start

W = TypeVar("W")

#: Creating the offsets of thousands of shards, or looking at all of them.
ALL_SECONDS = 60.0
#: A look, or one step: it waits for the disk alone. A server that is silent holds up the others' steps.
STEP_SECONDS = 1.0
#: Shards in one statement.
SHARDS_PER_STEP = 256
#: How the history of a shard says that another server led from there on; and how far its clock may be from ours.
PROMOTION = "promotion "
CLOCKS_APART = timedelta(minutes=1)


class Progress(Protocol):
    """How far a group has come, as its consumer claims and moves it: offsets, and what a group keeps beside them."""

    def claim(self, group: str, fences: Mapping[int, int]) -> dict[int, OffsetSeen | SchemalessError]:
        """Show new fences; a shard whose offset must go back first is not the caller's any more."""
        ...

    def advance(self, group: str, steps: Mapping[int, GroupStep]) -> dict[int, OffsetSeen | SchemalessError]:
        """Move forward. A shard that is left out of the answers did not move, and has to be claimed anew."""
        ...

    def astray(self, shards: Collection[int]) -> Collection[int]:
        """Those of these shards, all claimed, whose progress is not what it was: they have to be claimed anew."""
        ...

    def begin_again(self, group: str, start: str, since: Mapping[int, int]) -> Collection[int]:
        """Create the offsets of shards that have none; return of which.

        `start`: where the group's began; `since`: when it was registered, in milliseconds.
        """
        ...


class Offsets:
    """The offsets of all groups of a datastore."""

    def __init__(self, router: Router, log: ShardLog, config: DatastoreConfig) -> None:
        self._router = router
        self._log = log
        self._shards = range(config.shards)

    def begin(self, group: str, start: Start) -> None:
        """Create a group's offsets in all shards; those it has stay. Safe to repeat and to kill."""
        where = self._located(start) if isinstance(start, datetime) else start
        for cluster in self._router.holders(Deadline(ALL_SECONDS)):
            cluster.write(lambda node: node.groups.begin(group, where, Deadline(ALL_SECONDS)))
        # A shard that has gone to another cluster meanwhile has none yet, and no worker would serve it.
        seen = {shard: at for shard, at in self.find(group).items() if not isinstance(at, SchemalessError)}
        self._begin_in(group, {shard: _start(where, shard, at.head) for shard, at in seen.items() if at.offset is None})

    def claim(self, group: str, fences: Mapping[int, int]) -> dict[int, OffsetSeen | SchemalessError]:
        """Show new fences to the shards' servers; from then on older ones move nothing."""
        return self._each(fences, lambda node, part, deadline: node.groups.claim(group, part, deadline))

    def advance(self, group: str, steps: Mapping[int, GroupStep]) -> dict[int, OffsetSeen | SchemalessError]:
        """Move offsets forward and park cells with them, each under its fence; return them as they are then."""
        return self._each(steps, lambda node, part, deadline: node.groups.advance(group, part, deadline))

    def astray(self, shards: Collection[int]) -> Collection[int]:
        """None: a shard whose server was promoted says so by its epoch."""
        return ()

    def begin_again(self, group: str, start: str, since: Mapping[int, int]) -> Collection[int]:
        """They were lost with the tail of a primary, on which they stood behind all that a replica had.

        So nothing is passed over from where that promotion forked the log. Without one since the group was registered
        a person has removed them.
        """
        found = {shard: self._lost_at(shard, start, registered_ms) for shard, registered_ms in since.items()}
        starts = {shard: added_id for shard, added_id in found.items() if added_id is not None}
        self._begin_in(group, starts)
        return starts

    def _begin_in(self, group: str, starts: Mapping[int, int]) -> None:
        def begin(node: Node, part: Mapping[int, int], deadline: Deadline) -> dict[int, OffsetSeen]:
            node.groups.begin(group, part, deadline)
            return node.groups.find(group, list(part), deadline)

        self._each(starts, begin)

    def _lost_at(self, shard: int, start: str, registered_ms: int) -> int | None:
        """The last added id before the group's first cell, at the latest."""
        if start == "beginning":
            return 0
        registered_at = datetime.fromtimestamp(registered_ms / 1000, UTC) - CLOCKS_APART
        deadline = Deadline(STEP_SECONDS)
        openings = self._router.ask_cluster(
            self._router.cluster_of(shard, deadline), lambda node: node.epochs(shard, deadline)
        )
        forks = (each for each in openings if each.why.startswith(PROMOTION) and each.opened_at >= registered_at)
        return next((each.first_added_id - 1 for each in forks), None)

    def find(self, group: str, shards: Sequence[int] | None = None) -> dict[int, OffsetSeen | SchemalessError]:
        """Return a group's offsets; the error of a shard whose server is down."""
        wanted = dict.fromkeys(self._shards if shards is None else shards)
        return self._each(wanted, lambda node, part, deadline: node.groups.find(group, list(part), deadline))

    def reset(self, group: str, to: Mapping[int, tuple[int, int]]) -> None:
        """Set offsets to (epoch, added id), backwards too; the worker that holds a shard claims it anew."""

        def look(node: Node, part: Mapping[int, tuple[int, int]], deadline: Deadline) -> dict[int, OffsetSeen]:
            node.groups.reset(group, part, deadline)
            return node.groups.find(group, list(part), deadline)

        for answer in self._each(to, look).values():
            if isinstance(answer, SchemalessError):
                raise answer

    def remove(self, group: str) -> None:
        """Forget a group's offsets and parked cells everywhere."""
        for cluster in self._router.holders(Deadline(ALL_SECONDS)):
            cluster.write(lambda node: node.groups.remove(group, Deadline(ALL_SECONDS)))

    def _located(self, moment: datetime) -> GroupStart:
        """The last added id before a moment, of each shard."""
        starts: dict[int, int] = {}
        for first in range(0, len(self._shards), SHARDS_PER_STEP):
            part = dict.fromkeys(self._shards[first : first + SHARDS_PER_STEP], moment)
            for shard, page in self._log.pages(part, 1).items():
                starts[shard] = page.start
        return starts

    def _each(
        self, wanted: Mapping[int, W], verb: Callable[[Node, Mapping[int, W], Deadline], dict[int, OffsetSeen]]
    ) -> dict[int, OffsetSeen | SchemalessError]:
        answers: dict[int, OffsetSeen | SchemalessError] = {}
        shards = list(wanted)
        for first in range(0, len(shards), SHARDS_PER_STEP):
            part = {shard: wanted[shard] for shard in shards[first : first + SHARDS_PER_STEP]}
            deadline = Deadline(STEP_SECONDS)
            bound = partial(_with_deadline, verb, deadline)
            answers |= self._router.write_each(part, bound, Standing(Kind.COPIER), deadline)
        return answers


def _with_deadline(
    verb: Callable[[Node, Mapping[int, W], Deadline], dict[int, OffsetSeen]],
    deadline: Deadline,
    node: Node,
    part: Mapping[int, W],
) -> dict[int, OffsetSeen]:
    return verb(node, part, deadline)


def _start(where: GroupStart, shard: int, head: int) -> int:
    """Behind which added id a group begins in one shard."""
    if isinstance(where, str):
        return head if where == "now" else 0
    return where.get(shard, 0)


def is_mine(seen: OffsetSeen, fence: int) -> bool:
    """Whether a fence is still the newest of its shard."""
    return seen.offset is not None and seen.offset.fence == fence
