"""The doctor: looks at every server of a datastore and at its control database, and says what it found.

The checks are data; the caller decides and prints. A server that does not answer is a finding, never an
exception, and what could not be compared is never called fine. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase, newest_version
from schemaless_core.control.documents import Documents
from schemaless_core.control.sizes import size_fact
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Fact, Node, files_fact
from schemaless_core.errors import (
    ControlUnavailable,
    InvalidServer,
    SchemalessError,
    SchemaMissing,
    UnknownFormat,
)
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.places import LOOK_SECONDS, wrong_shard_count
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology, spread

_APPLY = "Run `tripstore schema apply`."


class ServerRole(StrEnum):
    """What a server is to the datastore."""

    CONTROL = "control"  #: Holds topology and audit log.
    PRIMARY = "primary"  #: Takes a cluster's writes.
    REPLICA = "replica"  #: Follows a primary.


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """One fact about one server; the control database belongs to no cluster."""

    cluster: str | None
    server: str
    role: ServerRole
    fact: Fact


class _Server(NamedTuple):
    """One server to look at."""

    cluster: str
    role: ServerRole
    node: Node


@dataclass(frozen=True, slots=True)
class _Expectation:
    """The topology that servers are held against; None when the control database did not answer."""

    topology: Topology | None
    #: Versions of the documents of the control database, by their names.
    documents: Mapping[str, int] | None = None

    def shards_of(self, cluster: str) -> set[int] | None:
        return None if self.topology is None else set(self.topology.shards_of(cluster))


class Doctor:
    """Examines a datastore as it is configured."""

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        control: ControlDatabase,
        of_tables: Callable[[str], list[Fact]] = lambda cluster: [],
    ) -> None:
        """`of_tables`: what is to be said of the tables of indexes and of buffers on a cluster's primary."""
        self._config = config
        self._clusters = clusters
        self._control = control
        self._of_tables = of_tables

    def findings(self) -> list[ServerFinding]:
        """Look at everything, at all servers at the same time; the control database first."""
        facts, expected = self._control_facts()
        control = [ServerFinding(None, self._control.name, ServerRole.CONTROL, fact) for fact in facts]
        servers = list(self._servers())
        with ThreadPoolExecutor(len(servers)) as executor:
            found = executor.map(lambda server: self._examine(server, expected), servers)
            return control + [finding for of_server in found for finding in of_server]

    def _servers(self) -> Iterator[_Server]:
        for cluster in self._clusters.values():
            yield _Server(cluster.name, ServerRole.PRIMARY, cluster.primary.node)
            for replica in cluster.replicas:
                yield _Server(cluster.name, ServerRole.REPLICA, replica.node)

    def _control_facts(self) -> tuple[list[Fact], _Expectation]:
        """Facts about the control database, and the topology that the servers should show."""
        try:
            version = self._control.version()
            topology = None if version is None else Topologies(self._control).find_newest()
        except SchemaMissing:
            version, topology = None, None
        except (ControlUnavailable, InvalidServer) as error:
            advice = "Start it: cells keep flowing, but every change waits for it."
            return [Fact("reachable", _reason(error), False, True, error.hint or advice)], _Expectation(None)
        facts = [Fact("reachable", "yes", True), _revision(version), *self._topology_facts(topology)]
        facts += [] if (file := self._control.file) is None else [files_fact(file)]
        facts += (
            [] if version is None else [size_fact(self._control, self._config.prune.counts_days, datetime.now(UTC))]
        )
        documents = None if version is None else {each.name: each.version for each in Documents(self._control).all("")}
        return facts, _Expectation(topology or spread(self._config.shards, list(self._clusters)), documents)

    def _topology_facts(self, topology: Topology | None) -> Iterator[Fact]:
        if topology is None:
            yield Fact("topology", "none yet", False, advice=_APPLY)
            return
        is_same = topology.shards == self._config.shards
        hint = "" if is_same else wrong_shard_count(self._config.shards, topology.shards).hint or ""
        yield Fact("topology", f"version {topology.version}, {topology.shards} shards", is_same, True, hint)
        for name in topology.clusters:
            if name not in self._clusters:
                advice = f"Add clusters.{name} to the configuration: it holds shards."
                yield Fact("topology", f"names cluster {name!r}, the configuration does not", False, True, advice)

    def _examine(self, server: _Server, expected: _Expectation) -> list[ServerFinding]:
        facts = [
            # Whatever is wrong with a replica, it keeps no cell from being acknowledged by its primary.
            fact if server.role is ServerRole.PRIMARY else replace(fact, is_refusal=False)
            for fact in self._facts(server, expected)
        ]
        return [ServerFinding(server.cluster, server.node.name, server.role, fact) for fact in facts]

    def _facts(self, server: _Server, expected: _Expectation) -> list[Fact]:
        node, is_replica = server.node, server.role is ServerRole.REPLICA
        try:
            shards = self._shards_fact(node, expected.shards_of(server.cluster), is_replica)
            ahead = _copies_ahead(node, expected.documents)
            shards_each = -(-self._config.shards // len(self._clusters))
            has_replicas = bool(self._clusters[server.cluster].replicas)
            facts = node.facts(is_replica=is_replica, shards=shards_each, has_replicas=has_replicas)
            facts += [] if is_replica else self._of_tables(server.cluster)
        except UnknownFormat as error:
            return [Fact("format", error.reason, False, True, error.hint or "")]
        except InvalidServer as error:
            return [Fact("login", error.reason, False, True, error.hint or "Mend user and password in its URL.")]
        except SchemalessError as error:
            advice = error.hint or "Start the server, or mend its address in the configuration."
            return [Fact("reachable", _reason(error), False, True, advice)]
        return [Fact("reachable", "yes, and the login is accepted", True), *facts, *ahead, shards]

    def _shards_fact(self, node: Node, expected: set[int] | None, is_replica: bool) -> Fact:
        recorded = node.shard_count(Deadline(LOOK_SECONDS))
        if recorded is not None and recorded != self._config.shards:
            problem = wrong_shard_count(self._config.shards, recorded)
            return Fact("shards", f"created for {recorded} shards in all", False, True, problem.hint or "")
        present = node.shards_present()
        if expected is None:
            advice = "Start the control database: only it can say which shards belong here."
            return Fact("shards", f"{len(present)} present, not compared", False, advice=advice)
        missing = expected - present
        advice = "Wait until the replica has caught up, or mend its replication." if is_replica else _APPLY
        return Fact("shards", f"{len(expected) - len(missing)} of {len(expected)}", not missing, advice=advice)


def _copies_ahead(node: Node, documents: Mapping[str, int] | None) -> list[Fact]:
    """Copies of documents that are later than the control database's; nothing where there are none."""
    if documents is None:
        return []
    advice = (
        "The control database was restored from an older backup: `tripstore schema apply` takes the later one over."
    )
    try:
        copies = node.find_documents("index:", Deadline(LOOK_SECONDS))
    except SchemaMissing:
        return []
    return [
        Fact(
            "catalogue",
            f"{copy.name} is at version {copy.version} here, the control database at {known}",
            False,
            advice=advice,
        )
        for copy in copies
        if copy.version > (known := documents.get(copy.name, 0))
    ]


def _revision(version: str | None) -> Fact:
    newest = newest_version()
    if version is None:
        return Fact("revision", f"none, {newest} is wanted", False, advice=_APPLY)
    advice = f"{_APPLY} If the database is newer than this tripstore, upgrade tripstore."
    return Fact("revision", version, version == newest, advice=advice)


def _reason(error: SchemalessError) -> str:
    """What happened, without the server's name, which stands beside it."""
    reason = getattr(error, "reason", None)
    return str(reason) if reason is not None else error.message
