"""What `audit statements` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from tripstore.audit.places import EXCERPT_MAX
from tripstore.audit.preflight.verdicts import StatementVerdict
from tripstore.cli.audit.documents import PreflightDocument, StatementView
from tripstore.cli.tables import show, table
from tripstore.phase import Phase

_ORDER = [phase.value for phase in Phase]
#: Of one verdict in the same phases.
REASONS_SHOWN = 2
_HEAVIEST_FIRST = [verdict.value for verdict in reversed(StatementVerdict)]


def print_preflight(document: PreflightDocument, *, is_short: bool) -> None:
    """Statements with their reasons, the heaviest first; then counts by phase, and what was not looked at."""
    if not is_short:
        for finding in sorted(document.findings, key=_weight):
            if any(verdict != StatementVerdict.FINE for verdict in finding.verdicts.values()):
                _print(finding)
    rows = [(each.phase, *(f"{each.verdicts[name]:,}" for name in _HEAVIEST_FIRST)) for each in document.phases]
    show(table(("phase", *_HEAVIEST_FIRST), rows))
    click.echo(_said(document))


def _weight(finding: StatementView) -> int:
    """By the phases in their order: what is refused today comes before what is refused after the switch."""
    first = [_HEAVIEST_FIRST.index(finding.verdicts[name]) for name in _ORDER]
    return first[0] * 100 + min(first)


def _print(finding: StatementView) -> None:
    click.echo(f"{finding.where}  {shorten(finding.statement)}{_often(finding)}")
    show(table(("", "", ""), [("  " + verdict, phases, text) for verdict, phases, text in _lines(finding)]))


def _lines(finding: StatementView) -> Iterator[tuple[str, str, str]]:
    """The reasons that decide a phase; of many with one verdict the first, which is about the statement's own table."""
    found: dict[tuple[str, str], list[str]] = {}
    for reason in sorted(finding.reasons, key=lambda each: _HEAVIEST_FIRST.index(each.verdict)):
        if any(finding.verdicts[phase] == reason.verdict for phase in reason.phases):
            state = f" ({reason.sqlstate})" if reason.sqlstate else ""
            found.setdefault((reason.verdict, span(reason.phases)), []).append(reason.text + state)
    for (verdict, phases), texts in found.items():
        several = list(dict.fromkeys(texts))
        more = len(several) - REASONS_SHOWN
        shown = several if more <= 1 else [*several[:REASONS_SHOWN], f"and {more} more; --json has all"]
        yield from ((verdict, phases, text) for text in shown)


def span(phases: Sequence[str]) -> str:
    """Phases in a row by the first and the last of them."""
    if len(phases) == len(_ORDER):
        return "always"
    numbers = sorted(_ORDER.index(phase) for phase in phases)
    is_row = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{_ORDER[numbers[0]]}–{_ORDER[numbers[-1]]}" if is_row and len(numbers) > 1 else ", ".join(phases)


def _often(finding: StatementView) -> str:
    said = []
    if finding.places > 1:
        said.append(f"{finding.places:,} places")
    if finding.calls > finding.places:
        said.append(f"{finding.calls:,} calls")
    if finding.rows is not None and finding.calls and finding.rows > finding.calls:
        said.append(f"about {finding.rows / finding.calls:,.0f} rows a call")
    return f"  ({', '.join(said)})" if said else ""


def shorten(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= EXCERPT_MAX else f"{text[: EXCERPT_MAX - 1]}…"


def _said(document: PreflightDocument) -> str:
    kinds = "1 kind of statement" if document.statements == 1 else f"{document.statements:,} kinds of statements"
    said = f"{kinds}, {document.calls:,} calls, from {document.source}."
    unclear = max(each.verdicts[StatementVerdict.UNCLEAR] for each in document.phases)
    if unclear:
        said += f" Of {unclear:,} it cannot be told: they count as not verified."
    if not document.is_asked:
        said += " No database was asked: views, triggers, functions and cascades are not known (--from URL)."
    if document.forgotten:
        said += f" pg_stat_statements made room {document.forgotten:,} times: kinds of statements are missing here."
    return said
