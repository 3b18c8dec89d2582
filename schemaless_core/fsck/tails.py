"""`TailsLook`: what a primary that was given up had acknowledged, and no other server has (I1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.records import Finding
from schemaless_core.errors import SchemalessError
from schemaless_core.fsck.faults import Fault, found, not_compared
from schemaless_core.promotion.salvage import LostTail
from schemaless_core.servers.clusters import Cluster


class TailsLook:
    """Bounds of a part: a cluster. Its servers are those of now: a promotion may have come since the job began."""

    def __init__(self, clusters: Mapping[str, Cluster], tails: Callable[[str, str], list[LostTail]]) -> None:
        self._clusters = clusters
        self._tails = tails

    def __call__(self, bounds: Json) -> list[Finding]:
        name, findings = str(bounds), list[Finding]()
        for replica in self._clusters[name].replicas if name in self._clusters else ():
            server = replica.node.name
            try:
                findings += [_lost(name, server, tail) for tail in self._tails(name, server)]
            except SchemalessError as error:
                reason = f"What {server} alone has: {error.message}"
                findings.append(not_compared(reason, cluster=name, server=server))
        return findings


def _lost(cluster: str, server: str, tail: LostTail) -> Finding:
    cells = f"{tail.cells:,} cells at added ids {tail.first} to {tail.last}"
    keys = f"{tail.purged_keys:,} purged keys"
    what = " and ".join([cells] * bool(tail.cells) + [keys] * bool(tail.purged_keys))
    reason = f"{what} of shard {tail.shard} are on {server} alone, which led when it died"
    where: dict[str, Json] = {"cluster": cluster, "server": server.replace("@", ":${PASSWORD}@"), "shard": tail.shard}
    return found(
        Fault.TAIL, reason, first=tail.first, last=tail.last, cells=tail.cells, purged_keys=tail.purged_keys, **where
    )
