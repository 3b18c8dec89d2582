"""How long a call waits for a place in the pool of a server."""

from __future__ import annotations

import time

import pytest

from schemaless_core.config import PoolConfig
from schemaless_core.deadline import Deadline, InAll
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.permits import NoPermit
from schemaless_core.engine.mysql.wire.pool import Pool

PATIENCE_SECONDS = 0.5


def seconds_waited(seconds: float) -> float:
    """At a pool whose one place is taken, for a call of so many seconds."""

    def connect(_deadline: Deadline) -> DeadlineConnection:
        raise AssertionError("a call without a place connects")

    pool = Pool(PoolConfig(size=1, overflow=0, reads=0), connect)
    pool._permits.take(0.0)
    begun = time.monotonic()
    with pytest.raises(NoPermit):
        pool.lend(Deadline(seconds), PATIENCE_SECONDS)
    return time.monotonic() - begun


def test_a_call_of_so_many_seconds_in_all_waits_no_longer_for_a_connection() -> None:
    assert seconds_waited(InAll(0.01)) < PATIENCE_SECONDS
    assert seconds_waited(0.01) >= PATIENCE_SECONDS  # any other
