"""What a server offers to those who have old cells stored as puts store new ones. No cell becomes another one by it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from schemaless_core.cell.standing import Gate
from schemaless_core.deadline import Deadline


class Turned(NamedTuple):
    """What a look came to: cells that were stored anew, what their bodies took before and take now, how far it came."""

    cells: int
    bytes_before: int
    bytes_after: int
    reached: int


class Turning(Protocol):
    """The verbs of one server."""

    def look(self, shard: int, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        """Say what `turn` would do. Nothing is changed."""
        ...

    def turn(self, gate: Gate, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        """Store those of the next cells anew that a put would store in another form now; `StaleEpoch`.

        Each is changed only while its bytes are the ones that were read: what repair or a purge did meanwhile stays.
        """
        ...
