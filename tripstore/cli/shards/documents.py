"""The JSON documents of `tripstore shards`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schemaless_core.promotion.ports import Record
from schemaless_core.promotion.promoter import PromotionPlan, ServerSeen
from schemaless_core.promotion.salvage import Salvaged
from schemaless_core.promotion.steps import Promoted


class PromotionView(msgspec.Struct, frozen=True):
    """The newest promotion of a cluster; number 0: there was none."""

    number: int
    #: none, begun, decided or done
    state: str
    before: str | None
    to: str | None
    given_up: list[str]


class ClusterServerView(msgspec.Struct, frozen=True):
    """One server of a cluster."""

    server: str
    leads: bool
    is_given_up: bool
    seconds_behind: int | None
    position: str | None
    error: str | None


class ClusterOfServersView(msgspec.Struct, frozen=True):
    """A cluster: who leads, and who follows."""

    cluster: str
    promotion: PromotionView
    servers: list[ClusterServerView]


class ShardsStatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    is_fine: bool
    clusters: list[ClusterOfServersView]


class PromotionPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `promote --dry-run`."""

    cluster: ClusterOfServersView
    steps: list[str]
    refusals: list[str]


class PromotedDocument(msgspec.Struct, frozen=True):
    """The JSON document of `promote`."""

    cluster: str
    promotion: PromotionView
    #: Servers that did not become replicas.
    left: list[str]


class SalvagedDocument(msgspec.Struct, frozen=True):
    """The JSON document of `salvage`."""

    cluster: str
    server: str
    is_dry_run: bool
    shards: int
    cells: int
    there: int
    salvaged: int
    conflicts: int
    buffered: int
    index_entries: int
    #: Keys that were purged on its disk, and not where their shards are led now: what they bar is purged there, too.
    purged_keys: int


class FailoverView(msgspec.Struct, frozen=True):
    """A cluster, and what would become of it if its primary were silent now."""

    cluster: str
    is_automatic: bool
    primary: str
    #: None: it does not say.
    lease_seconds: float | None
    #: What keeps another server from being made the primary; empty: a worker would do it.
    refusals: list[str]


class FailoverDocument(msgspec.Struct, frozen=True):
    """The JSON document of `failover status`."""

    is_fine: bool
    clusters: list[FailoverView]


class FailoverSetDocument(msgspec.Struct, frozen=True):
    """The JSON document of `failover on` and `off`."""

    is_automatic: bool
    #: Whose primary was opened anew; the others were so before.
    clusters: list[str]


def promotion_view(record: Record) -> PromotionView:
    state = "none" if not record.number else "done" if record.is_done else "decided" if record.target else "begun"
    return PromotionView(record.number, state, record.before or None, record.target or None, list(record.given_up))


def cluster_view(cluster: str, plan: PromotionPlan) -> ClusterOfServersView:
    return ClusterOfServersView(cluster, promotion_view(plan.record), [server_view(each) for each in plan.servers])


def server_view(seen: ServerSeen) -> ClusterServerView:
    return ClusterServerView(
        seen.name, seen.is_leader, seen.is_given_up, seen.seconds_behind, seen.position or None, seen.error or None
    )


def status_document(plans: Mapping[str, PromotionPlan]) -> ShardsStatusDocument:
    views = [cluster_view(name, plan) for name, plan in plans.items()]
    is_fine = all(
        view.promotion.state in ("none", "done") and not any(server.error for server in view.servers) for view in views
    )
    return ShardsStatusDocument(is_fine, views)


def promoted_document(cluster: str, promoted: Promoted) -> PromotedDocument:
    return PromotedDocument(cluster, promotion_view(promoted.record), list(promoted.left))


def salvaged_document(cluster: str, server: str, salvaged: Salvaged, *, is_dry_run: bool) -> SalvagedDocument:
    return SalvagedDocument(cluster, server, is_dry_run, *salvaged)
