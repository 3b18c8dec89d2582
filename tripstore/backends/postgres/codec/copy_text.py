"""Texts as COPY writes them: tabs between values, a backslash before what would be taken for something else."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: How COPY writes NULL.
NULL = "\\N"

#: What COPY puts behind a backslash, but for the backslash itself. It writes no octal and no hexadecimal digits.
_MEANS = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\b", "\b"), ("\\f", "\f"), ("\\v", "\v"))

#: What COPY writes otherwise than it stands there.
_ESCAPES = re.compile(r"[\\\b\f\n\r\t\v]")
_WRITTEN = str.maketrans({"\\": "\\\\", **{meant: text for text, meant in _MEANS}})


def unescaped(text: str) -> str | None:
    """The text itself; None: NULL."""
    if "\\" not in text:
        return text
    if text == NULL:
        return None
    # Postgres keeps no character 0 in text: it may stand for a backslash meanwhile.
    text = text.replace("\\\\", "\0")
    if "\\" in text:
        for written, meant in _MEANS:
            text = text.replace(written, meant)
    return text.replace("\0", "\\")


def escaped(text: str) -> str:
    """A text as COPY writes it."""
    return text.translate(_WRITTEN)


def as_lines(rows: Sequence[Sequence[str | None]]) -> list[bytes]:
    """Rows of texts as lines of COPY. `unescaped` takes their values back."""
    if _ESCAPES.search("".join([text for row in rows for text in row if text is not None])) is None:
        written = [[NULL if text is None else text for text in row] for row in rows]  # as nearly always
    else:
        written = [[NULL if text is None else escaped(text) for text in row] for row in rows]
    return [("\t".join(row) + "\n").encode() for row in written]
