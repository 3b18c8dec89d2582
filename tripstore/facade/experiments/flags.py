"""`ExperimentFlags`: what is changed of experiments while everything runs: which callers get the candidate's answer.

One document for all of them, read by every process that has experiments, twice a second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.errors import InvalidRequest, shown
from tripstore.facade.book import Book

DOCUMENT = "experiments"
NAME_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class ExperimentFlags:
    """Of one experiment."""

    #: Of its callers, by their cohort keys: they get the candidate's answer.
    percent: float = 0.0
    #: Whether a share of its calls is compared.
    is_compared: bool = True
    #: Whether its code is gone: no gate waits for it.
    is_retired: bool = False


UNSET = ExperimentFlags()


@dataclass(frozen=True, slots=True)
class FlagsOfAll:
    """As one version of the document was; an experiment that nothing was said of has the defaults."""

    by_name: Mapping[str, ExperimentFlags] = field(default_factory=dict)
    version: int = 0

    def of(self, name: str) -> ExperimentFlags:
        return self.by_name.get(name, UNSET)

    def with_changes(self, name: str, **changes: Any) -> Self:
        wanted = replace(self.of(name), **changes)
        if not 0 <= wanted.percent <= 100:
            raise InvalidRequest(
                f"{wanted.percent:g} % of the callers of {shown(name)} are none.", hint="Give 0 to 100."
            )
        return replace(self, by_name={**self.by_name, name: wanted})

    def to_document(self) -> dict[str, Json]:
        return {name: asdict(found) for name, found in sorted(self.by_name.items())}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], version: int) -> Self:
        """What a later version says besides is passed over: this process has nothing that goes by it."""
        known = [each.name for each in fields(ExperimentFlags)]
        return cls(
            {
                name: ExperimentFlags(**{key: found[key] for key in known if key in found})
                for name, found in document.items()
            },
            version,
        )


class ExperimentBook(Book[FlagsOfAll]):
    """Reads and changes the flags of all experiments of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        super().__init__(control, DOCUMENT, FlagsOfAll())


def check_name(name: str) -> str:
    """The name of an experiment: it stands in ledgers, metrics and on command lines."""
    if len(name) <= NAME_MAX and _NAME.fullmatch(name):
        return name
    hint = f"Write billing.unpaid_trips: letters, digits, _ and - between dots, at most {NAME_MAX} of them."
    raise InvalidRequest(f"{shown(name)} is no name of an experiment.", hint=hint)
