"""`PurgeRunner`: claims parts of a purge and does them step by step. A step that is repeated finds nothing to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.control.jobs.records import Finding, Part
from schemaless_core.errors import InvalidRequest, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.purging.purges import Purges
from schemaless_core.purging.replicas import PurgeReplicas

logger = logging.getLogger(__name__)

KIND = "purge"
LEFT = "left"
BEHIND = "behind"
LEASE_SECONDS = 30.0
ROWS_PER_STEP = 20
#: After the last row of a part, where indexes are: a writer of entries that read a row before has written by then.
SETTLE_SECONDS = 20.0
#: How long a part waits at its end for replicas that lack what it did. Those that do then are named.
REPLICA_SECONDS = 60.0
#: Times that a step is tried whose server does not answer, and the pause before the second.
TRIES = 5
PAUSE_SECONDS = 0.2
_BEGINNING: Json = {"stage": "delete", "at": 0}


class _Step(NamedTuple):
    """What a step did, and where the part goes on."""

    counts: dict[str, int]
    findings: list[Finding]
    checkpoint: Json
    is_end: bool
    #: Findings that are none any more.
    solved: tuple[int, ...] = ()


def unfinished_rows(bounds: Json, checkpoint: Json) -> list[UUID]:
    """The rows of a part that were begun and not finished: those of a step that was cut, too."""
    match bounds, checkpoint or _BEGINNING:
        case {"rows": list(rows)}, {"stage": "delete", "at": int(at)}:
            return [UUID(str(row)) for row in rows[: at + ROWS_PER_STEP]]
        case {"rows": list(rows)}, {"stage": "finish", "at": int(at)}:
            return [UUID(str(row)) for row in rows[at:]]
    return []


class PurgeRunner(PartWorker):
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        purges: Purges,
        replicas: PurgeReplicas,
        columns: Sequence[str],
        worker: str,
        cells_per_second: float | None,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        replica_seconds: float = REPLICA_SECONDS,
    ) -> None:
        super().__init__(jobs, job, worker, LEASE_SECONDS)
        self._purges = purges
        self._replicas = replicas
        self._columns = columns
        self._cells_per_second = cells_per_second
        self._settle_seconds = settle_seconds
        self._replica_seconds = replica_seconds

    def _serve(self, held: HeldPart) -> None:
        at: Json = held.part.checkpoint or _BEGINNING
        while held.may_go_on and not self._is_stopped.is_set():
            begun = time.monotonic()
            with held.kept_alive():
                step = self._tried(held.part.bounds, at)
                if step is None:
                    return
                self._rest(step.counts.get("cells", 0), time.monotonic() - begun)
            at = step.checkpoint
            reach("purge.before_save")
            held.save(at, step.counts, step.findings, step.solved, is_done=step.is_end)
            reach("purge.saved")
            self._tell(step.counts.get("cells", 0) / max(time.monotonic() - begun, 1e-6))

    def _lost(self, part: Part) -> None:
        extra = {"event": "purge.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)

    def _tried(self, bounds: Json, at: Json) -> _Step | None:
        """None: it was to end meanwhile."""
        for n in range(TRIES):
            try:
                return self._step(bounds, at)
            except (Unavailable, StaleEpoch):
                if n + 1 == TRIES:
                    raise
                if self._is_stopped.wait(PAUSE_SECONDS * 2**n):
                    return None
        raise AssertionError("the last attempt returns or raises")

    def _step(self, bounds: Json, checkpoint: Json) -> _Step | None:
        """One that a promotion came before begins anew: the server that leads may lack what was done until then."""
        promotions = self._replicas.promotions()
        match checkpoint:
            case {"promotions": int(before)} if before != promotions:
                step: _Step | None = self._anew(bounds, checkpoint)
            case {"stage": "replicas"}:
                step = self._replicated(checkpoint)
                if self._replicas.promotions() != promotions:
                    step = self._anew(bounds, checkpoint)
            case _:
                step = self._next(bounds, checkpoint)
        if step is None or not isinstance(step.checkpoint, dict):
            return None
        return step._replace(checkpoint={**step.checkpoint, "promotions": promotions})

    def _anew(self, bounds: Json, checkpoint: Json) -> _Step:
        """What was looked through is looked through again; cells that are deleted again count again."""
        extra = {"event": "purge.begins_anew", "job": self._job}
        logger.warning("a promotion came: the server that leads may lack what this part had purged", extra=extra)
        match bounds, checkpoint:
            case {"superseded": _}, {"at": int(at)}:
                return _Step({"rows": -at}, [], {"at": 0}, False)
            case _, {"stage": "finish" | "replicas", "at": int(at)}:
                return _Step({"rows": -at}, [], {"stage": "delete", "at": 0}, False)
        return _Step({}, [], {"stage": "delete", "at": 0}, False)

    def _next(self, bounds: Json, checkpoint: Json) -> _Step | None:
        match bounds, checkpoint:
            case {"superseded": [int(shard), int(last)]}, {"at": int(at)}:
                return self._superseded(shard, at, last)
            case {"rows": list(rows)}, {"stage": "delete", "at": int(at)}:
                return self._deleted([UUID(str(row)) for row in rows], at)
            case {"rows": list(rows)}, {"stage": "finish", "at": int(at)}:
                return self._finished([UUID(str(row)) for row in rows], at)
        raise InvalidRequest(f"{self._job} is of another version of tripstore.", hint="Begin a new one.")

    def _superseded(self, shard: int, at: int, last: int) -> _Step:
        if at >= last:
            return _Step({}, [], {"stage": "replicas", "at": at}, False)
        step = self._purges.superseded(shard, self._columns, at, last)
        counts = {"cells": step.cells, "rows": step.reached - at}
        return _Step(counts, [], {"at": step.reached}, False)

    def _deleted(self, rows: Sequence[UUID], at: int) -> _Step:
        end = min(at + ROWS_PER_STEP, len(rows))
        done = self._purges.rows(rows[at:end])
        counts = {"cells": done.cells, "purged": done.rows, "waiting": done.waiting, "conflicts": done.conflicts}
        following: Json = {"stage": "delete", "at": end} if end < len(rows) else {"stage": "finish", "at": 0}
        return _Step(counts, [], following, False)

    def _finished(self, rows: Sequence[UUID], at: int) -> _Step | None:
        """Once other writers of entries had their time. Without an index there is nothing to wait for."""
        if at == 0 and self._purges.has_indexes and self._is_stopped.wait(self._settle_seconds):
            return None
        end = min(at + ROWS_PER_STEP, len(rows))
        left = self._purges.remove_former_entries(rows) if at == 0 else []
        left += self._purges.finish_rows(rows[at:end])
        findings = [Finding(LEFT, each.row_key, body={"reason": f"it has {each.what}"}) for each in left]
        stage = "finish" if end < len(rows) else "replicas"
        return _Step({"rows": end - at}, findings, {"stage": stage, "at": end}, False)

    def _replicated(self, checkpoint: Json) -> _Step | None:
        """The end of a part: each replica has what it did, or is named. What lacked it once may have it by now."""
        known = {str(each.body["server"]): each.id for each in self._jobs.findings(self._job, kinds=[BEHIND])}
        reach("purge.before_replicas")
        lacking = self._replicas.lacking(self._replica_seconds, self._is_stopped.wait, known)
        if lacking is None:
            return None
        reach("purge.replicated")
        names = {each.server for each in lacking}
        findings = [
            Finding(BEHIND, body={"server": each.server, "reason": each.reason})
            for each in lacking
            if each.server not in known
        ]
        solved = tuple(found for server, found in known.items() if server not in names)
        return _Step({}, findings, checkpoint, True, solved)

    def _rest(self, cells: int, seconds: float) -> None:
        """As long as it takes to have been no faster than was asked for."""
        if self._cells_per_second is not None:
            self._is_stopped.wait(max(cells / self._cells_per_second - seconds, 0.0))
