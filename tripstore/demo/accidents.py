"""The accident in the middle of the demo where it has no server to kill: a writer dies while cells are being put.

Its step says what went on meanwhile; what was lost shows only in the comparison at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from schemaless_core.cell.answers import PutStatus
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.store import CellStore
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged, digest
from tripstore.demo.report import StoryStep
from tripstore.demo.writer import TRIPS_PER_BATCH

WRITERS = 3
ENTRIES_BEFORE = 60
AFTERWARDS_SECONDS = 0.5


def kill_a_writer(step: StoryStep, crew: Crew, store: Datastore) -> list[Acknowledged]:
    """Kill one of several services, go on, and have another one repeat all it did; return all promises."""
    crew.start(WRITERS)
    crew.wait_for_entries(ENTRIES_BEFORE)
    crew.kill(0)
    killed_at = time.monotonic()
    reads = read_for(AFTERWARDS_SECONDS, store, crew.all_entries())
    crew.finish()
    first_life = crew.entries(0)
    with_others = [entry for entry in crew.all_entries() if entry.at > killed_at]
    step.say(f"it had been promised {len(first_life):,} cells when it died")
    check_reads(step, "reads go on", reads)
    step.check("the others go on", len(with_others) > 0, f"{len(with_others):,} cells acknowledged")
    crew.resume()
    _repeat_a_life(step, crew, crew.seed(0), first_life)
    return crew.all_entries()


def _repeat_a_life(step: StoryStep, crew: Crew, seed: str, first_life: Sequence[Acknowledged]) -> None:
    """Let a new process put everything again that the dead one may have put; how far it came is unknown."""
    trips = len(first_life) + 2 * TRIPS_PER_BATCH  # a trip has more than one cell, so this is surely enough
    crew.start_one(seed, trips)
    crew.wait()
    second_life = crew.entries(WRITERS)
    promised = {entry.key for entry in first_life}
    again = {entry.key for entry in second_life if entry.status is PutStatus.EXISTS}
    step.say(f"a new process put the same {len(second_life):,} cells again: {len(again):,} were there already")
    lost = len(promised - again)
    step.check("no promised cell had to be stored anew", lost == 0, f"{len(promised):,} promised, {lost} lost")


class PromisedReads(NamedTuple):
    """Promised cells that were read: rightly, wrongly, and not before the deadline."""

    answered: int
    wrong: int
    missed: int


def read_for(seconds: float, store: CellStore, entries: Sequence[Acknowledged]) -> PromisedReads:
    """Read promised cells one after the other, for so long."""
    answered = wrong = missed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        entry = entries[(answered + wrong + missed) % len(entries)]
        try:
            found = store.get_cell(*entry.key)
        except Unavailable:
            missed += 1
            continue
        except SchemalessError:
            found = None
        if found is not None and digest(found) == entry.digest:
            answered += 1
        else:
            wrong += 1
    return PromisedReads(answered, wrong, missed)


def check_reads(step: StoryStep, name: str, reads: PromisedReads) -> None:
    """None may be wrong; how many are answered in time is a matter of the machine."""
    step.check(name, reads.answered > 0 and not reads.wrong, f"{reads.answered:,} answered, {reads.wrong:,} wrongly")
    step.measure("no read missed its deadline", not reads.missed, f"{reads.missed:,} did")
