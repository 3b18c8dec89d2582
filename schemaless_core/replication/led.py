"""`LedPlacesOf`: where the shards of the other datastore are, also once it has given the lead away and is closed."""

from __future__ import annotations

from collections.abc import Mapping

from schemaless_core.backups.source import BackupSource
from schemaless_core.control.database import ControlDatabase
from schemaless_core.errors import LedElsewhere
from schemaless_core.replication.other import heads
from schemaless_core.replication.ports import StandbyState
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.topology import Placement, Topology


class LedPlacesOf:
    """Of one datastore."""

    def __init__(self, clusters: Mapping[str, Cluster], control: ControlDatabase, shards: int) -> None:
        self._clusters = clusters
        self._source = BackupSource(clusters, control)
        self._record = StandbyRecord(control, shards)

    def topology(self) -> Topology:
        """Return where its logs are. `LedElsewhere`: it follows another datastore itself."""
        try:
            return self._source.topology()
        except LedElsewhere:
            seen = self._record.find()
            if seen.standby.state is not StandbyState.LEFT:
                raise
        found = {name: cluster.ask(heads) for name, cluster in self._clusters.items()}
        placed = [
            Placement(shard, shard, cluster, found[cluster][shard].state.epoch)
            for shard, cluster in sorted(places_of(seen.standby.places).items())
        ]
        return Topology(seen.topology, len(placed), tuple(placed))


def places_of(runs: tuple[tuple[int, int, str], ...]) -> dict[int, str]:
    """Clusters by shard."""
    return {shard: cluster for first, last, cluster in runs for shard in range(first, last + 1)}
