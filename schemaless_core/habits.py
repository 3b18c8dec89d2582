"""How a caller wants its calls done: where it reads, how long it waits, what it asks of durability."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from schemaless_core.deadline import InAll
from schemaless_core.errors import InvalidRequest, shown

#: `primary_only` is for our own calls that must not be answered by a replica.
ReadFrom = Literal["primary", "replica", "primary_only"]
Durability = Literal["single", "double"]


@dataclass(frozen=True, slots=True)
class Habits:
    """Set by `using()`; the defaults are what most callers want."""

    read: ReadFrom = "primary"
    #: Seconds; None: the configured one of each operation.
    deadline: float | None = None
    include_buffered: bool = False
    durability: Durability = "single"

    def with_changes(
        self,
        read: ReadFrom | None,
        deadline: float | None,
        include_buffered: bool | None,
        durability: Durability | None,
    ) -> Habits:
        """Return these habits with whatever is not None changed."""
        changed = replace(
            self,
            read=self.read if read is None else read,
            deadline=self.deadline if deadline is None else deadline,
            include_buffered=self.include_buffered if include_buffered is None else include_buffered,
            durability=self.durability if durability is None else durability,
        )
        changed.check()
        return changed

    def check(self) -> None:
        if self.read not in ("primary", "replica"):
            raise InvalidRequest(f"read={shown(self.read)} is no place to read.", hint="Use 'primary' or 'replica'.")
        is_number = type(self.deadline) in (int, float, InAll)
        if self.deadline is not None and not (is_number and 0 < self.deadline < 86_400):
            raise InvalidRequest(f"deadline={shown(self.deadline)} is no number of seconds.", hint="Use e.g. 0.5.")
        if type(self.include_buffered) is not bool:
            reason = f"include_buffered={shown(self.include_buffered)} is neither True nor False."
            raise InvalidRequest(reason, hint="Use True to see cells that wait in a buffer.")
        if self.durability not in get_args(Durability):
            raise InvalidRequest(f"durability={shown(self.durability)} is unknown.", hint="Use 'single' or 'double'.")
