"""`DatastoreShape`: what reads and writes of cells have to know of the datastore whose cells the tables stand for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatastoreShape:
    """What a datastore is: its name, its shards, the largest body."""

    store: str
    shards: int
    max_body_bytes: int
    epoch: int = 0
