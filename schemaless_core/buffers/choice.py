"""In which order the buffers of other clusters are offered the cells of a row."""

from __future__ import annotations

import hashlib
from collections.abc import Collection


def others_by_weight(row_key: bytes, own: str, clusters: Collection[str]) -> tuple[str, ...]:
    """All but the own one, by rendezvous hash: writes of one row meet, those of many rows are spread.

    While a cluster is added or taken away, only its own rows move.
    """
    others = [name for name in clusters if name != own]
    return tuple(sorted(others, key=lambda name: hashlib.sha256(row_key + name.encode()).digest()))
