"""`LogEnd`: where a log is copied from, or to. A cluster is one; files and other datastores may be others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice, Node
from schemaless_core.engine.copies import CopySeen, CopyTables, HoldsCopies, LogSum
from schemaless_core.engine.purged import page_end
from schemaless_core.errors import InvalidRequest, missing_shard
from schemaless_core.servers.clusters import Cluster

T = TypeVar("T")

#: A page is written and committed within that; so is a sum of its part of the log.
CALL_SECONDS = 30.0


class LogPage(NamedTuple):
    """A page of a log, and the epoch of its shard when it was read."""

    slice: LogSlice
    #: The last added id that it leads to.
    end: int

    @property
    def epoch(self) -> int:
        return self.slice.head.state.epoch


class LogSource(Protocol):
    """What a log is read from."""

    def page(self, shard: int, after: int, limit: int) -> LogPage:
        """Return cells after an added id."""
        ...

    def sum(self, shard: int, first: int, last: int) -> LogSum:
        """Return the sum of a part of the log."""
        ...


class LogSink(Protocol):
    """What a log is written to. How far it is, it knows by itself."""

    def write(self, shard: int, after: int, epoch: int, page: LogPage) -> CopySeen:
        """Add a page to a copy that ends at `after`; else nothing. Return how far the copy is then."""
        ...

    def replace(self, shard: int, first: int, page: LogPage, last: int) -> None:
        """Put a page in the place of what the copy has from `first` to `last`."""
        ...

    def sum(self, shard: int, first: int, last: int) -> LogSum:
        """Return the sum of a part of the copy."""
        ...


class ClusterEnd:
    """The primary of a cluster: a `LogSource` and a `LogSink`."""

    def __init__(self, cluster: Cluster, claim: int = 0, deadline: Callable[[float], Deadline] = Deadline) -> None:
        """`claim`: by which it writes to copies. `deadline`: by when a call that may take so long must have ended."""
        self.cluster = cluster
        self._claim = claim
        self.deadline = deadline

    def page(self, shard: int, after: int, limit: int) -> LogPage:
        deadline = self.deadline(CALL_SECONDS)
        found = self.cluster.ask(lambda node: node.log({shard: after}, limit, deadline)[shard])
        return LogPage(found, page_end(found, after))

    def write(self, shard: int, after: int, epoch: int, page: LogPage) -> CopySeen:
        deadline = self.deadline(CALL_SECONDS)
        return _there(
            shard, self.ask(lambda copies: copies.write(shard, self._claim, after, epoch, page.slice, deadline))
        )

    def replace(self, shard: int, first: int, page: LogPage, last: int) -> None:
        deadline = self.deadline(CALL_SECONDS)
        self.ask(lambda copies: copies.replace(shard, self._claim, first, page.slice, last, deadline))

    def sum(self, shard: int, first: int, last: int) -> LogSum:
        deadline = self.deadline(CALL_SECONDS)
        return self.ask(lambda copies: copies.sum(shard, first, last, deadline))

    def look(self, shard: int) -> CopySeen:
        deadline = self.deadline(CALL_SECONDS)
        return _there(shard, self.ask(lambda copies: copies.look(shard, deadline)))

    def ask(self, verb: Callable[[CopyTables], T]) -> T:
        return self.cluster.ask(lambda node: verb(copies_of(node)))


def copies_of(node: Node) -> CopyTables:
    if not isinstance(node, HoldsCopies):
        raise InvalidRequest(
            f"{node.name} is a file, and shards of files stay where they are.",
            hint="Shards go between clusters of MySQL or MariaDB.",
        )
    return node.copies


def _there(shard: int, seen: CopySeen | None) -> CopySeen:
    if seen is None:
        raise missing_shard(shard)
    return seen
