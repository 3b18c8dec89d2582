"""The part of `tripstore status` that is about two stores: phase, authority, mirror and what was compared."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.handover.intruders import intruders
from tripstore.backends.postgres.handover.sessions import StaleSessions, stale_sessions
from tripstore.cli.mirror.documents import ForwardDocument, ReverseDocument
from tripstore.cli.tables import table
from tripstore.engines.validation.shadow.ledger import OperationCounts, ShadowLedger
from tripstore.facade.facade import Facade
from tripstore.handover.authority import Authority
from tripstore.migration.mirror.mirror import Mirror

COMPARED_HOURS = 24
LOOK_SECONDS = 2.0


class ComparedView(msgspec.Struct, frozen=True):
    """The shadow reads of one operation class in the last day."""

    operation: str
    compared: int
    mismatches: int
    not_compared: int


class MigrationView(msgspec.Struct, frozen=True):
    """Null: the source did not answer; `trouble` says why."""

    phase: str | None
    authority: str | None
    is_open: bool
    epoch: int | None
    cohorts: dict[str, float]
    direction: str | None
    forward: ForwardDocument | None
    reverse: ReverseDocument | None
    compared: list[ComparedView]
    advice: list[str]
    trouble: str | None

    @property
    def is_fine(self) -> bool:
        return self.trouble is None and not self.advice and not any(each.mismatches for each in self.compared)


def look_at_migration(facade: Facade) -> MigrationView | None:
    """Look once; None: there is one store."""
    if facade.duo is None:
        return None
    try:
        seen = Mirror(facade).status()
        flags = facade.flags.find()
        since = datetime.now(UTC) - timedelta(hours=COMPARED_HOURS)
        duo = facade.duo
        stale = duo.legacy.database.run(lambda found: stale_sessions(found.rows), Deadline(LOOK_SECONDS))
        foreign = duo.legacy.database.run(
            lambda found: intruders(found.rows, facade.store.config.datastore), Deadline(LOOK_SECONDS)
        )
        compared = ShadowLedger(Ledgers(facade.store.control)).operations(since)
    except SchemalessError as error:
        return MigrationView(None, None, False, None, {}, None, None, None, [], [], error.message)
    row = seen.authority
    return MigrationView(
        seen.phase,
        row.backend.value,
        row.is_open,
        row.epoch,
        dict(flags.cohorts(row.backend)),
        seen.direction,
        None if seen.forward is None else ForwardDocument(*seen.forward),
        None if seen.reverse is None else ReverseDocument(seen.is_rehearsal, *seen.reverse),
        [_compared(each) for each in compared],
        [*_closing(row), *map(str, foreign), *map(_stale, stale), *seen.advice()],
        None,
    )


def migration_screen(seen: MigrationView) -> Iterator[RenderableType]:
    """Below the servers."""
    if seen.trouble is not None:
        yield Text(f"migration: {seen.trouble}", style="bold red")
        return
    state = "open" if seen.is_open else "CLOSING"
    yield Text(f"phase {seen.phase}: {seen.authority} is the authority, {state}, epoch {seen.epoch}", style="bold")
    if seen.cohorts:
        cohorts = ", ".join(f"{name} {percent:g} %" for name, percent in sorted(seen.cohorts.items()))
        yield Text(f"read from the other backend: {cohorts}")
    yield from (Text(line) for line in _lags(seen))
    if seen.compared:
        rows = [
            (each.operation, f"{each.compared:,}", f"{each.mismatches:,}", f"{each.not_compared:,}")
            for each in seen.compared
        ]
        yield table((f"compared, {COMPARED_HOURS} h", "reads", "mismatches", "not compared"), rows)
    yield from (Text(advice, style="bold red") for advice in seen.advice)


def _lags(seen: MigrationView) -> Iterator[str]:
    if seen.forward is not None and seen.direction == "forward":
        forward = seen.forward
        yield f"mirror: {forward.changes:,} changes, {forward.seconds:.2f} s behind, {forward.parked:,} parked"
    if seen.reverse is not None and seen.direction is not None:
        reverse = seen.reverse
        name = "rehearsal" if reverse.is_rehearsal else "reverse mirror"
        yield f"{name}: {reverse.cells:,} cells, {reverse.seconds:.2f} s behind, {reverse.parked:,} parked"


def _closing(row: Authority) -> Iterator[str]:
    if not row.is_open:
        yield f"hand-over {row.switch_id} by {row.who} goes on; `tripstore cutover status`"


def _stale(sessions: StaleSessions) -> str:
    return f"{sessions}, which is not in force: restart those processes"


def _compared(counts: OperationCounts) -> ComparedView:
    return ComparedView(counts.operation, counts.compared, counts.mismatches, counts.not_compared)
