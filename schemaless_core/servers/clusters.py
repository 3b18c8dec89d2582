"""The clusters of a datastore: which of its servers a call may ask, and which of them leads.

The configuration names the primary that was the first. Promotions make others the primary: each server says which one
it knows of, the highest number counts, and a process follows without another configuration.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar, TypeVarTuple

from schemaless_core import metrics
from schemaless_core.config import ClusterConfig, DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.leases import ANSWER_SECONDS
from schemaless_core.engine.primacy import FIRST, Lead
from schemaless_core.errors import NodeUnavailable, SchemalessError, SchemaMissing
from schemaless_core.habits import ReadFrom
from schemaless_core.servers.guarded import GuardedNode, guarded
from schemaless_core.servers.looks import SharedLook

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)

#: How long a server has to say who leads; and between two times that all are asked while the primary fails.
HEAR_SECONDS = 1.0
PAUSE_SECONDS = 0.25
#: Between two times that refused calls have a lease extended.
RENEWAL_PAUSE_SECONDS = 0.1


class Cluster:
    """A primary and its replicas."""

    def __init__(self, config: ClusterConfig, datastore: DatastoreConfig) -> None:
        self.name = config.name
        self._first = guarded(config.primary, datastore)
        self.nodes: list[GuardedNode] = [self._first, *(guarded(url, datastore) for url in config.replicas)]
        self._leader = FIRST
        self._is_leased = False
        #: Which server of the cluster each node goes to, as it said.
        self._identities: dict[GuardedNode, int] = {}
        #: None: none of the nodes is known to be the one that leads.
        self._primary: GuardedNode | None = self._first
        self._is_heard = not config.replicas
        self._asked_at = self._renewed_at = -PAUSE_SECONDS
        self._renew: Callable[[], object] | None = None
        self._new_looks()

    @property
    def primary(self) -> GuardedNode:
        """The server that leads. Its replicas are asked once, if no look at the servers has told."""
        self._hear_once()
        if self._primary is None:
            self._look_around()
            reason = f"promotion {self._leader.number} made a server its primary that does not answer, or is not named"
            hint = f"Name it under clusters.{self.name}.replicas, or start it: `tripstore shards status`."
            raise NodeUnavailable(f"Cluster {self.name}", reason, hint=hint)
        return self._primary

    @property
    def replicas(self) -> list[GuardedNode]:
        """The others. Which these are is asked once, too: a process may have begun after a promotion."""
        self._hear_once()
        return [node for node in self.nodes if node is not self._primary]

    @property
    def is_alone(self) -> bool:
        """Whether it has no replica: no promotion is possible."""
        return len(self.nodes) == 1

    @property
    def leader(self) -> Lead:
        """The newest promotion that this process has heard of."""
        return self._leader

    @property
    def is_leased(self) -> bool:
        """Whether its primary takes writes only under a lease, as far as this process has heard."""
        return self._is_leased

    def leads(self, node: GuardedNode) -> bool:
        """Whether this is the primary, as far as this process knows now."""
        return node is self._primary

    def hear(self, leader: Lead, *, is_leased: bool) -> None:
        """Learn of a promotion. Who knows one server alone goes to that one, by leases if they are needed."""
        with self._changed:
            if leader.number > self._leader.number:
                extra = {"event": "cluster.led", "cluster": self.name, "promotion": leader.number}
                logger.info("another server is the primary", extra=extra)
                for node in self.nodes:
                    node.node.go_by_leases(is_leased)
                self._leader, self._is_leased = leader, is_leased
                metrics.cluster_led(self.name, leader.number)
            if self._leader.number and not self.is_alone:
                self._primary = next(
                    (node for node in self.nodes if self._identities.get(node) == self._leader.server), None
                )

    def hear_from(self, node: GuardedNode, deadline: Deadline) -> None:
        """Ask a server which one leads, and whether by a lease: who knows one server alone wants to know that, too."""
        leader, me, is_leased = node.ask(lambda its: its.leadership(deadline))
        self._identities[node] = me
        self._is_heard = True
        self.hear(leader, is_leased=is_leased)

    def _hear_once(self) -> None:
        if not self._is_heard:
            self.find_primary(HEAR_SECONDS)

    def find_primary(self, seconds: float) -> None:
        """Ask all servers who leads, and wait for them so long."""
        self._is_heard = True
        deadline = Deadline(seconds)
        with self._changed:
            requests = [(look, look.request()) for look in self._looks]
            while not all(look.is_answered(request) for look, request in requests) and not deadline.is_over:
                self._changed.wait(max(deadline.remaining_seconds(), 0.001))

    def _look_around(self) -> None:
        """Ask all servers who leads, without waiting: the primary fails."""
        now = time.monotonic()
        if not self.is_alone and now - self._asked_at >= PAUSE_SECONDS:
            self._asked_at = now
            for look in self._looks:
                look.request_alone()

    def _new_looks(self) -> None:
        self._changed = threading.Condition()
        self._looks = [
            SharedLook(f"{node.node.name}-leader", partial(self._hear_at_leisure, node), self._changed)
            for node in self.nodes
        ]
        renew = self._renew
        self._renewal = None if renew is None else SharedLook(f"{self.name}-lease", renew, threading.Condition())

    def _hear_at_leisure(self, node: GuardedNode) -> None:
        self.hear_from(node, Deadline(HEAR_SECONDS))

    def write(self, verb: Callable[[Node, *Ts], T], *arguments: *Ts) -> T:
        """Writes go to the primary and nowhere else."""
        return self.ask(verb, *arguments, is_write=True)

    def ask(self, verb: Callable[[Node, *Ts], T], *arguments: *Ts, is_write: bool = False) -> T:
        """Ask the primary. Where it fails, all servers are asked who leads: the next call goes to that one."""
        is_bounded = is_write and self._is_leased
        sent_at = time.monotonic() if is_bounded else 0.0
        try:
            answer = self.primary.ask(verb, *arguments, is_write=is_write)
        except NodeUnavailable as error:
            if error.trips_breaker:
                self._look_around()
            raise
        if is_bounded and time.monotonic() - sent_at > ANSWER_SECONDS:
            raise self._late()
        return answer

    def _late(self) -> NodeUnavailable:
        """A server that was stopped between its look at its lease and its commit may be no primary any more."""
        reason = f"it answered after more than {ANSWER_SECONDS:g} s, and its lease may have ended before it wrote"
        hint = "It may be there: repeat the call. Of batches that take so long make smaller ones."
        return NodeUnavailable(f"Cluster {self.name}", reason, hint=hint, trips_breaker=False, is_timeout=True)

    def renews_by(self, renew: Callable[[], object]) -> None:
        """`renew`: extends the lease of its primary, if a voter allows it."""
        self._renew = renew
        self._new_looks()

    def renew_soon(self) -> None:
        """Have its lease extended, without waiting: a call was refused, maybe for lack of one."""
        now = time.monotonic()
        if self._is_leased and self._renewal is not None and now - self._renewed_at >= RENEWAL_PAUSE_SECONDS:
            self._renewed_at = now
            self._renewal.request_alone()

    def read(self, verb: Callable[[Node], T], read_from: ReadFrom, deadline: Deadline, *, is_fenced: bool) -> T:
        """Ask the preferred server first; another when it is down. A fenced read counts only from the primary."""
        if is_fenced or read_from == "primary_only":
            return self.ask(verb)
        failure: SchemalessError | None = None
        primary = self._primary_or_none()
        for cause, node in self._by_preference(primary, read_from):
            try:
                answer = node.ask(verb)
            except NodeUnavailable as error:
                failure = failure or error
                if node is primary and error.trips_breaker:
                    self._look_around()
                if deadline.is_over or not error.trips_breaker:
                    break  # our own pool or one lock: no reason to answer with what may be old
                continue
            except SchemaMissing as error:
                if node is primary:
                    raise
                failure = failure or error  # a replica that is behind
                continue
            if node is not primary:
                metrics.replica_read(cause)
            return answer
        assert failure is not None  # there is always a server to ask
        raise failure

    def _primary_or_none(self) -> GuardedNode | None:
        try:
            return self.primary
        except NodeUnavailable:
            return None

    def _by_preference(self, primary: GuardedNode | None, read_from: ReadFrom) -> Iterator[tuple[str, GuardedNode]]:
        replicas = [node for node in self.nodes if node is not primary]
        if read_from == "replica":
            yield from (("asked", replica) for replica in replicas)
            if primary is not None:
                yield "fallback", primary
        else:
            if primary is not None:
                yield "asked", primary
            yield from (("primary_unavailable", replica) for replica in replicas)

    def after_fork(self) -> None:
        for node in self.nodes:
            node.after_fork()
        self._new_looks()

    def close(self) -> None:
        for node in self.nodes:
            node.node.close()
