"""`ShardAuthority`: which authority epoch the servers of a datastore are at, and raising it.

A layer above decides which backend is the authority, and tells each server. A server knows only what it was told last.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import SchemalessError, SchemaMissing
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.routing import Router

logger = logging.getLogger(__name__)

#: Twice the longest that a stopped writer holds the counter row of a shard.
CHANGE_SECONDS = 4.0
LOOK_SECONDS = 2.0
#: The document in which a server keeps what was said as its shards were opened; its version is the authority epoch.
SAID = "authority"


class AuthoritySeen(NamedTuple):
    """What the servers say of the authority."""

    #: The highest that any shard is at.
    epoch: int
    #: Of the shards that have not moved: those that are RW at it, and all whose servers answered.
    shards_open: int
    shards_seen: int
    #: Clusters whose primary did not answer.
    silent: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether this store is the authority as of this epoch.

        A hand-over opens shards after its decision, so one that is open proves it. None was ever decided at epoch 0.
        """
        return self.epoch > 0 and self.shards_open > 0


class ShardAuthority:
    """The authority epochs of a datastore's shards, server by server."""

    def __init__(self, clusters: Mapping[str, Cluster], router: Router, fanout: FanOut) -> None:
        self._clusters = clusters
        self._router = router
        self._fanout = fanout

    def open(self, cluster: str, epoch: int, said: bytes | None = None, seconds: float = CHANGE_SECONDS) -> None:
        """Open a cluster's shards to owners of this authority epoch, those whose epoch is older.

        `said` is stored before that, for processes that find the shards open: see `said`.
        """
        deadline = Deadline(seconds)
        try:
            if said is not None:
                document = StoredDocument(SAID, epoch, said)
                self._clusters[cluster].write(lambda node: node.put_document(document, deadline))
            self._clusters[cluster].write(lambda node: node.open_to_owners(epoch, deadline))
        except SchemaMissing:
            if self.holds_shards(cluster):
                raise

    def close(self, cluster: str, epoch: int, seconds: float = CHANGE_SECONDS) -> bool:
        """Close a cluster's shards to owners; whether all of them are closed now, at exactly this epoch."""
        deadline, its = Deadline(seconds), self._clusters[cluster]
        try:
            is_closed = its.write(lambda node: node.close_to_owners(epoch, deadline))
            if not is_closed:
                its.renew_soon()  # who asks again may find it closed under a lease
            return is_closed
        except SchemaMissing:
            if self.holds_shards(cluster):
                raise
            return True

    def make_copies(self) -> int:
        """Close the shards that were open to owners from the start, as those of a datastore without Postgres are."""
        deadline = Deadline(CHANGE_SECONDS)
        return sum(cluster.write(lambda node: node.make_copies(deadline)) for cluster in self._router.holders(deadline))

    def find(self) -> AuthoritySeen | None:
        """Ask all servers; None when no shard is known. For a process that cannot reach the authority row."""
        asked = {name: lambda name=name: self._heads(name) for name in self._clusters}
        found = self._fanout.run(asked)
        states = [
            head.state
            for heads in found.values()
            for head in (heads or {}).values()
            if head.state.status != ShardStatus.MOVED.value
        ]
        if not states:
            return None
        epoch = max(state.authority_epoch for state in states)
        shards_open = sum(state[1:] == (epoch, ShardStatus.RW.value) for state in states)
        silent = tuple(name for name, heads in found.items() if heads is None)
        return AuthoritySeen(epoch, shards_open, len(states), silent)

    def said(self, epoch: int) -> bytes | None:
        """What was said as the shards were opened at this epoch; None: nothing, or it is not known.

        Of a later epoch something else may have been said by now: then the shards refuse this one.
        """
        newest = max(self._all_said(), key=lambda document: document.version, default=None)
        return None if newest is None or newest.version != epoch else newest.body

    def ever_said(self) -> list[bytes]:
        """What each cluster was told last, in the order of the epochs; nothing of one that does not answer."""
        return [document.body for document in sorted(self._all_said(), key=lambda document: document.version)]

    def holds_shards(self, cluster: str) -> bool:
        """Whether shards are placed there. A configured cluster may have none yet; one that lost them has some."""
        return self._clusters[cluster] in self._router.holders(Deadline(LOOK_SECONDS))

    def _all_said(self) -> list[StoredDocument]:
        asked = {name: lambda name=name: self._said(name) for name in self._clusters}
        return [found for found in self._fanout.run(asked).values() if found is not None]

    def _said(self, name: str) -> StoredDocument | None:
        deadline = Deadline(LOOK_SECONDS)
        try:
            found = self._clusters[name].ask(lambda node: node.find_documents(SAID, deadline))
        except SchemalessError:
            return None
        return next((document for document in found if document.name == SAID), None)

    def _heads(self, name: str) -> Mapping[int, ShardHead] | None:
        deadline = Deadline(LOOK_SECONDS)
        try:
            return self._clusters[name].ask(lambda node: node.heads(None, deadline))
        except SchemaMissing:
            return {}
        except SchemalessError as error:
            extra = {"event": "authority.unknown", "cluster": name, "reason": error.message}
            logger.warning("a server does not say which authority epoch it is at", extra=extra)
            return None
