"""Who decides whether a primary may go on: the control database, and the primaries of all other clusters with leases.

Each is asked by itself. A promise is kept where it was made, in the control database for good.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.leases import ANSWER_SECONDS, LEASE_SECONDS, LeaseTables, ServerClock
from schemaless_core.errors import DocumentConflict, NodeUnavailable, SchemalessError
from schemaless_core.promotion import lease
from schemaless_core.promotion.ports import SILENT, Clock, LeasePorts, Silent, Unheard
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.leaders import PREFIX
from schemaless_core.steps import run

T = TypeVar("T")

logger = logging.getLogger(__name__)

CONTROL = "the control database"
#: The documents of promises, one for each cluster.
PROMISES = "lease/"
ASK_SECONDS = 1.0
#: So long a voter that is a primary has: two that are silent leave time to ask the third before a lease ends.
VOTE_SECONDS = 0.5
#: And so long, when it writes a promise down.
PROMISE_SECONDS = 3.0
#: Clocks that do not run equally fast.
DRIFT = 1.1


class Promises:
    """What the control database has promised: below which promotion no server of a cluster gets a lease any more."""

    def __init__(self, control: ControlDatabase) -> None:
        self._documents = Documents(control)

    def find_all(self) -> dict[str, int]:
        return {each.name.removeprefix(PROMISES): _number(each.body) for each in self._documents.all(PROMISES)}

    def find(self, cluster: str) -> int:
        found = self._documents.find(PROMISES + cluster)
        return 0 if found is None else _number(found.body)

    def put(self, cluster: str, number: int) -> None:
        """Promise it, unless it has promised as much."""
        while True:
            found = self._documents.find(PROMISES + cluster)
            if found is not None and _number(found.body) >= number:
                return
            version, detail = (0 if found is None else found.version), {"cluster": cluster, "number": number}
            try:
                self._documents.put(
                    PROMISES + cluster,
                    {"number": number},
                    expected_version=version,
                    action="shards.promote.promise",
                    detail=detail,
                )
            except DocumentConflict:
                continue  # another promotion of this cluster was faster
            return


class Voters:
    """A `VotersPort`: those who decide on one cluster."""

    def __init__(
        self,
        cluster: str,
        clusters: Mapping[str, Cluster],
        control: ControlDatabase,
        names: Callable[[], Iterable[str]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._clusters = clusters
        self._promises = Promises(control)
        self._names = names
        self._sleep = sleep

    @property
    def names(self) -> Iterable[str]:
        return self._names()

    def silent(self) -> list[str]:
        """The clusters among them that would promise nothing now."""
        return [name for name in self.names if name != CONTROL and isinstance(self.allows(name, 0), Unheard)]

    def block(self, voter: str, number: int) -> None | Silent:
        try:
            if voter == CONTROL:
                self._promises.put(self._cluster, number)
                return None
            cluster = self._cluster
            deadline = Deadline(PROMISE_SECONDS)
            has_promised = self._ask(voter, lambda node: _leases(node).promise(cluster, number, deadline))
        except SchemalessError as error:
            _log_silent(voter, error)
            return SILENT
        return None if has_promised else SILENT

    def allows(self, voter: str, number: int) -> bool | Silent:
        try:
            if voter == CONTROL:
                return self._promises.find(self._cluster) <= number
            deadline = Deadline(VOTE_SECONDS)
            promised = self._ask(voter, lambda node: _leases(node).promised(self._cluster, deadline))
        except SchemalessError as error:
            _log_silent(voter, error)
            return SILENT
        return SILENT if promised is None else promised <= number

    def outlast(self) -> None:
        self._sleep((LEASE_SECONDS + ANSWER_SECONDS) * DRIFT)

    def _ask(self, voter: str, verb: Callable[[Node], T]) -> T:
        if voter not in self._clusters:
            raise NodeUnavailable(f"Cluster {voter}", "this configuration does not name it", trips_breaker=False)
        return self._clusters[voter].ask(verb)


def of_a_promotion(cluster: str, clusters: Mapping[str, Cluster], control: ControlDatabase) -> Voters:
    """All who may ever allow a lease. The others are asked for after the control database has promised, which later
    ones take over."""

    def names() -> Iterator[str]:
        yield CONTROL
        for each in Documents(control).all(PREFIX):
            name = each.name.removeprefix(PREFIX)
            if name != cluster and _may_vote(each.body):
                yield name

    return Voters(cluster, clusters, control, names)


def _may_vote(body: Mapping[str, object]) -> bool:
    """Whether a server of the cluster may have a lease, by the record of its newest promotion."""
    before = () if body.get("is_done") is True else ("was_leased",)
    return any(body.get(of) is True for of in ("leads_leased", "is_leased", *before))


def of_a_lease(cluster: str, clusters: Mapping[str, Cluster], control: ControlDatabase) -> Voters:
    """Those of whom this process knows that they have leases: fewer are enough.

    The control database is asked last. It has a patience of its own, in which leases would end.
    """
    others = [name for name, its in clusters.items() if its.is_leased and name != cluster]
    return Voters(cluster, clusters, control, lambda: [*others, CONTROL])


class ClusterLease:
    """A `LeasesPort`: the primary of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clock: ServerClock | None = None

    def clock(self) -> Clock | Silent:
        deadline = Deadline(ASK_SECONDS)
        try:
            self._clock = self._cluster.ask(lambda node: _leases(node).clock(deadline))
        except SchemalessError as error:
            _log_silent(self._cluster.name, error)
            return SILENT
        if not self._clock.number:  # another server leads, which this process has not heard of
            self._cluster.find_primary(ASK_SECONDS)
            return SILENT
        return Clock(str(self._clock.server), self._clock.number, self._clock.now.timestamp())

    def extend(self, clock: Clock) -> None | Silent:
        deadline, its = Deadline(ASK_SECONDS), self._clock
        assert its is not None
        try:
            is_extended = self._cluster.ask(lambda node: _leases(node).extend(its, LEASE_SECONDS, deadline))
        except SchemalessError as error:
            _log_silent(self._cluster.name, error)
            return SILENT
        return None if is_extended else SILENT


def lease_ports(cluster: Cluster, clusters: Mapping[str, Cluster], control: ControlDatabase) -> LeasePorts:
    return LeasePorts(ClusterLease(cluster), of_a_lease(cluster.name, clusters, control))


def renew(cluster: Cluster, clusters: Mapping[str, Cluster], control: ControlDatabase) -> lease.Extension:
    """Extend the lease of a cluster's primary once, if one voter allows it."""
    return run(lease.extend(lease_ports(cluster, clusters, control)))


def _number(body: Mapping[str, object]) -> int:
    number = body.get("number")
    assert isinstance(number, int), body
    return number


def _leases(node: Node) -> LeaseTables:
    assert node.leases is not None, "a file is never promoted"
    return node.leases


def _log_silent(voter: str, error: SchemalessError) -> None:
    extra = {"event": "lease.silent", "source": voter, "reason": error.message}
    logger.warning("whether a primary may go on is not known from here", extra=extra)
