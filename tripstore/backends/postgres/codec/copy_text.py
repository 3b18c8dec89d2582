"""Texts as COPY writes them: tabs between values, a backslash before what would be taken for something else."""

from __future__ import annotations

#: How COPY writes NULL.
NULL = "\\N"

#: What COPY puts behind a backslash, but for the backslash itself. It writes no octal and no hexadecimal digits.
_MEANS = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\b", "\b"), ("\\f", "\f"), ("\\v", "\v"))


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
    text = text.replace("\\", "\\\\")
    for written, meant in _MEANS:
        text = text.replace(meant, written)
    return text
