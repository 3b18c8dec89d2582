"""The pages of this project, for the tests that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.markdown import Block, blocks_of, without_blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")), *DOCS.rglob("*.md")])
#: Where a page names a test.
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text())


def block(page: Path, language: str) -> str:
    """The first block in a language."""
    return next(text for kind, text in blocks(page) if kind == language)


def prose(page: Path) -> str:
    return without_blocks(page.read_text())


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def rows(page: Path) -> Iterator[list[str]]:
    """The rows of all tables of a page."""
    for line in prose(page).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip()[1:-1].split("|")]


def announced(line: str) -> int:
    """The exit code that a line's comment says."""
    said = re.search(r"# exit code (\d)", line)
    return int(said[1]) if said else 0
