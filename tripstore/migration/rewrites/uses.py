"""`CodeUses`: the uses that an audit of a code base still finds, and those of them that the operator accounts for.

A document per code base, so that each team registers its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.errors import InvalidRequest
from tripstore.facade.book import Book

PREFIX = "remaining_uses."
#: Of one code base; each change of the document is a line of the audit log.
USES_MAX = 1_000
NEVER = datetime.min.replace(tzinfo=UTC)


class RemainingUse(NamedTuple):
    """One use, at one place."""

    file: str
    line: int
    table: str
    kind: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class CodeUses:
    """As one version of the document was."""

    uses: tuple[RemainingUse, ...] = ()
    #: Whether the audit could read and tell everything.
    is_complete: bool = True
    at: datetime = NEVER
    #: Why uses may remain, by a pattern of files, or of `file:line`.
    acknowledged: Mapping[str, str] = field(default_factory=dict)
    version: int = 0

    @property
    def unnamed(self) -> list[RemainingUse]:
        """Those that no reason is given for."""
        return [use for use in self.uses if not any(_matches(use, pattern) for pattern in self.acknowledged)]

    def with_uses(self, uses: Sequence[RemainingUse], at: datetime, *, is_complete: bool) -> Self:
        """What an audit finds now, in place of what it found before; reasons stay."""
        if len(uses) > USES_MAX:
            hint = "Audit each service by itself, and register it under its own name."
            raise InvalidRequest(f"{len(uses):,} uses are more than {USES_MAX:,} of one code base.", hint=hint)
        return replace(self, uses=tuple(uses), at=at, is_complete=is_complete)

    def with_reason(self, pattern: str, why: str) -> Self:
        return replace(self, acknowledged={**self.acknowledged, pattern: why})

    def without_reason(self, pattern: str) -> Self:
        left = {name: why for name, why in self.acknowledged.items() if name != pattern}
        return replace(self, acknowledged=left)

    def to_document(self) -> dict[str, Json]:
        return {
            "uses": [list(use) for use in self.uses],
            "is_complete": self.is_complete,
            "at": self.at.isoformat(),
            "acknowledged": dict(self.acknowledged),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], version: int) -> Self:
        uses = tuple(RemainingUse(*use) for use in document["uses"])
        at = datetime.fromisoformat(document["at"])
        return cls(uses, document["is_complete"], at, document["acknowledged"], version)


class UseBooks:
    """Those of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control

    def of(self, code: str) -> Book[CodeUses]:
        return Book(self._control, f"{PREFIX}{code}", CodeUses())

    def all(self) -> dict[str, CodeUses]:
        """By the name of the code base; none: no audit was registered."""
        found = Documents(self._control).all(PREFIX)
        return {each.name.removeprefix(PREFIX): CodeUses.from_document(each.body, each.version) for each in found}


def _matches(use: RemainingUse, pattern: str) -> bool:
    return fnmatchcase(use.file, pattern) or fnmatchcase(use.place, pattern)
