"""Markdown as its renderers see it."""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a text."""

    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(text)]


def without_blocks(text: str) -> str:
    return _FENCE.sub("", text)


def anchors(prose: str) -> set[str]:
    """The anchors of a page's headings; its blocks of code are left out before."""
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
