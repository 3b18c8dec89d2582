"""What is wrong with a row is told and counted once, however often a walk by blocks reads it (I11)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.block_walks import walkable, walked
from tests.facades import Migration
from tests.legacy_databases import FLAVOURS
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill
from tripstore.migration.backfill.walk_end import EndPortion

#: No body holds it. The row is in a block that is read before its table is written anew.
HUGE = """
UPDATE trips SET base_extra = '{"huge": 1e400}' WHERE ctid IN (SELECT ctid FROM trips ORDER BY ctid LIMIT 1);
DELETE FROM tripstore.queue;
"""
KEYLESS = """
ALTER TABLE attempts DISABLE TRIGGER ALL;
ALTER TABLE attempts ALTER trip_uuid DROP NOT NULL;
INSERT INTO attempts (trip_id, attempt_no) SELECT id, 99 FROM trips LIMIT 1;
"""
REWRITE = "VACUUM FULL trips"


@pytest.fixture(params=sorted(FLAVOURS))
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with walkable(servers, stores, request.param) as opened:
        opened.legacy.sql(HUGE)
        yield opened


@pytest.fixture
def backfill(made: Migration) -> Backfill:
    return Backfill(made.facade)


def found(made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Both tables are read once more at the end. How much counts as set aside, and the fields that are named."""
    deeds = {0: KEYLESS, 22: REWRITE}

    job = walked(backfill, monkeypatch, lambda chunk: made.legacy.sql(deeds[chunk]) if chunk in deeds else None)

    counts = backfill.jobs.progress(job.id).counts
    return counts["quarantined"], sorted(str(each.body["field"]) for each in backfill.jobs.findings(job.id))


def test_i11_a_row_that_is_read_again_is_told_of_once(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(made, backfill, monkeypatch) == (2, ["base_extra.huge", "trip_uuid"])


def test_i11_control_without_a_look_at_what_was_found_it_counts_twice(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EndPortion, "may_repeat", False)

    assert found(made, backfill, monkeypatch) == (3, ["base_extra.huge", "base_extra.huge", "trip_uuid"])
