"""What `schema plan` says beforehand: which statements of pg_stat_statements, and of code, capture will refuse.

The preflight judges them, as in `audit statements`; this file asks for those of the phases before the switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from schemaless_core.errors import InvalidRequest
from tripstore.audit.code import audit_code
from tripstore.audit.findings import Access, UseKind
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.catalogue import read_catalogue
from tripstore.audit.preflight.company import Company
from tripstore.audit.preflight.preflight import Preflight
from tripstore.audit.preflight.statistics import SOURCE, Counted, counted_statements
from tripstore.audit.preflight.verdicts import BEFORE, StatementVerdict
from tripstore.backends.postgres.capture.state import has_begun
from tripstore.backends.postgres.layout.complaints import Complaint, note
from tripstore.backends.postgres.layout.layout import RefKeyKind
from tripstore.backends.postgres.names import SCHEMA
from tripstore.cli.audit.documents import PreflightDocument, StatementView, preflight_document
from tripstore.cli.audit.screens import shorten
from tripstore.cli.tables import show, table
from tripstore.config import LegacyConfig

_AUDIT = "`tripstore audit statements`"
#: Of uses in code whose statement is not known, those that may change a row in place or delete it.
_CHANGE_ROWS = (UseKind.UPDATE, UseKind.INSTANCE, UseKind.BULK, UseKind.RELATIONSHIP, UseKind.NAME)


class StatementsDocument(msgspec.Struct, frozen=True):
    """Kinds of statements that were judged; `forgotten`: how often pg_stat_statements threw some away to make room."""

    statements: int
    unclear: int
    forgotten: int
    #: From `schema apply` on.
    refused: list[StatementView]


class CodeStatementsDocument(msgspec.Struct, frozen=True):
    """Kinds of statements that write to mapped tables in the code below `path`; SQLAlchemy's as the SQL they send."""

    path: str
    files: int
    statements: int
    #: Whose table or columns are known at run time only, and files that could not be read.
    unclear: int
    unread: int
    #: From `schema apply` on.
    refused: list[StatementView]


def judged_statements(
    connection: Connection, config: LegacyConfig
) -> tuple[StatementsDocument | None, tuple[Complaint, ...]]:
    """Judge the statements that Postgres has counted; where it has counted none, a layout with facts gets a note.

    Capture refuses every change of a key (of a row's id or UUID, of a child's number or parent), and of facts every
    change. Changes of facts are common, those of keys are rare: without facts the lack of statements is no note.
    """
    found, notes = _counted_and_judged(connection, config)
    has_facts = any(column.ref_key.kind is RefKeyKind.FACT for column in config.layout.columns.values())
    return found, notes if has_facts else ()


def _counted_and_judged(
    connection: Connection, config: LegacyConfig
) -> tuple[StatementsDocument | None, tuple[Complaint, ...]]:
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
    # An `apply` that was interrupted has been counted too.
    asked = [each for each in counted.asked if SCHEMA not in each.text]
    found = _preflight(connection, config, SOURCE, asked, counted.forgotten)
    return StatementsDocument(found.statements, _unclear(found), found.forgotten, _refused(found))


def _preflight(
    connection: Connection, config: LegacyConfig, source: str, asked: list[Asked], forgotten: int
) -> PreflightDocument:
    limits = config.limits
    company = Company(config.layout, read_catalogue(connection, config.layout), limits.may_truncate, limits.warns)
    return preflight_document(source, Preflight(company).findings(asked), BEFORE, is_asked=True, forgotten=forgotten)


def _refused(found: PreflightDocument) -> list[StatementView]:
    return [each for each in found.findings if _has(each, StatementVerdict.REFUSED)]


def _unclear(found: PreflightDocument) -> int:
    return sum(
        _has(each, StatementVerdict.UNCLEAR) and not _has(each, StatementVerdict.REFUSED) for each in found.findings
    )


def judged_code(connection: Connection, config: LegacyConfig, path: Path) -> CodeStatementsDocument:
    """Judge what the code below a path writes to mapped tables, or to those that cascade into them; always."""
    relations = read_catalogue(connection, config.layout).relations.items()
    tables = {*config.layout.tables, *(name for name, relation in relations if relation.cascades)}
    audit = audit_code(path, LegacyTables(LegacyTable(name.schema, name.name) for name in tables))
    writes = [each for each in audit.found if each.access is not Access.READ]
    asked = {(each.file, each.line, each.statement): each for each in writes if each.statement is not None}
    found = _preflight(
        connection, config, str(path), [Asked(text, f"{file}:{line}") for file, line, text in asked if text], 0
    )
    unseen = sum(each.statement is None and each.kind in _CHANGE_ROWS for each in writes)
    unclear = _unclear(found) + unseen + len(audit.unclear)
    return CodeStatementsDocument(str(path), audit.files, found.statements, unclear, len(audit.unread), _refused(found))


def _has(finding: StatementView, verdict: StatementVerdict) -> bool:
    return any(finding.verdicts[phase.value] == verdict for phase in BEFORE)


def print_statements(found: StatementsDocument | None) -> None:
    """Name each statement with its reasons, then say how many were looked at, and how many could not be judged."""
    if found is None:
        return
    if found.refused:
        click.echo("Statements that capture will refuse:")
        show(
            table(("calls", "statement"), [row for each in found.refused for row in _rows(each, f"{each.calls:,}")]),
            Text(),
        )
    said = f"{len(found.refused)} of {found.statements:,} kinds of statements in {SOURCE} would be refused."
    if found.unclear:
        said += f" Of {found.unclear:,} it cannot be told: {_AUDIT} says why."
    if found.forgotten:
        said += f" {SOURCE} made room {found.forgotten:,} times: kinds of statements are missing here."
    click.echo(said)


def print_code(found: CodeStatementsDocument | None) -> None:
    """Name the first place of each statement, with its reasons; then say what could not be judged."""
    if found is None:
        return
    if found.refused:
        click.echo("Statements in code that capture will refuse:")
        rows = [row for each in found.refused for row in _rows(each, each.where)]
        show(table(("first place", "statement"), rows), Text())
    said = f"{len(found.refused)} of {found.statements:,} kinds of writes in {found.files:,} files below {found.path}"
    said += " would be refused."
    if found.unclear:
        said += f" Of {found.unclear:,} places it cannot be told: `tripstore audit code {found.path}` names all uses."
    if found.unread:
        said += f" {found.unread:,} files could not be read."
    click.echo(said)


def _rows(finding: StatementView, first: str) -> Iterator[tuple[str, str]]:
    yield first, shorten(finding.statement)
    for reason in finding.reasons:
        if reason.verdict == StatementVerdict.REFUSED and any(phase.value in reason.phases for phase in BEFORE):
            yield "", f"→ {reason.text} ({reason.sqlstate})"
