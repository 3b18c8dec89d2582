"""`GuardedNode`: a server behind two breakers, one for reads and one for writes.

A server that refuses writes, or cannot finish them, may answer every read: one breaker for both would refuse reads that
are answered in a millisecond. What says that no server is there (no connection, no answer to a ping) opens both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

from schemaless_core import metrics
from schemaless_core.breaker import Breaker
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.open import open_node
from schemaless_core.errors import NodeUnavailable, SchemalessError
from schemaless_core.servers.looks import SharedLook
from schemaless_core.urls import NodeUrl

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: How long a server has to say that it is there.
PING_SECONDS = 0.25


class GuardedNode:
    """A server and its breakers."""

    def __init__(self, node: Node, reads: Breaker, writes: Breaker) -> None:
        self.node = node
        self.reads = reads
        self.writes = writes
        self._new_pings()

    def ask(self, verb: Callable[[Node, *Ts], T], *arguments: *Ts, is_write: bool = False) -> T:
        """Run a verb unless its breaker is open, and tell the breakers how it went."""
        breaker, other = (self.writes, self.reads) if is_write else (self.reads, self.writes)
        if not breaker.admits():
            raise self._refused(is_write)
        try:
            answer = verb(self.node, *arguments)
        except NodeUnavailable as error:
            if error.trips_breaker:
                self._failed(error, is_write=is_write)
            raise
        except SchemalessError:
            breaker.succeeded(beside=other)  # a refusal is an answer: the server is there
            raise
        breaker.succeeded(beside=other)
        return answer

    def _refused(self, is_write: bool) -> NodeUnavailable:
        which, other = ("writes", "Reads") if is_write else ("reads", "Writes")
        reason = f"its breaker for {which} is open after repeated failures"
        hint = f"It closes when a probe is answered. {other} have one of their own. Look at the server meanwhile."
        return NodeUnavailable(self.node.name, reason, hint=hint)

    def _failed(self, error: NodeUnavailable, *, is_write: bool) -> None:
        """A call that was not answered in time may have waited for one lock, or have been given too little time."""
        metrics.node_failed(self.node.name)
        if error.is_timeout:
            (self._write_ping if is_write else self._read_ping).request_alone()
            return
        self.writes.failed(is_absent=not error.is_of_writes)
        if not error.is_of_writes:
            self.reads.failed(is_absent=True)

    def _look(self, breaker: Breaker) -> None:
        """Ask the server something that waits for no lock, on behalf of calls that were not answered."""
        try:
            self.node.heads([0], Deadline(PING_SECONDS))
        except NodeUnavailable as error:
            if error.trips_breaker:  # not our own pool, which says nothing of the server
                self.reads.trip()
                self.writes.trip()
        except SchemalessError:
            breaker.succeeded()
        else:
            breaker.succeeded()

    def after_fork(self) -> None:
        self.reads.after_fork()
        self.writes.after_fork()
        self._new_pings()

    def _new_pings(self) -> None:
        name = self.node.name
        self._read_ping = SharedLook(name, partial(self._look, self.reads), threading.Condition())
        self._write_ping = SharedLook(name, partial(self._look, self.writes), threading.Condition())


def guarded(url: NodeUrl, datastore: DatastoreConfig) -> GuardedNode:
    """A server of a configuration, with breakers that tell the metrics."""
    node = open_node(url, datastore)

    def breaker(calls: str) -> Breaker:
        return Breaker(datastore.breaker, moved=partial(metrics.breaker_moved, node.name, calls))

    return GuardedNode(node, breaker("reads"), breaker("writes"))
