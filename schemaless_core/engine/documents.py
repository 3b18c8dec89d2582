"""`StoredDocument`: what servers keep beside their shards, by name."""

from __future__ import annotations

from typing import NamedTuple


class StoredDocument(NamedTuple):
    """A server's copy of a document of the control database, for processes that cannot reach it."""

    name: str
    version: int
    #: Canonical bytes.
    body: bytes
