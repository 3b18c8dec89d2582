"""What `tripstore status` shows, as data: looked up at all servers at the same time, and nothing is changed.

A server that does not answer is part of the picture. What it would have added to a sum is named, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.control.audit import AuditEntry, AuditLog
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import ControlUnavailable, InvalidServer, SchemalessError, SchemaMissing, Unavailable
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.topologies import Topologies
from tripstore.cli.jobs.documents import ProgressDocument
from tripstore.cli.jobs.views import look_at_jobs
from tripstore.cli.status.migration import MigrationView, look_at_migration
from tripstore.cli.triggers.groups import GroupView, look_at_groups, unmaintained
from tripstore.facade.facade import Facade

LOOK_SECONDS = 2.0
#: How long the servers of a cluster have to say which one leads.
FIND_SECONDS = 1.0
AUDIT_ENTRIES = 5

T = TypeVar("T")
Heads = Mapping[int, ShardHead]


class ServerView(msgspec.Struct, frozen=True):
    """One server; `lag_cells` says how far a replica is behind, null when that is not known."""

    server: str
    role: str
    is_up: bool
    trouble: str | None
    lag_cells: int | None


class ClusterView(msgspec.Struct, frozen=True):
    """One cluster: its servers, and its shards by state as its primary says (null: it does not answer)."""

    cluster: str
    servers: list[ServerView]
    shards: dict[str, int] | None


class ControlView(msgspec.Struct, frozen=True):
    """The control database."""

    server: str
    is_up: bool
    trouble: str | None
    topology_version: int | None
    audit: list[AuditEntry]


class Overview(msgspec.Struct, frozen=True):
    """Everything on one screen. `cells` counts only what answered: all shards, when `cells_of_shards` is `shards`.

    `unmaintained` names the configured indexes that nothing keeps.
    """

    datastore: str
    shards: int
    cells: int
    cells_of_shards: int
    is_fine: bool
    clusters: list[ClusterView]
    control: ControlView
    groups: list[GroupView]
    unmaintained: list[str]
    #: Null where there is one store.
    migration: MigrationView | None
    #: Those that have not ended, and those that left something to see to.
    jobs: list[ProgressDocument]


class ServersView(msgspec.Struct, frozen=True):
    """All clusters, and the cells of the shards whose owners answered."""

    clusters: list[ClusterView]
    cells: int
    cells_of_shards: int


class _Look(msgspec.Struct):
    """What one server said: the heads of its shards, or why not."""

    heads: Heads | None
    trouble: str | None


def overview(facade: Facade) -> Overview:
    """Look at everything once."""
    datastore = facade.store
    with ThreadPoolExecutor(5) as executor:
        servers = executor.submit(look_at_servers, datastore)
        jobs = executor.submit(look_at_jobs, datastore)
        migration = executor.submit(look_at_migration, facade)
        control = executor.submit(look_at_control, datastore)
        groups = executor.submit(_groups, datastore)
    clusters, cells, cells_of_shards = msgspec.structs.astuple(servers.result())
    is_fine = (
        control.result().is_up
        and all(server.is_up for cluster in clusters for server in cluster.servers)
        and cells_of_shards == datastore.config.shards
        and all(view.is_fine for view in groups.result())
        and ((seen := migration.result()) is None or seen.is_fine)
        and all(job.is_fine for job in jobs.result())
    )
    config = datastore.config
    return Overview(
        config.datastore,
        config.shards,
        cells,
        cells_of_shards,
        is_fine,
        clusters,
        control.result(),
        groups.result(),
        unmaintained(datastore, groups.result()) if control.result().is_up else [],
        migration.result(),
        jobs.result(),
    )


def look_at_servers(datastore: Datastore) -> ServersView:
    """Look once at all servers of all clusters, at the same time, and who leads each."""
    clusters = datastore.clusters.values()
    nodes = [guarded for cluster in clusters for guarded in cluster.nodes]
    with ThreadPoolExecutor(len(nodes) + len(clusters)) as executor:
        heard = [executor.submit(each.find_primary, FIND_SECONDS) for each in clusters if not each.is_alone]
        looks = dict(zip(map(id, nodes), executor.map(_look, nodes), strict=True))
        for each in heard:
            each.result()
    led = [_cluster(cluster, [(guarded, looks[id(guarded)]) for guarded in cluster.nodes]) for cluster in clusters]
    heads = _owned([heads for _view, heads in led])
    return ServersView([view for view, _heads in led], sum(heads.values()), len(heads))


def _look(guarded: GuardedNode) -> _Look:
    try:
        return _Look(guarded.node.heads(None, Deadline(LOOK_SECONDS)), None)
    except SchemaMissing:
        return _Look({}, "no shards yet")
    except SchemalessError as error:
        return _Look(None, str(getattr(error, "reason", error.message)))


def _cluster(cluster: Cluster, looks: list[tuple[GuardedNode, _Look]]) -> tuple[ClusterView, Heads | None]:
    """The server that leads comes first. With it the heads that it said."""
    # Asked once: another one may lead in the next moment.
    leader = next((guarded for guarded, _look in looks if cluster.leads(guarded)), None)
    in_order = sorted(looks, key=lambda each: each[0] is not leader)
    primary = in_order[0][1].heads if leader is not None else None
    servers = [
        ServerView(
            guarded.node.name,
            "primary" if guarded is leader else "replica",
            look.heads is not None,
            look.trouble,
            None if guarded is leader else _lag(primary, look.heads),
        )
        for guarded, look in in_order
    ]
    return ClusterView(cluster.name, servers, None if primary is None else _states(primary)), primary


def _states(heads: Heads) -> dict[str, int]:
    """Count shards by state, every state named."""
    found = Counter(head.state.status for head in heads.values())
    return {status.value: found[status.value] for status in ShardStatus}


def _lag(primary: Heads | None, replica: Heads | None) -> int | None:
    """Cells that the replica lacks. It may have been asked after the primary and know more: that is no lag."""
    if primary is None or replica is None:
        return None
    return sum(max(head.head - (replica[shard].head if shard in replica else 0), 0) for shard, head in primary.items())


def _owned(primaries: list[Heads | None]) -> dict[int, int]:
    """The head of each shard, from the server that owns it: not MOVED, and the highest epoch."""
    owners: dict[int, ShardHead] = {}
    for heads in primaries:
        for shard, head in (heads or {}).items():
            known = owners.get(shard)
            if head.state.status != ShardStatus.MOVED.value and (known is None or head.state.epoch > known.state.epoch):
                owners[shard] = head
    return {shard: head.head for shard, head in owners.items()}


def look_at_control(datastore: Datastore) -> ControlView:
    """Look once at the control database."""
    control = datastore.control
    try:
        topology = _unless_missing(Topologies(control).find_newest, None)
        audit = _unless_missing(lambda: AuditLog(control).newest(AUDIT_ENTRIES), list[AuditEntry]())
    except (ControlUnavailable, InvalidServer) as error:
        return ControlView(control.name, False, error.message, None, [])
    trouble = "no topology yet" if topology is None else "another datastore leads" if topology.is_elsewhere else None
    return ControlView(control.name, True, trouble, topology.version if topology else None, audit)


def _groups(datastore: Datastore) -> list[GroupView]:
    """Groups of triggers and indexes. Without the control database they are not known; its own line says that."""
    try:
        return look_at_groups(datastore)[0]
    except (Unavailable, InvalidServer, SchemaMissing):
        return []


def _unless_missing(look: Callable[[], T], otherwise: T) -> T:
    try:
        return look()
    except SchemaMissing:
        return otherwise
