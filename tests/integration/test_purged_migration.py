"""A row that was purged from Schemaless, while Postgres has it still: nothing carries it over again (I2, I12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from schemaless_core import CellKey, CellPurged, ColumnKey, Datastore
from schemaless_core.control.jobs.jobs import JobState
from tests.facades import Migration, facts_of, migration
from tests.mirrors import reversing, rows_of, wait_until_mirrored_back
from tests.purges import SECRET, is_back, looking_at_no_key, purge, run, versions
from tests.repairs import base, plan, repair, trip
from tests.stores import Stores
from tripstore.engines.backfill.runner import Ending
from tripstore.engines.validation.diff.differences import EXPLAINED
from tripstore.engines.validation.purged import PurgedAnswers
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.repair import Action
from tripstore.engines.validation.verdicts import Outcome
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill
from tripstore.migration.cutover.facts import NONE_PURGED, PurgedFacts
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

NAME = SECRET.decode()
EVERY_VERSION = Order(older=1.0)
BACK = Order("schemaless", "postgres", older=1.0)
_PAIRS = [("postgres", "sqlite"), ("postgres18", "mariadb")]


@pytest.fixture(params=_PAIRS, ids=" ".join)
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase shadow: Postgres is the authority."""
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, shards=4, backfill={"parts": 2}) as made:
        made.phase(Phase.SHADOW)
        yield made


def lived(moving: Migration) -> UUID:
    """A trip with versions and children, which both stores have."""
    row_key = trip(moving, "requested")
    moving.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s", NAME, str(row_key))
    moving.legacy.sql(
        "INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, %s FROM trips WHERE trip_uuid = %s",
        NAME,
        str(row_key),
    )
    moving.carry()
    assert is_back(moving.facade.store, row_key)
    return row_key


def change(moving: Migration, row_key: UUID, status: str) -> None:
    moving.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s", status, str(row_key))


def compared(moving: Migration, order: Order = EVERY_VERSION) -> Mapping[str, int]:
    """What a diff counts; it has found nothing open."""
    diffing = Diffing(moving.facade)
    job = diffing.begin(diffing.plan(order))
    assert diffing.runner(job, "test").run() is JobState.DONE
    assert diffing.jobs.findings(job.id) == []
    return diffing.jobs.progress(job.id).counts


def backfilled(moving: Migration) -> Mapping[str, int]:
    backfill = Backfill(moving.facade)
    job = backfill.begin(backfill.plan(EVERYTHING))
    assert backfill.runner(job, "test").run() is Ending.DONE
    return backfill.jobs.progress(job.id).counts


def test_i2_neither_relay_nor_backfill_nor_repair_brings_a_purged_row_back(moving: Migration) -> None:
    row_key, store = lived(moving), moving.facade.store
    purge(store, row_key)

    change(moving, row_key, "late")
    moving.carry()
    assert not is_back(store, row_key)
    backfilled(moving)
    assert not is_back(store, row_key)
    assert plan(moving, base(row_key)) == [Action.NOTHING]
    repair(moving, base(row_key))
    assert not is_back(store, row_key)

    moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))
    moving.carry()
    assert not is_back(store, row_key)
    assert moving.duo.ports.control.authority().backend is Backend.LEGACY
    compared(moving)


@pytest.mark.parametrize("way", ["relay", "backfill", "repair"])
def test_control_a_copier_that_looks_at_no_key_brings_a_purged_row_back(moving: Migration, way: str) -> None:
    row_key, store = lived(moving), moving.facade.store
    purge(store, row_key)

    with looking_at_no_key(), patch.object(Datastore, "find_purged", lambda _store, _keys: {}):
        if way == "relay":
            change(moving, row_key, "late")
            moving.carry()
        elif way == "backfill":
            backfilled(moving)
        else:
            repair(moving, base(row_key))

    assert is_back(store, row_key)


@pytest.mark.parametrize("order", [EVERY_VERSION, BACK], ids=["from Postgres", "from Schemaless"])
def test_i12_a_diff_explains_what_was_purged_and_finds_what_was_lost(moving: Migration, order: Order) -> None:
    gone, kept, store = lived(moving), lived(moving), moving.facade.store
    purge(store, gone)

    assert compared(moving, order)[EXPLAINED] > 0

    purges = store.purges
    purges.rows([kept])
    with patch.object(Datastore, "find_purged", lambda _store, _keys: {}), pytest.raises(AssertionError):
        compared(moving, order)


def test_i2_versions_that_were_purged_are_no_difference(moving: Migration) -> None:
    row_key, store = trip(moving), moving.facade.store
    for status in ("accepted", "completed"):
        change(moving, row_key, status)
        moving.carry()
    purges = store.purge_jobs
    run(store, purges.begin(purges.plan(versions("BASE"))))
    assert len(store.get_history(row_key, "BASE")) == 1

    counts = compared(moving)
    backfilled(moving)

    assert counts["older_forgotten"] >= 2
    assert len(store.get_history(row_key, "BASE")) == 1
    compared(moving, BACK)


@pytest.mark.parametrize("column", ["BASE", "FREE"])
def test_i1_what_postgres_alone_acknowledged_of_a_purged_row_keeps_the_switch_away(
    moving: Migration, column: str
) -> None:
    """Postgres knows no purged keys, and takes the put; the relay has nothing to do for it."""
    gone, deleted, store = trip(moving), lived(moving), moving.facade.store
    for row_key in (gone, deleted):
        moving.legacy.sql("DELETE FROM notes WHERE trip_uuid = %s", str(row_key))
        moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))
    moving.carry()
    purge(store, gone, deleted)
    assert facts_of(moving).purged == NONE_PURGED, "as docs/howto/purge.md says it"

    moving.store.put_cell(gone, column, 90, {"status": "acknowledged"})
    moving.carry()

    assert not is_back(store, gone)
    assert facts_of(moving).purged == PurgedFacts(1, (str(gone),))
    moving.store.put_cell(gone, column, 91, None)
    moving.carry()
    assert facts_of(moving).purged == NONE_PURGED


def shadow_read(moving: Migration, read: Read) -> tuple[Outcome, str]:
    """What a shadow read ends with."""
    backend = moving.duo.ports.control.authority().backend
    legacy, store = moving.duo.legacy, moving.facade.store.as_copier()
    authority, other = (legacy, store) if backend is Backend.LEGACY else (store, moving.duo.legacy_mirror)
    verdict = moving.duo.shadow._recheck.verdict(read, authority, other)
    return verdict.outcome, verdict.label


def reads_of(row_key: UUID, other: UUID) -> list[Read]:
    rows = (row_key, other)
    return [
        Read("get_cell_latest", {"row_key": row_key, "column_name": "BASE"}, rows),
        Read("get_cells_latest", {"columns": [ColumnKey(each, "BASE") for each in rows]}, rows),
        Read("get_row", {"row_key": row_key}, rows),
        Read("get_history", {"row_key": row_key, "column_name": "BASE"}, rows),
    ]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted first", "not deleted"])
def test_i12_a_read_that_differs_by_what_was_purged_is_not_compared(moving: Migration, is_deleted: bool) -> None:
    """By docs/howto/purge.md the row is deleted first: Postgres answers with a tombstone, Schemaless with nothing."""
    row_key, other, store = trip(moving), trip(moving), moving.facade.store
    change(moving, row_key, "requested twice")
    if is_deleted:
        moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))
    moving.carry()
    purged = Outcome.NOT_COMPARED, "purged"
    assert {shadow_read(moving, read)[0] for read in reads_of(row_key, other)} == {Outcome.IN_FLIGHT}

    purge(store, row_key)

    reads = reads_of(row_key, other)
    assert [shadow_read(moving, read) for read in reads] == [purged] * len(reads)
    with patch.object(PurgedAnswers, "explain", lambda *_answers: False):  # the control
        assert {shadow_read(moving, read)[0] for read in reads} == {Outcome.MISMATCH}
    if is_deleted:
        moving.phase(Phase.LIVE)
        moving.carry()
        assert [shadow_read(moving, read) for read in reads] == [purged] * len(reads)


def test_i12_what_differs_beside_a_purged_row_is_a_mismatch(moving: Migration) -> None:
    row_key, other, store = trip(moving), trip(moving), moving.facade.store
    purge(store, row_key)
    reads = reads_of(row_key, other)[1]
    raw = store.as_copier().mends.find(CellKey(other, "BASE", base_ref(moving, other)))
    assert raw is not None
    assert store.as_copier().mends.mend(raw, b'{"status":"another"}')

    assert shadow_read(moving, reads)[0] is Outcome.MISMATCH


def base_ref(moving: Migration, row_key: UUID) -> int:
    found = moving.facade.store.get_cell_latest(row_key, "BASE")
    assert found is not None
    return found.ref_key


def test_i2_a_service_is_told_and_the_way_back_carries_nothing_of_a_purged_row(moving: Migration) -> None:
    """Schemaless is the authority: a row is deleted first, which the reverse mirror carries, and purged then."""
    row_key, other, store = trip(moving), uuid4(), moving.facade.store
    moving.phase(Phase.LIVE)
    moving.store.put_cell(row_key, "BASE", 9, None)
    with reversing(moving):
        wait_until_mirrored_back(moving)
    assert rows_of(moving, row_key) == []
    purge(store, row_key)

    with pytest.raises(CellPurged):
        moving.store.put_cell(row_key, "BASE", 10, {"status": "new"})
    moving.store.put_cell(other, "BASE", 1, {"status": "after"})
    with reversing(moving):
        wait_until_mirrored_back(moving)

    assert rows_of(moving, row_key) == []
    assert rows_of(moving, other) != []
    compared(moving, BACK)


def test_a_row_that_was_purged_before_its_tombstone_was_carried_stays_in_postgres(moving: Migration) -> None:
    """Why docs/howto/purge.md has the row deleted first. It comes back to Schemaless by no way all the same."""
    row_key, store = trip(moving), moving.facade.store
    moving.phase(Phase.LIVE)
    moving.store.put_cell(row_key, "BASE", 9, None)
    purge(store, row_key)
    with reversing(moving):
        wait_until_mirrored_back(moving)

    assert rows_of(moving, row_key) != []
    moving.reverse()
    moving.carry()
    assert not is_back(store, row_key)
    compared(moving)
