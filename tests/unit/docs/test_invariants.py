"""The page of the invariants claims what tests prove, and no test claims more."""

from __future__ import annotations

import re

from tests.documents import NAMED_TEST, REFERENCE, ROOT


def test_every_invariant_is_in_its_page_with_a_proof_or_not_yet() -> None:
    page = (REFERENCE / "invariants.md").read_text()
    sections = {section.split(":")[0]: section for section in page.split("\n## ")[1:]}

    for number in range(1, 13):
        row = next(line for line in page.splitlines() if re.match(rf"\| \[?I{number}\b", line))
        assert "not yet" in row or NAMED_TEST.search(sections[f"I{number}"]), row
    assert set(sections) <= {f"I{number}" for number in range(1, 13)}


_NAMED = re.compile(r"^def test_(?:control_)?((?:i\d+_)+)", re.MULTILINE)


def invariants_named_by(source: str) -> set[str]:
    """The invariants that the names of tests begin with."""
    return {number.upper() for numbers in _NAMED.findall(source) for number in numbers.split("_") if number}


def test_every_invariant_that_a_test_is_named_after_holds_by_its_page() -> None:
    """So `pytest -k i12_`, which the page gives, runs all that is proved, and no test claims what the page does not."""
    page = (REFERENCE / "invariants.md").read_text()
    held = {
        number
        for number, said in re.findall(r"^\| \[(I\d+)\]\(\S+\) \| (.+) \|$", page, re.MULTILINE)
        if said[:3] == "yes"
    }
    sources = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]

    assert set().union(*map(invariants_named_by, sources)) <= held
    assert invariants_named_by("def test_i8_i13_a_new_one() -> None: ...") == {"I8", "I13"}  # which would be seen
