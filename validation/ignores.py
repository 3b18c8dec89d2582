"""`Ignore`: a difference that the operator has explained: with a reason, an owner and a day on which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from tripstore.engines.validation.compare import DIFFERENCES_MAX, AnswerDifference, DifferenceClass
from tripstore.engines.validation.errors import ValidationError
from tripstore.engines.validation.reads import EXPERIMENT


class InvalidIgnore(ValidationError):
    """A rule that says too little, or has ended."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Patterns as a shell has them; what is not given matches everything."""

    reason: str
    owner: str
    until: date
    operation: str = "*"
    entry: str = "*"
    path: str = "*"
    kind: DifferenceClass | None = None

    def __post_init__(self) -> None:
        for name in ("reason", "owner"):
            if not getattr(self, name).strip():
                raise InvalidIgnore(
                    f"An ignore rule needs a {name}.", hint="Say why it is right, and who answers for it."
                )
        if (self.operation, self.entry, self.path, self.kind) == ("*", "*", "*", None):
            hint = "Name an operation, an entry, a path or a class."
            raise InvalidIgnore("An ignore rule that matches every difference is none.", hint=hint)

    def matches(self, operation: str, difference: AnswerDifference, today: date) -> bool:
        return (
            today < self.until
            and (self.kind is None or self.kind is difference.kind)
            and self._is_for(operation)
            and fnmatchcase(difference.entry, self.entry)
            and fnmatchcase(difference.path, self.path)
        )

    def _is_for(self, operation: str) -> bool:
        """What explains a mirror explains no rewrite: a rule for experiments says so itself."""
        is_meant = self.operation.startswith(EXPERIMENT) or not operation.startswith(EXPERIMENT)
        return is_meant and fnmatchcase(operation, self.operation)


def ignored_by(
    rules: Sequence[Ignore], operation: str, differences: Sequence[AnswerDifference], today: date
) -> list[Ignore] | None:
    """The rules that explain all of these differences; None: one of them is not explained."""
    if len(differences) > DIFFERENCES_MAX:  # there are more than were kept, so some are unexplained
        return None
    found: list[Ignore] = []
    for difference in differences:
        rule = next((rule for rule in rules if rule.matches(operation, difference, today)), None)
        if rule is None:
            return None
        found.append(rule)
    return list(dict.fromkeys(found))
