"""The doctor: looks at every server of a datastore and at its control database, and says what it found.

The checks are data; the caller decides and prints. A server that does not answer is a finding, never an
exception, and what could not be compared is never called fine. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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

_MOVE = "Give it a server of its own: docs/howto/promotion.md says how to move it."
_APPLY = "Run `tripstore schema apply`."
#: What may be refused at a primary, and ends without a change of the deployment: a worker is what fails it over.
_PASSING = frozenset({"reachable", "read_only"})
#: What `schema apply` has to make first.
_MADE = frozenset({"shards", "topology"})


class ServerRole(StrEnum):
    """What a server is to the datastore."""

    CONTROL = "control"  #: Holds topology and audit log.
    COORDINATOR = "coordinator"  #: Says which worker serves which shard, where the control database does not.
    PRIMARY = "primary"  #: Takes a cluster's writes.
    REPLICA = "replica"  #: Follows a primary.


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """One fact about one server; the control database and the coordinator belong to no cluster."""

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


def is_ready(findings: Sequence[ServerFinding]) -> bool:
    """Whether a process that starts now has what it works with: one primary answers, and nothing is wrong for good.

    A server that is down, a replica that is late and a job that stands still keep no process from starting: it may be
    the worker that mends them.
    """
    troubles = [each for each in findings if not each.fact.is_fine]
    silent = {each.server for each in troubles if each.fact.name == "reachable"}
    if all(each.server in silent for each in findings if each.role is ServerRole.PRIMARY):
        return False
    # Without the control database no server says which shards it should have.
    is_compared = not any(each.role is ServerRole.CONTROL and each.server in silent for each in troubles)
    return not any(_is_lasting(each, is_compared=is_compared) for each in troubles)


def _is_lasting(finding: ServerFinding, *, is_compared: bool) -> bool:
    fact = finding.fact
    if finding.role is ServerRole.REPLICA or fact.name in _PASSING:
        return False
    return fact.is_refusal or (is_compared and fact.name in _MADE)


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
        facts += self._place_facts()
        facts += (
            [] if version is None else [size_fact(self._control, self._config.prune.counts_days, datetime.now(UTC))]
        )
        documents = None if version is None else {each.name: each.version for each in Documents(self._control).all("")}
        return facts, _Expectation(topology or spread(self._config.shards, list(self._clusters)), documents)

    def _place_facts(self) -> Iterator[Fact]:
        """Where the control database is on a server of a cluster with replicas: none of these can be promoted."""
        with self._control.marked() as mark:
            for name, cluster in self._clusters.items():
                if mark and cluster.replicas and any(_has_lock(each.node, mark) for each in cluster.nodes):
                    is_wanted = self._config.replication.user is not None
                    value = f"on a server of cluster {name}, no replica of which can be made the primary"
                    yield Fact("place", value, not is_wanted, advice=_MOVE)

    def _topology_facts(self, topology: Topology | None) -> Iterator[Fact]:
        if topology is None:
            yield Fact("topology", "none yet", False, advice=_APPLY)
            return
        if topology.is_elsewhere:
            yield Fact("topology", "another datastore leads", True)
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


def _has_lock(node: Node, name: str) -> bool:
    """Whether a session of a server holds a lock; its own facts say why a server does not answer."""
    try:
        with closing(node.candidate()) as candidate:
            return candidate.has_lock(name, Deadline(LOOK_SECONDS))
    except SchemalessError:
        return False


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
