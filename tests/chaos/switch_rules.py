"""What a hand-over owes to whoever writes, judged by what the stores keep: histories, logs, and services' journals."""

from __future__ import annotations

from bisect import bisect_right

from schemaless_core import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import AuthorityChange

SECONDS = 10.0


def authority_of_shards(store: Datastore) -> dict[int, list[AuthorityChange]]:
    """From which added id on each shard was at which authority epoch, and whether owners could write."""
    found: dict[int, list[AuthorityChange]] = {}
    topology = store.schema.plan().topology
    for cluster in topology.clusters:
        ask = store.clusters[cluster].primary.ask
        for shard in topology.shards_of(cluster):
            found[shard] = ask(lambda node, shard=shard: node.authority_history(shard, Deadline(SECONDS)))  # type: ignore[misc]  # mypy knows no default of a lambda
    return found


def change_at(history: list[AuthorityChange], added_id: int) -> AuthorityChange:
    """Under which authority epoch an added id was given."""
    return history[bisect_right([change.first_added_id for change in history], added_id) - 1]
