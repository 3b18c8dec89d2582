"""The clusters of a datastore: which of its servers a call may ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar, TypeVarTuple

from schemaless_core import metrics
from schemaless_core.config import ClusterConfig, DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.errors import NodeUnavailable, SchemalessError, SchemaMissing
from schemaless_core.habits import ReadFrom
from schemaless_core.servers.guarded import GuardedNode, guarded

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Cluster:
    """A primary and its replicas."""

    def __init__(self, config: ClusterConfig, datastore: DatastoreConfig) -> None:
        self.name = config.name
        self.primary = guarded(config.primary, datastore)
        self.replicas = [guarded(url, datastore) for url in config.replicas]

    @property
    def nodes(self) -> list[GuardedNode]:
        return [self.primary, *self.replicas]

    def write(self, verb: Callable[[Node, *Ts], T], *arguments: *Ts) -> T:
        """Writes go to the primary and nowhere else."""
        return self.primary.ask(verb, *arguments, is_write=True)

    def read(self, verb: Callable[[Node], T], read_from: ReadFrom, deadline: Deadline, *, is_fenced: bool) -> T:
        """Ask the preferred server first; another when it is down. A fenced read counts only from the primary."""
        if is_fenced or read_from == "primary_only":
            return self.primary.ask(verb)
        failure: SchemalessError | None = None
        for cause, node in self._by_preference(read_from):
            try:
                answer = node.ask(verb)
            except NodeUnavailable as error:
                failure = failure or error
                if deadline.is_over or not error.trips_breaker:
                    break  # our own pool or one lock: no reason to answer with what may be old
                continue
            except SchemaMissing as error:
                if node is self.primary:
                    raise
                failure = failure or error  # a replica that is behind
                continue
            if node is not self.primary:
                metrics.replica_read(cause)
            return answer
        assert failure is not None  # there is always a primary to ask
        raise failure

    def _by_preference(self, read_from: ReadFrom) -> Iterator[tuple[str, GuardedNode]]:
        if read_from == "replica":
            yield from (("asked", replica) for replica in self.replicas)
            yield "fallback", self.primary
        else:
            yield "asked", self.primary
            yield from (("primary_unavailable", replica) for replica in self.replicas)

    def after_fork(self) -> None:
        for node in self.nodes:
            node.after_fork()

    def close(self) -> None:
        for node in self.nodes:
            node.node.close()
