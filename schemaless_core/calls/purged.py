"""Which keys were purged, as the shards say it: what lacks them lacks nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Kind, ShardState, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.purging import Key
from schemaless_core.servers.routing import Router

AS_COPIER = Standing(Kind.COPIER)
READ_SECONDS = 20.0
KEYS_PER_LOOK = 1000


class _Purged(NamedTuple):
    """What a shard said, in the shape the router wants."""

    state: ShardState
    keys: dict[Key, int]


def find_purged(router: Router, shards: int, keys: Sequence[Key]) -> dict[Key, int]:
    """Those of the keys that are never stored again, each with the ref key up to which its column was purged."""
    found = dict[Key, int]()
    for first in range(0, len(keys), KEYS_PER_LOOK):
        wanted = defaultdict[int, list[Key]](list)
        for key in keys[first : first + KEYS_PER_LOOK]:
            wanted[shard_of_bytes(key[0], shards)].append(key)
        deadline = Deadline(READ_SECONDS)

        def look(node: Node, part: Mapping[int, Sequence[Key]]) -> dict[int, _Purged]:
            there = {shard: node.purging.among(shard, some, deadline) for shard, some in part.items()}  # noqa: B023  # called at once
            heads = node.heads(part.keys(), deadline)  # noqa: B023  # called at once
            return {shard: _Purged(heads[shard].state, of_shard) for shard, of_shard in there.items()}

        for answer in router.read_many(wanted, look, AS_COPIER, "primary_only", deadline).values():
            found |= answer.keys
    return found
