"""Datastores whose bodies are compressed, as many of them as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from schemaless_core import Datastore, Json, canonical_bytes
from schemaless_core.compression.compress_jobs import CompressOrder
from schemaless_core.config import CompressionConfig
from schemaless_core.control.jobs.records import JobState
from schemaless_core.engine import bodies
from schemaless_core.engine.dictionaries import EVERY_COLUMN, Dictionary
from tests.damage import execute

#: Of a configuration: every column.
COMPRESSION: dict[str, Any] = {"columns": [EVERY_COLUMN]}
#: zstd takes any bytes for a dictionary.
SOME = Dictionary(EVERY_COLUMN, 1, canonical_bytes({"city": "San Francisco", "fare": 12.5, "driver": "a" * 32}))
OTHER = Dictionary(EVERY_COLUMN, 2, canonical_bytes({"status": "completed", "city": "San Francisco", "n": [1, 2, 3]}))


def teach(store: Datastore, dictionary: Dictionary = SOME) -> None:
    """Give a dictionary to the servers. From here on this store compresses with it, also where no byte is saved."""
    store.dictionaries.put(dictionary)
    look_again(store)
    for its in bodies_of(store):
        its.saved_bytes = -(2**30)


def look_again(store: Datastore) -> None:
    """As after the time for which a writer goes on with what it knows."""
    for its in bodies_of(store):
        its.look_again()


def bodies_of(store: Datastore) -> list[bodies.BodyForms]:
    return [cluster.primary.node.bodies for cluster in store.clusters.values()]


@contextmanager
def opening_beside(store: Datastore) -> Iterator[Callable[..., Datastore]]:
    """Opens the same datastore as another process would, by default without compression."""
    with ExitStack() as opened:
        yield lambda *columns: opened.enter_context(
            Datastore(replace(store.config, compression=CompressionConfig(columns)))
        )


def stored_bodies(store: Datastore) -> list[bytes]:
    """What stands in the shards, byte for byte."""
    statement = "SELECT body FROM {cell} WHERE {of} ORDER BY added_id"
    return [body for shard in range(store.config.shards) for (body,) in execute(store, shard, statement)]


def compressed_of(store: Datastore) -> tuple[int, int]:
    """How many of the stored bodies are compressed, and how many there are."""
    found = stored_bodies(store)
    return sum(body.startswith(bodies.MARK) for body in found), len(found)


def body_of(number: int) -> Json:
    """A body that is like the others."""
    return {"city": "San Francisco", "driver": f"{number:032x}", "fare": number / 4, "status": "completed"}


def turn_over(store: Datastore) -> int:
    """Have all cells stored as puts store them now; how many that changed."""
    jobs = store.compress_jobs
    job = jobs.begin(jobs.plan(CompressOrder()))
    assert jobs.runner(job, "tester").run() is JobState.DONE
    return jobs.jobs.progress(job.id).counts.get("cells", 0)
