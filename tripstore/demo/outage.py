"""An outage: the primary of a cluster is killed, another cluster keeps the puts of its shards, its replica takes over.

A commit waits for the replica, so what the old disk alone has was promised to no caller. What was lost all the same
shows in the comparison at the end of the demo.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from schemaless_core.cell.answers import PutStatus
from schemaless_core.deadline import Deadline
from schemaless_core.store import CellStore
from tripstore.demo.accidents import ENTRIES_BEFORE, WRITERS, check_reads, read_for
from tripstore.demo.commands import Commands
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged, digest
from tripstore.demo.migration import nothing_waits, wait_until
from tripstore.demo.report import StoryStep
from tripstore.local.replication import LocalCluster, connect_replicas
from tripstore.store import TripStore

BEFORE_SECONDS = 0.5
OUTAGE_SECONDS = 1.0
AFTERWARDS_SECONDS = 0.5
HEADS_SECONDS = 5.0
#: A server that is made anew fetches everything from the beginning.
ANEW_SECONDS = 300.0
#: Cells that another cluster keeps before the replica takes over, and of which so many are read back.
BUFFERED_BEFORE = 100
CELLS_PER_READ = 100


class Outage:
    """Of one cluster, while a crew puts cells. The control database is on none of its servers: it is promoted."""

    def __init__(self, cluster: LocalCluster, store: TripStore, commands: Commands, crew: Crew) -> None:
        self._cluster = cluster
        self._store = store
        self._commands = commands
        self._crew = crew
        self._shards = frozenset(store.facade.store.schema.plan().topology.shards_of(cluster.name))
        self._killed_at = 0.0

    def begin(self, step: StoryStep, known: Sequence[Acknowledged]) -> None:
        """Kill the primary under load; read what was known before from its replica, and what is put from a buffer."""
        on_cluster = [entry for entry in known if entry.shard in self._shards]
        self._cluster.wait_for_replicas()  # of cells that a replica cannot know yet nothing is claimed
        self._crew.start(WRITERS)
        self._crew.wait_for_entries(ENTRIES_BEFORE)
        wait_until("commits wait for the replica", lambda: self._cluster.primary.waits_for_a_replica)
        before = read_for(BEFORE_SECONDS, self._store.facade.store, on_cluster)
        self._cluster.primary.kill()
        self._killed_at = time.monotonic()
        reads = read_for(OUTAGE_SECONDS, self._store.facade.store, on_cluster)
        wait_until("puts of its shards are buffered", lambda: len(self._buffered()) >= BUFFERED_BEFORE)
        status = self._commands.run("tripstore buffer status", codes=(0, 1)).document  # 1: a server is dead
        waiting = {each["cluster"]: each["cells"] for each in status["clusters"] if each["cells"]}
        buffered = self._buffered()
        step.say(f"{before.answered:,} cells of its shards were read in the {BEFORE_SECONDS} s before")
        step.say(f"the first put was buffered {self._since_kill(buffered[0].at) * 1000:,.0f} ms after the kill")
        check_reads(step, "reads of its shards go on from the replica", reads)
        detail = ", ".join(f"{count:,} wait on cluster {name}" for name, count in waiting.items())
        step.check("puts of its shards are buffered", sum(waiting.values()) >= BUFFERED_BEFORE, detail)
        patient = self._store.facade.store.using(include_buffered=True)
        check_found(step, "include_buffered=True reads them back", patient, buffered[:BUFFERED_BEFORE])

    def promote(self, step: StoryStep) -> None:
        """Make the replica the primary; services go on there by themselves, and a worker carries what was buffered."""
        begun = time.monotonic()
        self._commands.run(f"tripstore shards promote {self._cluster.name} --old-is-dead --yes")
        promoted = time.monotonic()
        wait_until("services put at the new primary", lambda: bool(self._stored_after(begun)))
        time.sleep(AFTERWARDS_SECONDS)  # so long they put there, for the count
        self._crew.finish()
        stored, buffered = self._stored_after(begun), self._buffered()
        wait_until("no cell waits in a buffer", lambda: nothing_waits(self._store))
        step.say(f"the command took {promoted - begun:.1f} s")
        step.say(f"the first put was stored there {self._since_kill(stored[0].at):.1f} s after the kill")
        step.check("services put at the new primary", len(stored) > 0, f"{len(stored):,} cells acknowledged")
        check_found(step, "a worker carries what was buffered to its shards", self._store.facade.store, buffered)

    def bring_back(self, step: StoryStep) -> None:
        """Salvage the old disk, make its server anew as a replica, and look whether everything is right."""
        name, old, new = self._cluster.name, self._cluster.primary, self._cluster.replicas[0]
        old.write_role(is_replica=True)
        old.start()
        found = self._commands.run(f"tripstore shards salvage {name} --from {old.url}", codes=(0, 1)).document
        step.say(f"{found['cells']:,} cells were on the old disk alone: {found['salvaged']:,} were put,")
        step.say(f"{found['there']:,} were stored by then; after that the server was made anew from the new primary")
        step.check("none of them is in conflict", found["conflicts"] == 0, f"{found['conflicts']:,} conflicts")
        old.make_anew()
        old.start()
        turned = LocalCluster(name, new, (old,))
        connect_replicas([turned])
        turned.wait_for_replicas(ANEW_SECONDS)
        self._check_replica(step)
        looked = self._commands.run("tripstore fsck --deep", codes=(0, 1, 3)).document
        faults = ", ".join(f"{count:,} {kind}" for kind, count in looked["faults"].items())
        step.check("fsck finds nothing", looked["is_clean"], faults or "logs, counters, buffers, replicas, indexes")

    def _buffered(self) -> list[Acknowledged]:
        """What was put of its shards since the kill and is on another cluster's disk, the first put first."""
        return [entry for entry in self._after(self._killed_at) if entry.status is PutStatus.BUFFERED]

    def _stored_after(self, moment: float) -> list[Acknowledged]:
        return [entry for entry in self._after(moment) if entry.status is PutStatus.CREATED]

    def _after(self, moment: float) -> list[Acknowledged]:
        entries = (entry for entry in self._crew.all_entries() if entry.at > moment and entry.shard in self._shards)
        return sorted(entries, key=lambda entry: entry.at)

    def _since_kill(self, moment: float) -> float:
        return moment - self._killed_at

    def _check_replica(self, step: StoryStep) -> None:
        """The server that begins anew must end where its primary is."""
        nodes = self._store.facade.store.clusters[self._cluster.name]
        primary = nodes.primary.node.heads(None, Deadline(HEADS_SECONDS))
        replica = nodes.replicas[0].node.heads(None, Deadline(HEADS_SECONDS))
        behind = sum(head.head - replica[shard].head for shard, head in primary.items())
        cells = sum(head.head for head in primary.values())
        step.check("the old server is a replica again", behind == 0, f"{cells:,} cells, {behind} behind")


def check_found(step: StoryStep, name: str, store: CellStore, entries: Sequence[Acknowledged]) -> None:
    """Every one of the promised cells is read with the body that was promised.

    Beside the facade: whose reads no shadow compares yet, the next switch would ask after them.
    """
    pages = (entries[first : first + CELLS_PER_READ] for first in range(0, len(entries), CELLS_PER_READ))
    right = sum(_right(store, page) for page in pages)
    step.check(name, 0 < right == len(entries), f"{right:,} of {len(entries):,}")


def _right(store: CellStore, entries: Sequence[Acknowledged]) -> int:
    cells = store.get_cells([entry.key for entry in entries])
    return sum(cell is not None and digest(cell) == entry.digest for cell, entry in zip(cells, entries, strict=True))
