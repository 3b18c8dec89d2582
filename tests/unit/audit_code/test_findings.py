"""What a finding shows, and the comments that allow one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.audit_code.services import TABLES, audit
from tripstore.audit import LegacyTables, UseKind, audit_code


def test_a_finding_names_line_and_column_and_shows_the_line(tmp_path: Path) -> None:
    code = 'é = "ü"; x = run("""\n  SELECT id -- trips\n    FROM public.trips\n""", "trips")\n'
    code += 'y = "SELECT 1\\nFROM trips"\n'

    result = audit(tmp_path, {"a.py": code, "b.sql": "SELECT 1;\r\n\r\nDELETE\n  FROM trips;\n"})

    assert [(f.file, f.line, f.column, f.excerpt) for f in result.uses] == [
        ("a.py", 3, 17, "FROM public.trips"),
        ("a.py", 5, 21, 'y = "SELECT 1\\nFROM trips"'),
        ("b.sql", 4, 8, "FROM trips;"),
    ]


def test_the_order_is_that_of_files_and_lines_whatever_the_disk_says(tmp_path: Path) -> None:
    names = [f"{letter}/{number}.py" for letter in "cab" for number in (2, 1)]
    result = audit(tmp_path, dict.fromkeys(names, "x('SELECT 1 FROM trips'); x('DELETE FROM trips')\n" * 2))

    places = [(f.file, f.line, f.column) for f in result.found]
    assert places == sorted(places)
    assert len(places) == 24
    assert result == audit_code(tmp_path, LegacyTables.parse(TABLES))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "run('DELETE FROM trips')  # tripstore: allow the weekly clean-up goes last"),
        ("a.py", "# tripstore: allow the weekly clean-up goes last\n\n# and this\nrun('DELETE FROM trips')"),
        ("a.py", "run(\n    'DELETE FROM trips',  # tripstore: allow the weekly clean-up goes last\n    1,\n)"),
        ("a.py", "run('''\n    DELETE FROM trips -- tripstore: allow the weekly clean-up goes last\n''')"),
        ("a.sql", "DELETE FROM trips; -- tripstore: allow the weekly clean-up goes last"),
        ("a.sql", "-- tripstore: allow the weekly clean-up goes last\nDELETE FROM trips;"),
        ("a.sql", "SELECT 1;\n/* tripstore: allow the weekly clean-up goes last */ DELETE FROM trips"),
    ],
)
def test_a_comment_with_a_reason_allows_a_use_which_is_counted_apart(tmp_path: Path, name: str, text: str) -> None:
    result = audit(tmp_path, {name: text})

    assert result.uses == ()
    assert [(f.kind, f.allowed) for f in result.allowed] == [(UseKind.SQL_DELETE, "the weekly clean-up goes last")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "run('DELETE FROM trips')\nother()  # tripstore: allow another line"),
        ("a.py", "if run('DELETE FROM trips'):\n    other()  # tripstore: allow a line inside"),
        ("a.py", "run('DELETE FROM trips', '# tripstore: allow a text')"),
        ("a.sql", "DELETE FROM trips;\nSELECT 1; -- tripstore: allow another statement"),
        ("a.sql", "SELECT 1; -- tripstore: allow the one before\nDELETE FROM trips;"),
    ],
)
def test_a_comment_allows_nothing_elsewhere(tmp_path: Path, name: str, text: str) -> None:
    assert [f.kind for f in audit(tmp_path, {name: text}).uses] == [UseKind.SQL_DELETE]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.py", "run('DELETE FROM trips')  # tripstore: allow"), ("a.sql", "DELETE FROM trips -- tripstore: allow")],
)
def test_a_comment_without_a_reason_allows_nothing_and_is_said(tmp_path: Path, name: str, text: str) -> None:
    result = audit(tmp_path, {name: text})

    assert len(result.uses) == 1
    assert [(r.file, r.line) for r in result.unclear] == [(name, 1)]
