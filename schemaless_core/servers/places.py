"""Where each shard is, as this process knows it: from the control database, and from the servers themselves.

A process starts without the control database: every server says which shards it holds, and at which epoch. Whatever is
known here may be stale; the stores refuse a stale epoch, and then it is learned anew.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.errors import (
    InvalidConfig,
    InvalidServer,
    LedElsewhere,
    SchemalessError,
    SchemaMissing,
    StoreClosed,
    Unavailable,
    UnknownFormat,
)
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.leaders import Leaders
from schemaless_core.servers.looks import SharedLook
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
_OPEN_AGAIN = "Datastore.open() opens another one; all stores that using() made of this one closed with it."


class Place(NamedTuple):
    """A shard's cluster, and the epochs to present there."""

    cluster: str
    epoch: int
    authority_epoch: int


class Places:
    """The places of all shards; learned at first use and again whenever a store refuses.

    All sources are asked at the same time, each on its own thread: a silent one holds no caller past its deadline.
    """

    def __init__(
        self, shards: int, clusters: Mapping[str, Cluster], control: ControlDatabase, first_look_seconds: float
    ) -> None:
        self.shards = shards
        self._clusters = clusters
        self._topologies = Topologies(control)
        self._leaders = Leaders(control)
        self._first_look_seconds = first_look_seconds
        self._places: dict[int, Place] = {}
        self._is_learned = False
        self._is_closed = False
        #: Whether the control database said where shards are, the last time that it answered.
        self._has_topology = False
        #: Whether this process, or the one that it was forked from, has worked with a format that it knows.
        self._has_begun = False
        self._forget_looks()

    def get(self, shard: int, deadline: Deadline) -> Place:
        """Return where a shard is, or raise `Unavailable` when no source that knows answers in time.

        The first use may take longer than its own deadline: it waits for all sources, which the clock does not count.
        A source that is silent even then has the call's own time to answer, once: a call over many shards ends with it.
        """
        place = self._places.get(shard)
        if place is not None and self._is_learned:
            return place
        if self._is_closed:
            raise StoreClosed("datastore", _OPEN_AGAIN)
        have_all_answered = not self._is_learned and not deadline.is_over and self._look_first(deadline)
        if not have_all_answered and shard not in self._places:
            have_all_answered = self._look(deadline, lambda: shard in self._places)
        place = self._places.get(shard)
        if place is None:
            raise self._unknown(shard, have_all_answered=have_all_answered)
        return place

    def _look_first(self, deadline: Deadline) -> bool:
        patience = Deadline(deadline.patience(self._first_look_seconds))
        have_all_answered = self._look(patience, lambda: False)
        deadline.extend(self._first_look_seconds - max(patience.remaining_seconds(), 0.0))
        self._is_learned = bool(self._places)
        if self._is_closed:  # meanwhile
            self._is_learned = False
        self._has_begun |= self._is_learned
        return have_all_answered

    def learn(self, went_by: Mapping[int, Place], deadline: Deadline) -> set[int]:
        """Look again after refusals; return the shards that are not (any more) where the refused call went.

        Another thread may have learned it between the call and this moment: then there is nothing to look for.
        """

        def changed() -> set[int]:
            return {shard for shard, place in went_by.items() if self._places.get(shard) != place}

        def is_enough() -> bool:
            return len(changed()) == len(went_by)

        if not is_enough():
            self._look(deadline, is_enough)
        return changed()

    def confirm(self, went_by: Mapping[int, Place], deadline: Deadline) -> set[int]:
        """Look again behind answers; return the shards that are known to be still where the answered calls went.

        The control database alone says so. The next owner may be a cluster that is silent, or that the configuration
        lacks: of that the servers of the configuration know nothing. That a shard has gone is heard from any source.
        """

        def unchanged() -> set[int]:
            return {shard for shard, place in went_by.items() if self._places.get(shard) == place}

        control = self._looks[0]
        with self._changed:
            requests = {look: look.request() for look in self._looks}
            while len(unchanged()) == len(went_by) and not deadline.is_over:
                if control.is_answered(requests[control]):
                    break
                self._changed.wait(max(deadline.remaining_seconds(), 0.001))
            is_known = control.is_answered(requests[control]) and control.failure is None and self._has_topology
            found = unchanged() if is_known else set[int]()
        self._raise_unusable(requests)
        return found

    def close(self) -> None:
        """Refuse whatever is asked from now on; what is on its way may end."""
        self._is_closed = True
        self._is_learned = False

    def after_fork(self) -> None:
        """Threads and locks of the parent are the parent's."""
        self._forget_looks()

    def _forget_looks(self) -> None:
        self._is_learned = False
        self._changed = threading.Condition()
        self._looks = [
            SharedLook("control", self._look_at_control, self._changed),
            *(
                SharedLook(guarded.node.name, partial(self._look_at, cluster, guarded), self._changed)
                for cluster in self._clusters.values()
                for guarded in cluster.nodes
            ),
        ]

    def _look(self, deadline: Deadline, is_enough: Callable[[], bool]) -> bool:
        """Ask all sources; wait until all have answered, it is enough, or time is up. Raise what the user must mend.

        Return whether all have answered, be it with a failure.
        """
        with self._changed:
            requests = [(look, look.request()) for look in self._looks]
            while not all(look.is_answered(request) for look, request in requests) and not is_enough():
                if deadline.is_over:
                    break
                self._changed.wait(max(deadline.remaining_seconds(), 0.001))
            have_all_answered = all(look.is_answered(request) for look, request in requests)
        self._raise_unusable(dict(requests))
        for look, _request in requests:
            if look.failure is not None:
                logger.warning("a source does not answer", extra={"event": "places.no_answer", "source": look.name})
                logger.debug("%s", look.failure)
        return have_all_answered

    def _raise_unusable(self, requests: Mapping[SharedLook, int]) -> None:
        """What the user must mend. That another datastore led was the answer of an earlier look says nothing now."""
        for look, request in requests.items():
            is_old = isinstance(look.failure, LedElsewhere) and not look.is_answered(request)
            if isinstance(look.failure, InvalidConfig | UnknownFormat) and not is_old:
                raise look.failure

    def _look_at_control(self) -> None:
        """What the control database says; without tables it says nothing."""
        try:
            topology = self._topologies.find_newest()
        except SchemaMissing:
            topology = None
        self._has_topology = topology is not None
        if topology is not None:
            check_topology(topology, self.shards, self._clusters)
            for name, (leader, is_leased) in self._leaders.find_all().items():
                if name in self._clusters:
                    self._clusters[name].hear(leader, is_leased=is_leased)  # before the epochs that it goes with
            self._accept({shard: Place(at.cluster, at.epoch, 0) for shard, at in topology}, is_newer=operator.gt)

    def _look_at(self, cluster: Cluster, guarded: GuardedNode) -> None:
        """What a server says it holds; a replica is asked too, since its primary may be down."""
        deadline = Deadline(LOOK_SECONDS)
        try:
            recorded = guarded.ask(lambda node: node.shard_count(deadline))
        except UnknownFormat as error:
            if not (error.goes_on and self._has_begun):
                raise
            recorded = self.shards  # it was as many when this process began, and stays so
        if recorded is None:
            return
        if recorded != self.shards:
            raise wrong_shard_count(self.shards, recorded)
        heads = guarded.ask(lambda node: node.heads(None, deadline))
        held = {
            shard: Place(cluster.name, head.state.epoch, head.state.authority_epoch)
            for shard, head in heads.items()
            if head.state.status != ShardStatus.MOVED.value
        }
        cluster.hear_from(guarded, deadline)  # who leads at these epochs, or at later ones
        self._accept(held, is_newer=operator.ge if cluster.leads(guarded) else operator.gt)

    def _accept(self, said: Mapping[int, Place], is_newer: Callable[[int, int], bool]) -> None:
        """The highest epoch of a shard is its owner; a server knows its own authority epoch better than control."""
        with self._changed:
            for shard, place in said.items():
                known = self._places.get(shard)
                if known is None or is_newer(place.epoch, known.epoch):
                    self._places[shard] = place

    def _unknown(self, shard: int, *, have_all_answered: bool) -> SchemalessError:
        """Why no source said where a shard is. A source that has not answered may hold it."""
        if have_all_answered and not self._places and all(look.failure is None for look in self._looks):
            return SchemaMissing("The datastore has no shards yet.", hint="Run `tripstore schema apply`.")
        for look in self._looks:
            if isinstance(look.failure, InvalidServer):
                return look.failure
        why = "; ".join(said for look in self._looks if (said := _why_silent(look)))
        return Unavailable(
            f"It is unknown where shard {shard} is{': ' if why else ''}{why}.",
            hint="Start the control database or the shard's cluster.",
        )


def _why_silent(look: SharedLook) -> str:
    """Why a source said nothing; empty when it did, or has no tables yet."""
    if isinstance(look.failure, SchemalessError):
        return look.failure.message.rstrip(".")
    return f"{look.name} does not answer" if look.is_silent else ""


def check_topology(topology: Topology, shards: int, clusters: Collection[str]) -> None:
    """Refuse a configuration that does not fit what was created."""
    if topology.shards != shards:
        raise wrong_shard_count(shards, topology.shards)
    if topology.is_elsewhere:
        raise LedElsewhere
    for placement in topology.placements:
        if placement.cluster not in clusters:
            raise InvalidConfig(
                "clusters",
                f"lacks {placement.cluster!r}, which holds shards {placement.first} to {placement.last}",
                hint=f"Add {placement.cluster}: {{primary: …}}.",
            )


def wrong_shard_count(configured: int, created: int) -> InvalidConfig:
    return InvalidConfig(
        "shards",
        f"is {configured}, but the datastore was created with {created}",
        hint=f"Write shards: {created}. The number is fixed at creation, row keys depend on it.",
    )
