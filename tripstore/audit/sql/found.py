"""What an SQL text uses. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tripstore.audit.findings import Access, UseKind
from tripstore.audit.names import LegacyTable
from tripstore.backends.postgres.tokens import Token


class SqlUse(NamedTuple):
    """A table in a text: where its name begins, how it is used, and how its keyword was written."""

    offset: int
    table: LegacyTable
    kind: UseKind
    access: Access
    keyword: str
    statement: int
    part: int = 0  #: the statement within the body of a function


@dataclass
class SqlUses:
    """What a text uses; `unclear` are places where a name of a table is known at run time only."""

    uses: list[SqlUse] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)
    statements: list[tuple[int, int]] = field(default_factory=list)  #: where each begins and ends
    comments: list[Token] = field(default_factory=list)
