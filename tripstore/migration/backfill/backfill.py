"""`Backfill`: begins jobs that copy the past, and makes the runners that serve them. One per facade."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.control.paces import SharedPace
from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.checks.layout import compare
from tripstore.backends.postgres.handover.queue import Queue
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.schema_steps import examine_capture
from tripstore.backends.postgres.wire.connections import connected
from tripstore.config import BackfillConfig
from tripstore.engines.backfill.chunks import ChunkSize
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.quarantine import open_rows
from tripstore.engines.backfill.runner import CopyRunnerSettings, Runner
from tripstore.engines.backfill.throttle import Throttle
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.limits import at_work, throttles
from tripstore.migration.backfill.portions import Question, lists
from tripstore.migration.backfill.postgres import PostgresCopying
from tripstore.migration.backfill.standing import BackfillStanding

KIND = "backfill"
#: Each part costs some words with the control database: small tables are cut into few.
PARTS_MIN, ROWS_PER_PART = 8, 5_000
#: With a rate a chunk has as many rows as the rate allows in so long: that is how far ahead of it all may be.
TURN_SECONDS = 0.5


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be copied, and how: the job's spec. What is not said stands in the configuration."""

    #: SQL over a row of the parent's table, which is `t`.
    where: str | None = None
    columns: list[str] | None = None
    #: Why only these row keys, which stand in the parts: a file's name, a job's id.
    keys_from: str | None = None
    #: The job whose quarantine is tried again.
    retry_of: str | None = None
    chunk_rows: int | None = None
    rate: int | None = None
    postgres_load_max: float | None = None
    verify: float | None = None
    #: Of the command that began it.
    processes: int | None = None

    @property
    def is_partial(self) -> bool:
        return any(each is not None for each in (self.where, self.columns, self.keys_from, self.retry_of))


EVERYTHING = Wanted()
#: Of `Wanted` and of the configuration alike.
LIMITS = ("rate", "postgres_load_max", "verify")


class BackfillPlan(msgspec.Struct, frozen=True):
    """What `begin` would do."""

    spec: dict[str, Json]
    parts: list[Json]
    #: About how many rows; of a list of keys, exactly.
    estimate: int


class Backfill:
    """Needs a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        assert facade.config.legacy is not None
        self._duo = facade.duo
        self._store = facade.store
        self._config = facade.config.backfill
        self._legacy = facade.config.legacy
        self._layout = facade.config.legacy.layout
        self._standing = BackfillStanding(self._duo.legacy.database, self._duo.ports.control, facade.flags)
        self.control = facade.store.control
        self.jobs = Jobs(self.control)

    def plan(self, wanted: Wanted, keys: Iterable[UUID] | None = None) -> BackfillPlan:
        """What is to be copied, in parts; `CannotCopy` when it cannot be now."""
        self._standing.capture_since()
        self._check_capture()
        since = self._standing.capture_since()
        self._standing.check_phase()
        if self._limits(wanted).postgres_load_max:
            at_work(self._duo.legacy_mirror.database)  # what cannot be measured would be waited for without an end
        spec: dict[str, Json] = {**msgspec.to_builtins(wanted), "note": {"capture_since": since.isoformat()}}
        spec["is_partial"] = wanted.is_partial or keys is not None
        copying = self.copying(spec)
        copying.check(spec)
        estimate = copying.estimate(spec)
        if keys is None:
            parts = min(self._config.parts, max(PARTS_MIN, wanted.processes or 1, estimate // ROWS_PER_PART))
            return BackfillPlan({**spec, "estimate": estimate}, list(copying.plan(spec, parts)), estimate)
        return _of_lists(spec, lists(keys))

    def _check_capture(self) -> None:
        """What `doctor` asks: a table may have lost its capture since the last look."""
        legacy = self._legacy
        with connected(legacy.postgres.text, "backfill") as connection:
            limits = legacy.limits
            found = compare(legacy.layout, LiveCatalogue.of_layout(connection, legacy.layout))
            found += examine_capture(connection, legacy.layout, may_truncate=limits.may_truncate, warns=limits.warns)
        errors = [complaint for complaint in found if complaint.is_error]
        if errors:
            raise CannotCopy(
                f"The legacy tables cannot be copied as they are ({errors[0].where}: {errors[0].reason}).",
                hint=f"{errors[0].hint} `tripstore doctor` says all that is wrong.",
            )

    def begin(self, plan: BackfillPlan, *, is_detached: bool = False) -> Job:
        """Begin the job; nothing is copied before a worker runs it."""
        return self.jobs.create(KIND, plan.spec, plan.parts, is_detached=is_detached)

    def plan_retry(self, job_id: str, wanted: Wanted = EVERYTHING) -> BackfillPlan:
        """A job that copies the rows which another one has in quarantine, and answers for them.

        Limits that are not given are those of the other one.
        """
        job = self.jobs.find(KIND, job_id)
        before = msgspec.convert(job.spec, Wanted)
        kept = {name: getattr(before, name) for name in (*LIMITS, "chunk_rows") if getattr(wanted, name) is None}
        wanted = msgspec.structs.replace(wanted, retry_of=job.id, **kept)
        findings = open_rows(self.jobs, job.id)
        if not findings and self.jobs.findings(job.id, limit=1):
            hint = "Mend the rows, then `tripstore backfill start` reads them."
            raise InvalidRequest(f"What is in quarantine of {job.id} has no row key to copy it by.", hint=hint)
        if not findings:
            raise InvalidRequest(f"Nothing of {job.id} is in quarantine.", hint="`tripstore backfill list` shows all.")
        base = self.plan(wanted, findings)
        questions = {row_key: list(map(Question.of, found)) for row_key, found in findings.items()}
        return _of_lists(base.spec, lists(findings, questions))

    def runner(
        self,
        job: Job,
        worker: str,
        *,
        is_patient: bool = False,
    ) -> Runner:
        """Serves a job in this thread. A patient one never gives up."""
        wanted = msgspec.convert(job.spec, Wanted)
        limits = self._limits(wanted)
        settings = CopyRunnerSettings(
            lease_seconds=limits.lease_seconds,
            verify_share=limits.verify,
            patience_seconds=None if is_patient else limits.patience_seconds,
        )
        chunks = ChunkSize(wanted.chunk_rows, seconds=limits.chunk_seconds, most=_chunk_rows_max(limits))
        return Runner(
            self.jobs,
            self.copying(job.spec),
            job,
            worker,
            chunks=chunks,
            throttle=self._throttle(limits, job),
            settings=settings,
        )

    def copying(self, spec: dict[str, Json]) -> PostgresCopying:
        """What copies for a job of this spec, in one thread."""
        return PostgresCopying(
            self._duo.legacy.database, self._layout, self._duo.ports, self._store.as_copier(), self._standing, spec
        )

    def _limits(self, wanted: Wanted) -> BackfillConfig:
        said = {name: getattr(wanted, name) for name in LIMITS}
        return replace(self._config, **{name: value for name, value in said.items() if value is not None})

    def _throttle(self, limits: BackfillConfig, job: Job) -> Throttle:
        database, queue = self._duo.legacy_mirror.database, Queue(self._layout)
        return throttles(limits, database, queue, self._store, SharedPace(self.control, job.id))


def _chunk_rows_max(limits: BackfillConfig) -> int:
    """So few that workers that share a rate take turns often."""
    if not limits.rate:
        return limits.chunk_rows_max
    return min(limits.chunk_rows_max, max(1, round(limits.rate * TURN_SECONDS)))


def _of_lists(spec: dict[str, Json], parts: list[Json]) -> BackfillPlan:
    rows = sum(len(part["keys"]) for part in parts if isinstance(part, dict) and isinstance(part["keys"], list))
    return BackfillPlan({**spec, "estimate": rows}, parts, rows)
