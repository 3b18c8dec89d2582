"""fsck for tests: looks at a datastore in this process, and says what it found."""

from __future__ import annotations

from uuid import UUID, uuid4

from schemaless_core import Datastore
from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.fsck.fsck import FsckOrder
from schemaless_core.fsck.mending import MendOutcome

SHALLOW = FsckOrder()
DEEP = FsckOrder(is_deep=True)


def look(store: Datastore, order: FsckOrder = SHALLOW) -> Job:
    """Look at all of it, to the end."""
    fsck = store.fsck
    job = fsck.begin(fsck.plan(order))
    assert fsck.runner(job, "here").run() is JobState.DONE
    return job


def found_in(store: Datastore, order: FsckOrder = SHALLOW) -> list[StoredFinding]:
    """What a new look finds."""
    return store.fsck.jobs.findings(look(store, order).id)


def kinds_in(store: Datastore, order: FsckOrder = SHALLOW) -> list[str]:
    """Of what kinds that is, sorted, each as often as it was found."""
    return sorted(each.kind for each in found_in(store, order))


def mend(store: Datastore, *, may_give_up: bool = False, is_beside_postgres: bool = False) -> list[MendOutcome]:
    """What becomes of what a new look finds, as far as fsck mends it itself."""
    job = look(store)
    mending = store.fsck.mending(is_beside_postgres=is_beside_postgres, may_give_up=may_give_up)
    found = [each for kind in mending.kinds for each in store.fsck.jobs.findings(job.id, kinds=[kind])]
    return [mending.mend(each)[0] for each in found]


def row_of(store: Datastore, shard: int) -> UUID:
    """A new row of a shard."""
    while True:
        if store.shard_of(row_key := uuid4()) == shard:
            return row_key
