"""What no test notices: removes one line of a file at a time, runs the named tests, lists the lines that survive.

    python -m tests.mutants schemaless_core/engine/mysql/wire/sessions.py --tests tests/integration/test_connections.py

Removed are statements whose effect is elsewhere (calls, raises, whole ifs), the single conditions of its SQL, and
the statements of functions that it writes for Postgres. Each mutant is tried in a copy of the tracked files, so the
checkout stays as it is; at first the tests must pass there. Read the survivors: some are faster ways to the same
answer, the others lack a test. Exit code 1 when a line survives.
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
#: Where a condition of a statement in SQL ends, outside of brackets.
_END = re.compile(r" (?:AND|OR|ORDER|LIMIT|GROUP|FOR|ON|THEN|RETURNING)\b|[);\"]|\n|$")
_BETWEEN = re.compile(r"BETWEEN \S+ AND ")
#: A statement of plpgsql in one line, or a part of a function that another one writes.
_LINE = re.compile(r"\s*(?:(?:PERFORM|RETURN|RAISE|EXECUTE|INSERT|DELETE|UPDATE)\b.*;|[\w.{}]+ :=.*;|\{[^{}]*\})\s*")
#: Where one of several lines begins.
_BEGIN = re.compile(r"\s*(?:(?:PERFORM|EXECUTE|INSERT|DELETE|UPDATE)\b[^;]*|IF\b.*)")
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
        for first, last in _conditions(line):
            condition = line[first:last]
            values = "".join(
                f" AND {each} IS NOT NULL" for each in re.findall(r"%s|\?", condition)
            )  # as many as before
            yield _without(lines, number, number + 1, f"{line[:first]}{values}{line[last:]}", condition + "\n")
    for first, last in _statements(text):
        yield _without(lines, first, last, "")


def _conditions(line: str) -> Iterator[tuple[int, int]]:
    """Yield where each ` AND …` begins and ends that stands in this line as a whole."""
    for found in re.finditer(r" AND ", line):
        first = found.start()
        if re.search(r"BETWEEN \S+$", line[:first]):
            continue
        end, depth = found.end(), 0
        while end < len(line) and not (depth == 0 and _END.match(line, end)):
            between = _BETWEEN.match(line, end)
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end = between.end() if between else end + 1
        if depth == 0:
            yield first, end


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each statement of plpgsql, inside the texts of a file."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr) and (node.end_lineno or 0) > node.lineno:
            for number in range(node.lineno, node.end_lineno or 0):
                last = _last_line(lines, number)
                if last is not None:
                    yield number, last


def _last_line(lines: Sequence[str], first: int) -> int | None:
    """The line behind a statement that begins here; None if none does."""
    line = lines[first]
    if _LINE.fullmatch(line):
        return first + 1
    if not _BEGIN.fullmatch(line):
        return None
    indent = line[: len(line) - len(line.lstrip())]
    for number in range(first, len(lines)):
        if lines[number] == f"{indent}END IF;" or (not line.lstrip().startswith("IF") and lines[number].endswith(";")):
            return number + 1
        if '"""' in lines[number]:
            return None
    return None


def survivors(path: str, tests: Sequence[str], only: range | None = None) -> Iterator[Mutant]:
    """Yield the mutants of a file that the tests pass with. Time-outs and errors count as noticed."""
    text = (ROOT / path).read_text()
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in tracked.decode().split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)  # the engines stand behind links
        if not passes(copy, tests):
            raise SystemExit("The tests fail without any change: every line would seem to be noticed.")
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
