"""Row key → shard: the same everywhere and for ever, and even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import md5
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash, shard_of


@pytest.mark.parametrize(
    ("row_key", "shards", "expected"),
    [
        # md5 of 16 zero bytes is 4ae71336 e44bf9bf 79d2752e 234818a5.
        (UUID(int=0), 4096, 0x4AE71336 % 4096),
        (UUID(int=0), 7, 0x4AE71336 % 7),
        # md5 of 16 bytes of 0xff is 8d79cbc9 a4ecdde1 12fc91ba 625b13c2.
        (UUID(int=2**128 - 1), 4096, 0x8D79CBC9 % 4096),
        (UUID(int=2**128 - 1), 65536, 0xCBC9),
    ],
)
def test_the_shard_of_a_row_key_never_changes(row_key: UUID, shards: int, expected: int) -> None:
    assert shard_of(row_key, shards) == expected


def test_the_bucket_comes_from_the_second_four_bytes() -> None:
    assert bucket_of(bytes(16)) == 0xE44BF9BF % BUCKETS_PER_SHARD
    assert bucket_of(b"\xff" * 16) == 0xA4ECDDE1 % BUCKETS_PER_SHARD


@given(st.uuids(), st.integers(1, 65536))
def test_a_shard_is_the_first_four_bytes_of_md5_modulo_the_count(row_key: UUID, shards: int) -> None:
    assert shard_of(row_key, shards) == int(md5(row_key.bytes).hexdigest()[:8], 16) % shards


def test_a_cell_hash_is_the_first_eight_bytes_of_md5_over_the_cell() -> None:
    row_key = UUID(int=5).bytes
    expected = md5(row_key + b"BASE\x00-7\x00" + b'{"a":1}').hexdigest()[:16]

    assert cell_hash(row_key, b"BASE", -7, b'{"a":1}') == int(expected, 16)


def test_column_and_ref_key_cannot_run_into_each_other() -> None:
    row_key = bytes(16)

    assert cell_hash(row_key, b"A1", 1, b"1") != cell_hash(row_key, b"A", 11, b"1")
    assert cell_hash(row_key, b"A", 1, b"11") != cell_hash(row_key, b"A", 11, b"1")


@pytest.mark.parametrize("kind", ["random", "time-ordered", "counting"])
def test_shards_and_buckets_are_even_whatever_the_uuids(kind: str) -> None:
    per_shard, shards = 200, 64
    kinds: dict[str, Callable[[int], UUID]] = {
        "random": lambda n: uuid4(),
        # UUIDv7: a millisecond in front, and here hardly any randomness behind.
        "time-ordered": lambda n: UUID(int=(1_790_000_000_000 + n) << 80 | 7 << 76 | 2 << 62),
        "counting": lambda n: UUID(int=n),
    }
    keys = [kinds[kind](n) for n in range(per_shard * shards)]

    counts = Counter(shard_of(key, shards) for key in keys)
    buckets = Counter(bucket_of(key.bytes) for key in keys)

    # Six standard deviations of a fair spread.
    assert all(abs(counts[shard] - per_shard) < 6 * per_shard**0.5 for shard in range(shards))
    per_bucket = len(keys) / BUCKETS_PER_SHARD
    assert all(abs(buckets[n] - per_bucket) < 6 * per_bucket**0.5 for n in range(BUCKETS_PER_SHARD))


def test_buckets_are_even_within_one_shard() -> None:
    keys = [key for key in (UUID(int=n) for n in range(40_000)) if shard_of(key, 16) == 3]

    buckets = Counter(bucket_of(key.bytes) for key in keys)

    assert len(buckets) == BUCKETS_PER_SHARD
    assert max(buckets.values()) < 1.6 * min(buckets.values())
