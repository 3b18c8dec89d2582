"""`tripstore ids revisions`: files for the company's own alembic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tripstore.demo.legacy import LAYOUT
from tripstore.demo.legacy.schema import MIGRATIONS

NAMES = ("ids", "revisions", "--after", "0005", "-o", "versions")


@pytest.fixture
def office(shell: Shell) -> Shell:
    """A folder for revisions and a layout beside it."""
    (shell.folder / "versions").mkdir()
    (shell.folder / "layout.yaml").write_text(LAYOUT.read_text())
    return shell


def written(office: Shell) -> dict[str, str]:
    return {path.name: path.read_text() for path in (office.folder / "versions").iterdir()}


def test_the_files_of_the_example_are_what_the_command_writes(office: Shell) -> None:
    ran = office.run(*NAMES, "--layout", "layout.yaml")

    assert ran.code == 0, ran.stderr
    assert "alembic upgrade head" in ran.stderr
    made = written(office)
    assert made == {name: (MIGRATIONS / "versions" / name).read_text() for name in made}
    assert len(made) == 20


def test_what_is_there_stays_as_it_is(office: Shell) -> None:
    arguments = (*NAMES, "--layout", "layout.yaml")
    assert office.call(*arguments).code == 0
    (office.folder / "versions" / "0007_trips_fill_new_rows.py").unlink()

    again = office.call(*arguments)
    assert (again.code, again.stdout.count("was there"), again.stdout.count("written")) == (0, 19, 1)

    changed = office.folder / "versions" / "0008_trips_fill_old_rows.py"
    changed.write_text("# ours now\n")
    (office.folder / "versions" / "0006_trips_add_column.py").unlink()
    refused = office.call(*arguments)

    assert refused.code == 2
    assert "0008_trips_fill_old_rows.py is there, and differs" in refused.complaint
    assert changed.read_text() == "# ours now\n"
    assert not (office.folder / "versions" / "0006_trips_add_column.py").exists()


def test_a_dry_run_writes_nothing_and_the_document_says_what_it_would(office: Shell) -> None:
    ran = office.call(*NAMES, "--layout", "layout.yaml", "--dry-run", "--json")

    assert ran.code == 0
    assert written(office) == {}
    assert ran.document["is_dry_run"] is True
    assert ran.document["revisions"][0] == {
        "revision": "0006",
        "after": "0005",
        "title": "trips.trip_uuid: add the column",
        "file": "0006_trips_add_column.py",
        "is_new": True,
    }
    assert office.call(*NAMES, "--layout", "layout.yaml", "--dry-run").stdout.count("to be written") == 20


def test_without_a_named_layout_it_is_the_configurations(office: Shell, store: Shell) -> None:
    (store.folder / "versions").mkdir()
    missing = store.call(*NAMES)
    assert (missing.code, "--layout" in missing.complaint) == (2, True)

    config: Path = store.folder / "tripstore.yaml"
    (store.folder / "layout.yaml").write_text(LAYOUT.read_text())
    legacy = {"legacy": {"postgres": "postgresql://app@127.0.0.1:1/none", "layout": "layout.yaml"}}
    config.write_text(re.sub(r"(?m)^#.*\n", "", config.read_text()) + "\n" + yaml.safe_dump(legacy))

    assert store.call(*NAMES).code == 0
    assert len(written(store)) == 20
