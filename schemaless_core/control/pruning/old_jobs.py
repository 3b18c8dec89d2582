"""`OldJobs`: jobs that ended long ago, and what goes with one. Its note stays: gates go by the notes of all jobs.

A job goes first, in one transaction with what tells of it, so that no command shows half of one; then its findings and
its parts, portion by portion, the parts last. What a killed process left of a job is found by the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import sqlalchemy as sa

from schemaless_core.control.changes import make_change
from schemaless_core.control.clock import now_ms
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.notes import COUNT_OPEN
from schemaless_core.control.jobs.records import JobState
from schemaless_core.control.tables import job, job_count, job_finding, job_part, job_worker
from schemaless_core.failpoints import reach

#: Of each kind so many are kept, the newest: for `last`, and for the lists that people look at.
KEPT = 10
PORTION_ROWS = 1_000
DAY_MS = 86_400_000

_ENDED = (JobState.DONE.value, JobState.CANCELLED.value)
_OPEN_FINDING = sa.exists().where(job_finding.c.job == job.c.id, job_finding.c.is_open.is_(True))
#: Of kinds whose findings are a sample.
_COUNTED_OPEN = job.c.kind.in_(COUNT_OPEN) & sa.exists().where(
    job_count.c.job == job.c.id, job_count.c.name == "open", job_count.c.total > 0
)
#: As it stands in a spec, which is canonical.
_PARTIAL = '%"is_partial":true%'


class OldJobs:
    """Of one datastore."""

    def __init__(
        self,
        control: ControlDatabase,
        kept_kinds: Collection[str] = (),
        redone: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        """`kept_kinds`: what they found is history. `redone`: jobs whose open findings a later one answers for."""
        self._control = control
        self._kept_kinds = kept_kinds
        self._redone = redone

    def due(self, days: float) -> list[str]:
        """The jobs that may go, the oldest first: nothing that goes on needs them, and nothing of them is open."""
        redone = self._redone()
        with self._control.begin() as connection:
            before = now_ms(connection) - round(days * DAY_MS)
            is_old = job.c.state.in_(_ENDED) & (job.c.ended_ms < before) & job.c.kind.not_in(self._kept_kinds)
            wanted = sa.select(job.c.id).where(is_old, ~(_OPEN_FINDING | _COUNTED_OPEN) | job.c.id.in_(redone))
            found = connection.execute(wanted.order_by(job.c.number)).scalars().all()
            kept = _newest(connection) | _named_by_running(connection, found) if found else set()
            return [each for each in found if each not in kept]

    def portions(self, days: float) -> Iterator[int]:
        """Remove what is due; the rows of each portion. First what a process left that was killed."""
        for job_id in self._left():
            yield from self._rest(job_id)
        for job_id in self.due(days):
            yield self._remove(job_id)
            yield from self._rest(job_id)

    def _remove(self, job_id: str) -> int:
        """The job itself, and what is told of it."""

        def work(connection: sa.Connection) -> int:
            is_it = (job.c.id == job_id) & job.c.state.in_(_ENDED)
            if connection.execute(sa.select(job.c.id).where(is_it).with_for_update()).first() is None:
                return 0  # another process was there first
            connection.execute(sa.delete(job_count).where(job_count.c.job == job_id))
            connection.execute(sa.delete(job_worker).where(job_worker.c.job == job_id))
            return connection.execute(sa.delete(job).where(job.c.id == job_id)).rowcount

        removed = make_change(self._control, work)
        reach("pruning.job_gone")
        return removed

    def _rest(self, job_id: str) -> Iterator[int]:
        for remove in (_findings, _parts):
            while removed := make_change(self._control, lambda connection: remove(connection, job_id)):  # noqa: B023  # run at once
                reach("pruning.portion_gone")
                yield removed

    def _left(self) -> list[str]:
        """Jobs of which parts are there, and no more than that."""
        known = sa.select(job.c.id)
        wanted = sa.select(job_part.c.job).where(job_part.c.job.not_in(known)).distinct().order_by(job_part.c.job)
        with self._control.begin() as connection:
            return list(connection.execute(wanted).scalars())


def _newest(connection: sa.Connection) -> set[str]:
    """Of each kind the newest ones, and the newest whole one that is done."""
    kept = set[str]()
    for kind in connection.execute(sa.select(job.c.kind).distinct()).scalars().all():
        newest = sa.select(job.c.id).where(job.c.kind == kind).order_by(job.c.number.desc())
        whole = newest.where(job.c.state == JobState.DONE.value, job.c.spec.not_like(_PARTIAL))
        for wanted in (newest.limit(KEPT), whole.limit(1)):
            kept.update(connection.execute(wanted).scalars())
    return kept


def _named_by_running(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    """Jobs that one names which has not ended: a repair its diff."""
    specs = connection.execute(sa.select(job.c.spec).where(job.c.state.not_in(_ENDED))).scalars().all()
    return {each for each in ids if any(each in spec for spec in specs)}


def _findings(connection: sa.Connection, job_id: str) -> int:
    ids = sa.select(job_finding.c.id).where(job_finding.c.job == job_id)
    found = connection.execute(ids.order_by(job_finding.c.is_open, job_finding.c.id).limit(PORTION_ROWS)).scalars()
    return connection.execute(sa.delete(job_finding).where(job_finding.c.id.in_(found.all()))).rowcount


def _parts(connection: sa.Connection, job_id: str) -> int:
    numbers = sa.select(job_part.c.number).where(job_part.c.job == job_id)
    found = connection.execute(numbers.order_by(job_part.c.number).limit(PORTION_ROWS)).scalars().all()
    if not found:
        return 0
    is_it = (job_part.c.job == job_id) & (job_part.c.number <= found[-1])
    return connection.execute(sa.delete(job_part).where(is_it)).rowcount
