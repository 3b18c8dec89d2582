"""`Completion`: the end of a migration. There is no way back from here; nothing of the company's is dropped.

Killed anywhere, it is run again and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.control.audit import AuditLog
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.purging.columns import ColumnBook
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.handover.closing import close_tables, remove_capture
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.config import LegacyConfig
from tripstore.errors import TripstoreError
from tripstore.facade.flags import FlagBook, Flags
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.errors import CompletionOvertaken
from tripstore.migration.cutover.evidence import Evidence, export
from tripstore.migration.cutover.facts import Unknown
from tripstore.migration.layouts.columns import kinds_by
from tripstore.migration.layouts.history import layouts_in_force
from tripstore.phase import Phase

PHASE = "complete.phase"


class CompletionStep(NamedTuple):
    """One thing that is done."""

    name: str
    sentence: str
    do: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Completion:
    """Knows all that has to be done, in order."""

    config: LegacyConfig
    store: Datastore
    flags: FlagBook
    why: str
    evidence: Callable[[], Evidence]
    file: Path
    #: As it was when the gates were looked at, and as it is.
    planned: Authority | Unknown
    authority: Callable[[], Authority]

    def steps(self) -> list[CompletionStep]:
        tables = ", ".join(sorted(map(str, self._layout.tables)))
        return [
            CompletionStep("complete.export", f"export the evidence to {self.file}", self._export),
            CompletionStep("complete.columns", "write down what each column holds", self._record_columns),
            CompletionStep(PHASE, "set the phase to complete: nothing goes to Postgres", self._set_phase),
            CompletionStep("complete.stop", f"stop the reverse mirror: the group {REVERSE_GROUP} goes", self._stop),
            CompletionStep("complete.close", f"close {tables}: every write is refused from now on", self._close),
            CompletionStep(
                "complete.remove", "take capture and gate off; rows, columns and our log stay", self._remove
            ),
        ]

    def perform(self) -> Iterator[CompletionStep]:
        """Do each step, and tell of it when it is done."""
        audit = AuditLog(self.store.control)
        audit.add("cutover.complete.begin", {"why": self.why, "evidence": str(self.file)})
        is_begun = False
        for step in self.steps():
            reach(step.name)
            if is_begun:
                self._check_row()
            step.do()
            is_begun = is_begun or step.name == PHASE
            yield step
        audit.add("cutover.complete.end", {"why": self.why, "evidence": str(self.file)})

    @property
    def _layout(self) -> Layout:
        return self.config.layout

    def _export(self) -> None:
        export(self.evidence(), self.file)

    def _record_columns(self) -> None:
        """For later, when no layout is configured any more."""
        found = list[Layout]()

        def look(connection: Connection, layout: Layout) -> None:
            found.extend(layouts_in_force(lambda asked, given: rows(connection, asked, given), layout.datastore))

        self._in_postgres(look)
        ColumnBook(self.store.control).record(kinds_by([*found, self._layout]))

    def _set_phase(self) -> None:
        """First the flag, then the row: why one of the two always sees the other says `perform._but_for_completion`."""
        before = self.flags.find().store_phase
        self.flags.change(lambda known: known.with_phase(Phase.COMPLETE), "cutover.phase", self.why)
        reach("complete.flag_set")
        try:
            self._check_row()
        except (SchemalessError, TripstoreError):
            # Only this much was done.
            self.flags.change(lambda known: _back(known, before), "cutover.phase", "the completion gives up")
            raise

    def _check_row(self) -> None:
        """Before each step, for as long as the legacy store can be opened again."""
        found = self.authority()
        if found != self.planned or not found.is_open_for(Backend.STORE):
            raise CompletionOvertaken(
                f"The authority moved meanwhile: {found.backend.value} at epoch {found.epoch}"
                f"{'' if found.is_open else ', closing'}.",
                hint="`tripstore cutover status` says more; run the same command again if it is still meant.",
            )

    def _stop(self) -> None:
        self.store.triggers.remove(REVERSE_GROUP)

    def _close(self) -> None:
        self._in_postgres(close_tables)

    def _remove(self) -> None:
        self._in_postgres(remove_capture)

    def _in_postgres(self, work: Callable[..., None]) -> None:
        try:
            with connected(self.config.postgres.text, "complete") as connection:
                work(connection, self._layout)
        except psycopg2.Error as error:
            reason = str(error).strip().splitlines()[0]
            hint = "Mend that, then run the same command again: what is done stays done."
            raise LegacyRefused(f"Postgres refused: {reason}.", hint=hint) from error


def _back(known: Flags, before: Phase) -> Flags:
    return replace(known, store_phase=before) if known.store_phase is Phase.COMPLETE else known
