"""What is told of a failure without the values that it names: a report is shown around, bodies are not."""

from __future__ import annotations

import re

TEXT_MAX = 300
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|“[^”]*”")
#: As Postgres tells of a key: (email)=(rider@example.com).
_KEY = re.compile(r"=\s*\(.*\)")


def without_values(text: str) -> str:
    """The first line of a message, whatever it quotes replaced: a name cannot be told from a value."""
    first = text.strip().partition("\n")[0]
    return _QUOTED.sub("“…”", _KEY.sub("=(…)", first))[:TEXT_MAX]
