"""Creation of a datastore: which servers it needs, which shards go where, what is missing. Plans, then acts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Fact
from schemaless_core.errors import InvalidServer, SchemaMissing, TopologyConflict
from schemaless_core.failpoints import reach
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.places import LOOK_SECONDS, check_topology, wrong_shard_count
from schemaless_core.servers.restores import refuse_restoring
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology, spread

logger = logging.getLogger(__name__)

#: Shards created between two looks at the progress.
SHARDS_PER_STEP = 128
#: Threads per server: DDL waits for the disk, so a few at a time are faster than one.
THREADS_PER_SERVER = 2

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What `create_schema` would do."""

    topology: Topology
    is_new_topology: bool
    control_version: str | None
    missing: Mapping[str, list[int]]
    #: Tables that servers of an earlier version lack beside their shards.
    missing_tables: Mapping[str, list[str]]

    @property
    def is_done(self) -> bool:
        return not self.is_new_topology and not any(self.missing.values()) and not any(self.missing_tables.values())


class Schema:
    """The shards of a datastore, as they should be and as they are."""

    def __init__(self, config: DatastoreConfig, clusters: Mapping[str, Cluster], control: ControlDatabase) -> None:
        self._config = config
        self._clusters = clusters
        self._control = control
        self._topologies = Topologies(control)

    def plan(self) -> SchemaPlan:
        """Look at the control database and at every server; change nothing."""
        try:
            known = self._topologies.find_newest()
        except SchemaMissing:
            known = None
        topology = known or spread(self._config.shards, list(self._clusters))
        check_topology(topology, self._config.shards, self._clusters)
        missing = {name: self._missing(name, topology) for name in topology.clusters}
        if known is None:
            self._refuse_another_placement(topology)
        tables = {name: self._clusters[name].primary.node.tables_missing() for name in topology.clusters}
        return SchemaPlan(topology, known is None, self._control.version(), missing, tables)

    def _refuse_another_placement(self, topology: Topology) -> None:
        """A control database that lost its topology must not place shards anew that servers hold already."""
        for name, cluster in self._clusters.items():
            elsewhere = cluster.primary.node.shards_present() - set(topology.shards_of(name))
            if elsewhere:
                raise TopologyConflict(
                    f"The control database knows no topology, but {name} holds shard {min(elsewhere)}, "
                    "which a new topology would place elsewhere.",
                    hint="Restore the control database, or list the clusters as they were at creation.",
                )

    def apply(self, status: ShardStatus, progress: Progress) -> SchemaPlan:
        """Create whatever is missing; safe to repeat, to race, and to kill at any line.

        `TopologyConflict`: a restore makes the shards, and has not ended.
        """
        self._refuse_unfit_servers()
        plan = self.plan()
        self._control.migrate()
        with self._control.begin() as connection:
            refuse_restoring(connection)
        if plan.is_new_topology:
            self._record_topology(plan.topology)
        elif not plan.is_done:
            lacking = {name: len(shards) for name, shards in plan.missing.items()}
            AuditLog(self._control).add("schema.complete", {**lacking, "tables": dict(plan.missing_tables)})
        self._create_all(plan, status, progress)
        return plan

    def prepare(self) -> None:
        """Make what all shards of a server share, and no shard. Safe to repeat, to race and to kill."""
        self._refuse_unfit_servers()
        self._control.migrate()
        self._prepare_all()

    def _prepare_all(self) -> None:
        """Servers that are complete, too, for all must agree on the number of shards; and those without shards yet,
        which may be given some, and hold what every server has a copy of.
        """
        for cluster in self._clusters.values():
            recorded = cluster.primary.node.record_shard_count(self._config.shards)
            if recorded != self._config.shards:
                raise wrong_shard_count(self._config.shards, recorded)

    def facts(self) -> list[tuple[str, GuardedNode, list[Fact]]]:
        """Return what the doctor wants to know of each primary: cluster, server, facts."""
        return [(name, cluster.primary, self._facts_of(cluster)) for name, cluster in self._clusters.items()]

    def _facts_of(self, cluster: Cluster) -> list[Fact]:
        return cluster.primary.node.facts(is_replica=False, shards=self._shards_per_server())

    def _shards_per_server(self) -> int:
        return -(-self._config.shards // len(self._clusters))

    def _refuse_unfit_servers(self) -> None:
        """A server that may lose acknowledged cells must not get any."""
        for _name, guarded, facts in self.facts():
            for fact in facts:
                if fact.is_refusal and not fact.is_fine:
                    raise InvalidServer(guarded.node.name, f"{fact.name} is {fact.value}", hint=fact.advice)

    def _record_topology(self, topology: Topology) -> None:
        reach("schema.before_topology")
        try:
            self._topologies.put_next(topology, why="created", action="schema.create", may=refuse_restoring)
        except TopologyConflict:
            # Another process creates the same datastore at the same time: its topology holds, if it is the same.
            winner = self._topologies.find_newest()
            if winner is None or winner.placements != topology.placements:
                raise

    def _missing(self, name: str, topology: Topology) -> list[int]:
        node = self._clusters[name].primary.node
        recorded = node.shard_count(Deadline(LOOK_SECONDS))
        if recorded is not None and recorded != self._config.shards:
            raise wrong_shard_count(self._config.shards, recorded)
        present = node.shards_present()
        return [shard for shard in topology.shards_of(name) if shard not in present]

    def _create_all(self, plan: SchemaPlan, status: ShardStatus, progress: Progress) -> None:
        total = sum(len(shards) for shards in plan.missing.values())
        steps = [
            (name, shards[first : first + SHARDS_PER_STEP])
            for name, shards in plan.missing.items()
            for first in range(0, len(shards), SHARDS_PER_STEP)
        ]
        self._prepare_all()
        done = 0
        with ThreadPoolExecutor(THREADS_PER_SERVER * len(self._clusters)) as executor:
            for created in executor.map(lambda step: self._create(step[0], step[1], status), _interleaved(steps)):
                done += created
                progress(done, total)

    def _create(self, name: str, shards: list[int], status: ShardStatus) -> int:
        self._clusters[name].primary.node.create_shards(shards, status)
        logger.info(
            "shards created",
            extra={"event": "schema.shards_created", "cluster": name, "first": shards[0], "count": len(shards)},
        )
        return len(shards)


def _interleaved(steps: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Take the clusters in turn, so that all servers work at the same time."""
    order: dict[str, int] = {}
    keyed = []
    for name, shards in steps:
        order[name] = order.get(name, 0) + 1
        keyed.append((order[name], name, shards))
    return [(name, shards) for _turn, name, shards in sorted(keyed, key=lambda step: step[:2])]
