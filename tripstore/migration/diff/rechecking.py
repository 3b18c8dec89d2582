"""Findings of a diff, looked at again: what is equal by now is open no more. Equal to the byte, as the diff means it.

Each page is solved with its counts in one transaction; killed in between, the next recheck goes on with what is open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.children import ChildKey, Children
from schemaless_core.control.jobs.jobs import Job, Jobs, StoredFinding
from schemaless_core.mends import Mends
from tripstore.engines.validation.diff.differences import EXPLAINED, Difference, from_finding, of_bytes
from tripstore.engines.validation.diff.histories import Forgotten, Histories
from tripstore.engines.validation.diff.older import PREFIX, held_together
from tripstore.engines.validation.diff.suspects import CELLS_PER_LOOK, Judge, Roles
from tripstore.migration.diff.decoding import SEEN_BY


@dataclass
class Rechecked:
    """What became of findings."""

    looked_at: int = 0
    #: Equal by now; or it cannot be compared any more, since a store has forgotten it.
    solved: int = 0
    #: Still different, and seen so again.
    remaining: list[Difference] = field(default_factory=list)
    #: Not compared this time either, or of a kind that only another diff looks at.
    not_compared: int = 0
    #: Different as they should be: their deletions were ignored. They are open no more, either.
    explained: int = 0


class Rechecking:
    """Looks at differences again."""

    def __init__(
        self,
        judge: Judge,
        roles: Callable[[], Roles],
        histories: Histories,
        stored: Mends,
        children: Children,
        decoded: Callable[[Collection[Difference]], Mapping[ChildKey, Difference | None]],
    ) -> None:
        self._judge = judge
        self._roles = roles
        self._histories = histories
        #: What Schemaless has, undecoded; Postgres keeps no bytes that could be others.
        self._stored = stored
        self._children = children
        #: What the second decoder reads now; None of a row that it reads as Schemaless has it.
        self._decoded = decoded

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
            known = list(filter(_is_of_rows, page))
            done.looked_at += len(page)
            done.not_compared += len(page) - len(known)
            found = self._judged(known, done)
            done.solved += sum(found.get(_name(each)) in (EQUAL, FORGOTTEN) for each in known)
            done.explained += sum(found.get(_name(each)) == EXPLAINED for each in known)
        return done

    def _of_page(self, jobs: Jobs, job: Job, page: Sequence[StoredFinding], done: Rechecked) -> None:
        known = {found.id: each for found in page if (each := from_finding(found)) is not None and _is_of_rows(each)}
        done.looked_at += len(page)
        done.not_compared += len(page) - len(known)
        found = self._judged(list(known.values()), done)
        seen = {number: (each, outcome) for number, each in known.items() if (outcome := found.get(_name(each)))}
        explained = sum(outcome == EXPLAINED for _each, outcome in seen.values())
        done.explained += explained
        done.solved += len(seen) - explained
        if seen:
            jobs.solve(job.id, list(seen), counts={number: _counts(*each) for number, each in seen.items()})

    def _judged(self, differences: Sequence[Difference], done: Rechecked) -> dict[_Name, str]:
        """What became of those that are open no more, by their names."""
        latest = {each.key: None for each in differences if not (each.is_older or each.seen_by)}
        verdicts = self._judge.judge(list(latest))
        done.remaining += verdicts.differences
        done.not_compared += len(verdicts.not_compared)
        found: dict[_Name, str] = {(key, None, ""): EQUAL for key in self._equal_to_the_byte(verdicts.equal, done)}
        found |= {(key, None, ""): EQUAL for key in verdicts.gone}
        found |= {_name(each): EXPLAINED for each in verdicts.explained}
        for each in differences:
            if each.is_older and (outcome := self._older(each, done)) is not None:
                found[_name(each)] = outcome
        return found | self._read_alike([each for each in differences if each.seen_by], done)

    def _read_alike(self, differences: Sequence[Difference], done: Rechecked) -> dict[_Name, str]:
        """Rows that the second decoder reads by now as Schemaless has them: a repair has lifted them, or a service."""
        if not differences:
            return {}
        opinions = self._decoded(differences)
        done.remaining += [seen for seen in opinions.values() if seen is not None]
        done.not_compared += sum(each.key not in opinions for each in differences)
        return {_name(each): EQUAL for each in differences if each.key in opinions and opinions[each.key] is None}

    def _equal_to_the_byte(self, equal: Sequence[tuple[ChildKey, int]], done: Rechecked) -> list[ChildKey]:
        """Of cells that are read alike those that are stored alike, too."""
        keys = [key for key, _ref_key in equal]
        found = []
        for key, raw in zip(keys, self._stored.latest(keys, self._children), strict=True):
            if raw is None or raw.is_canonical:
                found.append(key)
            else:
                done.remaining.append(of_bytes(key, raw.key.ref_key))
        return found

    def _older(self, known: Difference, done: Rechecked) -> str | None:
        """What became of a version; None: it is open still."""
        if known.ref_key is None:
            done.not_compared += 1
            return None
        roles, key = self._roles(), CellKey(*known.key.column, known.ref_key)
        (ours,), (theirs,) = (self._histories.find(store, [key]) for store in roles[:2])
        found = held_together(key, *((ours, theirs) if roles.is_from else (theirs, ours)))
        raw = self._stored.find(key) if found is None else None
        if raw is not None and not raw.is_canonical:
            found = of_bytes(known.key, key.ref_key)._replace(is_older=True)
        if found is None:
            return EQUAL
        if isinstance(found, Forgotten) and not known.is_difference:
            return FORGOTTEN
        if isinstance(found, Forgotten) or not found.is_difference:
            done.not_compared += 1  # what was seen to differ is not forgotten with a log
        else:
            done.remaining.append(found)
        return None


EQUAL, FORGOTTEN = "equal", "forgotten"

#: A child, which version of it (None: the latest), and what saw it.
_Name = tuple[ChildKey, int | None, str]


def _is_of_rows(each: Difference) -> bool:
    """Whether two cells, or a row and a cell, tell if it is so still: an index is asked by another diff."""
    return each.seen_by in ("", SEEN_BY)


def _name(each: Difference) -> _Name:
    return each.key, each.ref_key if each.is_older else None, each.seen_by


def _counts(solved: Difference, outcome: str) -> dict[str, int]:
    """What changes in the counts of a job: nothing of what was found, only what is open."""
    if solved.is_difference:
        return {"solved": 1, "open": -1, EXPLAINED: int(outcome == EXPLAINED)}
    if solved.is_older:
        return {"solved": 1, f"{PREFIX}not_compared": -1, f"{PREFIX}{outcome}": 1}
    return {"solved": 1, "not_compared": -1, outcome: 1, "rows": 1}
