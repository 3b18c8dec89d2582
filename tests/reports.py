"""A report as a week before a switch might look: for tests of how it is drawn."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from uuid import UUID

import msgspec

from tripstore.engines.validation.confidence import upper_bound
from tripstore.engines.validation.report.document import (
    Epoch,
    ExperimentSide,
    JobReport,
    LagHour,
    LagNow,
    Operation,
    Quarantined,
    RateHour,
    RateSeries,
    Report,
    ReportConflict,
    ReportExperiment,
    ReportGate,
    ReportLatency,
    ReportLimits,
    ReportMismatch,
    ReportStanding,
    ReportUnknown,
    ReportUses,
    ReportVerdict,
    ReportWaiting,
    Side,
)

NOW = datetime(2026, 3, 9, 16, 42, tzinfo=UTC)
SINCE = datetime(2026, 3, 2, 16, tzinfo=UTC)
LIMITS = ReportLimits(
    mismatch_rate_max=0.001,
    confidence=0.95,
    comparisons_min=1000,
    lag_seconds_max=1.0,
    evidence_hours=168,
    listed_max=200,
)
CALLS = {
    "get_cell": 96_000,
    "get_cell_latest": 1_240_000,
    "get_history": 4_100,
    "get_row": 310_000,
    "query_index:driver_partner_index": 212_000,
    "query_index:city_index": 900,
    "scan_rows": 240,
    "put_cell": 180_000,
    "put_cells": 2_600,
}
NOTHING = msgspec.Raw(b"null")
_RANDOM = random.Random(7)


@dataclass(frozen=True)
class _Counted:
    name: str
    mismatches: int
    share: float


COUNTED = (
    _Counted("get_cell", 0, 0.1),
    _Counted("get_cell_latest", 3, 0.1),
    _Counted("get_history", 0, 0.1),
    _Counted("get_row", 0, 0.1),
    _Counted("query_index:driver_partner_index", 41, 0.1),
    _Counted("query_index:city_index", 0, 0.4),
)


def key(number: int) -> UUID:
    return UUID(int=number * 0x1234567890ABCDEF1234567890ABCDEF % 2**128)


@cache
def sample_report(*, is_allowed: bool = False, with_bodies: bool = False) -> Report:
    gates = [_gate(*each) for each in _GATES]
    if is_allowed:
        gates = [msgspec.structs.replace(each, is_passed=True, hint="") for each in gates]
    refused = sum(not gate.is_passed for gate in gates)
    answer = (
        f"{refused} of {len(gates)} gates refuse."
        if refused
        else f"All {len(gates)} gates pass: Schemaless may be made the authority."
    )
    return Report(
        made_at=NOW,
        made_by="tripstore 0.1.0",
        datastore="trips",
        backends=["postgres", "schemaless"],
        since=SINCE,
        has_bodies=with_bodies,
        verdict=ReportVerdict(
            direction="switch",
            question="Ready to switch to Schemaless?",
            is_allowed=is_allowed,
            answer=answer,
            command="tripstore cutover switch --dry-run" if is_allowed else "tripstore cutover plan",
        ),
        limits=LIMITS,
        standing=ReportStanding(
            phase="shadow",
            authority="postgres",
            epoch=4,
            capture_since=NOW - timedelta(days=19),
            history=[
                Epoch(epoch=4, authority="postgres", target=None, since=NOW - timedelta(days=3), who="ada"),
                Epoch(epoch=3, authority="schemaless", target="postgres", since=NOW - timedelta(days=3), who="ada"),
                Epoch(epoch=2, authority="schemaless", target=None, since=NOW - timedelta(days=3, hours=2), who="ada"),
                Epoch(
                    epoch=1,
                    authority="postgres",
                    target="schemaless",
                    since=NOW - timedelta(days=3, hours=2),
                    who="ada",
                ),
                Epoch(epoch=0, authority="postgres", target=None, since=NOW - timedelta(days=19), who="grace"),
            ],
        ),
        gates=gates,
        operations=[
            *(_operation(each) for each in COUNTED),
            *(_uncounted(name) for name in ("scan_rows", "put_cell", "put_cells")),
        ],
        noise=[],
        experiments=_experiments(),
        remaining_uses=[ReportUses(code="billing", at=NOW, is_complete=True, uses=3, unnamed=["bills.py:41"])],
        rates=[_rates(each) for each in COUNTED],
        lag_now=[
            LagNow(direction="forward", changes=3, oldest_seconds=0.012, parked=1),
            LagNow(direction="reverse", changes=0, oldest_seconds=0.0, parked=0),
        ],
        lag=_lag(),
        jobs=_jobs(),
        latency=_latency(),
        mismatches=_mismatches(with_bodies=with_bodies),
        quarantine=[_quarantined(number) for number in range(9)],
        conflicts=[_conflict(number) for number in range(2)],
        waiting=ReportWaiting(quarantine=9, conflicts=2),
        unknown=[]
        if is_allowed
        else [ReportUnknown(what="indexes", reason="the primary of cluster b does not answer", missing_from=[])],
    )


_GATES = (
    ("authority", True, "postgres is open at epoch 4", "postgres is the open authority", ""),
    ("phase", True, "the phase is shadow", "shadow", ""),
    ("servers", True, "all 3 answer", "all answer, with all shards", ""),
    ("capture", True, "unbroken since 2026-02-18 09:12:44", "capture begun and never broken", ""),
    (
        "backfill",
        True,
        "2026-03-07 20:00:01: 18,204,117 rows",
        "complete, younger than capture, nothing in quarantine",
        "",
    ),
    (
        "diff",
        False,
        "not complete: 11,201,400 rows so far",
        "complete, within 168 hours, nothing different or not compared",
        "Run the diff again, or finish it.",
    ),
    ("mirror lag", True, "3 changes are queued, the oldest for 0.0 s", "at most 500 changes, none older than 1 s", ""),
    (
        "parked changes",
        False,
        "1",
        "0",
        "`tripstore mirror parked` lists them; mend the rows, then `tripstore mirror retry --all`.",
    ),
    ("buffered cells", True, "0", "0", ""),
    (
        "indexes",
        False,
        "not known: the primary of cluster b does not answer",
        "verified without a difference within 168 hours",
        "`tripstore status` and `tripstore doctor` say more.",
    ),
    (
        "rehearsal",
        True,
        "84,113 cells equal, 0 different, 2 not compared",
        "served, close behind, at least 100 cells compared and equal",
        "",
    ),
    ("parked cells", True, "0", "0", ""),
    (
        "comparisons of get_cell_latest",
        True,
        "3 mismatches in 124,000 comparisons, rate below 0.006252 %; 40 not compared",
        "mismatch rate below 0.1 % with 95% confidence, at least 1,000 comparisons",
        "",
    ),
    (
        "comparisons of query_index:driver_partner_index",
        False,
        "41 mismatches in 21,200 comparisons, rate below 0.2512 %; 40 not compared",
        "mismatch rate below 0.1 % with 95% confidence, at least 1,000 comparisons",
        "`tripstore shadow status` lists the mismatches. 32,714 more comparisons, all equal, would do:"
        " 10 days, 21:19:20 at 0.0348 a second.",
    ),
    (
        "comparisons of query_index:city_index",
        False,
        "0 mismatches in 360 comparisons, rate below 0.8287 %; 0 not compared",
        "mismatch rate below 0.1 % with 95% confidence, at least 1,000 comparisons",
        "2,635 more comparisons, all equal, would do: 51 days, 5:40:00 at 2.14 an hour.",
    ),
    ("writers", True, "none", "no open transaction has written mapped tables for longer than 1 s", ""),
)


def _gate(name: str, is_passed: bool, said: str, wanted: str, hint: str) -> ReportGate:
    return ReportGate(name=name, is_passed=is_passed, said=said, wanted=wanted, hint=hint)


def _operation(found: _Counted) -> Operation:
    compared = round(CALLS[found.name] * found.share)
    return Operation(
        name=found.name,
        calls=CALLS[found.name],
        is_comparable=True,
        compared=compared,
        equal=compared - found.mismatches - 7 if compared > 1000 else compared,
        in_flight=7 if compared > 1000 else 0,
        ignored=0,
        mismatches=found.mismatches,
        by_class={"field": found.mismatches - 1, "missing": 1} if found.mismatches else {},
        not_compared=40 if found.mismatches else 0,
        by_reason={"too_old": 31, "busy": 9} if found.mismatches else {},
        rate_below=upper_bound(found.mismatches, compared),
        missing={"query_index:driver_partner_index": 32_714, "query_index:city_index": 2_635, "get_history": 2_585}.get(
            found.name, 0
        ),
    )


def _experiments() -> list[ReportExperiment]:
    """One that is proven and turned over in part, and one that is wrong."""
    return [_experiment("billing.unpaid_trips", 41_000, 0, 25.0), _experiment("riders.last_trip", 900, 4, 0.0)]


def _experiment(name: str, calls: int, mismatches: int, percent: float) -> ReportExperiment:
    compared = calls // 10
    by_candidate = round(calls * percent / 100)
    never = ExperimentSide(answered=0, failed=0, p50_seconds=None, p99_seconds=None)
    return ReportExperiment(
        name=name,
        percent=percent,
        is_compared=True,
        is_retired=False,
        seen=NOW,
        calls=calls,
        calls_by_control=calls - by_candidate,
        evidence=Operation(
            name=name,
            calls=calls,
            is_comparable=True,
            compared=compared,
            equal=compared - mismatches,
            in_flight=0,
            ignored=0,
            mismatches=mismatches,
            by_class={"order": mismatches} if mismatches else {},
            not_compared=0,
            by_reason={},
            rate_below=upper_bound(mismatches, compared),
            missing=9_000 if mismatches else 0,
        ),
        control=ExperimentSide(answered=calls - by_candidate, failed=0, p50_seconds=0.004, p99_seconds=0.03),
        candidate=ExperimentSide(answered=by_candidate, failed=0, p50_seconds=0.002, p99_seconds=0.01)
        if by_candidate
        else never,
        candidate_beside=ExperimentSide(answered=compared, failed=0, p50_seconds=0.003, p99_seconds=0.02),
    )


def _uncounted(name: str) -> Operation:
    is_comparable = name == "scan_rows"
    return Operation(
        name=name,
        calls=CALLS[name],
        is_comparable=is_comparable,
        compared=0,
        equal=0,
        in_flight=0,
        ignored=0,
        mismatches=0,
        by_class={},
        not_compared=0,
        by_reason={},
        rate_below=1.0,
        missing=2_995 if is_comparable else 0,
    )


def _rates(found: _Counted) -> RateSeries:
    total = round(CALLS[found.name] * found.share)
    hours, compared, mismatches = [], 0, 0
    bad = set(_RANDOM.sample(range(20, 120), min(found.mismatches, 12)))
    for n in range(168):
        hour = SINCE + timedelta(hours=n)
        now = max(1, round(total / 168 * (1 + 0.7 * math.sin((n + 16) / 24 * 2 * math.pi))))
        wrong = (found.mismatches // max(len(bad), 1)) if n in bad else 0
        compared, mismatches = compared + now, mismatches + wrong
        hours.append(RateHour(hour=hour, compared=now, mismatches=wrong, rate_below=upper_bound(mismatches, compared)))
    return RateSeries(operation=found.name, hours=hours)


def _lag() -> list[LagHour]:
    found = []
    for direction, size in (("forward", 0.012), ("reverse", 0.035)):
        for n in range(168):
            if direction == "forward" and 60 <= n < 66:
                continue  # no worker ran
            peak = 240 if n == 66 else 1
            low = size * (1 + 0.4 * math.sin(n / 4) + 0.2 * _RANDOM.random())
            found.append(
                LagHour(
                    direction=direction,
                    hour=SINCE + timedelta(hours=n),
                    looks=3600,
                    p50_seconds=low,
                    p99_seconds=low * (4 + 3 * _RANDOM.random()) * (peak if direction == "forward" else 1),
                )
            )
    return found


def _jobs() -> list[JobReport]:
    def job(job_id: str, hours: float, **more: object) -> JobReport:
        known: dict[str, object] = {
            "id": job_id,
            "kind": job_id.partition("-")[0],
            "state": "done",
            "begun_at": NOW - timedelta(hours=hours),
            "ended_at": NOW - timedelta(hours=hours * 0.9),
            "who": "ada",
            "why": "",
            "is_partial": False,
            "parts": 64,
            "parts_done": 64,
            "counts": {},
            "estimate": None,
            "findings_open": 0,
            "rate_per_second": None,
            "throttle": None,
        }
        return msgspec.convert(known | more, JobReport)

    diffed = {"rows": 11_201_400, "equal": 11_201_397, "not_compared": 3}
    copied = {"rows": 18_204_117, "verified": 182_041, "quarantined": 9}
    return [
        job(
            "diff-7c1e09b2",
            0.4,
            state="running",
            ended_at=None,
            parts_done=39,
            counts=diffed,
            estimate=18_200_000,
            findings_open=3,
            rate_per_second=41_200.0,
            throttle="Postgres has 14 active sessions, more than 12",
        ),
        job(
            "backfill-20ab66f1",
            30,
            state="cancelled",
            is_partial=True,
            why="wrong WHERE",
            parts_done=11,
            counts={"rows": 20_117},
        ),
        job("backfill-91f0c3de", 44, counts=copied, estimate=18_190_000, findings_open=9),
    ]


def _latency() -> list[ReportLatency]:
    found = []
    for name, calls in CALLS.items():
        base = {
            "get_history": 3.0,
            "query_index:driver_partner_index": 6.0,
            "query_index:city_index": 14.0,
            "scan_rows": 60.0,
        }.get(name, 1.0)
        for backend, asker, factor in (("postgres", "callers", 1.0), ("schemaless", "shadow", 0.62)):
            if asker == "shadow" and (name.startswith("put") or name == "scan_rows"):
                continue
            found.append(
                ReportLatency(
                    operation=name,
                    backend=backend,
                    asked_by=asker,
                    answered=calls if asker == "callers" else calls // 10,
                    unanswered=4 if name == "query_index:city_index" and asker == "shadow" else 0,
                    p50_seconds=0.0011 * base * factor,
                    p99_seconds=0.0072 * base * factor * (2.2 if name == "get_row" else 1),
                )
            )
    return sorted(found, key=lambda each: each.operation)


def _mismatches(*, with_bodies: bool) -> list[ReportMismatch]:
    found = []
    for n in range(14):
        row, column, ref = key(n + 1), ("BASE", "STATUS")[n % 2], 3 + n
        is_query = n % 4 == 3
        kind = ("field", "missing", "field", "extra")[n % 4]
        bodies = [
            {"status": "completed", "fare": 24.0 + n, "city": "SF"},
            {"status": "completed", "fare": 23.5, "city": "SF"},
        ]
        sides = [
            _side(backend, ref, bodies[place], is_there=kind != "missing" or place == 0, with_bodies=with_bodies)
            for place, backend in enumerate(("postgres", "schemaless"))
        ]
        entry = f"entry of {row}" if is_query else f"{column}@{ref} of {row}"
        command = (
            f"tripstore index query driver_partner_index {key(99)} --where 'city_uuid = {key(98)}' --limit 100"
            if is_query
            else f"tripstore cell get {row} {column} {ref}"
        )
        found.append(
            ReportMismatch(
                at=NOW - timedelta(hours=3 * n, minutes=11 * n),
                found_by="diff-7c1e09b2" if n in (2, 6) else "shadow",
                operation="diff"
                if n in (2, 6)
                else "query_index:driver_partner_index"
                if is_query
                else "get_cell_latest",
                kind=kind,
                entry=entry,
                path="" if kind in ("missing", "extra") else ("fare", "client.version", "waypoints[2].lat")[n % 3],
                differences=1 + (n == 4) * 2,
                row_key=None if is_query else row,
                column_name=None if is_query else column,
                ref_key=None if is_query else ref,
                commands=[command] if is_query else [command, f"tripstore mirror show {row}/{column}/{ref}"],
                sides=None if is_query else sides,
            )
        )
    return found


def _side(backend: str, ref_key: int, body: object, *, is_there: bool, with_bodies: bool) -> Side:
    encoded = msgspec.json.encode(body)
    if not is_there:
        return Side(backend=backend, is_there=False, ref_key=None, bytes=None, digest=None, body=NOTHING, trouble=None)
    return Side(
        backend=backend,
        is_there=True,
        ref_key=ref_key,
        bytes=len(encoded),
        digest=sha256(encoded).hexdigest()[:12],
        body=msgspec.Raw(encoded) if with_bodies else NOTHING,
        trouble=None,
    )


def _quarantined(number: int) -> Quarantined:
    return Quarantined(
        at=NOW - timedelta(hours=41, minutes=number),
        job="backfill-91f0c3de",
        kind="unreadable",
        row_key=key(1000 + number),
        column_name="BASE",
        ref_key=None,
        path=("fare", "client.phone", "request_at")[number % 3],
        reason=("numeric is NaN", "text has a lone surrogate", "timestamp is infinite")[number % 3],
        command="tripstore backfill show backfill-91f0c3de",
    )


def _conflict(number: int) -> ReportConflict:
    row = key(2000 + number)
    return ReportConflict(
        at=NOW - timedelta(hours=5 + number),
        found_by="forward" if number == 0 else "backfill-91f0c3de",
        kind="conflict",
        row_key=row,
        column_name="BASE",
        ref_key=7,
        reason=f"({row}, BASE, 7) already holds another body.",
        attempts=5 if number == 0 else None,
        command=f"tripstore mirror show {row}/BASE/7",
    )
