"""`ShadowLedger`: what all processes counted of their shadow reads, added up in the control database.

Each process writes what it counted since its last flush. No bodies: a mismatch is told by its place and a command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from schemaless_core.cell.canonical import Json
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.parts import Addition, LedgerPart
from tripstore.engines.validation.reads import EXPERIMENT, NOISE, Read
from tripstore.engines.validation.verdicts import Mismatch, Outcome, Tally

LEDGER = "shadow"
#: An error's message may be long; where something differs is not.
TEXT_MAX = 300
#: A command is of use only as a whole; a cursor in it may be long.
COMMAND_MAX = 8_000
#: What is counted beside the reads of one store against the other.
_NO_READS = (NOISE, EXPERIMENT)
#: Mismatches that one flush tells of; all are counted.
NOTES_PER_FLUSH = 100


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """What became of the sampled reads of an operation class."""

    operation: str
    equal: int = 0
    #: Differed, and no more once the mirror had caught up.
    in_flight: int = 0
    #: Differed, and a rule explains it that has not ended.
    ignored: int = 0
    mismatches: int = 0
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_reason: Mapping[str, int] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """Without those that a rule ignores: what differs and is explained is no comparison."""
        return self.equal + self.in_flight + self.mismatches

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


class ShadowLedger:
    """The ledger of shadow reads, and one process's part in it. `command`: how a person asks for the entry again."""

    def __init__(
        self,
        ledgers: Ledgers,
        command: Callable[[Read, str], str] = lambda read, entry: read.name,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledgers = ledgers
        self._command = command
        self._now = now
        self._part = LedgerPart(ledgers, LEDGER, now)
        self._begin()

    def after_fork(self) -> None:
        """What the parent counted, the parent writes."""
        self._part.after_fork()
        self._begin()

    def _begin(self) -> None:
        self._counted: Counter[str] = Counter()
        self._last: Mismatch | None = None

    def flush(self, tally: Tally) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        self._part.write(lambda: self._taken(tally))

    def operations(self, since: datetime | None = None, epoch: int = 0) -> list[OperationCounts]:
        """By operation class, what all processes wrote of one store against the other; `since` counts whole hours.

        What was compared at an earlier epoch of the authority is not counted; its operations are named all the same.
        A sample without a verdict names none later: those of an operation that is called often are made anew.
        """
        return [each for each in self._all(since, epoch) if not each.operation.startswith(_NO_READS)]

    def noise(self, since: datetime | None = None) -> list[OperationCounts]:
        """The same of a store against itself: what differs by itself, as time and writes go on."""
        return _under(NOISE, self._all(since))

    def experiments(self, since: datetime | None = None, epoch: int = 0) -> list[OperationCounts]:
        """The same of experiments, by their names: a rewritten query against the old one."""
        return _under(EXPERIMENT, self._all(since, epoch))

    def mismatches(self, limit: int = 100) -> list[KnownMismatch]:
        """The last ones that were noted, newest first."""
        return [_known(note.body) for note in self._ledgers.notes(LEDGER, limit)]

    def hours(self, since: datetime | None = None, epoch: int = 0) -> dict[datetime, list[OperationCounts]]:
        """What `operations` adds up, by the hour it was written in, the oldest first."""
        found = {
            hour: _operations(counts, epoch, self._today) for hour, counts in self._ledgers.hours(LEDGER, since).items()
        }
        return {
            hour: [each for each in counts if not each.operation.startswith(_NO_READS)]
            for hour, counts in found.items()
        }

    def _all(self, since: datetime | None, epoch: int = 0) -> list[OperationCounts]:
        return _operations(self._ledgers.counts(LEDGER, since), epoch, self._today)

    @property
    def _today(self) -> date:
        return self._now().astimezone(UTC).date()

    def _taken(self, tally: Tally) -> Addition | None:
        counted = Counter({"/".join(map(str, key)): n for key, n in tally.counts_by_epoch().items()})
        more = counted - self._counted
        mismatches = self._fresh(tally.mismatches())
        if not more and not mismatches:
            return None
        notes = [self._note(mismatch) for mismatch in mismatches[-NOTES_PER_FLUSH:]]
        self._counted = counted
        self._last = mismatches[-1] if mismatches else self._last
        return Addition(more, notes)

    def _fresh(self, mismatches: list[Mismatch]) -> list[Mismatch]:
        """Those after the last one that was written; all, when that is gone."""
        for position in range(len(mismatches) - 1, -1, -1):
            if mismatches[position] is self._last:
                return mismatches[position + 1 :]
        return mismatches

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
            "command": _bounded(self._command(verdict.read, first.entry)),
        }


def _bounded(command: str) -> str:
    """One that is cut off must not look as if it were whole."""
    return command if len(command) <= COMMAND_MAX else f"{command[:COMMAND_MAX]} … (cut: {len(command):,} characters)"


@dataclass(frozen=True, slots=True)
class TallyFlush:
    """One process's tally on its way to the ledger."""

    ledger: ShadowLedger
    tally: Tally

    @property
    def name(self) -> str:
        return LEDGER

    def flush(self) -> None:
        self.ledger.flush(self.tally)

    def after_fork(self) -> None:
        self.ledger.after_fork()


def _operations(counts: Mapping[str, int], from_epoch: int, today: date) -> list[OperationCounts]:
    found: dict[str, dict[Outcome, Counter[str]]] = {}
    for key, count in counts.items():
        epoch, name = _epoch_and_name(key)
        operation, outcome, label = name.rsplit("/", 2)
        if epoch < from_epoch and outcome == Outcome.NOT_COMPARED:
            continue
        by_outcome = found.setdefault(operation, {each: Counter() for each in Outcome})
        if epoch >= from_epoch and not _is_ended(outcome, label, today):
            by_outcome[Outcome(outcome)][label] += count
    return [_operation(name, found[name]) for name in sorted(found)]


def _under(prefix: str, found: Iterable[OperationCounts]) -> list[OperationCounts]:
    """Those of one kind, by their names."""
    return [
        replace(each, operation=each.operation.removeprefix(prefix))
        for each in found
        if each.operation.startswith(prefix)
    ]


def _is_ended(outcome: str, label: str, today: date) -> bool:
    """Whether a rule has ended that ignored it. Processes of before wrote no day."""
    return outcome == Outcome.IGNORED and bool(label) and today >= date.fromisoformat(label)


def _epoch_and_name(key: str) -> tuple[int, str]:
    """Processes of before wrote no epoch, and may still do: which it was is unknown, so it is the earliest."""
    epoch, _, name = key.partition("/")
    return (int(epoch), name) if epoch.isdecimal() else (0, key)


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
