"""The section on mismatches: what shadow reads noted and jobs found, and what both backends have under one of them now.

The list asks no store. One line that a person opens asks both, by a request of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from schemaless_core.control.jobs.jobs import Jobs, StoredFinding
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.store import CellStore
from tripstore.cli.console.stores import ConsoleStores
from tripstore.engines.validation.report.document import Quarantined, ReportConflict, ReportMismatch
from tripstore.engines.validation.shadow.ledger import KnownMismatch, ShadowLedger
from tripstore.handover.authority import Backend
from tripstore.migration.cutover.facts import JobFacts
from tripstore.migration.cutover.look import DIFF, find_job_facts
from tripstore.migration.diff.latest import StoredLatest
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.report.jobs import counting_jobs, open_findings
from tripstore.migration.report.mismatches import (
    diff_mismatches,
    job_conflicts,
    parked_conflicts,
    quarantine,
    shadow_mismatches,
)
from tripstore.migration.report.sides import NoSides, ReportSides

#: Of a job that found more, the first ones.
LISTED_MAX = 10_000
#: Of a body; a longer one is shown to there.
BODY_CHARACTERS_MAX = 100_000
Source = KnownMismatch | StoredFinding


class ListedMismatch(msgspec.Struct, frozen=True):
    """A line, and what it was made of; its id is the same at the next look."""

    id: str
    mismatch: ReportMismatch
    source: Source


class MismatchesView(msgspec.Struct, frozen=True):
    """The newest first; `is_cut`: more are known than are listed."""

    mismatches: list[ListedMismatch]
    is_cut: bool = False

    def find(self, mismatch_id: str) -> ListedMismatch | None:
        return next((each for each in self.mismatches if each.id == mismatch_id), None)


class AsideView(msgspec.Struct, frozen=True):
    """Rows that could not be copied or compared, and changes and copies that were set aside; the newest first."""

    quarantine: list[Quarantined]
    conflicts: list[ReportConflict]


class BodyLine(NamedTuple):
    """A line of a body; whether the other body has it."""

    text: str
    is_different: bool


def look_at_mismatches(stores: ConsoleStores) -> MismatchesView:
    """What is known and open, as the report lists it."""
    control = stores.datastore.control
    sources: list[Source] = [*ShadowLedger(Ledgers(control)).mismatches(LISTED_MAX), *_findings(stores)]
    listed = [
        ListedMismatch(_id(mismatch), mismatch, source)
        for source in sources
        for mismatch in _mismatches(source, NoSides())
    ]
    listed.sort(key=lambda each: each.mismatch.at, reverse=True)
    return MismatchesView(listed[:LISTED_MAX], len(sources) >= LISTED_MAX)


def look_at_aside(stores: ConsoleStores) -> AsideView:
    """What the report calls quarantine and conflicts. The values that messages quote are left out."""
    found, mirror = _findings(stores), Mirror(stores.facade)
    conflicts = list(job_conflicts(found, with_values=False))
    for direction in ("forward", "reverse"):
        parked = mirror.parked(is_reverse=direction == "reverse").listed(LISTED_MAX)
        conflicts += parked_conflicts(direction, parked, with_values=False)
    return AsideView(
        sorted(quarantine(found, with_values=False), key=lambda each: each.at, reverse=True),
        sorted(conflicts, key=lambda each: each.at, reverse=True),
    )


def look_at_both(stores: ConsoleStores, listed: ListedMismatch) -> ReportMismatch:
    """The same with what both backends have now, bodies too."""
    duo = stores.both.duo
    backends: dict[str, CellStore] = {Backend.LEGACY.value: duo.legacy, Backend.STORE.value: stores.datastore}
    sides = ReportSides(backends, StoredLatest(duo.legacy.layout.child_bits), with_bodies=True)
    return next(_mismatches(listed.source, sides))


def marked_bodies(one: msgspec.Raw, other: msgspec.Raw) -> tuple[list[BodyLine], list[BodyLine]]:
    """Both bodies by lines, with marks where they differ.

    Between what both begin and end with, a line is marked that the other body does not have there; where each line is
    somewhere in the other one, all are. That is less than the shortest difference, and takes as long as reading.
    """
    lines, others = _lines(one), _lines(other)
    begin = _same(lines, others)
    end = min(_same(lines[::-1], others[::-1]), min(len(lines), len(others)) - begin)
    return _marked(lines, others, begin, end), _marked(others, lines, begin, end)


def _same(lines: list[str], others: list[str]) -> int:
    """With how many lines both begin."""
    pairs = enumerate(zip(lines, others, strict=False))
    return next((number for number, (line, other) in pairs if line != other), min(len(lines), len(others)))


def _marked(lines: list[str], others: list[str], begin: int, end: int) -> list[BodyLine]:
    between, there = lines[begin : len(lines) - end], set(others[begin : len(others) - end])
    is_moved = all(line in there for line in between)
    marks = [is_moved or line not in there for line in between]
    return [BodyLine(*each) for each in zip(lines, [False] * begin + marks + [False] * end, strict=True)]


def _findings(stores: ConsoleStores) -> list[StoredFinding]:
    """Those that are open, of the jobs that count."""
    control = stores.datastore.control
    jobs, judged = Jobs(control), find_job_facts(control, DIFF)
    counting = counting_jobs(jobs, judged if isinstance(judged, JobFacts) else None)
    return open_findings(jobs, counting, LISTED_MAX)


def _mismatches(source: Source, sides: ReportSides | NoSides) -> Iterator[ReportMismatch]:
    """One, or none where a finding is no difference."""
    if isinstance(source, KnownMismatch):
        yield from shadow_mismatches([source], sides)
    else:
        yield from diff_mismatches([source], sides)


def _id(found: ReportMismatch) -> str:
    what = (found.at.isoformat(), found.found_by, found.operation, found.kind, found.entry, found.path)
    return blake2b(msgspec.json.encode(what), digest_size=8).hexdigest()


def _lines(body: msgspec.Raw) -> list[str]:
    return msgspec.json.format(bytes(body), indent=2).decode("utf-8", "replace")[:BODY_CHARACTERS_MAX].split("\n")
