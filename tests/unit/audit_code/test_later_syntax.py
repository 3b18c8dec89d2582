"""Files in the syntax of later Pythons, notebooks, and files that cannot be read are never taken for clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.audit_code.services import TABLES, audit
from tripstore.audit import LegacyTables, audit_code
from tripstore.audit.reading import files

USE = "run('DELETE FROM trips')"


@pytest.mark.parametrize(
    "code",
    [
        "def first[T: int](each: T) -> T: ...",
        "class Box[T](list[T]): ...",
        "type Trips[T] = list[T]",
        'x = f"{row["id"]}"',
        "x = f\"{'\\n'.join(rows)}\"",
        "try:\n    pass\nexcept OSError, ValueError:\n    pass",
        "x = t'SELECT {id}'",
        "lazy import models",
        "x = [*each for each in rows]",
    ],
)
def test_later_syntax_is_looked_through_at_the_same_places(tmp_path: Path, code: str) -> None:
    result = audit(tmp_path, {"a.py": f"{code}\nx = {USE}\n"})

    assert not result.unread
    assert [(use.line, use.column) for use in result.uses] == [(code.count("\n") + 2, 22)]


def test_control_what_no_python_takes_is_not_looked_at(tmp_path: Path) -> None:
    result = audit(
        tmp_path, {"a.py": f"def f[T:\n{USE}\n", "b.py": f"x = f'{{'\n{USE}\n", "c.py": f"print 'x'\n{USE}\n"}
    )

    assert [remark.file for remark in result.unread] == ["a.py", "b.py", "c.py"]


def test_the_bound_of_a_type_parameter_is_a_use(tmp_path: Path) -> None:
    code = "class Trip(Base):\n    __tablename__ = 'trips'\n\n\ndef first[T: Trip](each: T) -> T: ...\n"

    assert [use.line for use in audit(tmp_path, {"a.py": code}).uses] == [5]


def test_a_text_in_an_f_string_of_later_pythons_keeps_its_sql(tmp_path: Path) -> None:
    assert len(audit(tmp_path, {"a.py": 'run(f"DELETE FROM trips WHERE id = {row["id"]}")\n'}).uses) == 1


def test_the_code_of_a_notebook_is_looked_through(tmp_path: Path) -> None:
    cells = [["!ls\n", "%matplotlib inline\n", USE], ["%%sql\n", "SELECT id FROM trips"], ["%%bash\n", "rm x"], [USE]]
    notebook = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))

    result = audit(tmp_path, {})

    assert not result.unread
    assert [(use.line, use.kind.value) for use in result.uses] == [
        (3, "sql.delete"),
        (5, "sql.select"),
        (8, "sql.delete"),
    ]


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BYTES_MAX", 100)
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "large.py").write_text("x = 1\n" * 100)
    (tmp_path / "other.ipynb").write_text('{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}')
    (tmp_path / "broken.ipynb").write_text("{")
    (tmp_path / "tool").write_text(f"#!/usr/bin/env python3\n{USE}\n")

    result = audit_code(tmp_path, LegacyTables.parse(TABLES))

    assert {remark.file for remark in result.unread} == {"loop.py", "large.py", "other.ipynb", "broken.ipynb"}
    assert [use.file for use in result.uses] == ["tool"]
    assert not result.is_complete
