"""Older versions compared set by set, against the closer look at each column by itself, in the same run: rows a second.

Every row has four versions: one from before capture, which Postgres has forgotten, and three that capture has written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from benchmarks.cells import Config
from benchmarks.jobs.diff import prepared
from benchmarks.timing import Comparison, paired
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.engines.validation.diff import older
from tripstore.engines.validation.diff.older import OlderDiff
from tripstore.engines.validation.diff.portions import bounds_of
from tripstore.engines.validation.diff.version_sets import NoSets
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase
from tripstore.wiring import connect

ROWS = 50_000
CHANGES = 3
ROUNDS = 3
CHANGES_PER_CLAIM = 2_000

_ORDER = Order(columns=["BASE"], older=1.0, indexes=False, decoded=0)


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 with fifty thousand rows."""
    count = max(round(ROWS * scale), 2_000)
    config = prepared(postgres, mirror, count)
    _change(config)
    speeds, closer = [], []
    for _ in range(ROUNDS):
        speeds.append(count / _seconds(config, count, has_sets=True))
        closer.append(count / _seconds(config, count, has_sets=False))
    yield paired("older versions set by set, against a look at each", speeds, closer, unit="rows/s")


def _change(config: Config) -> None:
    """Give every row its versions, and have them carried."""
    begun = time.perf_counter()
    with connect(config) as store:
        duo = store.facade.duo
        assert duo is not None, "the configuration has a legacy store"
        store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
        with connected(config["legacy"]["postgres"], "benchmark") as connection:
            for number in range(CHANGES):
                rows(connection, "UPDATE public.trips SET status = %s", (f"changed {number}",))
        assert run(drain(duo.ports, CHANGES_PER_CLAIM)), "a change cannot be delivered"
        with connected(config["legacy"]["postgres"], "benchmark") as connection:
            rows(connection, "ANALYZE")
    click.echo(f"  {CHANGES} changes of each carried: {time.perf_counter() - begun:.0f} s")


def _seconds(config: Config, count: int, *, has_sets: bool) -> float:
    """For all parts, in this process."""
    with connect(config) as store:
        walk = Diffing(store.facade).walks(_ORDER)["older_versions"]
        assert isinstance(walk, OlderDiff), "what compares older versions"
        if not has_sets:
            walk._sets = NoSets()
        begun, checkpoint, is_end, equal = time.perf_counter(), None, False, 0
        while not is_end:
            portion = walk.step(bounds_of(range(store.facade.store.config.shards)), checkpoint)
            checkpoint, is_end = portion.checkpoint, portion.is_end
            equal += portion.counts[f"{older.PREFIX}equal"]
        seconds = time.perf_counter() - begun
    assert equal == count * (CHANGES - 1), f"{equal} versions are equal"
    return seconds
