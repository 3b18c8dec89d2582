"""The independent decoder of a diff: which rows it looks at, and what becomes of a connection that breaks under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest

from schemaless_core import ColumnKey, canonical_bytes
from schemaless_core.cell.sharding import shard_of
from schemaless_core.control.jobs.jobs import JobState
from tests.damage import spoil
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire.connections import rows
from tripstore.engines.validation.diff.differences import from_finding
from tripstore.engines.validation.diff.portions import Portion
from tripstore.local.servers import LocalServers
from tripstore.migration.diff import decoding
from tripstore.migration.diff.diff import DECODER, Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

SHARDS = 4
ALL = Order(indexes=False, decoded=1_000)
TRIPS = "INSERT INTO trips (status, memo) SELECT 'requested', {memo} FROM generate_series(1, {count})"


@pytest.fixture
def company(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Forty trips, carried over."""
    with migration(servers, stores, shards=SHARDS) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.sql(TRIPS.format(memo="NULL", count=40))
        made.carry()
        yield made


def decoded(company: Migration, order: Order = ALL) -> Portion:
    return Diffing(company.facade).walks(order)[DECODER].step({}, None)


class Statements:
    """What is sent to Postgres; a connection breaks before the first so many statements."""

    def __init__(self, cuts: int = 0) -> None:
        self.sent: list[str] = []
        self._cuts = cuts

    def __call__(self, connection: Any, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        self.sent.append(statement)
        if len(self.sent) <= self._cuts:
            rows(connection, "SELECT pg_terminate_backend(pg_backend_pid())")
        return rows(connection, statement, parameters)

    @property
    def shares(self) -> list[float]:
        """Of which tables which percentage was looked at."""
        return [float(each.split("SYSTEM (")[1].split(")")[0]) for each in self.sent if "TABLESAMPLE" in each]


def test_a_diff_of_some_shards_decodes_their_rows_alone(company: Migration) -> None:
    store = company.facade.store.as_copier()
    keys = [row.row_key for shard in range(SHARDS) for row in store.scan_rows(shard, None, 100, ["BASE"]).rows]
    for cell in filter(None, store.get_cells_latest([ColumnKey(key, "BASE") for key in keys])):
        spoil(store, cell, canonical_bytes({"status": "wrong"}))
    of_shards = [sum(shard_of(key, SHARDS) in (1, 2) for key in keys), len(keys)]

    some, every = decoded(company, Order(shards=[1, 3], decoded=1_000)), decoded(company)

    assert 0 < of_shards[0] < of_shards[1] == 40
    assert [each.counts["decoder_differs"] for each in (some, every)] == of_shards
    assert {shard_of(each.row_key, SHARDS) for each in some.found} == {1, 2}


def test_a_connection_that_breaks_is_made_anew(company: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Statements(cuts=2)
    monkeypatch.setattr(decoding, "rows", sent)
    diffing = Diffing(company.facade)
    job = diffing.begin(diffing.plan(ALL))

    assert diffing.runner(job, "test").run() is JobState.DONE

    assert diffing.jobs.progress(job.id).counts["decoder_equal"] == 40
    assert [each for each in map(from_finding, diffing.jobs.findings(job.id)) if each] == []
    assert len(sent.sent) == 2 + 2 * 3  # of three columns size and rows


def test_without_an_end_it_leaves_as_an_error_of_ours(company: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "rows", Statements(cuts=1))

    with pytest.raises(LegacyUnavailable, match="Postgres"):
        decoded(company)


def test_a_table_that_gives_no_rows_in_time_is_said_with_a_way_out(
    company: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session holds the table here; reading a large one may take as long."""
    monkeypatch.setattr(decoding, "SECONDS", 0.1)
    holder = company.legacy.connect()
    try:
        rows(holder, "LOCK TABLE trips IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LegacyUnavailable, match="gave no rows of") as raised:
            decoded(company)
    finally:
        holder.close()

    assert "--decoded" in (raised.value.hint or "")
    assert isinstance(raised.value.__cause__, psycopg2.errors.QueryCanceled)


def test_a_large_table_that_was_never_analysed_is_sampled(company: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: when it was analysed it is known to have few rows, and is read whole."""
    legacy, sent = company.legacy, Statements()
    legacy.sql("ALTER TABLE trips SET (fillfactor = 10, autovacuum_enabled = false)")
    legacy.sql(TRIPS.format(memo="repeat('x', 700)", count=1_200))  # a page each
    legacy.sql("DELETE FROM tripstore.queue")
    ((known,),) = legacy.sql("SELECT reltuples FROM pg_class WHERE oid = 'trips'::regclass")
    monkeypatch.setattr(decoding, "rows", sent)
    order = Order(columns=["BASE"], decoded=100)

    few = decoded(company, order)
    legacy.sql("ANALYZE trips")
    many = decoded(company, order)

    assert known <= 0
    assert sent.shares[0] == pytest.approx(100 * decoding.SMALL / 12_000, rel=0.1)
    assert 0 < few.counts["decoder_skipped"] + few.counts["decoder_equal"] <= 100
    assert sent.shares[1] == 100.0
    assert many.counts["decoder_skipped"] + many.counts["decoder_equal"] == 100
