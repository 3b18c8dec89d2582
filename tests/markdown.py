"""Markdown as its renderers see it."""

from __future__ import annotations

import re


def anchors(prose: str) -> set[str]:
    """The anchors of a page's headings; its blocks of code are left out before."""
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
