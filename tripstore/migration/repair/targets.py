"""What is to be repaired: the differences of a diff job, or of a key list, each cell once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey, ColumnKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.control.jobs.jobs import Jobs
from tripstore.engines.validation.diff.differences import CellClass, Difference, from_finding

FINDINGS_PER_PAGE = 1000
_KINDS = frozenset(map(str, CellClass))


class Target(NamedTuple):
    """A row whose latest cells differ, of a column or of one of its children; or one older version of it."""

    row_key: UUID
    column_name: str
    #: None: the latest.
    older: int | None = None
    #: Which of the column's children; None: the column is one row.
    child: int | None = None

    @property
    def column(self) -> ColumnKey:
        return ColumnKey(self.row_key, self.column_name)

    @property
    def row(self) -> ChildKey:
        return ChildKey(self.row_key, self.column_name, self.child)

    @property
    def key(self) -> CellKey:
        """Of an older version."""
        assert self.older is not None
        return CellKey(self.row_key, self.column_name, self.older)


def of_job(jobs: Jobs, job: str) -> Iterator[Difference]:
    """The open findings of a diff."""
    after = 0
    while found := jobs.findings(job, after=after, limit=FINDINGS_PER_PAGE):
        for finding in found:
            if finding.kind in _KINDS and (difference := from_finding(finding)) is not None:
                yield difference
        after = found[-1].id


def indexes_of(jobs: Jobs, job: str) -> list[str]:
    """The indexes whose entries a diff found other than the cells."""
    after, names = 0, set[str]()
    while found := jobs.findings(job, kinds=["index"], after=after, limit=FINDINGS_PER_PAGE):
        names |= {str(finding.body["index"]) for finding in found if "index" in finding.body}
        after = found[-1].id
    return sorted(names)


def targets_of(differences: Iterable[Difference]) -> list[Target]:
    """What was not compared is no difference; what was seen twice is one.

    What only another decoder saw is no difference of the stores: they are equal, and one of us reads them wrongly.
    """
    found: dict[Target, None] = {}
    for each in differences:
        if each.is_difference and not each.seen_by:
            older = each.ref_key if each.is_older else None
            found[Target(each.row_key, each.column_name, older, None if each.is_older else each.child)] = None
    return list(found)


def to_bounds(targets: Sequence[Target]) -> Json:
    """Targets as the bounds of a part."""
    return [[str(each.row_key), each.column_name, each.older, each.child] for each in targets]


def from_bounds(bounds: Json) -> list[Target]:
    assert isinstance(bounds, list)
    return [_target(each) for each in bounds]


def _target(each: Json) -> Target:
    assert isinstance(each, list)
    row_key, column_name, older, *more = each
    child = more[0] if more else None  # a job of an earlier version knows of none
    assert older is None or isinstance(older, int)
    assert child is None or isinstance(child, int)
    return Target(UUID(str(row_key)), str(column_name), older, child)
