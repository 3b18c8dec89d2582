"""How recall and precision are measured. The code bases themselves are fetched by a person, never by a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.public.audited import CODE
from tests.public.audited.__main__ import table
from tests.public.audited.code import AuditedCode, spans
from tests.public.audited.measuring import AnotherCommit, measure
from tests.unit.audit_code.services import write

FILES = {
    "use.py": "run('DELETE FROM trips')\nrun(\n    'SELECT id FROM trips',\n)\nload(name)\nnote('FROM trips')\n",
    "other.py": "run('DELETE FROM trips')\n",
}
#: A statement that is found, one of three lines, one that is missed; what is found in other.py was not looked through.
READ = AuditedCode(
    name="company",
    repository="example/company",
    commit="0123456789abcdef",
    kind="SQL",
    table="trips",
    uses={"use.py": "1 2-4"},
    rows={"use.py": "5"},
    either={},
    files=("use.py",),
)


def test_recall_is_of_statements_and_precision_of_findings(tmp_path: Path) -> None:
    measured = measure(write(tmp_path, FILES), READ)

    assert (str(measured.uses), str(measured.rows), measured.precision) == ("2/2 100%", "0/1 0%", "2/3 67%")
    assert measured.rows.missed == (("use.py", 5, 5),)
    assert measured.false == (("use.py", 6),)
    assert table([measured])[-1] == "| example/company 01234567 | SQL | `trips` | 2/2 100% | 0/1 0% | 2/3 67% | 0 |"


def test_a_statement_that_readers_would_not_agree_on_is_neither_missed_nor_false(tmp_path: Path) -> None:
    measured = measure(write(tmp_path, FILES), replace(READ, rows={}, either={"use.py": "5 6"}))

    assert (str(measured.uses), str(measured.rows), measured.precision) == ("2/2 100%", "none", "2/2 100%")


def test_a_checkout_of_another_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnotherCommit, match=r"use\.py is not as at example/company"):
        measure(write(tmp_path, {"use.py": "x = 1\n"}), READ)


@pytest.mark.parametrize("code", CODE, ids=lambda code: f"{code.name} {code.table} {code.part}")
def test_no_line_is_said_to_be_two_things_and_each_was_read(code: AuditedCode) -> None:
    every = [*spans(code.uses), *spans(code.rows), *spans(code.either)]

    lines = [(file, line) for file, first, last in every for line in range(first, last + 1)]
    assert len(lines) == len(set(lines))
    assert all(code.is_read(file) and first <= last for file, first, last in every)
    assert len(code.commit) == 40
    assert len(every) >= 10
