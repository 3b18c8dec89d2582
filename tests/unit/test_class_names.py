"""A public class name stands for one thing, in all of the product (decision 58)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.walks import PRODUCT, ROOT


def doubles(files: Iterable[Path]) -> set[str]:
    """Names of public classes that several of these files define."""
    found = defaultdict[str, set[Path]](set)
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(file)
    return {name for name, places in found.items() if len(places) > 1}


def test_no_class_name_is_given_twice() -> None:
    assert doubles(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")) == set()


def test_control_a_name_that_is_given_twice_is_found(tmp_path: Path) -> None:
    for name in ("one.py", "other.py"):
        (tmp_path / name).write_text("class Twice: ...\nclass _Private: ...\n")

    assert doubles(tmp_path.glob("*.py")) == {"Twice"}
