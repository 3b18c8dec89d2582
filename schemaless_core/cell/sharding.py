"""Row key → shard. Even for time-ordered UUIDs, and computable in Python, MySQL and Postgres alike."""

from __future__ import annotations

from hashlib import md5
from struct import Struct
from typing import NewType
from uuid import UUID

from schemaless_core.cell.short_md5 import short_md5

ShardNumber = int
Epoch = NewType("Epoch", int)

_first_uint = Struct(">I").unpack_from

#: Checksum buckets of one shard.
BUCKETS_PER_SHARD = 16


def shard_of(row_key: UUID, shards: int) -> ShardNumber:
    """First four bytes of md5(row key bytes) as an unsigned int, modulo the shard count."""
    return shard_of_bytes(row_key.bytes, shards)


def shard_of_bytes(row_key: bytes, shards: int) -> ShardNumber:
    """The same of a row key as it is stored."""
    number: int = _first_uint(short_md5(row_key).digest())[0]
    return number % shards


def bucket_of(row_key: bytes) -> int:
    """The second four md5 bytes, modulo the buckets of a shard: independent of the shard itself."""
    return int.from_bytes(short_md5(row_key).digest()[4:8], "big") % BUCKETS_PER_SHARD


def cell_hash(row_key: bytes, column_name: bytes, ref_key: int, body: bytes) -> int:
    """64 bits that stand for a whole cell in a checksum.

    Column and ref key end with a zero byte, which neither can contain, so no two cells share an input.
    """
    parts = row_key + column_name + b"\0" + str(ref_key).encode() + b"\0" + body
    return int.from_bytes(md5(parts, usedforsecurity=False).digest()[:8], "big")
