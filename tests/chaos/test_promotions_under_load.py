"""Postgres is promoted at a failpoint of a backfill or of a repair, while services write and a relay carries.

Services write through the facade and by SQL; the standby was cut off before the work began, or at the loss. What is at
work goes on by itself as soon as a process has accepted the promoted server. Whatever comes of it: what was
acknowledged is there, or is named, or is in neither store and was acknowledged after the cut (I1); counts are exact
(I11); a mend and a repair make both stores equal (I8), and no gate opens before that (I9, I12).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from schemaless_core import CellKey
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job, JobState
from tests.chaos.actors import wait_until
from tests.chaos.backfill_actors import check_saves, run_here
from tests.chaos.failover_actors import Carrying, Trips, Watching, Writer, at_work
from tests.damage import lose
from tests.facades import Migration
from tests.indexing import catch_up
from tests.legacy import FLAVOURS
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
from tests.repairs import doing_at, foreign, stored
from tests.scale import SCALE, scaled
from tests.standbys import FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.repair.opening import Repairs

BACKFILL = (
    "backfill.claimed",
    "backfill.read",
    "backfill.write",
    "backfill.written",
    "backfill.verified",
    "backfill.before_save",
    "backfill.saved",
)
REPAIR = (
    "repair.mirror_read",
    "repair.looked",
    "repair.before_lift",
    "lift.before_commit",
    "lift.committed",
    "repair.before_bury",
    "burial.locked",
    "burial.before_commit",
    "repair.settled",
    "repair.before_save",
    "repair.saved",
    "repair.rechecked",
    "repair.ended",
)
ROWS = 60
#: What was acknowledged so shortly before the cut may not have been streamed yet.
STREAM_SECONDS = 0.2
PAST = """
INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'old ' || n FROM generate_series(1, {n}) n;
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, 'a note' FROM trips WHERE id % 2 = 0;
"""
DETACH = "ALTER TABLE notes DETACH PARTITION notes_0"


class Case(NamedTuple):
    """What is at work, where it is when Postgres is lost, and whether the standby lacks what happened meanwhile."""

    work: str
    point: str
    is_behind: bool

    def __str__(self) -> str:
        return f"{self.point}, {'cut off before' if self.is_behind else 'cut off there'}"


EVERY = [
    Case(work, point, is_behind)
    for work, points in (("backfill", BACKFILL), ("repair", REPAIR))
    for point in points
    for is_behind in (True, False)
]
CONTROLS = [Case("backfill", "backfill.saved", True), Case("repair", "repair.saved", True)]


def chosen(cases: Sequence[Case]) -> Sequence[Case]:
    """All of them; in CI one, another in every run, the same in all processes of it."""
    return cases if SCALE >= 1 else [random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).choice(cases)]


class Lost:
    """Cuts the standby off, and loses Postgres as soon as this thread comes to a failpoint."""

    def __init__(self, failing_over: FailingOver, trips: Trips) -> None:
        self._failing_over = failing_over
        self._trips = trips
        self.cut_at = self.at = 0.0

    @contextmanager
    def at_point(self, case: Case) -> Iterator[None]:
        if case.is_behind:
            self._cut_off()
            wait_until("what the standby lacks is carried", self._is_carried)
        with doing_at(case.point, self._lose):
            yield

    def _lose(self) -> None:
        if not self.cut_at:
            self._cut_off()
        self._failing_over.lose_the_primary()
        self.at = time.monotonic()

    def _cut_off(self) -> None:
        cut_off(self._failing_over.pair.standby)
        self.cut_at = time.monotonic() - STREAM_SECONDS

    def _is_carried(self) -> bool:
        mirror = self._failing_over.store.facade.store.as_copier()
        later = [key for key, at in list(self._trips.acknowledged.items()) if at > self.cut_at + STREAM_SECONDS]
        return any(mirror.get_cell(key, "BASE", 1) is not None for key in later)


@contextmanager
def company(servers: LocalServers, stores: Stores, *, guards: bool = True) -> Iterator[FailingOver]:
    """In shadow, with a past that no relay has carried."""
    with fail_over(servers, stores, FLAVOURS[0], backfill={"parts": 1}) as made:
        made.hands.carry()
        made.make_durable()
        made.shadowed(guards=guards)
        made.hands.legacy.sql(PAST.format(n=ROWS))
        made.hands.legacy.sql("DELETE FROM tripstore.queue")
        yield made


def backfilled(hands: Migration, folder: Path) -> Callable[[], None]:
    """A backfill of the past; what runs it, and checks what it has counted."""
    backfill = Backfill(hands.facade)
    job = backfill.begin(backfill.plan(Wanted(chunk_rows=7)))

    def work() -> None:
        assert run_here(backfill, job, folder / "jobs.lines") == "done"
        seen = backfill.jobs.progress(job.id)
        assert check_saves(folder / "jobs.lines", seen.parts) == seen.counts
        assert seen.counts["rows"] >= ROWS * 3 / 4  # services delete some

    return work


def damaged(hands: Migration, folder: Path) -> Callable[[], None]:
    """A repair of versions that Postgres never had, of cells that went, and of rows that went with their partition."""
    backfilled(hands, folder)()
    found = hands.legacy.sql("SELECT trip_uuid::text FROM trips WHERE status LIKE 'old%' ORDER BY 1 LIMIT 20")
    for key in [UUID(text) for (text,) in found[:10]]:
        foreign(hands, key, 40)
    catch_up(hands.facade.store)
    for key in [UUID(text) for (text,) in found[10:]]:
        lose(hands.facade.store, stored(hands, key))
    hands.legacy.sql(DETACH)
    job = repairing(hands, compared(hands))

    def work() -> None:
        assert repairer(hands, job, is_patient=True).run(threading.Event()) is JobState.DONE
        check_counted(hands, job)

    return work


def check_counted(hands: Migration, job: Job) -> None:
    counts = Jobs(hands.facade.store.control).progress(job.id).counts
    compared_all = counts.get("equal", 0) + counts.get("left", 0) + counts.get("not_compared", 0)
    assert compared_all == counts["rows"] >= 20


def come_to_rest(hands: Migration) -> None:
    """All is carried that can be: a change whose key the lost Postgres had given to another is parked until a mend.

    A cell that went, and whose row a service has changed since, is not put again: its hole is closed, as by `repair`.
    """
    repairs = Repairs(hands.facade)
    repairs.carry()
    repairs.close(repairs.holes())


def check_acknowledged(hands: Migration, listed: set[CellKey], column: str, acknowledged: Mapping[UUID, float]) -> int:
    """Each is at the authority, or named because the mirror has it, or in neither store."""
    mirror, gone = hands.facade.store.as_copier(), 0
    for key in acknowledged:
        if hands.duo.legacy.get_cell(key, column, 1) is None:
            gone += 1
            assert (mirror.get_cell(key, column, 1) is not None) == (CellKey(key, column, 1) in listed)
    return gone


@pytest.mark.shown("tests/integration/test_promotions_at_work.py::test_i1_i8_i9_i11_i12_a_backfill_is_at_a_failpoint")
@pytest.mark.timeout(scaled(600, short=300))
@pytest.mark.parametrize("case", chosen(EVERY), ids=str)
def test_i1_i8_i9_i11_i12_postgres_is_lost_while_services_write(
    servers: LocalServers, stores: Stores, tmp_path: Path, case: Case
) -> None:
    with company(servers, stores) as failing_over:
        hands = failing_over.hands
        work = (backfilled if case.work == "backfill" else damaged)(hands, tmp_path)
        failing_over.pair.standby.catch_up()
        puts, trips, carrying = Writer(failing_over), Trips(failing_over), Carrying(hands)
        carrying.begins.set()
        lost_once = Lost(failing_over, trips)
        with at_work(puts, trips, Watching(hands), carrying):
            with lost_once.at_point(case):
                work()
            begun = time.monotonic()
            wait_until("services go on", lambda: all(max(each.acknowledged.values()) > begun for each in (puts, trips)))
        come_to_rest(hands)

        check_accepted(hands)
        assert {"lost changes", "diff"} <= refused(hands)
        listed = check_ledger(hands)
        gone = 0
        for column, acknowledged in (("FREE", puts.acknowledged), ("BASE", trips.acknowledged)):
            gone += check_acknowledged(hands, listed, column, acknowledged)
            missing = [key for key in acknowledged if hands.duo.legacy.get_cell(key, column, 1) is None]
            assert all(lost_once.cut_at <= acknowledged[key] <= lost_once.at for key in missing)
        count = len(puts.acknowledged) + len(trips.acknowledged)
        print(f"failovers in a {case.work}: {case}, {count} acknowledged, {gone} lost, {len(listed)} cells named")
        check_mends(hands)


@pytest.mark.shown(
    "tests/integration/test_promotions_at_work.py::test_control_without_the_guard_the_word_of_the_lost_postgres_is_believed"
)
@pytest.mark.parametrize("case", chosen(CONTROLS), ids=str)
def test_control_without_the_guard_no_gate_asks_for_what_is_lost(
    servers: LocalServers, stores: Stores, tmp_path: Path, case: Case
) -> None:
    """The same beside services: all go on in a Postgres that was never accepted, as if nothing had been lost."""
    with company(servers, stores, guards=False) as failing_over:
        hands = failing_over.hands
        work = (backfilled if case.work == "backfill" else damaged)(hands, tmp_path)
        failing_over.pair.standby.catch_up()
        trips, carrying = Trips(failing_over), Carrying(hands)
        carrying.begins.set()
        with at_work(trips, carrying), Lost(failing_over, trips).at_point(case):
            work()
        come_to_rest(hands)

        assert hands.duo.ports.control.authority().epoch == 0
        assert lost(hands)[0]
        assert "lost changes" not in refused(hands)
