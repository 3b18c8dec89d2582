"""`RepairEnding`: what a repair does after its cells: it makes index entries of them, and looks at the diff's
findings again.

Both begin with a look, so that they may be repeated, and done by two at once. Neither depends on which backend is the
authority. An index may take long: each that is right is saved, and the next worker rebuilds only those that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.indexes.verify import VerificationReport
from tripstore.migration.diff.rechecking import Rechecked


class IndexMade(msgspec.Struct, frozen=True):
    """What the last look found of an index's entries, and made right."""

    index: str
    differences: int
    repaired: int
    not_compared: int


class FindingsSeen(msgspec.Struct, frozen=True):
    """What the last look found of the diff's findings that were open still."""

    looked_at: int
    solved: int
    remaining: int
    not_compared: int
    explained: int


class Ended(msgspec.Struct, frozen=True):
    """What came of it; until the part is done, what has come of it so far."""

    #: In the order of the job.
    indexes: list[IndexMade]
    #: None: it was a key list that was repaired, or they were not looked at yet.
    findings: FindingsSeen | None = None


class RepairEnding:
    """The end of one job."""

    def __init__(
        self, job: Job, rebuild: Callable[[str], VerificationReport | None], recheck: Callable[[str], Rechecked]
    ) -> None:
        names, source = job.spec.get("indexes"), str(job.spec["of"])
        assert isinstance(names, list)
        self.indexes = [str(name) for name in names]
        # A job names a key list by its whole path.
        self._diff = None if Path(source).is_absolute() else source
        self._rebuild = rebuild
        self._recheck = recheck

    def rebuild(self, name: str) -> IndexMade:
        """Make the entries of an index right; one that was dropped meanwhile has none."""
        done = self._rebuild(name)
        if done is None:
            return IndexMade(name, 0, 0, 0)
        return IndexMade(name, done.differences, done.repaired, done.not_compared)

    def recheck(self) -> FindingsSeen | None:
        """Close the findings of the diff that are equal by now."""
        if self._diff is None:
            return None
        done = self._recheck(self._diff)
        return FindingsSeen(done.looked_at, done.solved, len(done.remaining), done.not_compared, done.explained)


def to_checkpoint(ended: Ended) -> Json:
    """As the last part of the job keeps it."""
    found: Json = msgspec.to_builtins(ended)
    return found


def from_checkpoint(checkpoint: Json) -> Ended:
    """What a worker has saved before; nothing of a part that is at its beginning."""
    return msgspec.convert(checkpoint, Ended) if isinstance(checkpoint, dict) else Ended([])


def find_ended(jobs: Jobs, job: str) -> Ended | None:
    """What came of it; None: the job is not so far, though indexes may be right, or it was begun without an end."""
    progress = jobs.progress(job)
    if progress.parts_done < progress.parts:
        return None
    checkpoints = jobs.checkpoints(job)
    last = checkpoints[max(checkpoints)] if checkpoints else None
    return from_checkpoint(last) if isinstance(last, dict) else None
