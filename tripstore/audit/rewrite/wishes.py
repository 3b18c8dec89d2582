"""`RewriteWishes`: how the company wants its code rewritten."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tripstore.audit.rewrite.verdicts import RewriteAssumption


@dataclass(frozen=True)
class RewriteWishes:
    """How the company wants it."""

    store: str | None = None  #: `app.stores:store`: where the store is imported from.
    units: Collection[str] = ()
    assume: Collection[RewriteAssumption] = ()
    comments: bool = True

    @property
    def name(self) -> str:
        return (self.store or ":store").rpartition(":")[2]

    @property
    def imports(self) -> list[tuple[str, str]]:
        module = (self.store or "").rpartition(":")[0]
        return [("tripstore", "rewritten"), *([(module, self.name.partition(".")[0])] if module else [])]
