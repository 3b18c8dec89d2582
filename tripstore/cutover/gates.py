"""The gates: from facts to verdicts, each with its numbers and with what to do. Pure: asks nobody.

What nobody could say is refused like what is wrong (I12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from tripstore.cutover.facts import Facts, IndexFacts, JobFacts, OperationFacts, Unknown, WriterFacts
from tripstore.cutover.settings import CutoverSettings
from tripstore.handover.authority import Backend
from tripstore.phase import Phase
from validation.confidence import comparisons_missing, upper_bound

#: Fewer comparisons than this in a second are said by the hour.
_SLOW = 0.1
_STATUS = "`tripstore status` and `tripstore doctor` say more."


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate says: what was found, what it wants, and how to get there."""

    name: str
    is_passed: bool
    said: str
    wanted: str
    hint: str = ""


Gate = Callable[[Facts, CutoverSettings], Iterator[GateVerdict]]


def forward_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against a switch to Schemaless."""
    return [verdict for gate in FORWARD for verdict in gate(facts, settings)]


def back_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against the way back to Postgres."""
    return [verdict for gate in BACK for verdict in gate(facts, settings)]


def complete_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against giving up the way back."""
    return [verdict for gate in COMPLETE for verdict in gate(facts, settings)]


def refusals(verdicts: list[GateVerdict]) -> list[GateVerdict]:
    return [verdict for verdict in verdicts if not verdict.is_passed]


def _authority_of(backend: Backend) -> Gate:
    def gate(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
        wanted = f"{backend.value} is the open authority"
        row = facts.authority
        if isinstance(row, Unknown):
            yield _unknown("authority", row, wanted)
            return
        state = "open" if row.is_open else f"closing towards {row.target.value if row.target else 'nobody'}"
        hint = "`tripstore cutover status` says who is at it; a hand-over that nobody finishes is undone by itself."
        if row.is_open:
            hint = (
                f"It is where it should go: `tripstore cutover {'switch' if backend is Backend.STORE else 'reverse'}`."
            )
        said = f"{row.backend.value} is {state} at epoch {row.epoch}"
        yield _verdict("authority", row.is_open_for(backend), said, wanted, hint)

    return gate


def _phase_in(*phases: Phase) -> Gate:
    def gate(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
        wanted = " or ".join(phases)
        if isinstance(facts.phase, Unknown):
            yield _unknown("phase", facts.phase, wanted)
            return
        hint = f"`tripstore phase set {phases[0]}`, and wait until enough was compared."
        yield _verdict("phase", facts.phase in phases, f"the phase is {facts.phase}", wanted, hint)

    return gate


def capture(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Nothing was missed since it began."""
    wanted = "capture begun and never broken"
    found = facts.capture
    if isinstance(found, Unknown):
        yield _unknown("capture", found, wanted)
        return
    hint = "`tripstore doctor` says what is wrong; `tripstore schema apply` mends it, then a backfill is needed."
    if found.broken is not None:
        said = f"broken: {found.broken}"
    elif found.since is None:
        said = "not begun"
    elif found.complaints:
        said = f"{len(found.complaints)} complaints, the first: {found.complaints[0]}"
    else:
        yield _verdict("capture", True, f"unbroken since {_at(found.since)}", wanted)
        return
    yield _verdict("capture", False, said, wanted, hint)


def backfill(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """The past was copied, all of it, by a job that began after capture did."""
    yield _job("backfill", facts.backfill, "complete, younger than capture, nothing in quarantine", facts, settings)


def diff(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Both stores were walked and found equal."""
    wanted = f"complete, within {settings.evidence_hours} hours, nothing different or not compared"
    yield _job("diff", facts.diff, wanted, facts, settings)


def mirror_lag(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """So little is queued that the switcher delivers it within the pause."""
    wanted = f"at most {settings.lag_changes_max:,} changes, none older than {settings.lag_seconds_max:g} s"
    found = facts.mirror
    if isinstance(found, Unknown):
        yield _unknown("mirror lag", found, wanted)
        return
    # Those that are parked are another gate's: they stay in the queue, and are old.
    changes = found.queued - found.parked
    is_close = changes <= settings.lag_changes_max and found.oldest_seconds <= settings.lag_seconds_max
    said = f"{changes:,} changes are queued, the oldest for {found.oldest_seconds:.1f} s"
    hint = "Start `tripstore worker run`, more than one if one does not keep up; `tripstore mirror status` shows it."
    yield _verdict("mirror lag", is_close, said, wanted, hint)


def parked(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Everything could be delivered, forwards."""
    found = facts.mirror
    if isinstance(found, Unknown):
        yield _unknown("parked changes", found, "0")
        return
    hint = "`tripstore mirror parked` lists them; mend the rows, then `tripstore mirror retry --all`."
    yield _verdict("parked changes", not found.parked, f"{found.parked:,}", "0", hint)


def buffered(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """No cell waits in a buffer for its shard."""
    if isinstance(facts.buffered, Unknown):
        yield _unknown("buffered cells", facts.buffered, "0")
        return
    hint = "They are delivered when their servers are back."
    yield _verdict("buffered cells", not facts.buffered, f"{facts.buffered:,}", "0", hint)


def indexes(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Every index answers, and its entries were held against the cells not long ago."""
    wanted = f"verified without a difference within {settings.evidence_hours} hours"
    if isinstance(facts.indexes, Unknown):
        yield _unknown("indexes", facts.indexes, wanted)
        return
    if not facts.indexes:
        yield _verdict("indexes", True, "none is configured", wanted)
    for index in facts.indexes:
        yield _index(index, wanted, facts, settings)


def rehearsal(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """The way back was walked before it is needed: the reverse mirror runs and has compared. What differs is parked."""
    wanted = f"served, close behind, at least {settings.rehearsed_cells_min:,} cells compared"
    found = facts.reverse
    trouble = _reverse_trouble(facts, settings)
    if isinstance(found, Unknown) or found is None or trouble:
        yield _verdict("rehearsal", False, trouble, wanted, _REVERSE_HINT)
        return
    said = f"{found.passed:,} cells compared"
    is_passed = found.passed >= settings.rehearsed_cells_min
    hint = "Let it run while rows change."
    yield _verdict("rehearsal", is_passed, said, wanted, hint)


def reverse_lag(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """What Schemaless has is in Postgres, but for what will be there within the pause."""
    wanted = f"served, at most {settings.lag_changes_max:,} cells, none older than {settings.lag_seconds_max:g} s"
    found = facts.reverse
    trouble = _reverse_trouble(facts, settings)
    if isinstance(found, Unknown) or found is None or trouble:
        yield _verdict("reverse mirror", False, trouble, wanted, _REVERSE_HINT)
        return
    yield _verdict("reverse mirror", True, _reverse_lag(found.lag_cells, found.lag_seconds), wanted)


def reverse_parked(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Postgres could hold every cell."""
    found = facts.reverse
    if isinstance(found, Unknown):
        yield _unknown("parked cells", found, "0")
        return
    count = 0 if found is None else found.parked
    hint = "`tripstore mirror parked --reverse` lists them; mend why, then `tripstore mirror retry --all --reverse`."
    yield _verdict("parked cells", not count, f"{count:,}", "0", hint)


def comparisons(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Of each operation class so many reads were compared that its mismatch rate is small, and not by chance."""
    wanted = (
        f"mismatch rate below {_rate(settings.mismatch_rate_max)} with {settings.confidence:.0%} confidence,"
        f" at least {settings.comparisons_min:,} comparisons"
    )
    if isinstance(facts.operations, Unknown):
        yield _unknown("comparisons", facts.operations, wanted)
        return
    if not facts.operations:
        hint = "In phase shadow reads are compared; `tripstore shadow status` shows it."
        yield _verdict("comparisons", False, "nothing was compared", wanted, hint)
    for operation in facts.operations:
        yield _operation(operation, wanted, settings)


def servers(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Every server answers and has its shards: a switch opens all, the way back closes all."""
    silent = [f"{server.name} ({server.trouble})" for server in facts.servers if server.trouble is not None]
    lacking = [
        f"{server.name} lacks {server.shards_missing} shards" for server in facts.servers if server.shards_missing
    ]
    wanted = "all answer, with all shards"
    troubles = [*silent, *lacking]
    said = "; ".join(troubles) if troubles else f"all {len(facts.servers)} answer"
    yield _verdict("servers", not troubles, said, wanted, _STATUS)


def writers(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Nobody stays inside for so long that the barrier would wait for him in vain."""
    wanted = f"nobody has written mapped tables for longer than {settings.writer_seconds_max:g} s"
    if isinstance(facts.writers, Unknown):
        yield _unknown("writers", facts.writers, wanted)
        return
    old = [writer for writer in facts.writers if writer.seconds > settings.writer_seconds_max]
    names = ", ".join(map(_writer, old))
    hint = "Wait for them, or end them: SELECT pg_terminate_backend(pid); ROLLBACK PREPARED for a prepared one."
    yield _verdict("writers", not old, names or "nobody", wanted, hint)


FORWARD: tuple[Gate, ...] = (
    _authority_of(Backend.LEGACY),
    _phase_in(Phase.SHADOW),
    servers,
    capture,
    backfill,
    diff,
    mirror_lag,
    parked,
    buffered,
    indexes,
    rehearsal,
    reverse_parked,
    comparisons,
    writers,
)
BACK: tuple[Gate, ...] = (
    _authority_of(Backend.STORE),
    _phase_in(Phase.LIVE, Phase.RAMPDOWN),
    servers,
    capture,
    reverse_lag,
    reverse_parked,
    buffered,
)
COMPLETE: tuple[Gate, ...] = (
    _authority_of(Backend.STORE),
    _phase_in(Phase.RAMPDOWN, Phase.LIVE, Phase.COMPLETE),
    servers,
)

_REVERSE_HINT = "`tripstore worker run` serves the group mirror:reverse; `tripstore triggers status` shows it."


def _verdict(name: str, is_passed: bool, said: str, wanted: str, hint: str = "") -> GateVerdict:
    return GateVerdict(name, is_passed, said, wanted, "" if is_passed else hint)


def _unknown(name: str, unknown: Unknown, wanted: str) -> GateVerdict:
    return GateVerdict(name, False, f"not known: {unknown.reason}", wanted, _STATUS)


def _job(
    name: str, found: JobFacts | None | Unknown, wanted: str, facts: Facts, settings: CutoverSettings
) -> GateVerdict:
    if isinstance(found, Unknown):
        return _unknown(name, found, wanted)
    if found is None:
        hint = f"This version has no {name} yet: whoever knows by other means says --force --why."
        return GateVerdict(name, False, "none was ever recorded", wanted, hint)
    trouble = _job_trouble(name, found, facts, settings)
    said = f"{_at(found.begun_at)}: {found.rows:,} rows"
    return _verdict(name, not trouble, trouble or said, wanted, f"Run the {name} again, or finish it.")


def _job_trouble(name: str, found: JobFacts, facts: Facts, settings: CutoverSettings) -> str:
    if not found.is_complete:
        return f"not complete: {found.rows:,} rows so far"
    if found.open or found.not_compared:
        return f"{found.open:,} open, {found.not_compared:,} not compared"
    if name == "diff" and found.begun_at < facts.at - timedelta(hours=settings.evidence_hours):
        return f"from {_at(found.begun_at)}"
    begun = None if isinstance(facts.capture, Unknown) else facts.capture.since
    if begun is not None and found.begun_at < begun:
        return f"from {_at(found.begun_at)}, before capture began at {_at(begun)}"
    return ""


def _index(index: IndexFacts, wanted: str, facts: Facts, settings: CutoverSettings) -> GateVerdict:
    name = f"index {index.name}"
    hint = f"`tripstore index verify {index.name}`; `tripstore index status` shows it."
    if index.version is None:
        return GateVerdict(name, False, "answers no queries", wanted, hint)
    if index.verified_at is None:
        return GateVerdict(name, False, f"version {index.version} was never verified", wanted, hint)
    is_young = index.verified_at >= facts.at - timedelta(hours=settings.evidence_hours)
    is_close = index.lag_cells <= settings.lag_changes_max
    is_right = not index.differences and not index.not_compared
    said = (
        f"version {index.version} at {_at(index.verified_at)}: {index.differences:,} differences,"
        f" {index.not_compared:,} not compared; {index.lag_cells:,} cells behind"
    )
    return _verdict(name, is_young and is_close and is_right, said, wanted, hint)


def _operation(found: OperationFacts, wanted: str, settings: CutoverSettings) -> GateVerdict:
    bound = upper_bound(found.mismatches, found.compared, settings.confidence)
    missing = comparisons_missing(found.mismatches, found.compared, settings.mismatch_rate_max, settings.confidence)
    missing = max(missing, settings.comparisons_min - found.compared)
    said = (
        f"{found.mismatches:,} mismatches in {found.compared:,} comparisons, rate below {_rate(bound)};"
        f" {found.not_compared:,} not compared"
    )
    hint = f"{missing:,} more comparisons, all equal, would do: {_duration(missing, found.per_second)}."
    if found.mismatches:
        hint = f"`tripstore shadow status` lists the mismatches. {hint}"
    return _verdict(f"comparisons of {found.operation}", missing <= 0, said, wanted, hint)


def _reverse_trouble(facts: Facts, settings: CutoverSettings) -> str:
    """Why the reverse mirror is not close to what Schemaless has."""
    found = facts.reverse
    if isinstance(found, Unknown):
        return f"not known: {found.reason}"
    if found is None:
        return "there is no group mirror:reverse; `tripstore schema apply` makes it"
    if not found.is_running:
        return "the group mirror:reverse is halted"
    if found.unserved or found.unknown:
        return f"nobody serves {found.unserved} of {found.shards} shards, {found.unknown} did not answer"
    if found.lag_cells > settings.lag_changes_max or found.lag_seconds > settings.lag_seconds_max:
        return _reverse_lag(found.lag_cells, found.lag_seconds)
    return ""


def _reverse_lag(cells: int, seconds: float) -> str:
    return f"{cells:,} cells behind, the oldest for {seconds:.1f} s"


def _writer(found: WriterFacts) -> str:
    if found.pid is None:
        return "a prepared transaction"
    return f"pid {found.pid} ({found.application or 'no name'}, {found.seconds:.1f} s)"


def _rate(rate: float) -> str:
    return f"{100 * rate:.4g} %"


def _duration(count: int, per_second: float) -> str:
    """How long so many comparisons take, as it goes lately."""
    if per_second <= 0:
        return "none were made lately, so nobody can say when"
    rate = f"{per_second:.3g} a second" if per_second >= _SLOW else f"{3600 * per_second:.3g} an hour"
    return f"{timedelta(seconds=round(max(count, 0) / per_second))} at {rate}"


def _at(moment: object) -> str:
    return str(moment)[:19]
