"""Each file of tests is run at full by a part of `make soak`: what is in none is only ever run at a twentieth."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.soak import PARTS

ROOT = Path(__file__).parents[2]


def left_out(parts: Iterable[list[str]]) -> set[str]:
    run = {argument for arguments in parts for argument in arguments if argument.startswith("tests/")}
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/test_*.py")}
    return {path for path in files if path not in run and str(Path(path).parent) not in run}


def test_every_file_of_tests_is_in_a_part() -> None:
    assert left_out(PARTS.values()) == set()


def test_control_a_file_that_is_in_none_is_named() -> None:
    parts = [arguments for name, arguments in PARTS.items() if name != "tailing"]

    assert left_out(parts) == {"tests/chaos/test_tailing.py"}
