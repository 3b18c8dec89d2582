"""What a queue of changes takes that no worker carries."""

from __future__ import annotations

import time
from random import Random
from uuid import uuid4

from benchmarks.growth.commands import commanded
from benchmarks.growth.figures import Growth, p50_ms
from benchmarks.migration import Migration, migrated, wait
from schemaless_core import Json
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

CHANGES = (1_000, 100_000, 1_000_000)
TRIPS = 10_000
CARRIED_SECONDS = 20.0
#: A machine of a company has memory for what it holds.
ROOM = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
_CHANGE = "UPDATE public.trips SET fare_amount = fare_amount + 1 WHERE id <= {trips}; SELECT 1"
_QUEUED = "SELECT count(*) FROM tripstore.queue"


def measure(scale: float) -> Growth:
    sizes = tuple(max(round(size * scale), 200) for size in CHANGES)
    growth = Growth("A queue of changes, in dualwrite", "changes", sizes)
    for number, changes in enumerate(sizes):
        with LocalServers() as servers:
            mirror = servers.cluster("mariadb", "mariadb", replicas=0).primary
            trips = min(TRIPS, changes)
            with migrated(servers.postgres(settings=ROOM), mirror, f"queue{number}", trips) as migration:
                migration.phase(Phase.DUALWRITE)
                with migration.mirrored():
                    migration.drained()
                _fill(migration, changes, trips)
                _calls(migration, growth)
    return growth


def _fill(migration: Migration, changes: int, trips: int) -> None:
    while migration.ask(_QUEUED)[0][0] < changes:
        migration.ask(_CHANGE.format(trips=trips))


def _calls(migration: Migration, growth: Growth) -> None:
    body: Json = migration.people.body(Random(5))
    growth.note("put (ms)", p50_ms(lambda: migration.store.put_cell(uuid4(), "BASE", 1, body)))
    with commanded(migration.config) as command:
        growth.note("`tripstore mirror status` (s)", command.seconds("mirror", "status"))
        growth.note("`tripstore cutover plan` (s)", command.seconds("cutover", "plan"))
        growth.note("`tripstore doctor` (s)", command.seconds("doctor"))
    before = migration.ask(_QUEUED)[0][0]
    with migration.mirrored():
        begun = time.monotonic()
        wait(lambda: not migration.ask(_QUEUED)[0][0] or time.monotonic() - begun > CARRIED_SECONDS)
        carried = before - migration.ask(_QUEUED)[0][0]
        growth.note("carried by one worker (changes/s)", carried / (time.monotonic() - begun))
