"""Backfills on real stores: what is copied, refused and why, set aside, and what the gate reads of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, ColumnKey, InvalidRequest, canonical_bytes
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.control.jobs.served import ServedParts
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.errors import InvalidServer, StaleEpoch
from tests.damage import spoil
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.config import load_config
from tripstore.engines.backfill.errors import CannotCopy, MustWait
from tripstore.engines.backfill.runner import Ending, Runner
from tripstore.handover.ports import Chunk
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill, Wanted
from tripstore.migration.backfill.serving import DetachedJobs, JobRunner
from tripstore.migration.cutover.job_facts import job_facts
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

PAST = """
INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'old ' || n FROM generate_series(1, 30) n;
INSERT INTO notes (trip_id, trip_uuid, n, text)
    SELECT id, trip_uuid, k, 'note ' || k FROM trips, generate_series(1, 2) k WHERE id % 2 = 0;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)
    SELECT id, trip_uuid, k, 'tried' FROM trips, generate_series(1, 3) k WHERE id % 3 = 0;
DELETE FROM trips WHERE id % 5 = 0;
DELETE FROM tripstore.queue
"""
#: What no cell can hold: a number beyond all floats.
UNREADABLE = """UPDATE trips SET base_extra = '{"odometer": 1e400}' WHERE trip_uuid = %s"""


@pytest.fixture
def made(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """A company with a past from before capture, and a mirror that is on."""
    with migration(servers, stores, backfill={"parts": 3, "lease_seconds": 0.5}) as opened:
        opened.legacy.sql(PAST)
        opened.phase(Phase.DUALWRITE)
        yield opened


@pytest.fixture
def backfill(made: Migration) -> Backfill:
    return Backfill(made.facade)


def copied(backfill: Backfill, wanted: Wanted = EVERYTHING, keys: list[UUID] | None = None) -> Job:
    """A job that was run to its end."""
    job = backfill.begin(backfill.plan(wanted, keys))
    assert backfill.runner(job, "w").run() is Ending.DONE
    return job


def rows_of(made: Migration) -> dict[UUID, dict[str, Cell]]:
    """Latest cells of every row of Schemaless."""
    pages = [made.facade.store.scan_rows(shard, limit=10_000) for shard in range(made.facade.config.core.shards)]
    return {row.row_key: row.cells for page in pages for row in page.rows}


def legacy_rows(made: Migration) -> dict[UUID, dict[str, Cell]]:
    pages = [made.duo.legacy.scan_rows(shard, limit=10_000) for shard in range(made.facade.config.core.shards)]
    return {row.row_key: row.cells for page in pages for row in page.rows}


def trips(made: Migration, where: str = "true") -> list[UUID]:
    return [UUID(key) for (key,) in made.legacy.sql(f"SELECT trip_uuid::text FROM trips AS t WHERE {where} ORDER BY 1")]


def test_the_whole_past_is_copied_with_children_tombstones_and_ids(made: Migration, backfill: Backfill) -> None:
    row_key = uuid4()
    made.store.put_cell(row_key, "FREE", 4, ["a column that the layout does not know"])
    job = copied(backfill)
    made.carry()

    there = rows_of(made)
    assert there == legacy_rows(made)
    assert len(there) == 31
    assert there[row_key]["FREE"].ref_key == 4
    assert all(LEGACY_ID in there[key] for key in trips(made))
    assert made.legacy.sql("SELECT count(*) FROM notes")[0][0] > 0
    for key, n in made.legacy.sql("SELECT trip_uuid::text, attempt_no FROM attempts"):
        assert made.facade.store.get_cell(UUID(key), "STATUS", n) is not None
    counts = backfill.jobs.progress(job.id).counts
    assert counts["rows"] in (30, 31)
    assert counts["equal"] >= sum(map(len, there.values()))


def test_a_second_one_finds_all_equal_and_writes_nothing(made: Migration, backfill: Backfill) -> None:
    """I4, I11: counted is what is present and equal, not what was inserted."""
    first = copied(backfill)
    before = rows_of(made)

    second = copied(backfill, Wanted(verify=1.0))

    found, known = (dict(backfill.jobs.progress(job.id).counts) for job in (second, first))
    assert found["equal"] == known["equal"] == found["verified"]
    assert found["rows"] == known["rows"] == 30
    assert rows_of(made) == before


def test_rows_of_a_predicate(made: Migration, backfill: Backfill) -> None:
    job = copied(backfill, Wanted(where="t.id % 2 = 0 AND t.status LIKE 'old %'"))

    assert set(rows_of(made)) == set(trips(made, "id % 2 = 0"))
    assert job.spec["is_partial"] is True


def test_cells_of_some_columns(made: Migration, backfill: Backfill) -> None:
    copied(backfill, Wanted(columns=["NOTES"]))

    assert {name for cells in rows_of(made).values() for name in cells} == {"NOTES"}


def test_rows_of_a_list(made: Migration, backfill: Backfill) -> None:
    keys = trips(made)[:5]

    job = copied(backfill, Wanted(keys_from="keys.txt", chunk_rows=2), [*keys, keys[0]])

    assert set(rows_of(made)) == set(keys)
    assert backfill.jobs.progress(job.id).counts["rows"] == 5
    assert job.spec["estimate"] == 5


def test_of_a_list_a_predicate_chooses(made: Migration, backfill: Backfill) -> None:
    keys = trips(made)[:8]

    job = copied(backfill, Wanted(where="t.id % 2 = 0", keys_from="keys.txt", chunk_rows=3), keys)
    copied(backfill, Wanted(where="false", keys_from="keys.txt"), keys)

    chosen = set(keys) & set(trips(made, "id % 2 = 0"))
    assert 0 < len(chosen) < len(keys)
    assert set(rows_of(made)) == chosen
    assert backfill.jobs.progress(job.id).counts["rows"] == len(chosen)


def test_a_row_of_the_list_that_is_gone_leaves_its_tombstone(made: Migration, backfill: Backfill) -> None:
    (key, *_) = trips(made)
    job = backfill.begin(backfill.plan(Wanted(keys_from="keys.txt"), [key, uuid4()]))
    made.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))

    assert backfill.runner(job, "w").run() is Ending.DONE

    cell = made.facade.store.get_cell_latest(key, "BASE")
    assert cell is not None
    assert cell.is_tombstone


@pytest.mark.parametrize("where", ["no_such_column = 1", "true) OR (", "1", "", " "])
def test_a_predicate_that_is_none_is_refused_before_there_is_a_job(backfill: Backfill, where: str) -> None:
    with pytest.raises(InvalidRequest, match="no condition") as caught:
        backfill.plan(Wanted(where=where))

    assert caught.value.hint
    assert backfill.jobs.all() == []


def test_a_predicate_that_fails_on_a_row_pauses_the_job(made: Migration, backfill: Backfill) -> None:
    """One row is tried before there is a job, not all."""
    job = backfill.begin(backfill.plan(Wanted(where="10 / (t.id - 1000) < 100")))
    made.legacy.sql("INSERT INTO trips (id, trip_uuid, status) VALUES (1000, gen_random_uuid(), 'old')")

    assert backfill.runner(job, "w").run() is Ending.PAUSED

    audited = AuditLog(made.facade.store.control).newest(5)
    assert any("The predicate fails on a row" in str(entry) for entry in audited)


def test_without_a_mirror_nothing_is_copied(made: Migration, backfill: Backfill) -> None:
    """Capture alone is not enough: what changes while it copies has to be carried."""
    made.phase(Phase.OFF)

    with pytest.raises(CannotCopy, match="In phase off no relay carries") as caught:
        backfill.plan(EVERYTHING)

    assert caught.value.hint is not None
    assert "phase set dualwrite" in caught.value.hint


def test_while_schemaless_is_the_authority_nothing_is_copied(made: Migration, backfill: Backfill) -> None:
    job = backfill.begin(backfill.plan(EVERYTHING))
    made.phase(Phase.LIVE)

    with pytest.raises(CannotCopy, match="Schemaless is the authority"):
        backfill.plan(EVERYTHING)
    assert Backfill(made.facade).runner(job, "w").run() is Ending.PAUSED
    assert "Schemaless is the authority" in backfill.jobs.find("backfill", job.id).why
    assert rows_of(made) == {}


def test_while_a_hand_over_goes_on_a_chunk_waits(made: Migration, backfill: Backfill) -> None:
    job = backfill.begin(backfill.plan(EVERYTHING))
    control = made.duo.ports.control
    row = control.authority()
    assert control.close(row, row.closing("test"))

    with pytest.raises(MustWait):
        backfill.copying(job.spec).copy({"after": None, "upto": None}, None, 10, 0.0)

    closing = control.authority()
    assert control.undo(closing, closing.undone())
    control.obey()
    assert backfill.runner(job, "w").run() is Ending.DONE


def test_a_copy_of_before_a_switch_is_taken_by_no_shard(made: Migration, backfill: Backfill) -> None:
    """I9: what was read at an epoch that is over is copied again, and then no process copies."""
    job = backfill.begin(backfill.plan(EVERYTHING))
    copying = backfill.copying(job.spec)
    first = copying.copy({"after": None, "upto": None}, None, 1, 0.0)  # its look is believed for a second
    put = made.duo.ports.store.put_encoded
    switched: list[bool] = []

    def switch_first(cells: object, epoch: int) -> object:
        if not switched:
            made.carry()
            switched.append(run(switch(made.duo.ports, "in between")).is_decided)
        return put(cells, epoch)  # type: ignore[arg-type]  # as they came

    made.duo.ports.store.put_encoded = switch_first  # type: ignore[method-assign,assignment]  # once
    late = copying.copy({"after": None, "upto": None}, None, 10_000, 0.0)

    assert switched == [True]
    assert late.is_again
    assert 0 < len(rows_of(made)) == first.rows < 30


def test_i9_a_chunk_is_read_only_while_postgres_is_the_authority(made: Migration, backfill: Backfill) -> None:
    """That it was so a second ago says nothing: what an owner of Schemaless deleted since would come back."""
    plan = backfill.plan(EVERYTHING)
    copying = backfill.copying(plan.spec)
    copied = copying.copy(plan.parts[0], None, 1, 0.0)  # its look is believed for a second
    control = made.duo.ports.control
    row = control.authority()
    assert control.close(row, row.closing("test"))

    with pytest.raises(StaleEpoch, match="being handed over"):
        copying.copy(plan.parts[0], copied.checkpoint, 1_000, 0.0)

    closing = control.authority()
    assert control.undo(closing, closing.undone())
    control.obey()
    made.carry()
    assert run(switch(made.duo.ports, "in between")).is_decided
    before = rows_of(made)
    with pytest.raises(StaleEpoch, match="is not the authority"):
        copying.copy(plan.parts[0], copied.checkpoint, 1_000, 0.0)
    assert rows_of(made) == before


def test_i1_what_postgres_could_still_lose_is_not_copied(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asynchronous commit is seen before it is durable."""
    plan = backfill.plan(EVERYTHING)
    put, seen = made.duo.ports.store.put_encoded, list[bool]()
    with closing(made.legacy.connect(autocommit=True)) as service, service.cursor() as cursor:

        def put_of_the_durable(cells: object, epoch: int) -> object:
            cursor.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", (written,))
            seen.extend(is_durable for (is_durable,) in cursor.fetchall())
            return put(cells, epoch)  # type: ignore[arg-type]  # as they came

        monkeypatch.setattr(made.duo.ports.store, "put_encoded", put_of_the_durable)
        cursor.execute("SET synchronous_commit = off; UPDATE trips SET status = status || '!'")
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        ((written,),) = cursor.fetchall()
        for part in plan.parts:
            backfill.copying(plan.spec).copy(part, None, 1_000, 0.0)

    assert seen == [True] * len(plan.parts)


def test_what_row_security_hides_is_an_error_and_not_missing(made: Migration) -> None:
    """Of backfill and diff; else both would agree on too little."""
    name = f"hidden_{uuid4().hex[:8]}"
    made.legacy.sql(
        f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT ALL ON ALL TABLES IN SCHEMA public, tripstore TO {name};"
        f"GRANT USAGE ON SCHEMA public, tripstore TO {name};"
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public, tripstore TO {name};"
        "ALTER TABLE trips ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON trips USING (id > 3)"
    )
    url = re.sub(r"//[^@]*@", f"//{name}:x@", made.legacy.url)
    document = {**made.document, "legacy": {**cast("dict[str, Any]", made.document["legacy"]), "postgres": url}}
    with closing(TripStore(build(load_config(document)))) as store:
        assert store.facade.duo is not None
        with pytest.raises(CannotCopy, match="row-level security that holds for the role") as told:
            Backfill(store.facade).plan(EVERYTHING)
        assert "BYPASSRLS" in (told.value.hint or "")
        with pytest.raises(InvalidServer, match="row-level security"):
            store.facade.duo.ports.legacy.read_chunk(Chunk())
        diffing = Diffing(store.facade)
        job = diffing.begin(diffing.plan(Order(indexes=False, decoded=0)))
        with pytest.raises(InvalidServer, match="row-level security"):
            diffing.runner(job, "w").run()


def test_capture_that_is_broken_lets_none_begin(made: Migration, backfill: Backfill) -> None:
    made.legacy.sql("UPDATE tripstore.capture SET since = NULL, broken = 'trips was truncated'")

    with pytest.raises(CannotCopy, match="trips was truncated") as caught:
        backfill.plan(EVERYTHING)

    assert caught.value.hint is not None
    assert "schema apply" in caught.value.hint


def test_capture_that_begins_anew_ends_what_relied_on_it(made: Migration, backfill: Backfill) -> None:
    job = backfill.begin(backfill.plan(EVERYTHING))
    made.legacy.sql("UPDATE tripstore.capture SET since = clock_timestamp()")

    assert backfill.runner(job, "w").run() is Ending.PAUSED
    assert "Capture began anew" in backfill.jobs.find("backfill", job.id).why


def test_what_cannot_be_a_cell_is_set_aside_and_copied_when_it_is_mended(made: Migration, backfill: Backfill) -> None:
    """Only the rows in quarantine are read again; their findings are answered."""
    bad, other = trips(made)[3], trips(made)[8]
    for key in (bad, other):
        made.legacy.sql(UNREADABLE, str(key))
    made.legacy.sql("DELETE FROM tripstore.queue")
    job = copied(backfill)

    found = backfill.jobs.findings(job.id)
    assert sorted(each.row_key for each in found if each.row_key) == sorted([bad, other])
    assert {each.kind for each in found} == {"unreadable"}
    assert all("odometer" in str(each.body["field"]) and each.body["reason"] for each in found)
    assert backfill.jobs.progress(job.id).counts["quarantined"] == 2
    assert open_in_ledger(made) == 2

    made.legacy.sql("UPDATE trips SET base_extra = NULL WHERE trip_uuid = %s", str(bad))
    made.legacy.sql("DELETE FROM tripstore.queue")
    retry = backfill.begin(backfill.plan_retry("last"))
    assert backfill.runner(retry, "w").run() is Ending.DONE

    assert retry.spec["retry_of"] == job.id
    assert backfill.jobs.progress(retry.id).counts["rows"] == 2
    assert backfill.jobs.findings(job.id) == []
    assert [each.row_key for each in backfill.jobs.findings(retry.id)] == [other]
    assert open_in_ledger(made) == 1
    assert made.facade.store.get_cells_latest([ColumnKey(bad, "BASE")]) != [None]
    assert made.facade.store.get_cells_latest([ColumnKey(other, "BASE")]) == [None]


def test_a_conflict_stays_open_until_its_own_version_is_seen_to_be_equal(made: Migration, backfill: Backfill) -> None:
    """I12: that a later version of the row can be copied says nothing of the one that another body stands under."""
    mended, later = trips(made)[:2]
    copier = made.facade.store.as_copier()
    wanted = {key: made.duo.legacy.get_row(key)["BASE"] for key in (mended, later)}
    wrong = {key: Cell(key, "BASE", cell.ref_key, {"status": "wrong"}) for key, cell in wanted.items()}
    copier.put_cells(list(wrong.values()))
    job = copied(backfill)
    assert {(each.kind, each.row_key) for each in backfill.jobs.findings(job.id)} == {
        ("conflict", mended),
        ("conflict", later),
    }

    made.legacy.sql("UPDATE trips SET status = 'newer' WHERE trip_uuid = %s", str(later))
    made.legacy.sql("DELETE FROM tripstore.queue")
    again = backfill.begin(backfill.plan_retry(job.id))
    assert backfill.runner(again, "w").run() is Ending.DONE
    assert [each.row_key for each in backfill.jobs.findings(job.id)] == [later]
    assert [each.row_key for each in backfill.jobs.findings(again.id)] == [mended]
    assert open_in_ledger(made) == 2

    mends = copier.mends.of_job("test")
    raw = mends.find(CellKey(mended, "BASE", wanted[mended].ref_key))
    assert raw is not None
    assert mends.mend(raw, canonical_bytes(wanted[mended].body))
    last = backfill.begin(backfill.plan_retry(again.id))
    assert backfill.runner(last, "w").run() is Ending.DONE
    assert backfill.jobs.findings(again.id) == []
    assert open_in_ledger(made) == 1


def test_a_retry_keeps_the_limits_of_the_job_that_it_retries(made: Migration, backfill: Backfill) -> None:
    made.legacy.sql(UNREADABLE, str(trips(made)[3]))
    made.legacy.sql("DELETE FROM tripstore.queue")
    plan = backfill.plan(Wanted(rate=5_000, postgres_load_max=8.0, verify=1.0, chunk_rows=2))
    job = backfill.begin(plan)
    assert backfill.runner(job, "w").run() is Ending.DONE

    kept = backfill.plan_retry(job.id).spec
    said = backfill.plan_retry(job.id, Wanted(rate=0, verify=0.5)).spec

    assert [kept[name] for name in ("rate", "postgres_load_max", "verify", "chunk_rows")] == [5_000, 8.0, 1.0, 2]
    assert [said[name] for name in ("rate", "postgres_load_max", "verify", "chunk_rows")] == [0, 8.0, 0.5, 2]


def test_a_retry_of_nothing_is_refused(backfill: Backfill) -> None:
    copied(backfill)

    with pytest.raises(InvalidRequest, match="quarantine"):
        backfill.plan_retry("last")


def test_what_schemaless_has_otherwise_is_a_conflict_and_stays(made: Migration, backfill: Backfill) -> None:
    """I2: two bodies under one key, reported; none of them wins in silence."""
    (key, *_) = trips(made)
    made.facade.store.as_copier().put_cell(key, "BASE", 1, {"status": "from elsewhere"})

    job = copied(backfill)

    (found,) = backfill.jobs.findings(job.id)
    assert (found.kind, found.row_key, found.column_name, found.ref_key) == ("conflict", key, "BASE", 1)
    assert "elsewhere" not in str(found.body)
    assert backfill.jobs.progress(job.id).counts["conflicts"] == 1
    cell = made.facade.store.get_cell(key, "BASE", 1)
    assert cell is not None
    assert cell.body == {"status": "from elsewhere"}


def test_corruption_of_while_it_stood_is_found_by_the_next_copy(made: Migration, backfill: Backfill) -> None:
    copied(backfill)
    (key, *_) = trips(made)
    spoil(made.facade.store, Cell(key, "BASE", 1, None), b'{"status":"?"}')

    again = copied(backfill, Wanted(verify=1.0))

    assert [(each.kind, each.row_key) for each in backfill.jobs.findings(again.id)] == [("conflict", key)]


def test_a_writer_that_writes_something_else_is_found_out_by_verification(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control: the answers of the write are not what verification goes by."""
    put = made.duo.ports.store.put_encoded

    def put_otherwise(cells: list[Cell], epoch: int) -> object:
        return put([cell._replace(ref_key=cell.ref_key + 7) for cell in cells], epoch)  # type: ignore[attr-defined]  # they are cells

    monkeypatch.setattr(made.duo.ports.store, "put_encoded", put_otherwise)
    keys = trips(made)[:2]

    job = copied(backfill, Wanted(keys_from="two", columns=["BASE"], verify=1.0), keys)

    assert sorted(each.row_key for each in backfill.jobs.findings(job.id) if each.row_key) == keys
    assert backfill.jobs.progress(job.id).counts.get("equal", 0) == 0


def test_several_workers_share_a_job_and_count_exactly(made: Migration, backfill: Backfill) -> None:
    """I11."""
    job = backfill.begin(backfill.plan(Wanted(chunk_rows=3)))
    endings: list[Ending] = []

    def work(name: str) -> None:
        endings.append(Backfill(made.facade).runner(job, name).run())

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert endings == [Ending.DONE] * 3
    assert backfill.jobs.progress(job.id).counts["rows"] == 30
    assert rows_of(made) == legacy_rows(made)


def test_the_gate_reads_the_whole_one_whatever_came_after(made: Migration, backfill: Backfill) -> None:
    job = copied(backfill)
    copied(backfill, Wanted(where="t.id = 1"))
    backfill.begin(backfill.plan(EVERYTHING))

    found = job_facts([note.body for note in Ledgers(made.facade.store.control).notes("backfill")])

    assert found is not None
    assert (found.is_complete, found.is_partial, found.rows) == (True, False, 30)
    assert found.begun_at == job.begun_at
    ((since,),) = made.legacy.sql("SELECT since FROM tripstore.capture")
    assert found.capture_since == since


def test_detached_jobs_are_served_by_any_worker_that_serves_jobs(made: Migration, backfill: Backfill) -> None:
    """One that fails is left alone; the others do not wait for it."""
    broken = backfill.jobs.create("broken", {}, [None], is_detached=True)
    first = backfill.begin(backfill.plan(Wanted(where="t.id < 10")), is_detached=True)
    second = backfill.begin(backfill.plan(EVERYTHING), is_detached=True)
    own = backfill.begin(backfill.plan(EVERYTHING))

    def fail(_job: Job) -> Failing:
        return Failing()

    def copy(job: Job) -> Runner:
        return backfill.runner(job, "served", is_patient=True)

    runners: dict[str, Callable[[Job], JobRunner]] = {"backfill": copy, "broken": fail}
    with DetachedJobs(backfill.jobs, runners, look_seconds=0.01):
        for _ in range(2_000):
            if backfill.jobs.state(second.id) is JobState.DONE:
                break
            threading.Event().wait(0.01)

    assert backfill.jobs.state(first.id) is JobState.DONE
    assert backfill.jobs.state(second.id) is JobState.DONE
    assert backfill.jobs.state(own.id) is JobState.RUNNING
    assert backfill.jobs.state(broken.id) is JobState.RUNNING


class Failing:
    """A runner with a bug."""

    served = ServedParts()

    def run(self) -> None:
        raise ValueError("a bug")

    def serve_some(self, parts_max: int) -> None:
        raise ValueError("a bug")

    def stop(self) -> None:
        pass


def open_in_ledger(made: Migration) -> int:
    found = job_facts([note.body for note in Ledgers(made.facade.store.control).notes("backfill")])
    assert found is not None
    return found.open
