"""`gather`: the facts of the report, from the servers. One that does not answer is named, and the rest is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from schemaless_core.control.jobs.jobs import Jobs, StoredFinding
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import TimingLedger
from schemaless_core.store import CellStore
from tripstore.engines.validation.report.document import (
    Epoch,
    LagNow,
    Report,
    ReportConflict,
    ReportExperiment,
    ReportLimits,
    ReportStanding,
    ReportUnknown,
    ReportWaiting,
)
from tripstore.engines.validation.shadow.ledger import OperationCounts, ShadowLedger
from tripstore.facade.facade import Duo, Facade
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.facts import CaptureFacts, Facts, JobFacts, MirrorFacts, ReverseFacts
from tripstore.migration.cutover.facts import Unknown as UnknownFact
from tripstore.migration.cutover.look import Looker, epoch_of, find_handed_over, known
from tripstore.migration.diff.latest import StoredLatest
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.report.comparisons import lag, latency, operations, rates
from tripstore.migration.report.jobs import counting_jobs, job_reports, open_findings
from tripstore.migration.report.mismatches import (
    diff_mismatches,
    job_conflicts,
    parked_conflicts,
    quarantine,
    shadow_mismatches,
)
from tripstore.migration.report.rewrites import experiments, remaining_uses
from tripstore.migration.report.sides import ReportSides
from tripstore.migration.report.verdict import direction_of, gate, gates_of, verdict
from tripstore.migration.report.waiting import waiting_of
from tripstore.migration.rewrites.standings import Standings
from tripstore.ports.control import RealControlPort

T = TypeVar("T")

HISTORY = 12
#: Where findings of jobs stand.
FOUND = ("mismatches", "quarantine", "conflicts")


@dataclass(frozen=True, slots=True)
class WantedReport:
    """How much of it."""

    #: None: `cutover.evidence_hours`.
    hours: int | None = None
    #: Of mismatches, of rows that could not be copied, of conflicts.
    listed_max: int = 200
    with_bodies: bool = False


def gather(
    facade: Facade, wanted: WantedReport = WantedReport(), now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Report:
    """Ask both stores and the control database, and judge by the gates; needs a legacy store."""
    return _Gathering(facade, wanted, now()).report()


class _Gathering:
    """Of one report."""

    def __init__(self, facade: Facade, wanted: WantedReport, now: datetime) -> None:
        assert facade.duo is not None
        self._facade = facade
        self._duo: Duo = facade.duo
        self._wanted = wanted
        self._now = now
        self._settings = facade.config.cutover
        hours = wanted.hours or self._settings.evidence_hours
        self._since = (now - timedelta(hours=hours)).replace(minute=0, second=0, microsecond=0)
        self._unknown: list[ReportUnknown] = []

    def report(self) -> Report:
        facts = self._facts()
        self._unknown += _unknown(facts)
        direction = direction_of(facts)
        gates = gates_of(direction, facts, self._settings)
        control, settings = self._facade.store.control, self._settings
        shadow, timings = ShadowLedger(Ledgers(control)), TimingLedger(Ledgers(control))
        jobs = Jobs(control)
        counted = self._ask("what shadow reads compared", lambda: self._operations(shadow), "operations") or []
        noise = self._ask("what differs by itself", lambda: shadow.noise(self._since), "noise") or []
        by_hour = self._ask("comparisons by the hour", lambda: shadow.hours(self._since, self._epoch()), "rates") or {}
        timed = self._ask("how long calls took", lambda: timings.total(self._since), "latency") or {}
        timed_by_hour = self._ask("how late the mirror was", lambda: timings.hours(self._since), "lag") or {}
        found = self._ask("what jobs found", lambda: self._found(jobs, facts), *FOUND)
        findings, waiting = found or ([], None)
        noted = (
            self._ask("mismatches of shadow reads", lambda: shadow.mismatches(self._wanted.listed_max), "mismatches")
            or []
        )
        sides, with_values = self._sides(), self._wanted.with_bodies
        mismatches = [*shadow_mismatches(noted, sides), *diff_mismatches(findings, sides)]
        parked, lag_now = list(self._parked()), list(_lag_now(facts))
        conflicts = [*parked, *job_conflicts(findings, with_values=with_values)]
        return Report(
            made_at=self._now,
            made_by=f"tripstore {version('tripstore')}",
            datastore=self._facade.config.core.datastore,
            backends=[backend.value for backend in Backend],
            since=self._since,
            has_bodies=self._wanted.with_bodies,
            verdict=verdict(direction, gates),
            limits=self._limits(),
            standing=self._standing(facts),
            gates=[gate(each) for each in gates],
            operations=operations(counted, timed, settings),
            noise=operations(noise, {}, settings),
            experiments=self._ask("rewritten queries", self._experiments, "experiments") or [],
            remaining_uses=self._ask("uses that remain", lambda: remaining_uses(control), "remaining_uses") or [],
            rates=rates(by_hour, settings.confidence),
            lag_now=lag_now,
            lag=lag(timed_by_hour),
            jobs=self._ask("jobs", lambda: job_reports(jobs), "jobs") or [],
            latency=latency(timed),
            mismatches=sorted(mismatches, key=lambda each: each.at, reverse=True)[: self._wanted.listed_max],
            quarantine=list(quarantine(findings, with_values=with_values))[: self._wanted.listed_max],
            conflicts=conflicts[: self._wanted.listed_max],
            waiting=waiting and _with_parked(waiting, max(len(parked), sum(each.parked for each in lag_now))),
            unknown=self._unknown,
        )

    def _facts(self) -> Facts:
        facade, duo = self._facade, self._duo
        assert facade.config.legacy is not None
        return Looker(
            facade.config.legacy, duo.legacy, facade.store, duo.ports.control, facade.flags, self._settings
        ).facts()

    def _ask(self, what: str, look: Callable[[], T], *lists: str) -> T | None:
        """What a look finds, for these lists of the report; what is unknown is named (I12)."""
        found = known(look)
        if isinstance(found, UnknownFact):
            self._unknown.append(ReportUnknown(what=what, reason=found.reason, missing_from=list(lists)))
            return None
        return found

    def _operations(self, shadow: ShadowLedger) -> list[OperationCounts]:
        """What the gates count; what was compared of so many hours, if the caller wants that."""
        return shadow.operations(self._since, self._epoch())

    def _experiments(self) -> list[ReportExperiment]:
        found = Standings(self._facade.store.control).all(self._since, self._epoch())
        return experiments(found, self._settings)

    def _epoch(self) -> int:
        return 0 if self._wanted.hours else epoch_of(find_handed_over(self._duo.legacy))

    def _found(self, jobs: Jobs, facts: Facts) -> tuple[list[StoredFinding], ReportWaiting]:
        """What jobs found and nothing has solved: some of it, and how much of it needs attention."""
        counting = counting_jobs(jobs, facts.diff if isinstance(facts.diff, JobFacts) else None)
        return open_findings(jobs, counting, self._wanted.listed_max), waiting_of(jobs, counting)

    def _sides(self) -> ReportSides:
        stores: dict[str, CellStore] = {
            Backend.LEGACY.value: self._duo.legacy,
            Backend.STORE.value: self._facade.store,
        }
        latest = StoredLatest(self._duo.legacy.layout.child_bits)
        return ReportSides(stores, latest, with_bodies=self._wanted.with_bodies)

    def _parked(self) -> Iterator[ReportConflict]:
        mirror = Mirror(self._facade)
        for direction in ("forward", "reverse"):
            listed = partial(mirror.parked(is_reverse=direction == "reverse").listed, self._wanted.listed_max)
            found = self._ask(f"what is parked {direction}", listed, "conflicts") or []
            yield from parked_conflicts(direction, found, with_values=self._wanted.with_bodies)

    def _standing(self, facts: Facts) -> ReportStanding | None:
        row, phase, capture = facts.authority, facts.phase, facts.capture
        if not isinstance(row, Authority) or isinstance(phase, UnknownFact):
            return None
        control = self._duo.ports.control
        assert isinstance(control, RealControlPort)
        return ReportStanding(
            phase=str(phase),
            authority=row.backend.value,
            epoch=row.epoch,
            capture_since=capture.since if isinstance(capture, CaptureFacts) else None,
            history=[
                _epoch(each)
                for each in self._ask("past hand-overs", lambda: control.history(HISTORY), "standing") or []
            ],
        )

    def _limits(self) -> ReportLimits:
        settings = self._settings
        return ReportLimits(
            mismatch_rate_max=settings.mismatch_rate_max,
            confidence=settings.confidence,
            comparisons_min=settings.comparisons_min,
            lag_seconds_max=settings.lag_seconds_max,
            evidence_hours=settings.evidence_hours,
            listed_max=self._wanted.listed_max,
        )


def _with_parked(waiting: ReportWaiting, parked: int) -> ReportWaiting:
    return ReportWaiting(quarantine=waiting.quarantine, conflicts=waiting.conflicts + parked)


def _epoch(row: Authority) -> Epoch:
    target = None if row.target is None else row.target.value
    return Epoch(epoch=row.epoch, authority=row.backend.value, target=target, since=row.since, who=row.who)


def _lag_now(facts: Facts) -> Iterator[LagNow]:
    found, reverse = facts.mirror, facts.reverse
    if isinstance(found, MirrorFacts):
        yield LagNow(
            direction="forward",
            changes=found.queued - found.parked,
            oldest_seconds=found.oldest_seconds,
            parked=found.parked,
        )
    if isinstance(reverse, ReverseFacts):
        yield LagNow(
            direction="reverse",
            changes=reverse.lag_cells,
            oldest_seconds=reverse.lag_seconds,
            parked=reverse.parked,
        )


def _unknown(facts: Facts) -> Iterator[ReportUnknown]:
    for entry in fields(facts):
        found = getattr(facts, entry.name)
        if isinstance(found, UnknownFact):
            missing_from = ["lag_now"] if entry.name in ("mirror", "reverse") else []
            yield ReportUnknown(what=entry.name.replace("_", " "), reason=found.reason, missing_from=missing_from)
