"""`Complaint`: what is wrong between a layout and the live database, and a way out. The caller decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What a complaint keeps from being done."""

    ERROR = "error"  #: `schema apply` refuses the layout.
    NOTE = "note"  #: To be known; or `schema apply` mends it by itself.


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that does not fit; `where` is a table, a column of it, or a key of the layout."""

    severity: Severity
    where: str
    reason: str
    hint: str = ""
    #: Of capture: an error, and yet every change was recorded.
    misses_nothing: bool = False

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}. {self.hint}".rstrip()


def error(where: str, reason: str, hint: str) -> Complaint:
    return Complaint(Severity.ERROR, where, reason, hint)


def harmless(where: str, reason: str, hint: str) -> Complaint:
    """An error of capture by which no change was missed."""
    return Complaint(Severity.ERROR, where, reason, hint, misses_nothing=True)


def note(where: str, reason: str, hint: str = "") -> Complaint:
    return Complaint(Severity.NOTE, where, reason, hint)
