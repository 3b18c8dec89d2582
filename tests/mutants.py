"""What no test notices: removes one line of a file at a time, runs the named tests, lists the lines that survive.

    python -m tests.mutants schemaless_core/engine/mysql/sessions.py --tests tests/integration/test_connections.py

Removed are statements whose effect is elsewhere (calls, raises, whole ifs) and the single conditions of
its SQL. Each mutant is tried in a copy of the tracked files, so the checkout stays as it is. Read the
survivors: some are faster ways to the same answer, the others lack a test. Exit code 1 when a line survives.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: One condition of a statement in SQL. Those that span brackets of brackets are left alone.
_CONDITION = re.compile(r" AND [\w.{}]+ (?:<=>|<=|>=|<>|=|<|>|IN) (?:\([^()]*\)|'\w+'|[\w.{}%]+)")
#: Failpoints are for tests.
_FAILPOINT = re.compile(r"\s*reach\(")
SECONDS_MAX = 300.0


class Mutant(NamedTuple):
    """A file without some of its lines."""

    first: int
    last: int
    removed: str
    text: str


def mutants_of(text: str) -> Iterator[Mutant]:
    """Yield the file without each statement that can go, then without each condition of its SQL."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise | ast.If) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            if not lines[first].lstrip().startswith("elif") and not _FAILPOINT.match(lines[first]):
                yield _without(lines, first, last, " " * node.col_offset + "pass\n")
    for number, line in enumerate(lines):
        for condition in _CONDITION.finditer(line):
            values = " AND %s IS NOT NULL" * condition[0].count("%s")  # as many as the statement is given
            changed = f"{line[: condition.start()]}{values}{line[condition.end() :]}"
            yield _without(lines, number, number + 1, changed, condition[0] + "\n")


def survivors(path: str, tests: Sequence[str], only: range | None = None) -> Iterator[Mutant]:
    """Yield the mutants of a file that the tests pass with. Time-outs and errors count as noticed."""
    text = (ROOT / path).read_text()
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in tracked.decode().split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        for mutant in mutants_of(text):
            if only is None or mutant.first in only:
                (copy / path).write_text(mutant.text)
                if passes(copy, tests):
                    yield mutant


def passes(copy: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {"PYTHONPATH": str(copy)}
    try:
        return _run(command, copy, environment) == 0
    except subprocess.TimeoutExpired:
        return False


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> int:
    given = os.environ | environment
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, timeout=SECONDS_MAX).returncode


def _without(lines: Sequence[str], first: int, last: int, instead: str, removed: str | None = None) -> Mutant:
    told = "".join(lines[first:last]) if removed is None else removed
    return Mutant(first + 1, last, told, "".join([*lines[:first], instead, *lines[last:]]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("path", help="The file whose lines are removed.")
    parser.add_argument("--tests", nargs=argparse.REMAINDER, required=True, help="Last: what pytest is given.")
    parser.add_argument("--lines", help="Only mutants that begin in FIRST-LAST.")
    parser.add_argument("--list", action="store_true", help="Only show what would be removed.")
    given = parser.parse_args()
    only = None
    if given.lines:
        first, last = map(int, given.lines.split("-"))
        only = range(first, last + 1)
    found = mutants_of((ROOT / given.path).read_text()) if given.list else survivors(given.path, given.tests, only)
    count = 0
    for mutant in found:
        count += 1
        print(f"{given.path}:{mutant.first}-{mutant.last}\n{mutant.removed}", flush=True)
    print(f"{count} lines {'could be removed' if given.list else 'survive'}")
    return 0 if given.list or not count else 1


if __name__ == "__main__":
    sys.exit(main())
