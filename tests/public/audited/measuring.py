"""`measure`: what `audit code` finds in a checkout, beside what a reader found. Nothing is fetched here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.public.audited.code import AuditedCode, spans
from tripstore.audit import CodeAudit, LegacyTables, audit_code

Place = tuple[str, int, int]


@dataclass(frozen=True)
class Recall:
    """Of statements that use a table, those that were found."""

    found: int
    missed: tuple[Place, ...]

    def __str__(self) -> str:
        return _share(self.found, self.found + len(self.missed))


@dataclass(frozen=True)
class Measured:
    """One code base, measured."""

    code: AuditedCode
    uses: Recall
    rows: Recall
    right: int  #: findings that are uses
    false: tuple[tuple[str, int], ...]  #: findings that are none
    said: int  #: missed uses and rows that are listed as unclear

    @property
    def precision(self) -> str:
        return _share(self.right, self.right + len(self.false))


class AnotherCommit(Exception):
    """A file that was read is not there, or is shorter."""


def measure(checkout: Path, code: AuditedCode) -> Measured:
    """Audit a checkout. Raise AnotherCommit if it cannot be the one that was read."""
    _check(checkout, code)
    audit = audit_code(checkout, LegacyTables.parse([code.table]))
    reported = [(use.file, use.line) for use in audit.found if code.is_read(use.file)]
    uses, rows = spans(code.uses), spans(code.rows)
    either = _within(spans(code.either), reported)
    right = _within([*uses, *rows], reported)
    missed_uses = tuple(place for place in uses if not _has(place, reported))
    missed_rows = tuple(place for place in rows if not _has(place, reported))
    return Measured(
        code,
        uses=Recall(len(uses) - len(missed_uses), missed_uses),
        rows=Recall(len(rows) - len(missed_rows), missed_rows),
        right=len([place for place in reported if place in right]),
        false=tuple(place for place in reported if place not in right | either),
        said=sum(_has(place, _unclear(audit)) for place in (*missed_uses, *missed_rows)),
    )


def _check(checkout: Path, code: AuditedCode) -> None:
    for file, _first, last in spans({**code.either, **code.rows, **code.uses}):
        path = checkout / file
        if not path.is_file() or len(path.read_text().splitlines()) < last:
            raise AnotherCommit(f"{path} is not as at {code.repository} {code.commit}: check that commit out")


def _unclear(audit: CodeAudit) -> list[tuple[str, int]]:
    return [(remark.file, remark.line) for remark in audit.unclear]


def _has(place: Place, reported: Iterable[tuple[str, int]]) -> bool:
    file, first, last = place
    return any(each == file and first <= line <= last for each, line in reported)


def _within(places: Iterable[Place], reported: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    every = list(places)
    return {found for found in reported if any(_has(place, [found]) for place in every)}


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:.0%}" if whole else "none"
