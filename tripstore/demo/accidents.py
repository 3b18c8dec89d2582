"""The accident in the middle of the demo: a primary dies, or a writer does, while cells are being put.

Both end with a step that says what went on meanwhile; what was lost shows only in the comparison at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from schemaless_core.cell.answers import PutStatus
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged, digest
from tripstore.demo.report import StoryStep
from tripstore.demo.writer import TRIPS_PER_BATCH
from tripstore.local.replication import LocalCluster

WRITERS = 3
ENTRIES_BEFORE = 60
BEFORE_SECONDS = 0.5
OUTAGE_SECONDS = 2.0
AFTERWARDS_SECONDS = 0.5
HEADS_SECONDS = 5.0


def kill_a_primary(
    step: StoryStep, crew: Crew, store: Datastore, cluster: LocalCluster, known: Sequence[Acknowledged]
) -> list[Acknowledged]:
    """Kill the primary of a cluster under load, read from its replica, start it again; return all promises."""
    shards = set(_shards_of(store, cluster.name))
    on_cluster = [entry for entry in known if entry.shard in shards]
    cluster.wait_for_replicas()  # of cells that a replica cannot know yet nothing is claimed
    crew.start(WRITERS)
    crew.wait_for_entries(ENTRIES_BEFORE)
    before, _failed = _read_for(BEFORE_SECONDS, store, on_cluster)
    cluster.primary.kill()
    killed_at = time.monotonic()
    answered, failed = _read_for(OUTAGE_SECONDS, store, on_cluster)
    started_at = time.monotonic()
    cluster.primary.start()
    up_at = time.monotonic()
    time.sleep(AFTERWARDS_SECONDS)
    crew.finish()
    entries = crew.all_entries()
    elsewhere = [entry for entry in entries if killed_at < entry.at < started_at and entry.shard not in shards]
    late = [entry for entry in entries if entry.at > up_at and entry.shard in shards]
    step.say(f"{before:,} cells of its shards were read in the {BEFORE_SECONDS} s before")
    step.say(f"primary of cluster {cluster.name} dead for {up_at - killed_at:.1f} s, back {up_at - started_at:.1f} s")
    step.say(f"after the start command; {len(late):,} cells of its shards were acknowledged from then on")
    step.check("reads of its shards go on from the replica", answered > 0 and not failed, _counted(answered, failed))
    step.check("writes to the other cluster go on", len(elsewhere) > 0, f"{len(elsewhere):,} cells acknowledged")
    _check_replica(step, store, cluster)
    return entries


def kill_a_writer(step: StoryStep, crew: Crew, store: Datastore) -> list[Acknowledged]:
    """Kill one of several services, go on, and have another one repeat all it did; return all promises."""
    crew.start(WRITERS)
    crew.wait_for_entries(ENTRIES_BEFORE)
    crew.kill(0)
    killed_at = time.monotonic()
    answered, failed = _read_for(AFTERWARDS_SECONDS, store, crew.all_entries())
    crew.finish()
    first_life = crew.entries(0)
    with_others = [entry for entry in crew.all_entries() if entry.at > killed_at]
    step.say(f"it had been promised {len(first_life):,} cells when it died")
    step.check("reads go on", answered > 0 and not failed, _counted(answered, failed))
    step.check("the others go on", len(with_others) > 0, f"{len(with_others):,} cells acknowledged")
    crew.resume()
    _repeat_a_life(step, crew, crew.seed(0), first_life)
    return crew.all_entries()


def _repeat_a_life(step: StoryStep, crew: Crew, seed: str, first_life: Sequence[Acknowledged]) -> None:
    """Let a new process put everything again that the dead one may have put; how far it came is unknown."""
    trips = len(first_life) + 2 * TRIPS_PER_BATCH  # a trip has more than one cell, so this is surely enough
    crew.start_one(seed, trips)
    crew.wait()
    second_life = crew.entries(WRITERS)
    promised = {entry.key for entry in first_life}
    again = {entry.key for entry in second_life if entry.status is PutStatus.EXISTS}
    step.say(f"a new process put the same {len(second_life):,} cells again: {len(again):,} were there already")
    lost = len(promised - again)
    step.check("no promised cell had to be stored anew", lost == 0, f"{len(promised):,} promised, {lost} lost")


def _read_for(seconds: float, store: Datastore, entries: Sequence[Acknowledged]) -> tuple[int, int]:
    """Read promised cells one after the other; count right answers, and failures and wrong ones."""
    answered = failed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        entry = entries[(answered + failed) % len(entries)]
        try:
            found = store.get_cell(*entry.key)
        except SchemalessError:
            found = None
        if found is not None and digest(found) == entry.digest:
            answered += 1
        else:
            failed += 1
    return answered, failed


def _counted(answered: int, failed: int) -> str:
    return f"{answered:,} answered rightly, {failed:,} not"


def _shards_of(store: Datastore, cluster: str) -> list[int]:
    return store.schema.plan().topology.shards_of(cluster)


def _check_replica(step: StoryStep, store: Datastore, cluster: LocalCluster) -> None:
    """The replica that was cut off in the middle must end where its primary is."""
    cluster.wait_for_replicas()
    nodes = store.clusters[cluster.name]
    primary = nodes.primary.node.heads(None, Deadline(HEADS_SECONDS))
    replica = nodes.replicas[0].node.heads(None, Deadline(HEADS_SECONDS))
    behind = sum(head.head - replica[shard].head for shard, head in primary.items())
    cells = sum(head.head for head in primary.values())
    step.check("its replica has caught up", behind == 0, f"{cells:,} cells, {behind} behind")
