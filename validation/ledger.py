"""`ShadowLedger`: what all processes counted of their shadow reads, added up in the control database.

Each process writes what it counted since its last flush. What could not be written waits, as one batch that is sent
again unchanged: exact, whatever became of the answer. No bodies: a mismatch is told by its place and a command.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

from schemaless_core.canonical import Json
from schemaless_core.control.ledgers import Batch, Ledgers
from schemaless_core.errors import SchemalessError
from validation.reads import NOISE, Read
from validation.verdicts import Mismatch, Outcome, Tally

logger = logging.getLogger(__name__)

LEDGER = "shadow"
FLUSH_SECONDS = 5.0
#: An error's message may be long; where something differs is not.
TEXT_MAX = 300
#: Mismatches that one flush tells of; all are counted.
NOTES_PER_FLUSH = 100


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """What became of the sampled reads of an operation class."""

    operation: str
    equal: int = 0
    #: Differed, and no more once the mirror had caught up.
    in_flight: int = 0
    #: Differed, and a rule explains it.
    ignored: int = 0
    mismatches: int = 0
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_reason: Mapping[str, int] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        return self.equal + self.in_flight + self.ignored + self.mismatches

    @property
    def not_compared(self) -> int:
        """Never part of those that are equal (I12)."""
        return sum(self.by_reason.values())


@dataclass(frozen=True, slots=True)
class KnownMismatch:
    """A mismatch as it was noted: its class, where it is, and how to look at it."""

    at: datetime
    operation: str
    kind: str
    entry: str
    path: str
    differences: int
    command: str


class _Pending(NamedTuple):
    """A batch that may or may not have arrived."""

    batch: Batch
    counts: dict[str, int]
    notes: list[dict[str, Json]]
    hour: datetime


class ShadowLedger:
    """The ledger of shadow reads, and one process's part in it. `command` says how a person repeats a read."""

    def __init__(
        self,
        ledgers: Ledgers,
        command: Callable[[Read], str] = lambda read: read.name,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledgers = ledgers
        self._command = command
        self._now = now
        self.after_fork()

    def after_fork(self) -> None:
        """What the parent counted, the parent writes."""
        self._lock = threading.Lock()
        self._writer = uuid4().hex
        self._number = 0
        self._pending: _Pending | None = None
        self._counted: Counter[str] = Counter()
        self._last: Mismatch | None = None

    def flush(self, tally: Tally) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        with self._lock:
            if self._pending is not None:
                self._send(self._pending)
            pending = self._next(tally)
            if pending is not None:
                self._send(pending)

    def operations(self, since: datetime | None = None) -> list[OperationCounts]:
        """By operation class, what all processes wrote of one store against the other; `since` counts whole hours."""
        return [each for each in self._all(since) if not each.operation.startswith(NOISE)]

    def noise(self, since: datetime | None = None) -> list[OperationCounts]:
        """The same of a store against itself: what differs by itself, as time and writes go on."""
        found = [each for each in self._all(since) if each.operation.startswith(NOISE)]
        return [replace(each, operation=each.operation.removeprefix(NOISE)) for each in found]

    def mismatches(self, limit: int = 100) -> list[KnownMismatch]:
        """The last ones that were noted, newest first."""
        return [_known(note.body) for note in self._ledgers.notes(LEDGER, limit)]

    def _all(self, since: datetime | None) -> list[OperationCounts]:
        found: dict[str, dict[Outcome, Counter[str]]] = {}
        for name, count in self._ledgers.counts(LEDGER, since).items():
            operation, outcome, label = name.rsplit("/", 2)
            by_outcome = found.setdefault(operation, {each: Counter() for each in Outcome})
            by_outcome[Outcome(outcome)][label] += count
        return [_operation(name, found[name]) for name in sorted(found)]

    def _next(self, tally: Tally) -> _Pending | None:
        counted = Counter({f"{name}/{outcome}/{label}": n for (name, outcome, label), n in tally.counts().items()})
        more = counted - self._counted
        mismatches = self._fresh(tally.mismatches())
        if not more and not mismatches:
            return None
        notes = [self._note(mismatch) for mismatch in mismatches[-NOTES_PER_FLUSH:]]
        self._number += 1
        self._counted = counted
        self._last = mismatches[-1] if mismatches else self._last
        self._pending = _Pending(Batch(self._writer, self._number), dict(more), notes, self._now())
        return self._pending

    def _fresh(self, mismatches: list[Mismatch]) -> list[Mismatch]:
        """Those after the last one that was written; all, when that is gone."""
        for position in range(len(mismatches) - 1, -1, -1):
            if mismatches[position] is self._last:
                return mismatches[position + 1 :]
        return mismatches

    def _send(self, pending: _Pending) -> None:
        self._ledgers.add(LEDGER, pending.counts, pending.hour, notes=pending.notes, batch=pending.batch)
        self._pending = None

    def _note(self, mismatch: Mismatch) -> dict[str, Json]:
        verdict = mismatch.verdict
        first = verdict.differences[0]
        return {
            "at": mismatch.at.isoformat(),
            "operation": verdict.read.name,
            "class": str(first.kind),
            "entry": first.entry[:TEXT_MAX],
            "path": first.path[:TEXT_MAX],
            "differences": len(verdict.differences),
            "command": self._command(verdict.read)[:TEXT_MAX],
        }


class Flushing:
    """Flushes a tally every few seconds, on a thread of its own, and once more at the end."""

    _thread: threading.Thread | None

    def __init__(self, ledger: ShadowLedger, tally: Tally, seconds: float = FLUSH_SECONDS) -> None:
        self._ledger = ledger
        self._tally = tally
        self._seconds = seconds
        self._begin()

    def start(self) -> None:
        """Begin; a second start does nothing."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shadow-ledger", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write the rest."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._flush()

    def after_fork(self) -> None:
        """The thread is the parent's, and so is what was not written."""
        self._ledger.after_fork()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._flush()

    def _flush(self) -> None:
        """A control database that is down costs nobody anything: the next flush has more to write (I10)."""
        try:
            self._ledger.flush(self._tally)
        except SchemalessError as error:
            extra = {"event": "shadow.not_written", "reason": error.message}
            logger.warning("what shadow reads counted could not be written; it is kept", extra=extra)
        except Exception:
            # This thread writes what gates rely on: it must not end.
            logger.exception("what shadow reads counted could not be written", extra={"event": "shadow.not_written"})


def _operation(name: str, found: Mapping[Outcome, Counter[str]]) -> OperationCounts:
    return OperationCounts(
        name,
        equal=found[Outcome.EQUAL].total(),
        in_flight=found[Outcome.IN_FLIGHT].total(),
        ignored=found[Outcome.IGNORED].total(),
        mismatches=found[Outcome.MISMATCH].total(),
        by_class=dict(sorted(found[Outcome.MISMATCH].items())),
        by_reason=dict(sorted(found[Outcome.NOT_COMPARED].items())),
    )


def _known(body: Mapping[str, Json]) -> KnownMismatch:
    return KnownMismatch(
        datetime.fromisoformat(str(body["at"])),
        str(body["operation"]),
        str(body["class"]),
        str(body["entry"]),
        str(body["path"]),
        int(str(body["differences"])),
        str(body["command"]),
    )
