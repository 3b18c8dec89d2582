"""`Verification`: holds a version's entries against the cells, both ways, and mends what differs.

From the cells: each row with a shard value must have its living entry, as its latest cells say. From the entries: there
are no others. First both are summed up, and the sums of each page of rows are compared. Where they differ, each row is
held against its entry, and if that does not explain it, each entry against the cells of its row. What differs may only
be late: it is looked at again once the group has passed the heads of that moment, and counts if the row's cells are
still the same. A row that changed meanwhile was not compared, and that is what the report says (I12).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from schemaless_core.calls.lookups import to_cell
from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.values import index_shard_of
from schemaless_core.engine.base import EntrySighting, EntryWrite, Node, Sighting, StoredEntry
from schemaless_core.errors import Unavailable
from schemaless_core.indexes.catalogue import Verified
from schemaless_core.indexes.entries import IndexVersion, LatestCells, dead_entry, living_entry, refs_of
from schemaless_core.indexes.entry_sums import EntryKey, EntrySums, PageSums
from schemaless_core.indexes.rows import AS_COPIER, Rows
from schemaless_core.indexes.writer import EntryWriter
from schemaless_core.servers.routing import Router

#: Entries or rows looked at together.
PER_PAGE = 2_000
PAGE_SECONDS = 60.0
#: How long the second look waits for the version's group.
CATCH_UP_SECONDS = 60.0
SAMPLES_MAX = 10
#: What differed at first and is looked at again together: a version that is not filled yet lacks everything.
SUSPECTS_MAX = 10_000


class DifferenceKind(StrEnum):
    """What is wrong with an entry."""

    MISSING = "missing"  #: The row has this shard value, and no living entry under it.
    STALE = "stale"  #: A living entry under a shard value that the row does not have.
    DIFFERENT = "different"  #: The fields, or the ref keys they are of, are not those of the latest cells.


class EntryDifference(NamedTuple):
    """An entry that is not what the cells of its row say."""

    kind: DifferenceKind
    row_key: UUID
    shard_value: Scalar


@dataclass
class VerificationReport:
    """What a verification found. Samples are the first of each kind."""

    index: str
    version: int
    entries: int = 0
    rows: int = 0
    #: Entries and rows that differed at first, were late, and are right.
    late: int = 0
    not_compared: int = 0
    counts: dict[DifferenceKind, int] = field(default_factory=lambda: dict.fromkeys(DifferenceKind, 0))
    samples: list[EntryDifference] = field(default_factory=list)
    repaired: int = 0

    @property
    def differences(self) -> int:
        return sum(self.counts.values())

    @property
    def is_clean(self) -> bool:
        return self.differences == 0 and self.not_compared == 0

    @property
    def verified(self) -> Verified:
        """As much of it as the catalogue keeps."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return Verified(at, self.entries, self.rows, self.differences, self.not_compared)

    def add(self, difference: EntryDifference) -> None:
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] <= SAMPLES_MAX:
            self.samples.append(difference)


class _Suspect(NamedTuple):
    """A place where an entry was not right at the first look, and the ref keys of the row's cells then."""

    shard_value: Scalar
    row_key: bytes
    refs: tuple[int | None, ...]


class Verification:
    """Compares one index version with the cells. Makes its own pace: pages, one shard after the other."""

    def __init__(
        self,
        version: IndexVersion,
        router: Router,
        shards: int,
        writer: EntryWriter,
        wait_for_group: Callable[[IndexVersion, float], None],
    ) -> None:
        self._version = version
        self._router = router
        self._shards = shards
        self._rows = Rows(router, shards)
        self._writer = writer
        self._wait_for_group = wait_for_group

    def run(self, *, repair: bool = False, patience_seconds: float = CATCH_UP_SECONDS) -> VerificationReport:
        """Walk all entries and all rows; with `repair`, make right what is wrong."""
        report = VerificationReport(self._version.name, self._version.number)
        suspects: list[_Suspect] = []
        for suspect in self._suspects(report):
            suspects.append(suspect)
            if len(suspects) == SUSPECTS_MAX:
                self._look_again(suspects, report, patience_seconds, repair=repair)
                suspects = []
        if suspects:
            self._look_again(suspects, report, patience_seconds, repair=repair)
        return report

    # The first look.

    def _suspects(self, report: VerificationReport) -> Iterator[_Suspect]:
        sums = EntrySums(self._version.table, self._shards)
        for shard in range(self._shards):
            self._want(shard, sums, report)
        for shard in range(self._shards):
            for entry in self._living(shard):
                report.entries += 1
                if self._index_shard(_shard_value(entry)) == shard:  # no query finds it elsewhere
                    sums.of(entry.row_key).found(entry)
        unequal = sums.unequal()
        for page in unequal:
            yield from self._from_rows(page)
        if any(page.may_have_others() for page in unequal):
            for shard in range(self._shards):
                yield from self._from_entries(shard, sums)

    def _want(self, shard: int, sums: EntrySums, report: VerificationReport) -> None:
        """Sum up what the rows of a shard should have."""
        for last, rows in self._row_pages(shard):
            page = sums.page(shard, last)
            report.rows += len(rows)
            for row_key, latest in rows.items():
                living = living_entry(self._version, row_key, latest)
                if living is not None:
                    page.want(living)
        sums.page(shard, None)

    def _from_rows(self, page: PageSums) -> Iterator[_Suspect]:
        for last, some in self._row_pages(page.shard, page.after, page.differs_for):
            rows = {key: latest for key, latest in some.items() if page.last is None or key <= page.last}
            expected = {
                (living.shard_value, row_key): living
                for row_key, latest in rows.items()
                if (living := living_entry(self._version, row_key, latest)) is not None
            }
            found = self._at(expected)
            for key, living in expected.items():
                entry = found.get(key)
                if entry is None or _unlike(living, entry):
                    yield _Suspect(*key, refs_of(self._version, rows[key[1]]))
                if entry is not None and not entry.is_dead:
                    page.explained(key)
            if page.last is not None and last >= page.last:
                return

    def _from_entries(self, shard: int, sums: EntrySums) -> Iterator[_Suspect]:
        """What is there, but unlike its cells, was found from the rows."""
        for entries in self._entry_pages(shard):
            others = [
                each for each in entries if not each.is_dead and sums.of(each.row_key).may_have_others(each.row_key)
            ]
            rows = self._rows.latest([entry.row_key for entry in others], self._columns, Deadline(PAGE_SECONDS))
            rows.raise_first()
            for entry in others:
                latest = rows.of(entry.row_key)
                kind = _difference(self._version, entry.row_key, _shard_value(entry), entry, latest)
                if kind is DifferenceKind.STALE:
                    yield _Suspect(*_key(entry), refs_of(self._version, latest))

    def _living(self, shard: int) -> Iterator[StoredEntry]:
        return (entry for entries in self._entry_pages(shard) for entry in entries if not entry.is_dead)

    def _entry_pages(self, shard: int) -> Iterator[list[StoredEntry]]:
        after: EntryKey | None = None
        while True:
            place, deadline = after, Deadline(PAGE_SECONDS)

            def scan(node: Node) -> EntrySighting:
                return EntrySighting(*node.scan_entries(self._version.table, shard, place, PER_PAGE, deadline))  # noqa: B023

            entries = self._router.read(shard, scan, AS_COPIER, "primary_only", deadline).entries
            if not entries:
                return
            yield entries
            after = _key(entries[-1])

    def _row_pages(
        self, shard: int, after: bytes | None = None, is_wanted: Callable[[bytes], bool] = lambda row_key: True
    ) -> Iterator[tuple[bytes, dict[bytes, LatestCells]]]:
        """The last key of each page, and those of its rows that are wanted."""
        names = [name.encode() for name in self._columns]
        while True:
            place, deadline = after, Deadline(PAGE_SECONDS)

            def scan(node: Node) -> Sighting:
                return node.scan(shard, place, PER_PAGE, names, deadline)  # noqa: B023

            sighting = self._router.read(shard, scan, AS_COPIER, "primary_only", deadline)
            if not sighting.cells:
                return
            after = max(cell.row_key for cell in sighting.cells)
            rows: defaultdict[bytes, dict[str, Cell]] = defaultdict(dict)
            for stored in sighting.cells:
                if is_wanted(stored.row_key):
                    cell = to_cell(stored)
                    rows[stored.row_key][cell.column_name] = cell
            if sighting.is_cut and after in rows:  # the last one may lack cells
                whole = self._rows.latest([after], self._columns, deadline)
                whole.raise_first()
                rows[after] = dict(whole.of(after))
            yield after, dict(rows)

    # The second look.

    def _look_again(
        self, suspects: Sequence[_Suspect], report: VerificationReport, patience_seconds: float, *, repair: bool
    ) -> None:
        try:
            self._wait_for_group(self._version, patience_seconds)
        except Unavailable:
            report.not_compared += len(suspects)
            return
        for first in range(0, len(suspects), PER_PAGE):
            part = suspects[first : first + PER_PAGE]
            # The entries first: cells read after them are at least as new as those they were made of.
            found = self._at([(suspect.shard_value, suspect.row_key) for suspect in part])
            rows = self._rows.latest([suspect.row_key for suspect in part], self._columns, Deadline(PAGE_SECONDS))
            rows.raise_first()
            for suspect in part:
                latest = rows.of(suspect.row_key)
                entry = found.get((suspect.shard_value, suspect.row_key))
                kind = _difference(self._version, suspect.row_key, suspect.shard_value, entry, latest)
                if kind is None:
                    report.late += 1
                elif refs_of(self._version, latest) != suspect.refs:
                    report.not_compared += 1  # the row changed since the first look
                else:
                    report.add(EntryDifference(kind, UUID(bytes=suspect.row_key), suspect.shard_value))
                    if repair and self._repair(suspect, entry, latest):
                        report.repaired += 1

    def _repair(self, suspect: _Suspect, entry: StoredEntry | None, latest: LatestCells) -> bool:
        """Write what should be there. An entry newer than any cell is removed first, unless it was written anew."""
        version, deadline = self._version, Deadline(PAGE_SECONDS)
        if entry is not None and _is_unexplained(entry, refs_of(version, latest)):
            self._remove(entry, deadline)
        living = living_entry(version, suspect.row_key, latest)
        newest = latest.get(version.shard_column)
        writes: list[EntryWrite] = [] if living is None else [living]
        if newest is not None and (living is None or living.shard_value != suspect.shard_value):
            writes.append(dead_entry(version, suspect.row_key, suspect.shard_value, newest.ref_key))
        return not self._writer.put(version, writes, deadline)

    def _remove(self, entry: StoredEntry, deadline: Deadline) -> None:
        shard = self._index_shard(_shard_value(entry))

        def remove(node: Node) -> EntrySighting:
            state, _removed = node.remove_entries(self._version.table, shard, [entry], deadline)
            return EntrySighting(state, [])

        self._router.read(shard, remove, AS_COPIER, "primary_only", deadline)

    # Both.

    def _at(self, keys: Iterable[EntryKey]) -> dict[EntryKey, StoredEntry]:
        """What stands under these shard values and row keys."""
        wanted: defaultdict[int, list[EntryKey]] = defaultdict(list)
        for shard_value, row_key in keys:
            wanted[self._index_shard(shard_value)].append((shard_value, row_key))
        deadline = Deadline(PAGE_SECONDS)

        def find(node: Node, part: Mapping[int, list[EntryKey]]) -> dict[int, EntrySighting]:
            return node.find_entries_at(self._version.table, part, deadline)

        answers = self._router.read_many(wanted, find, AS_COPIER, "primary_only", deadline)
        return {_key(entry): entry for sighting in answers.values() for entry in sighting.entries}

    def _index_shard(self, shard_value: Scalar) -> int:
        return index_shard_of(self._version.definition.shard_field.kind, shard_value, self._shards)

    @property
    def _columns(self) -> tuple[str, ...]:
        return self._version.definition.column_names


def _difference(
    version: IndexVersion, row_key: bytes, shard_value: Scalar, entry: StoredEntry | None, latest: LatestCells
) -> DifferenceKind | None:
    """What is wrong under a shard value and row key; None if nothing is."""
    expected = living_entry(version, row_key, latest)
    if expected is None or expected.shard_value != shard_value:
        return None if entry is None or entry.is_dead else DifferenceKind.STALE
    return DifferenceKind.MISSING if entry is None else _unlike(expected, entry)


def _unlike(expected: EntryWrite, entry: StoredEntry) -> DifferenceKind | None:
    """What is wrong with the entry that stands where a living one should."""
    if entry.is_dead:
        return DifferenceKind.MISSING
    return None if (entry.values, entry.refs) == (expected.values, expected.refs) else DifferenceKind.DIFFERENT


def _is_unexplained(entry: StoredEntry, refs: Sequence[int | None]) -> bool:
    """Whether an entry is of a ref key that no cell has: its cells were lost, or it was damaged."""
    return any(
        of_entry is not None and (of_cell is None or of_entry > of_cell)
        for of_entry, of_cell in zip(entry.refs, refs, strict=True)
    )


def _key(entry: StoredEntry) -> EntryKey:
    return _shard_value(entry), entry.row_key


def _shard_value(entry: StoredEntry) -> Scalar:
    value = entry.values[0]
    assert value is not None  # it is part of the primary key
    return value
