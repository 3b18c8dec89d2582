"""A primary and the replicas that follow it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tripstore.local.binlog import BinlogServer
from tripstore.local.errors import LocalServerError

REPLICATION_SECONDS = 30.0
POLL_SECONDS = 0.02

#: Settings of all servers of a cluster, by engine, with which a commit waits until a replica has it: whatever was
#: acknowledged outlives the primary. Where no replica is connected a commit does not wait.
SEMI_SYNC: Mapping[str, Mapping[str, str]] = {
    "mariadb": {
        "rpl-semi-sync-master-enabled": "1",
        "rpl-semi-sync-master-wait-point": "AFTER_SYNC",
        "rpl-semi-sync-master-wait-no-slave": "0",
        "rpl-semi-sync-slave-enabled": "1",
    },
    "mysql": {
        "plugin-load": "semisync_source.so;semisync_replica.so",
        "rpl-semi-sync-source-enabled": "1",
        "rpl-semi-sync-source-wait-point": "AFTER_SYNC",
        "rpl-semi-sync-source-wait-no-replica": "0",
        "rpl-semi-sync-replica-enabled": "1",
    },
}


@dataclass(frozen=True)
class LocalCluster:
    """A primary and its replicas, replicating by GTID, in order; asynchronously, unless they are set up otherwise."""

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
