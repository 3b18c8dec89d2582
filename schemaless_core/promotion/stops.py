"""Why a promotion stopped, and what to do then: in words for an operator."""

from __future__ import annotations

from schemaless_core.errors import PromotionOvertaken, PromotionRefused
from schemaless_core.promotion.cluster import ClusterServers
from schemaless_core.promotion.steps import Stop, Stopped


def busy(cluster: str) -> str:
    """What keeps another cluster from being promoted without an operator."""
    return f"Cluster {cluster} is being promoted without an operator, and one cluster at a time is."


def refusal_of(stopped: Stopped, cluster: str, servers: ClusterServers) -> PromotionRefused:
    """What its caller raises."""
    again = f"Run `tripstore shards promote {cluster}` again: what is done stays done."
    match stopped.why:
        case Stop.SILENT:
            if stopped.server not in servers.silences:
                return PromotionRefused(
                    f"{stopped.server} does not promise to allow the old primary no more lease.",
                    hint="It has to answer, and to have a lease itself: bring it back, then run it again.",
                )
            error = servers.silences[stopped.server]
            return PromotionRefused(
                f"{error.message} The promotion stopped there.",
                hint=f"{error.hint or ''} Then run it again, or give the server up if it is stopped.".strip(),
            )
        case Stop.OVERTAKEN:
            return PromotionOvertaken("Another promotion of this cluster has gone on meanwhile.", hint=again)
        case Stop.DECIDED:
            return PromotionRefused(
                f"A promotion that is under way has decided on {stopped.server}.",
                hint=f"Go on with it without --to, or with --to {stopped.server.rpartition('@')[2]}.",
            )
        case Stop.ASTRAY:
            return PromotionRefused(
                "No server has the changes of all others: some were written to on their own.",
                hint="Give up the one whose own changes do not count (--dead), and make it anew.",
            )
        case Stop.PLANNED:
            return PromotionRefused(
                "A promotion that an operator asked for is under way.",
                hint=f"`tripstore shards promote {cluster}` goes on with it.",
            )
        case Stop.BUSY:
            return PromotionRefused(
                busy(stopped.server),
                hint=f"`tripstore shards promote {stopped.server}` goes on with that one.",
            )
        case Stop.UNLEASED:
            return PromotionRefused(
                f"{stopped.server} may be alive, and takes writes without a lease.",
                hint="Stop its process, then promote with --old-is-dead.",
            )
        case Stop.NO_TARGET:
            return PromotionRefused(
                f"Cluster {cluster} has no server that could lead instead: none is left that is not given up.",
                hint=f"Name its replicas under clusters.{cluster}.replicas.",
            )
