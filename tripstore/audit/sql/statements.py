"""Uses in SQL, as findings: of `.sql` files, and of texts in Python. Comments in the SQL may allow them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tripstore.audit.allowing import reason
from tripstore.audit.findings import Remark, Use
from tripstore.audit.names import LegacyTables
from tripstore.audit.places import Lines
from tripstore.audit.sql.found import SqlUse, SqlUses
from tripstore.audit.sql.reader import sql_uses
from tripstore.backends.postgres.tokens import HOLE

_OPEN_NAME = re.compile(rf"\b(?:from|join|into|update|copy|truncate)\s+[\"`]?{HOLE}", re.IGNORECASE)


class AllowedUse(NamedTuple):
    """A use, the reason that a comment in its statement gives for it, and that statement."""

    use: SqlUse
    allowed: str | None
    statement: str


class TextUses(NamedTuple):
    """What an SQL text uses."""

    uses: list[AllowedUse]
    unclear: list[int]
    without_reason: list[int]


def text_uses(text: str, tables: LegacyTables, *, is_certain: bool, is_prose: bool = False) -> TextUses:
    """Look through a text; most name no table, and cost nothing."""
    if tables.word.search(text) is None and _OPEN_NAME.search(text) is None:
        return TextUses([], [], [])
    found = sql_uses(text, tables, is_certain=is_certain, is_prose=is_prose)
    uses = [AllowedUse(use, _allowed(use, found, text), _statement(use, found, text)) for use in found.uses]
    empty = [comment.offset for comment in found.comments if reason(comment.raw) == ""]
    return TextUses(uses, found.unclear, empty)


def _statement(use: SqlUse, found: SqlUses, text: str) -> str:
    begin, end = found.statements[use.statement]
    return text[begin:end].strip().strip(";").strip()


def _allowed(use: SqlUse, found: SqlUses, text: str) -> str | None:
    """The reason of a comment before or in the statement, or behind it on its last line."""
    begin, end = found.statements[use.statement]
    for comment in found.comments:
        said = reason(comment.raw)
        if not said:
            continue
        is_behind_another = begin > 0 and "\n" not in text[begin : comment.offset]
        is_inside = begin <= comment.offset < end and not (is_behind_another and comment.offset < use.offset)
        is_behind = comment.offset > end and "\n" not in text[end : comment.offset]
        if is_inside or is_behind:
            return said
    return None


def file_findings(file: str, text: str, tables: LegacyTables) -> Iterator[Use | Remark]:
    """Yield what a `.sql` file uses."""
    lines = Lines(text)
    found = text_uses(text, tables, is_certain=True)
    for use, allowed, statement in found.uses:
        line, column = lines.at(use.offset)
        yield Use(file, line, column, use.kind, use.table, use.access, lines.excerpt(line), allowed, statement)
    for offset in found.unclear:
        yield Remark(file, lines.at(offset)[0], UNCLEAR)
    for offset in found.without_reason:
        yield Remark(file, lines.at(offset)[0], NO_REASON)


UNCLEAR = "the table of this SQL is known at run time only"
NO_REASON = "the comment allows nothing, because it gives no reason"
