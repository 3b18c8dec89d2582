"""The gates: from facts to verdicts, each with its numbers and with what to do. Pure: asks no server.

A gate that cannot be evaluated counts as failed (I12).
"""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.breaches import MEND_BREACH, unanswered
from tripstore.migration.cutover.comparison_gates import comparisons
from tripstore.migration.cutover.evidence_gates import backfill, diff, indexes, row_keys
from tripstore.migration.cutover.facts import Facts, Unknown, WriterFacts
from tripstore.migration.cutover.loss_gate import lost_changes
from tripstore.migration.cutover.mirror_gates import (
    direct_changes,
    mirror_lag,
    parked,
    purged_rows,
    rehearsal,
    reverse_lag,
    reverse_parked,
)
from tripstore.migration.cutover.rewrite_gates import remaining_uses, rewrites
from tripstore.migration.cutover.verdicts import STATUS, GateCheck, GateVerdict, moment, unknown, verdict_of
from tripstore.phase import Phase, phases_of
from tripstore.thresholds import CutoverSettings


def forward_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against a switch to Schemaless."""
    return [verdict for gate in FORWARD for verdict in gate(facts, settings)]


def back_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against the way back to Postgres."""
    return [verdict for gate in BACK for verdict in gate(facts, settings)]


def complete_verdicts(facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    """What speaks for and against giving up the way back."""
    return [verdict for gate in COMPLETE for verdict in gate(facts, settings)]


def _authority_of(backend: Backend) -> GateCheck:
    def gate(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
        wanted = f"{backend.value} is the open authority"
        row = facts.authority
        if isinstance(row, Unknown):
            yield unknown("authority", row, wanted)
            return
        state = "open" if row.is_open else f"closing towards {row.target.value if row.target else 'no backend'}"
        hint = (
            "`tripstore cutover status` names the process that performs the hand-over. One that takes too long is"
            " undone by any other process of tripstore; `tripstore worker run` is one."
        )
        if row.is_open:
            hint = f"{_move_to(backend)} makes {backend.value} the authority."
        said = f"{row.backend.value} is {state} at epoch {row.epoch}"
        yield verdict_of("authority", row.is_open_for(backend), said, wanted, hint)

    return gate


def _phase_in(*phases: Phase) -> GateCheck:
    def gate(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
        wanted = " or ".join(phases)
        if isinstance(facts.phase, Unknown):
            yield unknown("phase", facts.phase, wanted)
            return
        said = f"the phase is {facts.phase}"
        yield verdict_of("phase", facts.phase in phases, said, wanted, _way_to(phases[0], facts.phase))

    return gate


def _way_to(wanted: Phase, found: Phase) -> str:
    """The commands from one phase to another: `phase set` skips none, and moves no authority."""
    if found is Phase.COMPLETE:
        return "`tripstore cutover complete` gave the way back up: the tables are an archive."
    if found.authority is not wanted.authority:
        return f"{_move_to(wanted.authority)} leads there."
    order = phases_of(wanted.authority)
    between = order[order.index(found) + 1 : order.index(wanted) + 1]
    commands = ", then ".join(f"`tripstore phase set {phase}`" for phase in between)
    return f"{commands}. Wait until enough was compared."


def _move_to(backend: Backend) -> str:
    return f"`tripstore cutover {'switch' if backend is Backend.STORE else 'reverse'}`"


def capture(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Nothing was missed since it began."""
    wanted = "capture begun and never broken"
    found = facts.capture
    if isinstance(found, Unknown):
        yield unknown("capture", found, wanted)
        return
    hint = (
        "`tripstore doctor` says what is wrong, and `tripstore schema apply` mends it. What was missed is unknown:"
        " then `tripstore backfill start` copies everything anew, and `tripstore diff start` compares it."
    )
    if found.broken is not None:
        said = f"broken: {found.broken}"
    elif found.since is None:
        said = "not begun"
    elif found.complaints:
        said = f"{len(found.complaints)} complaints, the first: {found.complaints[0]}"
    elif (breach := unanswered(found.breach, facts.diff)) is not None:
        said, hint = breach, MEND_BREACH
    elif found.barred:
        said = "; ".join(reason for reason, _statement in found.barred)
        hint = (
            f"Let that role draw, as an owner of the sequences: {' '.join(f'{each};' for _why, each in found.barred)}"
        )
    elif found.subscribed and isinstance(facts.authority, Authority) and facts.authority.backend is Backend.LEGACY:
        said = (
            f"{', '.join(found.subscribed)}: filled by a subscription, whose worker the gate of Postgres would refuse"
        )
        hint = "Take these tables out of the subscription: what it brings after a switch would reach neither store."
    else:
        yield verdict_of("capture", True, f"unbroken since {moment(found.since)}", wanted)
        return
    yield verdict_of("capture", False, said, wanted, hint)


def buffered(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """No cell waits in a buffer for its shard, and none is in conflict with what its shard has."""
    if isinstance(facts.buffered, Unknown):
        yield unknown("buffered cells", facts.buffered, "0")
        return
    hint = "`tripstore buffer drain` carries them; `tripstore buffer conflicts` shows those that conflict."
    yield verdict_of("buffered cells", not facts.buffered, f"{facts.buffered:,}", "0", hint)


def servers(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Every server answers and has its shards: a switch opens all, the way back closes all."""
    silent = [f"{server.name} ({server.trouble})" for server in facts.servers if server.trouble is not None]
    lacking = [
        f"{server.name} lacks {server.shards_missing} shards" for server in facts.servers if server.shards_missing
    ]
    wanted = "all answer, with all shards"
    troubles = [*silent, *lacking]
    said = "; ".join(troubles) if troubles else f"all {len(facts.servers)} answer"
    yield verdict_of("servers", not troubles, said, wanted, STATUS)


def layouts(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Every process that is connected goes by the layout in force; one that does not carries nothing."""
    wanted = "every session of tripstore goes by the layout in force"
    if isinstance(facts.stale, Unknown):
        yield unknown("layouts", facts.stale, wanted)
        return
    hint = "They load it with their next call; restart those that do not, and those of an older version."
    yield verdict_of("layouts", not facts.stale, "; ".join(facts.stale) or "all do", wanted, hint)


def writers(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """No transaction stays inside for so long that the barrier would wait for it in vain."""
    wanted = f"no open transaction has written mapped tables for longer than {settings.writer_seconds_max:g} s"
    if isinstance(facts.writers, Unknown):
        yield unknown("writers", facts.writers, wanted)
        return
    old = [writer for writer in facts.writers if writer.seconds > settings.writer_seconds_max]
    names = ", ".join(map(_writer, old))
    hint = f"Wait for them, or end them in Postgres: {', '.join(map(_end, old))}."
    yield verdict_of("writers", not old, names or "none", wanted, hint)


FORWARD: tuple[GateCheck, ...] = (
    _authority_of(Backend.LEGACY),
    _phase_in(Phase.SHADOW),
    servers,
    layouts,
    capture,
    row_keys,
    lost_changes,
    backfill,
    diff,
    mirror_lag,
    parked,
    purged_rows,
    buffered,
    indexes,
    rehearsal,
    reverse_parked,
    comparisons,
    rewrites,
    remaining_uses,
    writers,
)
BACK: tuple[GateCheck, ...] = (
    _authority_of(Backend.STORE),
    _phase_in(Phase.LIVE, Phase.RAMPDOWN),
    servers,
    layouts,
    capture,
    lost_changes,
    reverse_lag,
    reverse_parked,
    direct_changes,
    buffered,
)
COMPLETE: tuple[GateCheck, ...] = (
    _authority_of(Backend.STORE),
    _phase_in(Phase.RAMPDOWN, Phase.LIVE, Phase.COMPLETE),
    servers,
)


def _writer(found: WriterFacts) -> str:
    if found.pid is None:
        return f"the prepared transaction {found.prepared}"
    return f"pid {found.pid} ({found.application or 'no name'}, {found.seconds:.1f} s)"


def _end(found: WriterFacts) -> str:
    """The statement that ends it: a prepared one has no session that could be terminated."""
    if found.pid is None:
        name = found.prepared.replace("'", "''")
        return f"`COMMIT PREPARED '{name}'`, or ROLLBACK PREPARED where its coordinator has decided so"
    return f"`SELECT pg_terminate_backend({found.pid})`"
