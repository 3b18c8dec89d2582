"""`RecheckedRows`: what samples of earlier diffs found, and what each later one looks at again beside its own sample.

Else a fault in few rows would be found by one sample, and taken for mended by the next one, which looked elsewhere. So
a diff answers for none that it did not know of as it was planned, though it began later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, Jobs, StoredFinding
from schemaless_core.errors import InvalidRequest
from tripstore.engines.validation.diff.differences import CellClass
from tripstore.engines.validation.diff.indexes import ANSWERS, INDEX
from tripstore.engines.validation.diff.runner import KIND
from tripstore.migration.diff.decoding import PREFIX, SEEN_BY

FINDINGS_PER_PAGE = 1_000


class RecheckedRows(msgspec.Struct, frozen=True):
    """Rows and values, each once."""

    #: By column, the row keys that another decoder read otherwise.
    rows: dict[str, Json]
    #: By index, the shard values that the stores answered differently; as in a body.
    values: dict[str, Json]
    #: Since then it knows of no diff that ended, by the control database's clock. None: it looks at none again.
    looked_at: datetime | None = None
    #: Diffs that had not ended by then. One may have done so before the others were listed.
    running: list[str] = []

    @property
    def note(self) -> dict[str, Json]:
        """As it stands in the note of a diff, which gates go by."""
        if self.looked_at is None:
            return {}
        return {"looked_back": {"at": self.looked_at.isoformat(), "running": list[Json](self.running)}}


def seen_by_samples(jobs: Jobs) -> RecheckedRows:
    """What any diff keeps of such findings. The clock first, then which have ended: all that these found is there."""
    looked_at, diffs = jobs.now(), jobs.all(KIND)
    rows, values = dict[str, dict[str, None]](), dict[str, dict[Json, None]]()
    for found in _findings(jobs, diffs):
        if found.body.get("seen_by") == SEEN_BY:
            rows.setdefault(str(found.column_name), {})[str(found.row_key)] = None
        elif found.body.get("seen_by") == ANSWERS:
            values.setdefault(str(found.body["index"]), {})[found.body["value"]] = None
    return RecheckedRows(
        {name: list(keys) for name, keys in rows.items()},
        {name: list(of) for name, of in values.items()},
        looked_at,
        [job.id for job in diffs if job.ended_at is None],
    )


def _findings(jobs: Jobs, diffs: Sequence[Job]) -> Iterator[StoredFinding]:
    for job in diffs:
        try:
            counts = jobs.progress(job.id).counts
        except InvalidRequest:
            continue  # pruned meanwhile: nothing that a gate hears of was left of it
        if counts.get(f"{PREFIX}{CellClass.DIFFERS}") or counts.get(f"{INDEX}_answers_differ"):
            after = 0
            kinds = [str(CellClass.DIFFERS), INDEX]
            while page := jobs.findings(job.id, kinds=kinds, after=after, limit=FINDINGS_PER_PAGE):
                yield from page
                after = page[-1].id
