"""`Pruning`: what is too old goes out of the control database, a portion at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from schemaless_core.config import PruneConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.pruning.old_jobs import OldJobs
from schemaless_core.control.pruning.old_rows import audit_portions, count_portions


class PrunedRows(NamedTuple):
    """Rows that went in one transaction."""

    #: `jobs`, `counts` or `audit`.
    what: str
    rows: int


class Pruning:
    """Of one datastore. Any number of processes may do it at once: what one removed, the next finds gone."""

    def __init__(
        self,
        control: ControlDatabase,
        config: PruneConfig,
        jobs: OldJobs,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._control = control
        self._config = config
        self._jobs = jobs
        self._now = now

    def portions(self) -> Iterator[PrunedRows]:
        """Remove what is due; ends when there is no more. The caller rests in between."""
        for what, portions in self._due():
            for rows in portions:
                yield PrunedRows(what, rows)

    def _due(self) -> Iterator[tuple[str, Iterator[int]]]:
        config, control = self._config, self._control
        if config.jobs_days:
            yield "jobs", self._jobs.portions(config.jobs_days)
        if config.counts_days:
            yield "counts", count_portions(control, config.counts_days, self._now())
        if config.audit_days:
            yield "audit", audit_portions(control, config.audit_days, self._now())
