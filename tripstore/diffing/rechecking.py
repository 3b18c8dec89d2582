"""Findings of a diff, looked at again: what is equal by now is open no more.

Each page is solved with its counts in one transaction; killed in between, the next recheck goes on with what is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from schemaless_core.cell import CellKey, ColumnKey
from schemaless_core.control.jobs import Job, Jobs, StoredFinding
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from validation.differences import EXPLAINED, Difference, difference, from_finding
from validation.suspects import CELLS_PER_LOOK, READ_SECONDS, Judge, Roles


@dataclass
class Rechecked:
    """What became of findings."""

    looked_at: int = 0
    #: Equal by now.
    solved: int = 0
    #: Still different, and seen so again.
    remaining: list[Difference] = field(default_factory=list)
    #: Not compared this time either, or of a kind that only another diff looks at.
    not_compared: int = 0
    #: Different as they should be: their deletions were ignored. They are open no more, either.
    explained: int = 0


class Rechecking:
    """Looks at differences again."""

    def __init__(self, judge: Judge, roles: Callable[[], Roles]) -> None:
        self._judge = judge
        self._roles = roles

    def of_job(self, jobs: Jobs, job: Job) -> Rechecked:
        """All open findings of a job; those that are equal by now are solved."""
        done, after = Rechecked(), 0
        while page := jobs.findings(job.id, after=after, limit=CELLS_PER_LOOK):
            after = page[-1].id
            self._of_page(jobs, job, page, done)
        return done

    def of_list(self, differences: Iterable[Difference]) -> Rechecked:
        """The differences of a key list."""
        done, waiting = Rechecked(), iter(differences)
        while page := list(islice(waiting, CELLS_PER_LOOK)):
            done.looked_at += len(page)
            equal, explained = self._judged(page, done)
            done.solved += sum(_name(each) in equal for each in page)
            done.explained += sum(_name(each) in explained for each in page)
        return done

    def _of_page(self, jobs: Jobs, job: Job, page: Sequence[StoredFinding], done: Rechecked) -> None:
        known = {found.id: each for found in page if (each := from_finding(found)) is not None and not each.seen_by}
        done.looked_at += len(page)
        done.not_compared += len(page) - len(known)
        equal, explained = self._judged(list(known.values()), done)
        counts = {number: _counts(each, EQUAL) for number, each in known.items() if _name(each) in equal}
        done.solved += len(counts)
        others = {number: _counts(each, EXPLAINED) for number, each in known.items() if _name(each) in explained}
        done.explained += len(others)
        if counts or others:
            jobs.solve(job.id, [*counts, *others], counts=counts | others)

    def _judged(self, differences: Sequence[Difference], done: Rechecked) -> tuple[set[_Name], set[_Name]]:
        """The names of those that are equal by now, and of those that differ as they should."""
        latest = {each.key: None for each in differences if not each.is_older}
        verdicts = self._judge.judge(list(latest))
        done.remaining += verdicts.differences
        done.not_compared += len(verdicts.not_compared)
        equal: set[_Name] = {(ColumnKey(*key[:2]), None) for key in verdicts.equal}
        equal |= {(key, None) for key in verdicts.gone}
        explained = {_name(each) for each in verdicts.explained}
        for each in differences:
            if each.is_older and each.ref_key is not None:
                found = self._older(CellKey(*each.key, each.ref_key), done)
                equal |= {_name(each)} if found else set()
            elif each.is_older:
                done.not_compared += 1
        return equal, explained

    def _older(self, key: CellKey, done: Rechecked) -> bool:
        """Whether both stores have one version alike."""
        roles = self._roles()
        try:
            ours, theirs = (store.using(deadline=READ_SECONDS).get_cell(*key) for store in roles[:2])
        except (HistoryTruncated, UnreadableRow, msgspec.MsgspecError):
            done.not_compared += 1
            return False
        wanted, held = (ours, theirs) if roles.is_from else (theirs, ours)
        found = difference(ColumnKey(*key[:2]), wanted, held, is_older=True)
        if found is not None:
            done.remaining.append(found)
        return found is None


EQUAL = "equal"

#: A column, and which version of it; None: the latest.
_Name = tuple[ColumnKey, int | None]


def _name(each: Difference) -> _Name:
    return each.key, each.ref_key if each.is_older else None


def _counts(solved: Difference, outcome: str) -> dict[str, int]:
    """What changes in the counts of a job: nothing of what was found, only what is open."""
    if solved.is_difference:
        return {"solved": 1, "open": -1, EXPLAINED: int(outcome == EXPLAINED)}
    if solved.is_older:
        return {"solved": 1, "older_not_compared": -1, "older_equal": 1}
    return {"solved": 1, "not_compared": -1, outcome: 1, "rows": 1}
