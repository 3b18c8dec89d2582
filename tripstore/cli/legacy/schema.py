"""What `tripstore schema` does to the legacy tables: hold the layout against them, show the steps, do them in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from schemaless_core.definitions.index import IndexDefinition
from tripstore.backends.postgres.capture.state import has_begun
from tripstore.backends.postgres.cells.log_days import keep_log_days
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.checks.rights import check_rights
from tripstore.backends.postgres.checks.row_keys import check_all_row_keys
from tripstore.backends.postgres.ddl.steps import Progress, SchemaStep, apply_all
from tripstore.backends.postgres.errors import InvalidLayout, LegacyRefused
from tripstore.backends.postgres.ids.key_indexes import UniqueIndex
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.cli.legacy.advice import AdviceDocument, advice_rows, advised
from tripstore.cli.legacy.exposure import ExposureDocument, exposure_documents, print_exposures
from tripstore.cli.legacy.statements import (
    CodeStatementsDocument,
    StatementsDocument,
    judged_code,
    judged_statements,
    print_code,
    print_statements,
)
from tripstore.cli.locked import Locked
from tripstore.cli.progress import progress
from tripstore.cli.tables import show, table
from tripstore.config import LegacyConfig
from tripstore.migration.layouts.change import LayoutChange

#: One `schema apply` at a time: a lock of the session, which ends with it. The number is ours; no other program uses
#: it.
LOCK = 7_245_117_001
TRY_LOCK = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
WHO_LOCKS = """
SELECT coalesce(a.application_name, ''), a.pid, coalesce(host(a.client_addr), 'this machine'), a.backend_start::text
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND (l.classid::bigint << 32 | l.objid::bigint) = %s
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
ORDER BY a.pid LIMIT 1
"""


class ComplaintDocument(msgspec.Struct, frozen=True):
    """A complaint about layout or tables in a JSON document."""

    severity: str
    where: str
    reason: str
    hint: str


class StepDocument(msgspec.Struct, frozen=True):
    """A step; done before, or now by `apply`."""

    title: str
    is_done: bool
    statements: list[str]


class LegacyPlan(msgspec.Struct, frozen=True):
    """The part of the JSON document that is about the legacy tables; a refused layout has no steps."""

    postgres: str
    is_complete: bool
    is_refused: bool
    complaints: list[ComplaintDocument]
    steps: list[StepDocument]
    #: What index queries lack; no step does it.
    advice: list[AdviceDocument]
    #: Constraints that no put on live can be held against.
    only_postgres: list[ExposureDocument]
    #: Those that capture will refuse; null when none were looked at: of a layout with facts a complaint says why.
    statements: StatementsDocument | None
    #: The same of the code that `plan --code` names.
    code: CodeStatementsDocument | None
    #: Titles of the steps that this run did.
    applied: list[str]
    seconds: float | None


class LegacySchema:
    """The company's tables, a connection to them, and the layout that they are held against."""

    def __init__(
        self, config: LegacyConfig, indexes: Sequence[IndexDefinition], shards: int, connection: Connection
    ) -> None:
        self._config = config
        self._indexes = indexes
        self._shards = shards
        self.connection = connection
        self._complaints = check_layout(connection, config.layout)
        self._put_in_force: Callable[[], None] = _not_here

    @classmethod
    @contextmanager
    def opened(cls, config: LegacyConfig, indexes: Sequence[IndexDefinition], shards: int) -> Iterator[LegacySchema]:
        """Connect, and look at the tables."""
        try:
            with connected(config.postgres.text, "schema") as connection:
                yield cls(config, indexes, shards, connection)
        except psycopg2.Error as error:
            reason = str(error).strip().splitlines()[0]
            hint = "The role of legacy.postgres needs the rights of the tables' owner, and CREATE on the database."
            raise LegacyRefused(f"Postgres refused: {reason}.", hint=hint) from error

    @property
    def errors(self) -> list[Complaint]:
        return [complaint for complaint in self._complaints if complaint.is_error]

    def plan(self, code: Path | None = None) -> LegacyPlan:
        """Look at every step, change nothing; hold the statements of code against the layout."""
        steps = [] if self.errors else [self._looked_at(step) for step in self._steps()]
        self._complaints += self._lacking_rights()
        statements, notes = judged_statements(self.connection, self._config)
        self._complaints += notes
        judged = None if code is None else judged_code(self.connection, self._config, code)
        return self._document(steps, statements, judged, applied=[], seconds=None)

    def refuse_unfit(self) -> None:
        """Raise `InvalidLayout` when the layout does not fit: nothing may be done then.

        Before capture begins, all rows of columns that are the company's own are looked at, not a sample.
        """
        if not self.errors and not has_begun(self.connection, self._config.layout):
            self._complaints += check_all_row_keys(self.connection, self._config.layout, but_ours=True)
        self._complaints += self._lacking_rights()
        if not self.errors:
            return
        more = f"; {len(self.errors) - 1} more" if len(self.errors) > 1 else ""
        first = self.errors[0]
        raise InvalidLayout(
            f"The layout does not fit the tables: {first.where}: {first.reason}{more}.",
            hint=f"{first.hint} `tripstore schema plan` lists all.",
        )

    def change_by(self, change: LayoutChange, put_in_force: Callable[[], None]) -> None:
        """How the layout is put in force; what speaks against it is an error like others."""
        if not self.errors:
            self._complaints += change.complaints()
        self._put_in_force = put_in_force

    def lock(self) -> None:
        """Keep others from applying at the same time, up to the end of the connection; or raise `Locked`."""
        if rows(self.connection, TRY_LOCK, (LOCK,))[0][0]:
            return
        found = rows(self.connection, WHO_LOCKS, (LOCK,))
        who = "" if not found else ": {}, pid {} from {}, since {}".format(*found[0])
        hint = "Wait for it, then run the same command again."
        raise Locked(f"Another process is applying the schema{who}.", hint=hint)

    def apply(self) -> LegacyPlan:
        """Do what is not done yet, in order; what is done stays done when it is interrupted."""
        started = time.perf_counter()
        steps = self._steps()
        applied = [step.title for step in steps if self._apply(step)]
        keep_log_days(self.connection, self._config.limits.log_days, datetime.now(UTC).date(), shards=self._shards)
        done = [StepDocument(step.title, True, list(step.statements())) for step in steps]
        return self._document(done, None, None, applied=applied, seconds=time.perf_counter() - started)

    def _lacking_rights(self) -> list[Complaint]:
        """What the steps that are to do need and the role does not have; of a refused layout no steps are known."""
        to_do = [] if self.errors else [step for step in self._steps() if not step.is_done(self.connection)]
        if not to_do:
            return []
        indexed = {step.column.table for step in to_do if isinstance(step, UniqueIndex)}
        return list(check_rights(self.connection, self._config.layout, indexed=indexed))

    def _apply(self, step: SchemaStep) -> bool:
        """Do a step unless it is done; whether it was done now."""
        try:
            with ExitStack() as bars:
                (applied,) = apply_all([step], self.connection, lambda step: bars.enter_context(_told(step)))
        except psycopg2.Error as error:
            reason = str(error).strip().splitlines()[0]
            hint = "Mend that, then run the same command again: what is done stays done."
            raise LegacyRefused(f"The step '{step.title}' failed: {reason}.", hint=hint) from error
        return not applied.was_done

    def _steps(self) -> list[SchemaStep]:
        limits = self._config.limits
        return schema_steps(
            self._config.layout,
            may_truncate=limits.may_truncate,
            warns=limits.warns,
            put_in_force=self._put_in_force,
        )

    def _looked_at(self, step: SchemaStep) -> StepDocument:
        return StepDocument(step.title, step.is_done(self.connection), list(step.statements()))

    def _document(
        self,
        steps: list[StepDocument],
        statements: StatementsDocument | None,
        code: CodeStatementsDocument | None,
        applied: list[str],
        seconds: float | None,
    ) -> LegacyPlan:
        layout = self._config.layout
        advice = [] if self.errors else advised(self.connection, layout, self._indexes)
        only_postgres = [] if self.errors else exposure_documents(self.connection, layout)
        return LegacyPlan(
            postgres=str(self._config.postgres),
            is_complete=not self.errors and all(step.is_done for step in steps),
            is_refused=bool(self.errors),
            complaints=[complaint_document(complaint) for complaint in self._complaints],
            steps=steps,
            advice=advice,
            only_postgres=only_postgres,
            statements=statements,
            code=code,
            applied=applied,
            seconds=seconds,
        )


def _not_here() -> None:
    raise AssertionError("a plan changes nothing")


def _told(step: SchemaStep) -> AbstractContextManager[Progress]:
    """Say what begins; without a terminal there is no bar that says it."""
    if not sys.stderr.isatty():
        click.echo(step.title, err=True)
    return progress(step.title)


def complaint_document(complaint: Complaint) -> ComplaintDocument:
    return ComplaintDocument(complaint.severity.value, complaint.where, complaint.reason, complaint.hint)


def print_legacy_plan(plan: LegacyPlan) -> None:
    """Show what was found, then each step with what it would run."""
    show(Text(), Text(f"legacy store, {plan.postgres}", style="bold"))
    if plan.complaints:
        show(table(("", "", ""), [row for complaint in plan.complaints for row in complaint_rows(complaint)]), Text())
    print_statements(plan.statements)
    print_code(plan.code)
    if plan.is_refused:
        click.echo("The layout does not fit: `tripstore schema apply` refuses it until every error is mended.")
        return
    shown: list[tuple[Text, str]] = []
    for step in plan.steps:
        shown.append((Text("done", style="green") if step.is_done else Text("to do", style="yellow"), step.title))
        if not step.is_done:
            shown += [(Text(), f"  {line}") for text in step.statements for line in text.splitlines()]
    show(table(("", ""), shown), Text())
    waiting = sum(not step.is_done for step in plan.steps)
    if waiting:
        click.echo(f"{waiting} of {len(plan.steps)} steps are to do; `tripstore schema apply` does them in this order.")
    else:
        click.echo("Every step is done.")
    if plan.advice:
        show(Text(), table(("", "", ""), [row for advice in plan.advice for row in advice_rows(advice)]), Text())
        click.echo("`tripstore schema apply` makes none of these indexes: make those that you want.")
    print_exposures(plan.only_postgres)


def print_legacy_done(plan: LegacyPlan) -> None:
    notes = sum(complaint.severity == "note" for complaint in plan.complaints)
    for title in plan.applied:
        click.echo(f"done: {title}")
    if plan.applied:
        needless = len(plan.steps) - len(plan.applied)
        others = f"; {needless} of {len(plan.steps)} needed nothing" if needless else ""
        click.echo(f"Did {len(plan.applied)} steps in {plan.seconds:.1f} s{others}; none is missing now.")
    else:
        click.echo(f"Nothing was missing in the legacy tables: all {len(plan.steps)} steps were done.")
    if notes:
        click.echo(f"{notes} notes about the layout: see `tripstore schema plan`.")
    if plan.advice:
        click.echo(f"Advice for the legacy tables: {len(plan.advice)}; see `tripstore schema plan`.")


def complaint_rows(complaint: ComplaintDocument) -> Iterator[tuple[Text, str, str]]:
    """A complaint in a table, and its way out below."""
    is_error = complaint.severity == "error"
    mark = Text("error", style="bold red") if is_error else Text("note", style="cyan")
    yield mark, complaint.where, complaint.reason
    if complaint.hint:
        yield Text(), "", f"→ {complaint.hint}"
