"""What a cell, a column or a server says, as a terminal may show it: nothing in it moves the cursor or turns text."""

from __future__ import annotations

import re
import sys

#: Control characters but tab and line feed, of both sets; marks of direction and line; halves of surrogates.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    """The same with these as JSON writes them, so that a body is the same value still."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def on_terminal(text: str) -> str:
    """The same for a terminal; a pipe gets the text as it is."""
    return visible(text) if sys.stdout.isatty() else text
