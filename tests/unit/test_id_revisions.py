"""The text of revisions: the step they name, and their place among the company's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.id_company import LAYOUT
from tripstore.backends.postgres.ids.revisions import Revision, id_revisions
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.layout import Layout, RowKeySource, TableName
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.demo.legacy import LAYOUT as EXAMPLE
from tripstore.demo.legacy.schema import MIGRATIONS, OWN

HOSTILE = Layout("trips", RowKeySource(TableName('Fahrten """ %s', "trips '\"\\n"), 'the "id"\\', "die 'ü' {0}"), {})


def module(revision: Revision) -> dict[str, Any]:
    """What alembic finds in the file."""
    found: dict[str, Any] = {}
    exec(compile(revision.text, revision.file, "exec"), found)
    return found


@pytest.mark.parametrize("of", [LAYOUT, HOSTILE], ids=["plain", "hostile"])
def test_a_revision_does_what_its_step_does_and_shows_it(of: Layout) -> None:
    for revision, step in zip(id_revisions(of, "0005"), id_steps(of), strict=True):
        found = module(revision)
        shown = found["__doc__"].split()

        assert found["STEP"].step == step
        assert found["__doc__"].splitlines()[0] == f"{step.title}."
        for statement in step.statements():
            words = f"{statement};".split()
            assert any(shown[start : start + len(words)] == words for start in range(len(shown))), statement


def test_revisions_follow_one_another() -> None:
    made = id_revisions(LAYOUT, "0997")

    assert [revision.id for revision in made[:4]] == ["0998", "0999", "1000", "1001"]
    assert [revision.after for revision in made[:4]] == ["0997", "0998", "0999", "1000"]
    assert [(module(each)["revision"], module(each)["down_revision"]) for each in made] == [
        (each.id, each.after) for each in made
    ]
    assert made[0].file == "0998_trips_add_column.py"
    assert made[10].file == "1008_billing_attempts_add_column.py"


def test_names_that_are_no_numbers_are_hashes_which_never_change() -> None:
    made = id_revisions(LAYOUT, "8f2b61d9c0aa")

    assert made == id_revisions(LAYOUT, "8f2b61d9c0aa")
    assert len({revision.id for revision in made}) == len(made) == 20
    assert {revision.id for revision in made}.isdisjoint(each.id for each in id_revisions(LAYOUT, "8f2b61d9c0ab"))
    assert {len(revision.id) for revision in made} == {12}


def test_the_revisions_of_the_example_are_those_of_its_layout() -> None:
    """Written by the command, never by hand."""
    written = {path.name: path.read_text(encoding="utf-8") for path in (MIGRATIONS / "versions").glob("0*.py")}

    made = {revision.file: revision.text for revision in id_revisions(load_layout(EXAMPLE), OWN)}

    assert {name: text for name, text in written.items() if name >= str(int(OWN) + 1).zfill(4)} == made
    assert len(made) == 20
