"""`Losses`: looks for what a promoted Postgres lacks, as a job whose findings are the ledger, and mends it.

A finding is open while its row differs between the stores. The ledger keeps it when it is closed. All of it may be
killed at any line and repeated: a look that was begun is gone on with, and every mend begins with a look.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

from schemaless_core.cell.answers import Location
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.children import child_of
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Finding, Job, Jobs, JobState, Part, StoredFinding
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.errors import InvalidRequest, SchemalessError
from schemaless_core.failpoints import reach
from tripstore import metrics
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.engines.validation.diff.portions import bounds_of, parts_of, shards_of
from tripstore.engines.validation.repair import Action, HeldVersion
from tripstore.facade.facade import Facade
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.losses.bound import find_accepted, kept_until, unanswered
from tripstore.migration.losses.look import FORGOTTEN, LACKING, REUSED, UNREADABLE, LossLook
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import Target
from tripstore.ports.applied import applied_of

logger = logging.getLogger(__name__)

KIND = "loss"
PARTS = 16
NOTES_MAX = 100_000
#: One that was killed is gone on with after this time.
LEASE_SECONDS = 10.0
LOOK_SECONDS = 0.1
FINDINGS_PER_PAGE = 1000


class Nothing(InvalidRequest):
    """There is nothing to look for."""


class LookStart(NamedTuple):
    """Where a look begins."""

    #: Of every shard: cells since then; None: as acceptances and positions say.
    since: datetime | None = None
    #: The whole log.
    is_all: bool = False


class TakenBack(NamedTuple):
    """What became of lost changes that were to be put into Postgres again."""

    put: int
    #: By key, why it was not: Postgres has a later version by now, or refuses it.
    refused: dict[CellKey, str]


class Losses:
    """Needs a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        self._facade = facade
        self._legacy = facade.duo.legacy
        self._control = facade.duo.ports.control
        self._store = facade.store
        self._repairs = Repairs(facade)
        self._children = self._legacy.layout.child_bits
        self.jobs = Jobs(facade.store.control)
        self.audit = AuditLog(facade.store.control)

    def begin(self, order: LookStart) -> Job:
        """A look at one epoch; one that did not end is gone on with. `Nothing`: no Postgres was ever accepted."""
        row = self._control.authority()
        for job in self.jobs.all(KIND):
            if job.state is JobState.RUNNING:
                if job.spec["epoch"] == row.epoch:
                    return job
                self.jobs.cancel(KIND, job.id, "another authority by now")
        accepted = find_accepted(self._legacy)
        if not accepted and order == LookStart():
            raise Nothing("No Postgres was accepted here: nothing was lost with one.", hint="--since looks anyway.")
        since, positions = self._start(row, order)
        spec: dict[str, Json] = {
            "authority": row.backend.value,
            "epoch": row.epoch,
            "since": None if since is None else since.isoformat(),
            "positions": {str(shard): added_id for shard, added_id in positions.items()},
            "is_partial": order.since is not None,
            "note": {"epoch": row.epoch},
        }
        shards = range(self._store.config.shards)
        return self.jobs.create(KIND, spec, [bounds_of(each) for each in parts_of(shards, PARTS)])

    def serve(self, job: Job) -> JobState:
        """Look, part by part, until all is looked at; then close what is the same by now."""
        worker, look = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}", self._look(job)
        idle = threading.Event()
        while (state := self.jobs.state(job.id)) is JobState.RUNNING:
            part = self.jobs.claim(job.id, worker, LEASE_SECONDS)
            if part is None:
                idle.wait(LOOK_SECONDS)  # another process has the rest, or had it and was killed
                continue
            self._serve(job, look, part, worker)
        self.close_equal(job)
        counts, left = self.jobs.progress(job.id).counts, self.open(job)
        metrics.lost_changes("open", left)
        extra = {"event": "losses.looked", "job": job.id, "epoch": self._epoch(job), "cells": counts.get("rows", 0)}
        logger.info("what a promoted Postgres lacks was looked for", extra={**extra, "open": left})
        return state

    def open(self, job: Job) -> int:
        """How many findings of a look are open."""
        return sum(self.jobs.open_kinds(job.id).values())

    def listed(
        self, job: str, *, open_only: bool = False, kinds: Sequence[str] | None = None, after: int = 0
    ) -> Iterator[StoredFinding]:
        """The ledger of a look, in the order in which it was found; what follows a finding."""
        while found := self.jobs.findings(job, kinds=kinds, after=after, limit=FINDINGS_PER_PAGE, open_only=open_only):
            yield from found
            after = found[-1].id

    def close_equal(self, job: Job) -> int:
        """A row that is the same in both stores is open no more: what was lost of it is history. How many there are."""
        repairing, closed = self._repairs.repairing(self._wanted(job), job=job.id), 0
        for page in self._pages(job):
            wanted = [(each, target) for each in page for target in self._targets(each)]
            seen = repairing.plan([target for _each, target in wanted])
            unlike = {
                each.id for (each, _), look in zip(wanted, seen, strict=True) if look.step.action is not Action.NOTHING
            }
            equal = [each.id for each in page if each.id not in unlike]
            self.jobs.solve(job.id, equal)
            closed += len(equal)
        return closed

    def mend_mirror(self, job: Job, why: str = "") -> None:
        """The authority is right: what the other store has beside it becomes history, or goes."""
        self.audit.add("loss.mend", {"job": job.id, "why": why, "right": job.spec["authority"]})
        repairing = self._repairs.repairing(self._wanted(job), job=job.id)
        for page in self._pages(job):
            targets = dict.fromkeys(target for each in page for target in self._targets(each))
            repairing.repair(list(targets))
            reach("losses.mended")
        self._repairs.carry()
        self.close_equal(job)
        extra = {"event": "losses.mirror_mended", "job": job.id, "open": self.open(job)}
        logger.info("the mirror has what the authority has", extra=extra)

    def take_back(self, job: Job, why: str = "") -> TakenBack:
        """Put lost changes into Postgres again, in the order of the logs: they were acknowledged once."""
        if self._wanted(job) is not Backend.LEGACY:
            raise InvalidRequest(
                "Schemaless is the authority: nothing that it has is lost.",
                hint="The reverse mirror writes what Postgres lacks: `tripstore worker run`.",
            )
        self.audit.add("loss.take_back", {"job": job.id, "why": why})
        put, refused = 0, dict[CellKey, str]()
        look, owner = self._look(job), self._legacy.as_owner(self._epoch(job))
        for finding in self.listed(job.id, open_only=True, kinds=[LACKING]):
            key = key_of(finding)
            if key.column_name == LEGACY_ID:
                continue  # Postgres gives it with the row
            (cell,) = look.bodies([key])
            error = "the mirror has it no more" if cell is None else self._put_back(owner, cell)
            reach("losses.put")
            if error:
                refused[key] = error
            put += not error
        self._repairs.carry()
        self.close_equal(job)
        metrics.lost_changes("taken_back", put)
        metrics.lost_changes("refused", len(refused))
        extra = {"event": "losses.taken_back", "job": job.id, "put": put, "refused": len(refused)}
        logger.info("lost changes were put into Postgres again", extra=extra)
        return TakenBack(put, refused)

    def _put_back(self, owner: PostgresBackend, cell: Cell) -> str:
        """Why it cannot be put; a version that Postgres has given since stays above it."""
        (seen,) = self._repairs.repairing(Backend.LEGACY).plan([self._target(CellKey(*cell.key))])
        if isinstance(seen.ours, HeldVersion) and seen.ours.ref_key > cell.ref_key:
            return f"Postgres has version {seen.ours.ref_key} by now"
        try:
            owner.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
        except SchemalessError as error:
            return error.message
        return ""

    def _start(self, row: Authority, order: LookStart) -> tuple[datetime | None, dict[int, int]]:
        """Since when, or after which added id of each shard; neither: from the beginning."""
        if order.since is not None or order.is_all:
            return order.since, {}
        if row.backend is Backend.STORE:
            # What the reverse mirror has passed, Postgres has: it says so itself.
            return None, {shard: place[1] for shard, place in applied_of(self._legacy.database)().items()}
        accepted = find_accepted(self._legacy)
        notes = [note.body for note in Ledgers(self._store.control).notes(KIND, NOTES_MAX)]
        return kept_until(self._legacy, (unanswered(accepted, notes) or accepted[-1:])[0]), {}

    def _look(self, job: Job) -> LossLook:
        epoch = self._epoch(job)
        if self._wanted(job) is Backend.LEGACY:
            return LossLook(self._legacy.as_owner(epoch), self._store.as_copier(epoch))
        return LossLook(self._legacy.as_mirror(epoch), self._store.as_owner(epoch))

    def _serve(self, job: Job, look: LossLook, part: Part, worker: str) -> None:
        held = HeldPart(self.jobs, part, worker, LEASE_SECONDS)
        try:
            while held.may_go_on:
                self._step(job, look, held)
                reach("losses.saved")
        except BaseException:
            held.give_back()
            raise

    def _step(self, job: Job, look: LossLook, held: HeldPart) -> None:
        """A page of a shard."""
        shards = shards_of(held.part.bounds)
        checkpoint = held.part.checkpoint
        shard, location = _place(checkpoint) if isinstance(checkpoint, list) else (shards.start, None)
        with held.kept_alive():
            page = look.page(shard, self._location(job, shard) if location is None else location)
            findings = self._but_for_history(job, page.findings)
        counts = Counter(each.kind for each in page.findings)
        counts["rows"], counts["not_compared"] = page.cells, counts[UNREADABLE]
        is_over = page.next_location >= page.head  # a short page may be full of bytes
        following: Json = [shard + 1, None] if is_over else [shard, page.next_location]
        held.save(following, counts, findings, is_done=is_over and shard + 1 == shards.stop)

    def _but_for_history(self, job: Job, found: list[Finding]) -> list[Finding]:
        """What Postgres has forgotten is counted; it is listed where its row differs."""
        forgotten = [each for each in found if each.kind == FORGOTTEN]
        if not forgotten:
            return found
        seen = self._repairs.repairing(self._wanted(job)).plan([self._target(key_of(each)) for each in forgotten])
        equal = {id(each) for each, look in zip(forgotten, seen, strict=True) if look.step.action is Action.NOTHING}
        return [each for each in found if id(each) not in equal]

    def _location(self, job: Job, shard: int) -> Location:
        positions, since = job.spec["positions"], job.spec["since"]
        assert isinstance(positions, dict)
        return datetime.fromisoformat(str(since)) if since is not None else int(str(positions.get(str(shard), 0)))

    def _pages(self, job: Job) -> Iterator[list[StoredFinding]]:
        """Its open findings; what is closed meanwhile does not move the next page."""
        after = 0
        while found := self.jobs.findings(job.id, after=after, limit=FINDINGS_PER_PAGE):
            yield found
            after = found[-1].id

    def _targets(self, finding: Finding) -> list[Target]:
        """The row as it stands; of a ref key that was given twice that version as well."""
        key = key_of(finding)
        older = [Target(key.row_key, key.column_name, key.ref_key)] if finding.kind == REUSED else []
        return [self._target(key), *older]

    def _target(self, key: CellKey) -> Target:
        child = child_of(self._children, key.column_name, key.ref_key)
        return Target(key.row_key, key.column_name, None, child)

    def _wanted(self, job: Job) -> Backend:
        return Backend(str(job.spec["authority"]))

    def _epoch(self, job: Job) -> int:
        return int(str(job.spec["epoch"]))


def key_of(finding: Finding) -> CellKey:
    assert finding.row_key is not None
    assert finding.column_name is not None
    assert finding.ref_key is not None
    return CellKey(finding.row_key, finding.column_name, finding.ref_key)


def _place(checkpoint: list[Json]) -> tuple[int, int | None]:
    shard, added_id = checkpoint
    assert isinstance(shard, int)
    assert added_id is None or isinstance(added_id, int)
    return shard, added_id
