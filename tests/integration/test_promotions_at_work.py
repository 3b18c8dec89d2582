"""Postgres is promoted at each failpoint of a backfill and of a repair: none goes by what the lost one said.

The standby follows, or it was cut off before changes that were copied or carried: they are gone with the primary. What
is at work stops there, and goes on when the promoted server is accepted. What it had done by the word of the lost one
is named (I1, I8), its counts are exact (I11), and no gate believes its verdict (I9, I12).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg2
import pytest

from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job, JobState
from tests.chaos.backfill_actors import check_saves, run_here
from tests.damage import lose
from tests.facades import Migration
from tests.indexing import catch_up
from tests.promotions import (
    check_accepted,
    check_ledger,
    check_mends,
    compared,
    lost,
    refused,
    repairer,
    repairing,
)
from tests.repairs import STATUS_INDEX, doing_at, foreign, stored
from tests.scale import SCALE
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.engines.backfill.errors import GaveUp
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted

#: CI takes the first, and two of the other, of a standby that was cut off.
BACKFILL = (
    "backfill.write",
    "backfill.claimed",
    "backfill.read",
    "backfill.written",
    "backfill.verified",
    "backfill.before_save",
    "backfill.saved",
)
REPAIR = (
    "lift.before_commit",
    "repair.ended",
    "repair.claimed",
    "repair.mirror_read",
    "repair.looked",
    "repair.before_lift",
    "lift.committed",
    "repair.before_bury",
    "burial.locked",
    "burial.before_commit",
    "repair.settled",
    "repair.before_save",
    "repair.saved",
    "repair.before_end",
    "repair.rebuilt",
    "repair.index_saved",
    "repair.rechecked",
)
#: Nothing is asked of Postgres after these.
LAST = ("repair.rechecked", "repair.ended")
BEHIND = pytest.mark.parametrize(
    "is_behind", [True, False] if SCALE >= 1 else [True], ids=lambda is_behind: "cut off" if is_behind else "following"
)
DETACH = "ALTER TABLE notes DETACH PARTITION notes_0"
ROWS = (
    "SELECT * FROM trips ORDER BY 1",
    "SELECT * FROM notes ORDER BY 1, 3",
    "SELECT * FROM tripstore.tomb ORDER BY 1, 2, 3",
    "SELECT * FROM tripstore.cell ORDER BY 1, 2, 3",
    "SELECT count(*) FROM tripstore.queue",
    "SELECT count(*) FROM tripstore.log",
)


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    patience = {"patience_seconds": 0.3, "parts": 1}
    with fail_over(servers, stores, request.param, indexes=[STATUS_INDEX], backfill=patience) as made:
        made.hands.carry()
        made.make_durable()
        yield made


def with_notes(hands: Migration) -> list[UUID]:
    """Trips with a note each, by SQL: the first in the order of their keys."""
    keys = [hands.legacy.trip(row_key=UUID(int=number))[1] for number in range(2, 8)]
    hands.legacy.sql(
        "INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, 'a note' FROM trips"
        " WHERE trip_uuid = ANY (%s::uuid[])",
        list(map(str, keys)),
    )
    return keys


def changed(failing_over: FailingOver, keys: list[UUID], *, is_behind: bool) -> None:
    """A trip comes, one is changed, one goes; the standby that is behind has none of that."""
    hands, standby = failing_over.hands, failing_over.pair.standby
    standby.catch_up()
    if is_behind:
        cut_off(standby)
    hands.legacy.trip("new", UUID(int=1))
    hands.legacy.sql("UPDATE trips SET status = 'changed' WHERE trip_uuid = %s", str(keys[0]))
    hands.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(keys[1]))
    if not is_behind:
        standby.catch_up()


def past(hands: Migration) -> list[UUID]:
    """Rows that no relay carries."""
    keys = with_notes(hands)
    hands.legacy.sql("DELETE FROM tripstore.queue")
    return keys


def damaged_and_compared(failing_over: FailingOver, *, is_behind: bool) -> Job:
    """A repair of a foreign version, a lost cell, an entry of each, and rows that went with their partition."""
    hands, store = failing_over.hands, failing_over.hands.facade.store
    keys = with_notes(hands)
    hands.carry()
    foreign(hands, keys[2], 40)
    catch_up(store)
    lose(store, stored(hands, keys[3]))
    hands.legacy.sql(DETACH)
    job = repairing(hands, compared(hands))
    changed(failing_over, keys, is_behind=is_behind)
    hands.carry()
    return job


def rows_of(failing_over: FailingOver) -> list[object]:
    """What the promoted server has, whether it is accepted or not."""
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        found: list[object] = []
        for statement in ROWS:
            cursor.execute(statement)
            found.append(cursor.fetchall())
        return found


class Loss:
    """Loses the primary, once; whether anything was written into the promoted server since."""

    def __init__(self, failing_over: FailingOver) -> None:
        self._failing_over = failing_over
        self._rows: list[object] = []

    def __call__(self) -> None:
        self._failing_over.lose_the_primary()
        self._rows = rows_of(self._failing_over)

    def check_untouched(self) -> None:
        """I9: no process has written there before it was accepted."""
        assert rows_of(self._failing_over) == self._rows
        with pytest.raises(PostgresNotAccepted):
            self._failing_over.hands.duo.ports.control.authority()


def check_not_believed(hands: Migration, *, is_named: bool) -> None:
    """No gate goes by what the lost Postgres said; what it had beyond the promoted one is named, then mended."""
    assert {"lost changes", "diff"} <= refused(hands)
    assert bool(check_ledger(hands)) >= is_named
    check_mends(hands)


@BEHIND
@pytest.mark.parametrize("point", BACKFILL if SCALE >= 1 else BACKFILL[:1])
def test_i1_i8_i9_i11_i12_a_backfill_is_at_a_failpoint(
    failing_over: FailingOver, tmp_path: Path, point: str, is_behind: bool
) -> None:
    """What it has copied by the word of the lost Postgres is counted, and named; it goes on at its checkpoint."""
    hands, journal = failing_over.shadowed(), tmp_path / "jobs.lines"
    changed(failing_over, past(hands), is_behind=is_behind)
    backfill = Backfill(hands.facade)
    job = backfill.begin(backfill.plan(Wanted(chunk_rows=3)))
    loss = Loss(failing_over)

    with doing_at(point, loss), pytest.raises(GaveUp, match="Postgres is not accepted"):
        run_here(backfill, job, journal)
    loss.check_untouched()
    hands.duo.watch.look()
    check_accepted(hands)
    hands.carry()

    assert run_here(backfill, job, journal) == "done"
    seen = backfill.jobs.progress(job.id)
    assert check_saves(journal, seen.parts) == seen.counts
    assert backfill.jobs.findings(job.id) == []
    check_not_believed(hands, is_named=is_behind and point not in ("backfill.claimed", "backfill.read"))


@BEHIND
@pytest.mark.parametrize("point", REPAIR if SCALE >= 1 else REPAIR[:2])
def test_i1_i8_i9_i11_i12_a_repair_is_at_a_failpoint(failing_over: FailingOver, point: str, is_behind: bool) -> None:
    """It lifts, buries and puts. What it did by the word of the lost Postgres is done again, or named."""
    hands = failing_over.shadowed()
    job = damaged_and_compared(failing_over, is_behind=is_behind)
    loss, ending = Loss(failing_over), threading.Event()

    with doing_at(point, loss):
        if point in LAST:
            assert repairer(hands, job).run(ending) is JobState.DONE
        else:
            with pytest.raises(PostgresNotAccepted):
                repairer(hands, job).run(ending)
    loss.check_untouched()
    hands.duo.watch.look()
    check_accepted(hands)

    assert repairer(hands, job).run(ending) is JobState.DONE
    counts = Jobs(hands.facade.store.control).progress(job.id).counts
    assert counts["equal"] == counts["rows"] > 0
    hands.carry()
    assert hands.facade.store.indexes.verify("status_index", patience_seconds=5).is_clean
    check_not_believed(hands, is_named=is_behind)


@pytest.mark.parametrize("work", ["backfill", "repair"])
def test_control_without_the_guard_the_word_of_the_lost_postgres_is_believed(
    failing_over: FailingOver, tmp_path: Path, work: str
) -> None:
    """Both go on in a Postgres that was never accepted, and no gate asks for what it lacks."""
    hands = failing_over.shadowed(guards=False)
    if work == "backfill":
        changed(failing_over, past(hands), is_behind=True)
        backfill = Backfill(hands.facade)
        job = backfill.begin(backfill.plan(Wanted(chunk_rows=3)))
        with doing_at("backfill.saved", failing_over.lose_the_primary):
            assert run_here(backfill, job, tmp_path / "jobs.lines") == "done"
    else:
        job = damaged_and_compared(failing_over, is_behind=True)
        with doing_at("lift.before_commit", failing_over.lose_the_primary):
            assert repairer(hands, job).run(threading.Event()) is JobState.DONE

    assert lost(hands)[0]
    assert "lost changes" not in refused(hands)
