"""`Backfill`: begins jobs that copy the past, and makes the runners that serve them. One per facade."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import msgspec
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import STAGES, Finding, Job, Jobs
from schemaless_core.control.paces import SharedPace
from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.checks.layout import compare
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.handover.queue import Queue
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.schema_steps import examine_capture
from tripstore.backends.postgres.walk.leaves import LeafFile
from tripstore.backends.postgres.wire.connections import connected
from tripstore.config import BackfillConfig, ThrottleConfig
from tripstore.engines.backfill.chunks import ChunkSize
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.quarantine import open_rows
from tripstore.engines.backfill.runner import CopyRunnerSettings, Runner
from tripstore.engines.backfill.throttle import Throttle
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.blocks import block_parts
from tripstore.migration.backfill.left_walks import BACKFILL, JobWalks, forget
from tripstore.migration.backfill.limits import at_work, throttles
from tripstore.migration.backfill.portions import Question, lists
from tripstore.migration.backfill.postgres import JobSoFar, PostgresCopying
from tripstore.migration.backfill.sparing import OF_JOBS, check_limits, kept, limits_of, sparing
from tripstore.migration.backfill.standing import BackfillStanding
from tripstore.migration.backfill.walk import WALKED, BlockWalk, WalkKind, document_of
from tripstore.migration.backfill.walk_end import end_parts

logger = logging.getLogger(__name__)

KIND = BACKFILL
#: Each part costs some words with the control database: small tables are cut into few.
PARTS_MIN, ROWS_PER_PART = 8, 5_000
#: What a walk by blocks has to read again is shared by so many; mostly it is nothing.
AGAIN_PARTS_MAX = 16
#: By blocks a row is one of one table; by row keys it is one of the parent's with all its children.
ROWS_BY_BLOCKS = 4
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
    blocks_max: int | None = None
    probe: str | None = None
    probe_seconds_max: float | None = None
    probe_deadline_seconds: float | None = None
    verify: float | None = None
    #: In which order it is read: a `WalkKind`; None: as is best. In a job's spec it is the one that was chosen.
    walk: str | None = None
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
    #: Why it is read in the order that the spec says; and whether that was asked for.
    why_walk: str = ""
    is_walk_wanted: bool = False


class BackfillSoFar:
    """A `JobSoFar` as the control database has it."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs = jobs
        self._job = job

    def findings_of(self, row_keys: Collection[UUID]) -> Sequence[Finding]:
        return self._jobs.open_of(self._job.id, row_keys)

    def ended(self) -> Json:
        """It is asked for by parts that are free once that one is done, and by that one itself."""
        stages = cast("list[int]", self._job.spec[STAGES])
        is_done = self._jobs.progress(self._job.id).parts_done > stages[0]
        return self._jobs.checkpoint(self._job.id, stages[0]) if is_done else None


class Backfill:
    """Needs a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        assert facade.config.legacy is not None
        self._duo = facade.duo
        self._store = facade.store
        self._config = facade.config.backfill
        self._throttling = facade.config.throttle
        self._legacy = facade.config.legacy
        self._layout = facade.config.legacy.layout
        self._walk = BlockWalk(self._legacy.postgres.text, self._layout, self._forget)
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
        said = msgspec.to_builtins(wanted)
        self.check_limits(said)
        spec: dict[str, Json] = {
            **said,
            **kept(self._throttling, said),
            "note": {"capture_since": since.isoformat()},
        }
        spec["is_partial"] = wanted.is_partial or keys is not None
        copying = self.copying(spec)
        copying.check(spec)
        choice = self._walk.choose(wanted.walk, is_partial=bool(spec["is_partial"]))
        estimate = copying.estimate(spec)
        spec |= {"walk": choice.kind.value, "estimate": estimate}
        if keys is not None:
            plan = _of_lists(spec, lists(keys))
        elif choice.kind is WalkKind.BLOCKS:
            plan = BackfillPlan(spec, self._walk_parts(choice.leaves, spec)[0], estimate)
        else:
            plan = BackfillPlan(spec, list(copying.plan(spec, self._parts(spec))), estimate)
        return msgspec.structs.replace(plan, why_walk=choice.why, is_walk_wanted=wanted.walk is not None)

    def check_limits(self, spec: Mapping[str, Any], *, is_begun: bool = False) -> None:
        """Raise `InvalidRequest` for a limit on blocks or on a probe that could not be kept."""
        check_limits(limits_of(self._throttling, spec), self._duo.legacy_mirror.database, is_begun=is_begun)

    def _parts(self, spec: dict[str, Any]) -> int:
        """About how many parts."""
        wanted: int = max(PARTS_MIN, spec.get("processes") or 1, spec["estimate"] // ROWS_PER_PART)
        return min(self._config.parts, wanted)

    def _walk_parts(self, leaves: Sequence[LeafFile], spec: dict[str, Json]) -> tuple[list[Json], list[int]]:
        """About so many ranges of blocks; then the end, of which some parts are shared. And where each stage begins."""
        wanted = self._parts(spec)
        of_blocks = block_parts(leaves, wanted)
        of_end = end_parts(self.copying(spec).plan(spec, min(wanted, AGAIN_PARTS_MAX)))
        first = len(of_blocks)
        return [*of_blocks, *of_end], [first, first + 1, first + len(of_end) - 1]

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
        """Begin the job; nothing is copied before a worker runs it.

        By blocks it begins with triggers that note what moves from now on. Where they cannot be made within a while,
        and blocks were not asked for, it is by row keys.
        """
        self._walk.clear()
        if plan.spec["walk"] != WalkKind.BLOCKS:
            return self.jobs.create(KIND, plan.spec, plan.parts, is_detached=is_detached)
        try:
            record, leaves = self._walk.begin()
        except (LegacyUnavailable, CannotCopy) as error:
            if plan.is_walk_wanted:
                raise
            extra = {"event": "backfill.by_keys"}
            logger.warning("the past is read by row keys and not by blocks: %s", error.message, extra=extra)
            copying = self.copying(plan.spec)
            spec = {**plan.spec, "walk": WalkKind.KEYS.value}
            return self.jobs.create(KIND, spec, copying.plan(spec, self._parts(spec)), is_detached=is_detached)
        try:
            parts, stages = self._walk_parts(leaves, plan.spec)
            spec = {**plan.spec, STAGES: list[Json](stages), WALKED: document_of(record)}
            return self.jobs.create(KIND, spec, parts, is_detached=is_detached)
        except BaseException:
            self._walk.drop(record)
            raise

    def _forget(self, connection: Connection) -> None:
        """Whatever is left of walks that no job goes on with."""
        forget(connection, JobWalks.of(self.jobs.all(KIND)))

    def plan_retry(self, job_id: str, wanted: Wanted = EVERYTHING) -> BackfillPlan:
        """A job that copies the rows which another one has in quarantine, and answers for them.

        Limits that are not given are those of the other one.
        """
        job = self.jobs.find(KIND, job_id)
        before = msgspec.convert(job.spec, Wanted)
        names = (*LIMITS, *OF_JOBS, "chunk_rows")
        same = {name: getattr(before, name) for name in names if getattr(wanted, name) is None}
        wanted = msgspec.structs.replace(wanted, retry_of=job.id, **same)
        findings = open_rows(self.jobs, job.id)
        if not findings and self.jobs.findings(job.id, limit=1):
            hint = "Mend the rows, then `tripstore backfill start` reads them."
            raise InvalidRequest(f"What is in quarantine of {job.id} has no row key to copy it by.", hint=hint)
        if not findings:
            raise InvalidRequest(f"Nothing of {job.id} is in quarantine.", hint="`tripstore backfill list` shows all.")
        base = self.plan(wanted, findings)
        questions = {row_key: list(map(Question.of, found)) for row_key, found in findings.items()}
        plan = _of_lists(base.spec, lists(findings, questions))
        return msgspec.structs.replace(plan, why_walk=base.why_walk)

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
        chunks = ChunkSize(wanted.chunk_rows, seconds=limits.chunk_seconds, most=_chunk_rows_max(limits, wanted.walk))
        so_far, spared = BackfillSoFar(self.jobs, job), limits_of(self._throttling, job.spec)
        return Runner(
            self.jobs,
            self.copying(job.spec, so_far, counts_blocks=spared.blocks_max > 0),
            job,
            worker,
            chunks=chunks,
            throttle=self._throttle(limits, spared, job),
            settings=settings,
        )

    def copying(
        self, spec: dict[str, Json], so_far: JobSoFar | None = None, *, counts_blocks: bool = False
    ) -> PostgresCopying:
        """What copies for a job of this spec, in one thread; `so_far`: what its other parts have done."""
        return PostgresCopying(
            self._duo.legacy.database,
            self._layout,
            self._duo.ports,
            self._store.as_copier(),
            self._store.config.shards,
            self._standing,
            self._walk,
            spec,
            so_far=so_far,
            counts_blocks=counts_blocks,
        )

    def _limits(self, wanted: Wanted) -> BackfillConfig:
        said = {name: getattr(wanted, name) for name in LIMITS}
        return replace(self._config, **{name: value for name, value in said.items() if value is not None})

    def _throttle(self, limits: BackfillConfig, spared: ThrottleConfig, job: Job) -> Throttle:
        database, queue = self._duo.legacy_mirror.database, Queue(self._layout)
        more = sparing(spared, database, self.control, job.id)
        return throttles(limits, database, queue, self._store, SharedPace(self.control, job.id), more)


def _chunk_rows_max(limits: BackfillConfig, walk: str | None) -> int:
    """So few that workers that share a rate take turns often."""
    most = limits.chunk_rows_max * (ROWS_BY_BLOCKS if walk == WalkKind.BLOCKS else 1)
    return most if not limits.rate else min(most, max(1, round(limits.rate * TURN_SECONDS)))


def _of_lists(spec: dict[str, Json], parts: list[Json]) -> BackfillPlan:
    rows = sum(len(part["keys"]) for part in parts if isinstance(part, dict) and isinstance(part["keys"], list))
    return BackfillPlan({**spec, "estimate": rows}, parts, rows)
