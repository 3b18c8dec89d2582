"""The report of a real migration: it counts what happened, and is made even if servers do not answer (I10, I12)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from schemaless_core import CellStore, Json, canonical_bytes
from schemaless_core.cell.children import ChildKey
from schemaless_core.control.jobs.jobs import Finding, Jobs
from tests.damage import spoil
from tests.facades import Migration, folder_of, in_mirror, migration
from tests.integration.test_shadow_reads import CORRUPT
from tests.pages import read_page
from tests.schemas import faults
from tests.shadow_traffic import ALL
from tests.stores import Stores
from tripstore.engines.validation.diff.latest import PlainLatest
from tripstore.engines.validation.report.document import Operation, Report, ReportLatency, ReportWaiting
from tripstore.engines.validation.report.glance import glance
from tripstore.engines.validation.report.html import render
from tripstore.facade.flags import Comparing
from tripstore.facade.latency import CALL
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.unit import UNIT
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.report.gather import WantedReport, gather
from tripstore.migration.report.redacting import without_values
from tripstore.migration.report.sides import ReportSides
from tripstore.phase import Phase

SECRET = "a rider's secret"
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "report-1.schema.json"


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, shadow=ALL) as made:
        made.phase(Phase.SHADOW)
        yield made


def trip(moving: Migration) -> UUID:
    _id, key = moving.legacy.trip(SECRET)
    moving.carry()
    return key


def written(moving: Migration) -> None:
    """What this process counted is in the ledgers."""
    assert moving.duo.shadow.drain(60)
    for flushing in moving.duo.flushing:
        flushing._flush()


def report(moving: Migration, *, with_bodies: bool = False) -> Report:
    made = gather(moving.facade, WantedReport(with_bodies=with_bodies))
    assert faults(json.loads(msgspec.json.encode(made)), json.loads(SCHEMA.read_text())) == []
    return made


def operation(made: Report, name: str) -> Operation:
    (found,) = [each for each in made.operations if each.name == name]
    return found


def latency(made: Report, name: str, backend: str) -> ReportLatency:
    (found,) = [each for each in made.latency if (each.operation, each.backend) == (name, backend)]
    return found


def test_calls_comparisons_and_latency_are_counted_exactly(moving: Migration) -> None:
    key = trip(moving)
    for _ in range(5):
        moving.store.get_cell_latest(key, "BASE")
    for _ in range(3):
        moving.store.get_row(key)
    moving.store.put_cell(uuid4(), "FREE", 1, "a body")
    written(moving)

    made = report(moving)

    read = operation(made, "get_cell_latest")
    assert (read.calls, read.compared, read.equal, read.mismatches, read.not_compared) == (5, 5, 5, 0, 0)
    assert operation(made, "get_row").calls == 3
    put = operation(made, "put_cell")
    assert (put.calls, put.compared, put.is_comparable) == (1, 0, False)
    asked = {name: latency(made, "get_cell_latest", name) for name in made.backends}
    assert [(each.asked_by, each.answered, each.unanswered) for each in asked.values()] == [
        ("callers", 5, 0),
        ("shadow", 5, 0),
    ]
    assert all(0 < (each.p50_seconds or 0) <= (each.p99_seconds or 0) < 20 for each in asked.values())
    assert [(series.operation, sum(hour.compared for hour in series.hours)) for series in made.rates] == [
        ("get_cell_latest", 5),
        ("get_row", 3),
    ]
    assert not made.verdict.is_allowed
    assert {gate.name for gate in made.gates if not gate.is_passed} >= {"backfill", "diff"}
    assert made.unknown == []


def test_a_version_that_postgres_has_forgotten_does_not_silence_it(moving: Migration) -> None:
    """It answers, and goes on to be asked; one that does not answer is asked no more."""
    key = trip(moving)
    forgotten = moving.duo.legacy.get_row(key)["BASE"].key
    moving.legacy.sql("UPDATE trips SET status = 'later' WHERE trip_uuid = %s", str(key))
    moving.carry()
    moving.legacy.sql("DELETE FROM tripstore.log WHERE ref_key <= %s", forgotten.ref_key)
    stores: dict[str, CellStore] = {"postgres": moving.duo.legacy, "schemaless": moving.facade.store}
    sides = ReportSides(stores, PlainLatest(), with_bodies=False)

    legacy, store = sides.at(forgotten)
    now, _store = sides.latest(ChildKey(key, "BASE"))

    assert legacy.trouble is not None
    assert (store.trouble, store.is_there) == (None, True)
    assert (now.trouble, now.is_there) == (None, True)


def test_two_processes_add_up(moving: Migration) -> None:
    key = trip(moving)
    with moving.connect() as other:
        for _ in range(4):
            other.get_cell_latest(key, "BASE")
        assert other.facade.duo is not None
        assert other.facade.duo.shadow.drain(60)
    moving.store.get_cell_latest(key, "BASE")
    written(moving)

    assert operation(report(moving), "get_cell_latest").calls == 5


def test_an_index_is_an_operation_of_its_own_and_an_answer_of_the_mirror_is_the_mirrors(moving: Migration) -> None:
    key = trip(moving)
    moving.phase(Phase.SHADOW, cohort=100)
    moving.store.get_cell_latest(key, "BASE")  # begins; what is known of the lag comes after
    moving.duo.watch.look()
    moving.store.get_cell_latest(key, "BASE")
    moving.store.query_index("legacy_ids", 1)
    written(moving)

    made = report(moving)

    by_callers = {(each.operation, each.backend): each.answered for each in made.latency if each.asked_by == "callers"}
    assert by_callers["get_cell_latest", "schemaless"] >= 1
    assert operation(made, "query_index:legacy_ids").calls == 1
    assert operation(made, "get_cell_latest").calls == 2


def test_what_is_held_against_itself_is_noise_and_no_latency(moving: Migration) -> None:
    key = trip(moving)
    against_itself = Comparing(is_against_itself=True)
    moving.facade.flags.change(lambda flags: replace(flags, comparing=against_itself), "test.noise")
    moving.duo.watch.look()
    moving.store.get_cell_latest(key, "BASE")
    written(moving)

    made = report(moving)

    assert [(each.name, each.compared) for each in made.noise] == [("get_cell_latest", 1)]
    assert operation(made, "get_cell_latest").compared == 0, "I12"
    assert [each.backend for each in made.latency] == ["postgres"]
    assert "the authority is compared with itself" in made.unknown[0].reason


def test_a_mismatch_is_told_by_its_place_and_commands_without_its_body(moving: Migration) -> None:
    key = trip(moving)
    in_mirror(moving, CORRUPT, b'{"status":"another secret"}', key.bytes, b"BASE", 1)
    moving.store.get_cell_latest(key, "BASE")
    written(moving)

    made, page = report(moving), render(report(moving))

    (found,) = made.mismatches
    assert (found.row_key, found.column_name, found.ref_key, found.found_by) == (key, "BASE", 1, "shadow")
    assert found.path
    assert found.commands == [f"tripstore cell get {key} BASE", f"tripstore mirror show {key}/BASE/1"]
    assert found.sides is not None
    ours, theirs = found.sides
    assert (ours.backend, theirs.backend, theirs.bytes) == ("postgres", "schemaless", 27)
    assert ours.digest != theirs.digest
    assert "secret" not in page + msgspec.json.encode(made).decode()

    with_bodies = report(moving, with_bodies=True)
    assert msgspec.json.decode((with_bodies.mismatches[0].sides or [])[1].body) == {"status": "another secret"}
    assert "another secret" in read_page(render(with_bodies)).text
    digests = [side.digest for each in (made, with_bodies) for side in each.mismatches[0].sides or []]
    assert len(set(digests)) == 4, "a reader cannot compare them across reports"


def diffed(moving: Migration) -> None:
    diffing = Diffing(moving.facade)
    diffing.runner(diffing.begin(diffing.plan(Order(indexes=False, decoded=0))), "test").run()


def test_a_newer_version_of_the_mirror_alone_is_not_called_equal_though_both_have_the_older_one(
    moving: Migration,
) -> None:
    key = trip(moving)
    moving.facade.store.as_copier().put_cell(key, "BASE", 8, {"status": "foreign"})
    moving.store.get_cell_latest(key, "BASE")
    written(moving)
    diffed(moving)

    made = report(moving)

    assert {(each.operation, each.path) for each in made.mismatches} == {
        ("diff", "ref_key"),
        ("get_cell_latest", "ref_key"),
    }
    assert [[side.ref_key for side in each.sides or []] for each in made.mismatches] == [[1, 8], [1, 8]]
    page = read_page(render(made)).text
    assert page.count("They differ now as well.") == 2
    assert "They are equal now." not in page

    moving.legacy.sql("UPDATE trips SET status = 'next' WHERE trip_uuid = %s", str(key))
    moving.carry()
    assert "They are equal now." not in read_page(render(report(moving))).text, "versions 2 and 8"


def test_an_older_version_is_looked_at_under_its_own_key(moving: Migration) -> None:
    key = trip(moving)
    moving.legacy.sql("UPDATE trips SET status = 'next' WHERE trip_uuid = %s", str(key))
    moving.carry()
    older = moving.facade.store.get_cell(key, "BASE", 1)
    assert older is not None
    spoil(moving.facade.store, older, b'{"status":"foreign"}')
    diffing = Diffing(moving.facade)
    diffing.runner(diffing.begin(diffing.plan(Order(older=1.0, indexes=False, decoded=0))), "test").run()

    (found,) = report(moving).mismatches

    assert found.sides is not None
    assert [side.ref_key for side in found.sides] == [1, 1]
    assert found.sides[0].digest != found.sides[1].digest


@pytest.mark.parametrize("is_torn", [False, True], ids=["not canonical", "no JSON"])
def test_of_stored_bytes_that_differ_nothing_is_said_that_only_their_bodies_say(
    moving: Migration, *, is_torn: bool
) -> None:
    key = trip(moving)
    cell = moving.facade.store.get_cell_latest(key, "BASE")
    assert cell is not None
    spoil(moving.facade.store, cell, b"torn" if is_torn else canonical_bytes(cell.body) + b" ")
    diffed(moving)

    made = report(moving)

    (found,) = made.mismatches
    assert (found.path, found.sides is None) == ("bytes", False)
    page = read_page(render(made)).text
    assert "They are equal now." not in page
    assert "They differ now as well." not in page
    assert ("its bytes are no JSON" in page) == is_torn


def test_a_parked_change_is_a_conflict_without_the_values_that_its_reason_quotes(moving: Migration) -> None:
    key = uuid4()
    moving.facade.store.as_copier().put_cell(key, "BASE", 1, {"status": "something else"})
    moving.legacy.trip("x", key)
    carrier = Mirror(moving.facade).carrier()
    carrier.carry(100)

    made = report(moving)

    (found,) = made.conflicts
    assert (found.found_by, found.kind, found.row_key) == ("forward", "conflict", key)
    assert found.command == f"tripstore mirror show {key}/BASE/1"
    assert "parked changes" in {gate.name for gate in made.gates if not gate.is_passed}
    assert made.waiting == ReportWaiting(quarantine=0, conflicts=1)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ('invalid input value for enum mood: "furious"', "invalid input value for enum mood: “…”"),
        ("Key (email)=(a@b.example) already exists.", "Key (email)=(…) already exists."),
        ("it broke\nDETAIL:  Failing row contains (secret).", "it broke"),
        ("the value 'secret' and “secret”", "the value “…” and “…”"),
    ],
)
def test_messages_are_told_without_the_values_that_they_quote(said: str, kept: str) -> None:
    assert without_values(said) == kept


def test_jobs_and_what_they_found_are_listed(moving: Migration) -> None:
    jobs, key = Jobs(moving.facade.store.control), uuid4()
    job = jobs.create("backfill", {"estimate": 200}, [{"n": 1}, {"n": 2}])
    part = jobs.claim(job.id, "worker", 60)
    assert part is not None
    findings = [
        Finding("unreadable", key, "BASE", None, {"reason": 'numeric is "NaN"', "path": "fare"}),
        Finding("conflict", key, "BASE", 3, {"reason": "another body"}),
    ]
    jobs.save(part, "worker", checkpoint=1, counts={"rows": 90}, findings=findings, is_done=True, lease_seconds=60)
    jobs.tell(job.id, "worker", {"rate": 30.5, "throttle": "Postgres is busy"})
    diff = jobs.create("diff", {}, [{}])
    other = jobs.claim(diff.id, "worker", 60)
    assert other is not None
    jobs.save(
        other,
        "worker",
        checkpoint=1,
        counts={"rows": 10},
        findings=[
            Finding("missing", key, "BASE", 1, {"path": ""}),
            Finding("busy", key, "NOTES", None, {}),
            Finding("index", key, None, None, {"index": "by_tag", "path": "missing"}),
            Finding("index", body={"index": "by_tag", "class": "order", "entry": "the page", "shard_value": "a b"}),
            Finding("index", body={"index": "by_tag", "path": "NodeUnavailable", "seen_by": "verify"}),
        ],
        is_done=True,
        lease_seconds=60,
    )

    made = report(moving)

    newest, oldest = made.jobs
    assert (newest.id, newest.state, newest.parts_done) == (diff.id, "done", 1)
    assert (oldest.state, oldest.parts, oldest.parts_done, oldest.estimate) == ("running", 2, 1, 200)
    assert (oldest.counts, oldest.findings_open) == ({"rows": 90}, 2)
    assert (oldest.rate_per_second, oldest.throttle) == (30.5, "Postgres is busy")
    assert [(each.kind, each.path, each.reason) for each in made.quarantine] == [
        ("unreadable", "fare", "numeric is “…”"),
        ("busy", "", ""),
        ("index", "NodeUnavailable", ""),
    ]
    assert [(each.kind, each.found_by) for each in made.conflicts] == [("conflict", job.id)]
    assert {(each.kind, each.found_by, each.operation, each.path, each.commands[0]) for each in made.mismatches} == {
        ("missing", diff.id, "diff", "", f"tripstore mirror show {key}/BASE/1"),
        ("entry", diff.id, "query_index:by_tag", "missing", "tripstore index verify by_tag"),
        ("order", diff.id, "query_index:by_tag", "", "tripstore index query by_tag 'a b'"),
    }
    assert render(made)


def test_the_whole_backfill_is_told_of_however_many_parts_were_copied_since(moving: Migration) -> None:
    jobs = Jobs(moving.facade.store.control)
    whole = done(jobs, "backfill")
    parts = [done(jobs, kind, is_partial=True) for kind in ("backfill", "diff") for _ in range(12)]

    listed = [each.id for each in report(moving).jobs]

    assert listed == [*parts[:-11:-1], *parts[11:1:-1], whole]


def done(jobs: Jobs, kind: str, *findings: Finding, counts: dict[str, int] | None = None, **spec: Json) -> str:
    """A job that found these and is done; its id."""
    job = jobs.create(kind, {"note": {"unit": UNIT}, **spec}, [{}])
    part = jobs.claim(job.id, "worker", 60)
    assert part is not None
    jobs.save(part, "worker", checkpoint=1, counts=counts or {}, findings=findings, is_done=True, lease_seconds=60)
    return job.id


def test_what_needs_attention_is_counted_whole_however_little_is_listed(moving: Migration) -> None:
    jobs = Jobs(moving.facade.store.control)
    unreadable, conflicts = ([Finding(kind, uuid4(), "BASE") for _ in range(3)] for kind in ("unreadable", "conflict"))
    done(jobs, "backfill", *unreadable, *conflicts)
    # Of five that never rested it keeps one.
    busy, missing = Finding("busy", uuid4(), "BASE"), Finding("missing", uuid4(), "BASE", 1)
    unverified = Finding("index", body={"index": "by_tag", "path": "NodeUnavailable", "seen_by": "verify"})
    stale = Finding("index", body={"index": "by_tag", "path": "stale"})
    done(jobs, "diff", busy, missing, unverified, stale, counts={"not_compared": 5, "index_not_compared": 1, "open": 2})

    made = gather(moving.facade, WantedReport(listed_max=1))

    assert (len(made.quarantine), len(made.conflicts)) == (1, 1)
    assert made.waiting == ReportWaiting(quarantine=3 + 5 + 1, conflicts=3)
    (figure,) = [each for each in glance(made) if each.name == "Open conflicts and quarantined rows"]
    assert (figure.figure, figure.note.replace("\N{NO-BREAK SPACE}", " ")) == ("12", "9 in quarantine, 3 conflicts")
    assert "Open findings, 1 of 9" in read_page(render(made)).text


def test_findings_are_those_of_the_diff_that_the_gate_goes_by_and_of_those_that_it_did_not_redo(
    moving: Migration,
) -> None:
    jobs = Jobs(moving.facade.store.control)
    missing = Finding("missing", uuid4(), "BASE", 1)
    done(jobs, "diff", missing)
    whole = done(jobs, "diff", missing)
    of_part = done(jobs, "diff", missing, is_partial=True)
    running = jobs.create("diff", {}, [{}])
    newest = done(jobs, "diff", is_partial=True)

    made = report(moving)

    assert [each.id for each in made.jobs][:2] == [newest, running.id]
    assert {each.found_by for each in made.mismatches} == {whole, of_part}
    (gate,) = [each for each in made.gates if each.name == "diff"]
    assert "2" in gate.said


def test_the_lag_is_what_the_mirrors_of_both_directions_saw(moving: Migration) -> None:
    moving.duo.watch.look()
    _id, key = moving.legacy.trip()
    mirror = Mirror(moving.facade)
    mirror.relay().turn()
    moving.carry()
    cell = moving.facade.store.get_cell(key, "BASE", 1)
    assert cell is not None
    mirror.reverse().deliver({moving.facade.store.shard_of(key): [cell]})
    written(moving)

    made = report(moving)

    assert [(hour.direction, hour.looks) for hour in made.lag] == [("forward", 1), ("reverse", 1)]
    assert {each.direction for each in made.lag_now} == {"forward", "reverse"}


def test_i12_a_report_is_made_when_schemaless_is_away_and_says_what_is_unknown(moving: Migration) -> None:
    key = trip(moving)
    moving.store.get_cell_latest(key, "BASE")
    written(moving)
    shutil.rmtree(folder_of(moving.document))

    made = report(moving)

    assert not made.verdict.is_allowed
    assert made.operations == []
    assert {"jobs", "what shadow reads compared"} <= {each.what for each in made.unknown}
    assert "Sources that did not answer" in read_page(render(made)).text


def test_i12_a_report_is_made_when_postgres_is_away(moving: Migration) -> None:
    key = trip(moving)
    moving.store.get_cell_latest(key, "BASE")
    written(moving)
    moving.legacy.server.query(f"ALTER DATABASE {moving.legacy.name} ALLOW_CONNECTIONS false")
    moving.legacy.server.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", moving.legacy.name
    )
    try:
        made = report(moving)
    finally:
        moving.legacy.server.query(f"ALTER DATABASE {moving.legacy.name} ALLOW_CONNECTIONS true")

    assert not made.verdict.is_allowed
    assert made.standing is None
    assert operation(made, "get_cell_latest").calls == 1, "what is in the control database is told"
    assert {"authority", "mirror", "capture"} <= {each.what for each in made.unknown}


def test_i10_a_call_is_answered_while_the_ledger_is_away_and_is_counted_later(moving: Migration) -> None:
    key = trip(moving)
    path = moving.facade.store.control._path
    away = path.rename(path.with_suffix(".away"))
    try:
        assert moving.store.get_cell_latest(key, "BASE") is not None
        assert moving.duo.shadow.drain(60)
        for flushing in moving.duo.flushing:
            flushing._flush()
    finally:
        away.rename(path)
    written(moving)

    assert operation(report(moving), "get_cell_latest").calls == 1


def test_comparisons_count_from_the_last_hand_over_on_unless_hours_are_wanted(moving: Migration) -> None:
    key = trip(moving)
    moving.store.get_row(key)
    moving.phase(Phase.LIVE)
    moving.phase(Phase.SHADOW)
    moving.store.get_row(key)
    moving.store.get_row(key)
    written(moving)

    made, of_an_hour = report(moving), gather(moving.facade, WantedReport(hours=1))
    assert operation(made, "get_row").compared == 2
    assert operation(of_an_hour, "get_row").compared == 3
    assert (by_hour(made, "get_row"), by_hour(of_an_hour, "get_row")) == (2, 3), "the chart shows what is added up"


def by_hour(made: Report, name: str) -> int:
    return sum(hour.compared for each in made.rates if each.operation == name for hour in each.hours)


def test_after_the_switch_the_question_is_the_way_back(moving: Migration) -> None:
    moving.phase(Phase.LIVE)

    made = report(moving)

    assert (made.verdict.direction, made.verdict.question) == ("reverse", "Ready to switch back to Postgres?")
    assert made.standing is not None
    assert made.standing.authority == "schemaless"
    assert [each.epoch for each in made.standing.history] == [2, 1, 0]


def test_what_is_timed_is_told_apart_by_words_without_a_slash(moving: Migration) -> None:
    """The ledger joins them by slashes."""
    assert "/" not in CALL
    assert all("/" not in definition.name for definition in moving.facade.config.core.indexes)
