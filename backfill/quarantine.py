"""The quarantine of a job: what is still open of it, by row. A job of its own copies it again, and answers it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from schemaless_core.control.jobs.records import StoredFinding

PAGE = 1_000


class Findings(Protocol):
    """What is asked of `Jobs`."""

    def findings(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredFinding]: ...


def open_rows(jobs: Findings, job_id: str) -> dict[UUID, Sequence[StoredFinding]]:
    """The rows with open findings, and these. A finding without a row key cannot be copied by it, and is left out."""
    found = defaultdict[UUID, list[StoredFinding]](list)
    after = 0
    while page := jobs.findings(job_id, after=after, limit=PAGE):
        after = page[-1].id
        for each in page:
            if each.row_key is not None:
                found[each.row_key].append(each)
    return dict(found)
