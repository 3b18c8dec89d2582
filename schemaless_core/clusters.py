"""The clusters of a datastore: each server behind its breaker, and which of them a call may ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from schemaless_core import metrics
from schemaless_core.breaker import Breaker
from schemaless_core.config import ClusterConfig, DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.open import open_node
from schemaless_core.errors import NodeUnavailable, SchemalessError, SchemaMissing
from schemaless_core.habits import ReadFrom
from schemaless_core.looks import Look
from schemaless_core.urls import NodeUrl

T = TypeVar("T")

#: How long a server has to say that it is there.
PING_SECONDS = 0.25


class GuardedNode:
    """A server and its breaker."""

    def __init__(self, node: Node, breaker: Breaker) -> None:
        self.node = node
        self.breaker = breaker
        self._ping = Look(node.name, self._look, threading.Condition())

    def ask(self, verb: Callable[[Node], T], *, is_write: bool = False) -> T:
        """Run a verb unless the breaker is open, and tell the breaker how it went."""
        if not self.breaker.admits():
            hint = "Calls go through again when a probe is answered; look at the server meanwhile."
            raise NodeUnavailable(self.node.name, "its breaker is open after repeated failures", hint=hint)
        try:
            answer = verb(self.node)
        except NodeUnavailable as error:
            if error.trips_breaker:
                self._failed(error, is_write=is_write)
            raise
        except SchemalessError:
            self.breaker.succeeded()  # a refusal is an answer: the server is there
            raise
        self.breaker.succeeded()
        return answer

    def _failed(self, error: NodeUnavailable, *, is_write: bool) -> None:
        """A write that was not answered may have waited for one locked shard: that says nothing of the server."""
        metrics.node_failed(self.node.name)
        if is_write and error.is_timeout:
            self._ping.request_alone()
        else:
            self.breaker.failed()

    def _look(self) -> None:
        """Ask the server something that waits for no lock, on behalf of writes that were not answered."""
        try:
            self.node.heads([0], Deadline(PING_SECONDS))
        except NodeUnavailable:
            self.breaker.trip()
        except SchemalessError:
            self.breaker.succeeded()
        else:
            self.breaker.succeeded()

    def after_fork(self) -> None:
        self.breaker.after_fork()
        self._ping = Look(self.node.name, self._look, threading.Condition())


class Cluster:
    """A primary and its replicas."""

    def __init__(self, config: ClusterConfig, datastore: DatastoreConfig) -> None:
        self.name = config.name
        self.primary = _guarded(config.primary, datastore)
        self.replicas = [_guarded(url, datastore) for url in config.replicas]

    @property
    def nodes(self) -> list[GuardedNode]:
        return [self.primary, *self.replicas]

    def write(self, verb: Callable[[Node], T]) -> T:
        """Writes go to the primary and nowhere else."""
        return self.primary.ask(verb, is_write=True)

    def read(self, verb: Callable[[Node], T], read_from: ReadFrom, deadline: Deadline, *, is_fenced: bool) -> T:
        """Ask the preferred server first; another when it is down. A fenced read counts only from the primary."""
        if is_fenced or read_from == "primary_only":
            return self.primary.ask(verb)
        failure: SchemalessError | None = None
        for cause, guarded in self._by_preference(read_from):
            try:
                answer = guarded.ask(verb)
            except NodeUnavailable as error:
                failure = failure or error
                if deadline.is_over or not error.trips_breaker:
                    break  # our own pool or one lock: no reason to answer with what may be old
                continue
            except SchemaMissing as error:
                if guarded is self.primary:
                    raise
                failure = failure or error  # a replica that is behind
                continue
            if guarded is not self.primary:
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
        for guarded in self.nodes:
            guarded.after_fork()

    def close(self) -> None:
        for guarded in self.nodes:
            guarded.node.close()


def _guarded(url: NodeUrl, datastore: DatastoreConfig) -> GuardedNode:
    node = open_node(url, datastore)
    return GuardedNode(node, Breaker(datastore.breaker, moved=partial(metrics.breaker_moved, node.name)))
