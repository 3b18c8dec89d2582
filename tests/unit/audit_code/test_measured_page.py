"""The page's table is of the code bases that were read: it names each, its commit, and how much there was to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.public.audited import CODE
from tests.public.audited.code import AuditedCode, spans

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "audit-code.md").read_text()


@pytest.mark.parametrize("code", CODE, ids=lambda code: f"{code.name} {code.table} {code.part}")
def test_the_page_has_a_row_of_each_that_was_read(code: AuditedCode) -> None:
    begins = f"| {code.repository} {code.commit[:8]} | {code.kind} | `{code.table}` | "

    rows = [line.removeprefix(begins).split(" | ") for line in PAGE.splitlines() if line.startswith(begins)]

    assert [
        row for row in rows if _whole(row[0]) == len(spans(code.uses)) and _whole(row[1]) == len(spans(code.rows))
    ], f"make audit-measure prints the row of {code.name}"


def _whole(share: str) -> int:
    return 0 if share == "none" else int(share.split(" ")[0].split("/")[1])
