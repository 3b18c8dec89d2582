"""What `schema plan` says of a layout with facts: which statements of pg_stat_statements capture will refuse.

The preflight judges them, as in `audit statements`; this file asks for those of the phases before the switch.
"""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec
import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from schemaless_core.errors import InvalidRequest
from tripstore.audit.preflight.catalogue import read_catalogue
from tripstore.audit.preflight.company import Company
from tripstore.audit.preflight.preflight import Preflight
from tripstore.audit.preflight.statistics import SOURCE, Counted, counted_statements
from tripstore.audit.preflight.verdicts import BEFORE, Verdict
from tripstore.backends.postgres.capture.state import has_begun
from tripstore.backends.postgres.layout.complaints import Complaint, note
from tripstore.backends.postgres.layout.layout import RefKeyKind
from tripstore.backends.postgres.tables import SCHEMA
from tripstore.cli.preflight_documents import StatementView, preflight_document
from tripstore.cli.preflight_screens import shorten
from tripstore.cli.tables import show, table
from tripstore.config import LegacyConfig

_AUDIT = "`tripstore audit statements`"


class StatementsDocument(msgspec.Struct, frozen=True):
    """Kinds of statements that were judged; `forgotten`: how often pg_stat_statements threw some away to make room."""

    statements: int
    unclear: int
    forgotten: int
    #: From `schema apply` on.
    refused: list[StatementView]


def judged_statements(
    connection: Connection, config: LegacyConfig
) -> tuple[StatementsDocument | None, tuple[Complaint, ...]]:
    """What was counted, judged; or a note that says why nothing was. A layout without facts has neither."""
    if not any(column.ref_key.kind is RefKeyKind.FACT for column in config.layout.columns.values()):
        return None, ()
    if has_begun(connection, config.layout):
        hint = f"Capture refuses by itself now what it refuses. {_AUDIT} judges statements all the same."
        return None, (note(SOURCE, "was not asked, because capture stands", hint),)
    try:
        counted = counted_statements(connection)
    except InvalidRequest:
        hint = f"CREATE EXTENSION {SOURCE}, and let it count for a week; or give {_AUDIT} a file of statements."
        return None, (note(SOURCE, "is not installed here: no statement was held against the facts", hint),)
    except psycopg2.Error as error:
        reason = f"could not be asked ({str(error).strip().splitlines()[0]}): no statement was held against the facts"
        return None, (note(SOURCE, reason, f"Mend that, or give {_AUDIT} a file of statements."),)
    return _judged(connection, config, counted), ()


def _judged(connection: Connection, config: LegacyConfig, counted: Counted) -> StatementsDocument:
    limits = config.limits
    company = Company(config.layout, read_catalogue(connection, config.layout), limits.may_truncate, limits.warns)
    # An `apply` that was interrupted has been counted too.
    asked = [each for each in counted.asked if SCHEMA not in each.text]
    found = preflight_document(
        SOURCE, Preflight(company).findings(asked), BEFORE, is_asked=True, forgotten=counted.forgotten
    )
    refused = [each for each in found.findings if _has(each, Verdict.REFUSED)]
    unclear = sum(_has(each, Verdict.UNCLEAR) and not _has(each, Verdict.REFUSED) for each in found.findings)
    return StatementsDocument(found.statements, unclear, found.forgotten, refused)


def _has(finding: StatementView, verdict: Verdict) -> bool:
    return any(finding.verdicts[phase.value] == verdict for phase in BEFORE)


def print_statements(found: StatementsDocument | None) -> None:
    """Name each statement with its reasons, then say how many were looked at, and how many could not be judged."""
    if found is None:
        return
    if found.refused:
        click.echo("Statements that capture will refuse:")
        show(table(("calls", "statement"), [row for each in found.refused for row in _rows(each)]), Text())
    said = f"{len(found.refused)} of {found.statements:,} kinds of statements in {SOURCE} would be refused."
    if found.unclear:
        said += f" Of {found.unclear:,} it cannot be told: {_AUDIT} says why."
    if found.forgotten:
        said += f" {SOURCE} made room {found.forgotten:,} times: kinds of statements are missing here."
    click.echo(said)


def _rows(finding: StatementView) -> Iterator[tuple[str, str]]:
    yield f"{finding.calls:,}", shorten(finding.statement)
    for reason in finding.reasons:
        if reason.verdict == Verdict.REFUSED and any(phase.value in reason.phases for phase in BEFORE):
            yield "", f"→ {reason.text} ({reason.sqlstate})"
