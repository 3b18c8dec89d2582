"""`RecheckedRows`: what samples of earlier diffs found, and what each later one looks at again beside its own sample.

Else a fault in few rows would be found by one sample, and taken for mended by the next one, which looked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Jobs, StoredFinding
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


def seen_by_samples(jobs: Jobs) -> RecheckedRows:
    """What any diff keeps of such findings."""
    rows, values = dict[str, dict[str, None]](), dict[str, dict[Json, None]]()
    for found in _findings(jobs):
        if found.body.get("seen_by") == SEEN_BY:
            rows.setdefault(str(found.column_name), {})[str(found.row_key)] = None
        elif found.body.get("seen_by") == ANSWERS:
            values.setdefault(str(found.body["index"]), {})[found.body["value"]] = None
    return RecheckedRows(
        {name: list(keys) for name, keys in rows.items()}, {name: list(of) for name, of in values.items()}
    )


def _findings(jobs: Jobs) -> Iterator[StoredFinding]:
    for job in jobs.all(KIND):
        counts = jobs.progress(job.id).counts
        if counts.get(f"{PREFIX}{CellClass.DIFFERS}") or counts.get(f"{INDEX}_answers_differ"):
            after = 0
            kinds = [str(CellClass.DIFFERS), INDEX]
            while page := jobs.findings(job.id, kinds=kinds, after=after, limit=FINDINGS_PER_PAGE):
                yield from page
                after = page[-1].id
