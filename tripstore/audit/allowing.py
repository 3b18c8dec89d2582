"""Comments that allow a use: `# tripstore: allow <reason>`, in SQL `-- tripstore: allow <reason>`."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

_COMMENT = re.compile(r"(?:#|--|/\*)\s*tripstore:\s*allow\b[:\s]*([^\n]*?)\s*(?:\*/)?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Allowances:
    """The reasons by line, and lines with a comment that gives none: that allows nothing."""

    reasons: dict[int, str]
    without_reason: tuple[int, ...]

    def within(self, first: int, last: int) -> str | None:
        """The reason that stands on any of these lines."""
        if not self.reasons:
            return None
        return next((self.reasons[line] for line in range(first, last + 1) if line in self.reasons), None)


def reason(comment: str) -> str | None:
    """The reason of a comment; empty if it allows without one, None if it is about something else."""
    found = _COMMENT.search(comment)
    return found[1] if found is not None else None


def allowances(source: str) -> Allowances:
    """Read the comments of a Python file. One on a line of its own speaks of the next line that has code."""
    if "tripstore:" not in source:
        return Allowances({}, ())
    reasons: dict[int, str] = {}
    without: list[int] = []
    waiting: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            said = reason(token.string)
            if said == "":
                without.append(line)
            elif said is not None and not token.line[: token.start[1]].strip():
                waiting.append(said)
            elif said is not None:
                reasons[line] = said
        elif waiting and token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            reasons.setdefault(line, waiting[0])
            waiting.clear()
    return Allowances(reasons, tuple(without))
