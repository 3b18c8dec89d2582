"""A primary and the replicas that follow it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tripstore.local.binlog import BinlogServer
from tripstore.local.errors import LocalServerError

REPLICATION_SECONDS = 30.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class LocalCluster:
    """A primary and its replicas, replicating asynchronously by GTID, in order."""

    name: str
    primary: BinlogServer
    replicas: tuple[BinlogServer, ...]

    @property
    def servers(self) -> tuple[BinlogServer, ...]:
        """Return all of them, the primary first."""
        return (self.primary, *self.replicas)

    def wait_for_replicas(self, timeout_seconds: float = REPLICATION_SECONDS) -> None:
        """Return when every replica has applied what the primary has committed by now."""
        position = self.primary.position()
        for replica in self.replicas:
            if not replica.wait_for_position(position, timeout_seconds):
                raise LocalServerError(
                    f"Replica {replica.name!r} did not reach {position} within {timeout_seconds:.0f} s: "
                    f"{replica.replica_failure() or 'it is only slow'}."
                )


def connect_replicas(clusters: Sequence[LocalCluster]) -> None:
    """Make every replica follow its primary and return when replication runs."""
    for cluster in clusters:
        for replica in cluster.replicas:
            replica.follow(cluster.primary)
    for cluster in clusters:
        for replica in cluster.replicas:
            _wait_until_following(replica)


def _wait_until_following(replica: BinlogServer) -> None:
    deadline = time.monotonic() + REPLICATION_SECONDS
    while failure := replica.replica_failure():
        if time.monotonic() > deadline:
            raise LocalServerError(f"Replica {replica.name!r} does not follow its primary: {failure}.")
        time.sleep(POLL_SECONDS)
