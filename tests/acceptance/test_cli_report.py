"""`tripstore report`: a page, a document and a short table, whatever state the migration is in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.migrations import Migration, copied, migration_template
from tests.pages import read_page
from tests.schemas import faults
from tripstore.local.servers import LocalServers

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "report-1.schema.json"


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def test_the_page_the_document_and_the_table_say_the_same(migration: Migration) -> None:
    migration.run("phase", "set", "dualwrite")
    migration.run("mirror", "drain")
    migration.run("phase", "set", "shadow")
    migration.compare_reads()

    table = migration.run("report", code=4).stdout
    both = migration.run("report", "-o", "report.html", "--json", code=4)

    document, page = both.document, read_page((migration.shell.folder / "report.html").read_text())
    assert faults(document, json.loads(SCHEMA.read_text())) == []
    (read,) = [each for each in document["operations"] if each["name"] == "get_cell_latest"]
    assert (read["calls"], read["compared"]) == (3, 3)
    refused = [gate["name"] for gate in document["gates"] if not gate["is_passed"]]
    assert "backfill" in refused
    for said in (table, page.text):
        assert "Ready to switch to Schemaless?" in said
        assert f"{len(refused)} of {len(document['gates'])} gates refuse." in said
        assert all(name in said.lower() for name in refused)
    assert page.one("h1").text == document["verdict"]["question"]


def test_a_page_takes_the_place_of_the_one_before_as_a_whole(migration: Migration) -> None:
    file = migration.shell.folder / "report.html"
    file.write_text("yesterday's")

    ran = migration.run("report", "-o", "report.html", code=4)

    assert read_page(file.read_text()).one("h1").text == "Ready to switch to Schemaless?"
    assert "report.html has all of it." in ran.stdout
    assert [each.name for each in migration.shell.folder.glob(".report*")] == []


def test_a_place_that_cannot_be_written_is_named(migration: Migration) -> None:
    ran = migration.run("report", "-o", "nowhere/report.html", code=1)

    assert "nowhere/report.html cannot be written" in ran.complaint
    assert "Name another file." in ran.complaint


def test_without_a_legacy_store_there_is_nothing_to_report(migration: Migration) -> None:
    config = {name: value for name, value in migration.config.items() if name in ("datastore", "shards", "clusters")}
    (migration.shell.folder / "tripstore.yaml").write_text(json.dumps(config))

    assert "there is no legacy store" in migration.run("report", code=2).complaint
