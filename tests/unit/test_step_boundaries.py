"""A kill at every boundary of a step of `schema apply` is tried by a test: the source says which ones there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REACHED = re.compile(r'reach\("((?:ids|capture)\.\w+)"\)')


def boundaries() -> set[str]:
    return {
        name
        for file in (ROOT / "tripstore").rglob("*.py")
        for name in REACHED.findall(file.read_text(encoding="utf-8"))
    }


def untried(names: set[str]) -> set[str]:
    """Those that no test of the integration names."""
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests/integration").glob("*.py")]
    return {name for name in names if not any(f'"{name}"' in text for text in texts)}


def test_a_kill_at_every_boundary_of_a_step_is_tried() -> None:
    assert len(boundaries()) > 20
    assert untried(boundaries()) == set()


def test_control_a_boundary_that_no_test_names_is_found() -> None:
    assert untried(boundaries() | {"capture.half_" + "made"}) == {"capture.half_made"}
