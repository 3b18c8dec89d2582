"""`WalkStep` and `PartWalk`: how a part of fsck is looked at, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.records import Finding
from schemaless_core.errors import SchemalessError
from schemaless_core.fsck.faults import not_compared

#: How long a page, or a look at all servers, may take.
PAGE_SECONDS = 20.0


class WalkStep(NamedTuple):
    """What one step found, and where the next one begins."""

    findings: Sequence[Finding]
    #: Cells that were looked at, in whichever log.
    rows: int
    checkpoint: Json
    is_end: bool

    @property
    def counts(self) -> Counter[str]:
        """What a job counts of it."""
        return Counter({"rows": self.rows, **Counter(each.kind for each in self.findings)})


class PartWalk(Protocol):
    """Looks at parts of one kind."""

    def step(self, bounds: Json, at: Json) -> WalkStep:
        """Look at the next portion of a part; `at`: None at the beginning, then what the last step said."""
        ...

    def skip(self, bounds: Json, at: Json, error: SchemalessError) -> WalkStep:
        """Say that the portion could not be looked at, and go on behind it."""
        ...


class OneLook:
    """A part that is looked at in one step."""

    def __init__(self, look: Callable[[Json], Sequence[Finding]], what: str) -> None:
        self._look = look
        self._what = what

    def step(self, bounds: Json, at: Json) -> WalkStep:
        return WalkStep(self._look(bounds), 0, None, True)

    def skip(self, bounds: Json, at: Json, error: SchemalessError) -> WalkStep:
        named = " ".join(str(each) for each in bounds) if isinstance(bounds, list) else str(bounds or "")
        reason = f"{self._what} {named}".strip() + f": {error.message}"
        return WalkStep([not_compared(reason)], 0, None, True)
