"""`Flags`: what is changed while everything runs: phases, cohorts, how much is compared. One document, one version.

It stands in the control database and is changed by compare-and-set, with a line of the audit log. Processes read it
twice a second; while they cannot, they go by what they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.errors import InvalidRequest, shown
from tripstore.facade.book import Book
from tripstore.handover.authority import Authority, Backend
from tripstore.phase import Phase, phases_of

DOCUMENT = "facade"
#: Of a cohort: every operation class that has none of its own.
EVERY = "*"


@dataclass(frozen=True, slots=True)
class Comparing:
    """How much is compared; None: what the configuration says."""

    share: float | None = None
    per_second: float | None = None
    #: Old against old: measures the noise floor.
    is_against_itself: bool = False


@dataclass(frozen=True, slots=True)
class Flags:
    """As one version of the document was."""

    legacy_phase: Phase = Phase.OFF
    store_phase: Phase = Phase.LIVE
    #: Percentages by operation class, for each authority: of its reads these are answered by the other backend.
    legacy_cohorts: Mapping[str, float] = field(default_factory=dict)
    store_cohorts: Mapping[str, float] = field(default_factory=dict)
    comparing: Comparing = field(default_factory=Comparing)
    version: int = 0

    def phase(self, authority: Authority | Backend) -> Phase:
        """The phase while this backend is the authority."""
        backend = authority.backend if isinstance(authority, Authority) else authority
        return self.legacy_phase if backend is Backend.LEGACY else self.store_phase

    def cohorts(self, authority: Backend) -> Mapping[str, float]:
        return self.legacy_cohorts if authority is Backend.LEGACY else self.store_cohorts

    def with_phase(self, phase: Phase) -> Self:
        """Of whichever backend is the authority in it."""
        if phase.authority is Backend.LEGACY:
            return replace(self, legacy_phase=phase)
        return replace(self, store_phase=phase)

    def with_cohorts(self, authority: Backend, cohorts: Mapping[str, float | None]) -> Self:
        """Change some percentages. 0 keeps an operation out, whatever the general one is; None: that holds again."""
        for name, percent in cohorts.items():
            if percent is not None and not 0 <= percent <= 100:
                raise InvalidRequest(f"A cohort of {percent:g} % of {shown(name)} is none.", hint="Give 0 to 100.")
        wanted = {**self.cohorts(authority), **cohorts}
        if not wanted.get(EVERY):
            wanted[EVERY] = None
        merged = {name: percent for name, percent in wanted.items() if percent is not None}
        if authority is Backend.LEGACY:
            return replace(self, legacy_cohorts=merged)
        return replace(self, store_cohorts=merged)

    def to_document(self) -> dict[str, Json]:
        comparing = self.comparing
        return {
            "legacy_phase": str(self.legacy_phase),
            "store_phase": str(self.store_phase),
            "legacy_cohorts": dict(self.legacy_cohorts),
            "store_cohorts": dict(self.store_cohorts),
            "comparing": {
                "share": comparing.share,
                "per_second": comparing.per_second,
                "is_against_itself": comparing.is_against_itself,
            },
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], version: int) -> Self:
        return cls(
            Phase(document["legacy_phase"]),
            Phase(document["store_phase"]),
            document["legacy_cohorts"],
            document["store_cohorts"],
            Comparing(**document["comparing"]),
            version,
        )


class FlagBook(Book[Flags]):
    """Reads and changes the flags of one datastore; phase off while none were ever set."""

    def __init__(self, control: ControlDatabase) -> None:
        super().__init__(control, DOCUMENT, Flags())


def check_move(authority: Backend, phase: Phase) -> None:
    """Refuse a phase of the other authority: only a switch leads there."""
    if phase.authority is authority:
        return
    way = "tripstore cutover switch" if phase.authority is Backend.STORE else "tripstore cutover reverse"
    here = ", ".join(phases_of(authority))
    raise InvalidRequest(
        f"The phase {phase} has another authority than now.", hint=f"`{way}` moves it. Without it there are: {here}."
    )
