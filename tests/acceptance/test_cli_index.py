"""`tripstore index`: create, look, verify, repair, promote, drop, ask."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore, Json
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EntryWrite
from schemaless_core.indexes.verify import Verification, VerificationReport
from tests.acceptance.conftest import SHARDS, Shell
from tests.acceptance.workers import quicken
from tests.chaos.actors import wait_until
from tests.indexing import catch_up, nothing_after_commit

NAME = "trips_of_driver"
# Fixed: parameters hold them, and names of tests are the same in every process.
DRIVER, OTHER = UUID(int=1), UUID(int=2)
FILE = "indexes/trips.yaml"

DEFINITION = f"""
table: {NAME}
column_defs:
  - column_key: BASE
    fields:
      - {{field: driver_uuid, type: UUID}}
      - {{field: city, type: string}}
      - {{field: fare, type: decimal}}
      - {{field: seats, type: int}}
      - {{field: is_shared, type: boolean}}
      - {{field: rating, type: float}}
      - {{field: created_at, type: datetime}}
"""


@pytest.fixture(scope="module")
def indexed_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A datastore with an index and no cell; made once."""
    folder = tmp_path_factory.mktemp("indexed") / "store"
    shutil.copytree(template, folder)
    made = Shell(folder)
    quicken(made)
    (folder / "indexes").mkdir()
    (folder / FILE).write_text(DEFINITION)
    config = folder / "tripstore.yaml"
    config.write_text(config.read_text() + "\nindexes: indexes\n")
    assert made.call("schema", "apply").code == 0
    return folder


@pytest.fixture
def shop(indexed_template: Path, tmp_path: Path) -> Shell:
    folder = tmp_path / "store"
    shutil.copytree(indexed_template, folder)
    return Shell(folder)


@pytest.fixture
def datastore(shop: Shell) -> Iterator[Datastore]:
    with Datastore.open(shop.folder / "tripstore.yaml") as opened, nothing_after_commit():
        yield opened


def put_trips(datastore: Datastore, count: int, driver: UUID = DRIVER) -> list[UUID]:
    """Trips 0, 1, 2 … of a driver, in the order of their row keys."""
    keys = sorted(uuid4() for _ in range(count))
    datastore.put_cells([Cell(key, "BASE", 1, body(number, driver)) for number, key in enumerate(keys)])
    return keys


def body(number: int, driver: UUID) -> Json:
    return {
        "driver_uuid": str(driver),
        "city": ("Oslo", "Rio, RJ")[number % 2],
        "fare": f"{number}.50",
        "seats": number,
        "is_shared": number == 1,
        "rating": number / 2,
        "created_at": f"2026-03-0{number + 1}T12:00:00Z",
    }


@pytest.fixture
def trips(datastore: Datastore) -> list[UUID]:
    keys = put_trips(datastore, 5)
    catch_up(datastore)
    return keys


def redefine(shop: Shell) -> None:
    """Another process's configuration has one field more."""
    file = shop.folder / FILE
    file.write_text(file.read_text() + "      - {field: note, type: string}\n")


def rows(shop: Shell, *arguments: str) -> list[UUID]:
    ran = shop.call("index", "query", NAME, str(DRIVER), *arguments, "--json")
    assert ran.code == 0, ran.stderr
    return [UUID(entry["row_key"]) for entry in ran.document["entries"]]


def status(shop: Shell) -> tuple[int, dict[str, Any]]:
    ran = shop.call("index", "status", "--json")
    [index] = ran.document["indexes"]
    return ran.code, index


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("city=Oslo", [0, 2, 4]),
        ("city != Oslo", [1, 3]),
        ('city in ["Rio, RJ"]', [1, 3]),
        ("seats in 1, 2", [1, 2]),
        ("seats IN", []),
        ("seats between 1 and 3", [1, 2, 3]),
        ("seats between [1, 3]", [1, 2, 3]),
        ("seats >= -1", [0, 1, 2, 3, 4]),
        ("is_shared = true", [1]),
        ("is_shared in [false]", [0, 2, 3, 4]),
        ("rating<1", [0, 1]),
        ("fare > 2.5", [3, 4]),
        ("created_at<=2026-03-02T13:00:00+01:00", [0, 1]),
        ("created_at between 2026-03-02T00:00:00Z AND 2026-03-04T00:00:00Z", [1, 2]),
    ],
)
def test_a_query_understands_conditions_as_they_are_typed(
    shop: Shell, trips: list[UUID], condition: str, numbers: list[int]
) -> None:
    assert rows(shop, "--where", condition) == [trips[number] for number in numbers]


def test_a_query_is_ordered_limited_and_goes_on_at_its_cursor(shop: Shell, trips: list[UUID]) -> None:
    question = ("index", "query", NAME, str(DRIVER), "--where", "seats > 0", "--order-by", "fare", "--desc")

    first = shop.call(*question, "--limit", "3", "--json").document
    screen = shop.call(*question, "--limit", "3")
    rest = shop.call(*question, "--limit", "3", "--cursor", first["cursor"], "--json").document

    found = [UUID(entry["row_key"]) for entry in first["entries"] + rest["entries"]]
    assert found == trips[:0:-1]
    assert rest["cursor"] is None
    assert f"--cursor {first['cursor']}" in screen.stderr
    assert first["entries"][0]["fields"] == {
        "driver_uuid": str(DRIVER),
        "city": "Oslo",
        "fare": "4.5",
        "seats": 4,
        "is_shared": False,
        "rating": 2.0,
        "created_at": "2026-03-05T12:00:00Z",
    }
    assert first["entries"][0]["cells"] is None


def test_a_query_shows_cells_of_columns_and_missing_fields(
    shop: Shell, datastore: Datastore, trips: list[UUID]
) -> None:
    datastore.put_cell(trips[0], "STATUS", 1, {"paid": 1.0})
    datastore.put_cell(trips[0], "BASE", 2, {"driver_uuid": str(OTHER)})
    catch_up(datastore)
    question = ("index", "query", NAME, str(OTHER))

    everything = shop.call(*question, "--columns", "*", "--json").document["entries"][0]["cells"]
    named = shop.call(*question, "--columns", "BASE, STATUS").stdout

    assert {name: cell["ref_key"] for name, cell in everything.items()} == {"BASE": 2, "STATUS": 1}
    assert '{"paid":1.0}' in named
    assert named.count("missing") == 6
    unknown = shop.call("index", "query", NAME, str(uuid4()))
    assert (unknown.code, unknown.stdout) == (0, "")
    assert "No row is found." in unknown.stderr


def test_a_verified_query_knows_what_no_entry_says_yet(shop: Shell, datastore: Datastore, trips: list[UUID]) -> None:
    datastore.put_cell(trips[0], "BASE", 2, {"driver_uuid": str(OTHER)})

    assert rows(shop) == trips
    assert rows(shop, "--verified") == trips[1:]
    assert rows(shop, "--verified", "--read", "replica", "--deadline", "5") == trips[1:]


def test_a_second_version_is_created_verified_promoted_taken_back_and_dropped(
    shop: Shell, datastore: Datastore, trips: list[UUID]
) -> None:
    redefine(shop)
    plan = shop.call("index", "create", NAME, "--dry-run")
    assert "Version 2 of index trips_of_driver would be created." in plan.stdout
    assert "shard field" in plan.stdout
    assert shop.call("index", "create", NAME, "--dry-run", "--json").document["is_done"] is False

    created = shop.call("index", "create", NAME, "--json").document
    assert (created["version"], created["is_done"], created["state"]) == (2, True, "building")
    assert created["definition"]["column_defs"][0]["fields"][-1] == {"field": "note", "type": "string"}
    promote = ("index", "promote", NAME, "--version", "2")
    unverified = shop.call(*promote)
    assert unverified.code == 4
    assert "was never verified" in unverified.complaint
    too_early = shop.call("index", "verify", NAME, "--wait", "0")
    assert too_early.code == 3
    assert "5 were not compared" in too_early.stdout
    assert "5 entries were not compared" in shop.call(*promote).complaint

    datastore.indexes.catalogue.refresh()
    catch_up(datastore)
    verdict = shop.call("index", "verify", NAME, "--json").document
    assert (verdict["version"], verdict["entries"], verdict["rows"], verdict["is_clean"]) == (2, 5, 5, True)
    assert "would answer its queries instead of version 1" in shop.call(*promote, "--dry-run").stdout
    assert rows(shop, "--where", "seats=0") == trips[:1]
    assert shop.call(*promote, "--json").document == {
        "index": NAME,
        "version": 2,
        "before": 1,
        "is_forced": False,
        "is_done": True,
    }
    assert rows(shop, "--where", "note!=x") == []

    assert "The way back: --version 2." in shop.call("index", "promote", NAME, "--version", "1").stdout
    assert "has no field 'note'" in shop.call("index", "query", NAME, str(DRIVER), "--where", "note=x").complaint
    assert shop.call("index", "drop", NAME, "--version", "1", "--yes").code == 2
    assert "already" not in shop.call("index", "promote", NAME).stdout
    assert "answers its queries already" in shop.call("index", "promote", NAME).stdout

    drop = ("index", "drop", NAME, "--version", "1")
    assert "would be dropped" in shop.call(*drop, "--dry-run").stdout
    refused = shop.run(*drop)
    assert (refused.code, "--yes" in refused.complaint) == (4, True)
    assert shop.call(*drop, "--yes", "--json").document["is_done"] is True
    assert [version["version"] for version in status(shop)[1]["versions"]] == [2]
    assert rows(shop) == trips


def test_a_version_that_lags_is_promoted_by_force_only_and_that_is_said(
    shop: Shell, datastore: Datastore, trips: list[UUID]
) -> None:
    redefine(shop)
    shop.call("index", "create", NAME)

    forced = shop.call("index", "promote", NAME, "--force")

    assert forced.code == 0
    assert "FORCED" in forced.stderr
    assert rows(shop) == []
    behind = shop.call("index", "promote", NAME, "--version", "2", "--wait", "0")
    assert behind.code == 1
    assert "5 cells behind" in behind.complaint


def test_another_version_of_the_same_definition_is_asked_about(shop: Shell) -> None:
    refused = shop.run("index", "create", NAME)
    assert refused.code == 4
    assert "Version 1 of trips_of_driver has the same definition" in refused.complaint

    assert "`tripstore worker run` fills it" in shop.call("index", "create", NAME, "--yes").stdout


def test_differences_are_found_shown_repaired_and_gone(shop: Shell, datastore: Datastore, trips: list[UUID]) -> None:
    [version] = datastore.indexes.catalogue.kept()
    stale = (OTHER, *[None] * 6)
    datastore.indexes.writer.put(version, [EntryWrite(OTHER, key.bytes, stale, (1,)) for key in trips], Deadline(5))

    found = shop.call("index", "verify", NAME, "--json", "--sample", "2")
    assert found.code == 1
    assert (found.document["stale"], found.document["differences"], found.document["is_clean"]) == (5, 5, False)
    assert {(each["kind"], each["shard_value"]) for each in found.document["samples"]} == {("stale", str(OTHER))}
    assert len(found.document["samples"]) == 2
    assert "5 differ: 0 missing, 5 stale, 0 different; 0 repaired." in shop.call("index", "verify", NAME).stdout
    assert "version 1 had 5 differences" in shop.call("index", "status").stdout

    assert shop.call("index", "repair", NAME, "--dry-run").code == 1
    assert shop.run("index", "repair", NAME).code == 4
    assert shop.call("index", "query", NAME, str(OTHER), "--json").document["entries"]
    repaired = shop.call("index", "repair", NAME, "--yes")
    assert repaired.code == 0
    assert "5 repaired." in repaired.stdout
    assert "Verify it again" in repaired.stdout

    clean = shop.call("index", "verify", NAME)
    assert clean.code == 0
    assert "Version 1 of index trips_of_driver: 5 entries and 5 rows compared" in clean.stdout
    assert "Everything compared is right." in clean.stdout
    assert shop.call("index", "query", NAME, str(OTHER), "--json").document["entries"] == []


def test_a_long_comparison_says_that_it_is_at_work(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tripstore.cli.progress.WAITING_SECONDS", 0.001)
    run = Verification.run

    def slow(verification: Verification, **options: Any) -> VerificationReport:
        said = sys.stderr
        assert isinstance(said, io.StringIO)
        wait_until("said", lambda: bool(said.getvalue()))
        return run(verification, **options)

    monkeypatch.setattr(Verification, "run", slow)

    ran = shop.call("index", "verify", NAME, "--json")

    assert "comparing version 1 of index trips_of_driver with its cells, 0 s" in ran.stderr
    assert ran.document["is_clean"] is True


def test_values_that_do_not_parse_are_listed_without_the_values(
    shop: Shell, datastore: Datastore, trips: list[UUID]
) -> None:
    assert "No field of version 1" in shop.call("index", "errors", NAME).stdout
    for key in trips[:2]:
        datastore.put_cell(key, "BASE", 2, {"driver_uuid": str(DRIVER), "seats": "a lot"})
    catch_up(datastore)

    listed = shop.call("index", "errors", NAME, "--json").document
    assert (listed["version"], listed["is_complete"]) == (1, True)
    assert {error["row_key"] for error in listed["errors"]} == {str(key) for key in trips[:2]}
    assert {(error["column_name"], error["ref_key"], error["field"]) for error in listed["errors"]} == {
        ("BASE", 2, "seats")
    }
    screen = shop.call("index", "errors", NAME, "--limit", "1")
    assert "it is a str" in screen.stdout
    assert "a lot" not in screen.stdout
    assert "the first 1; --limit" in screen.stderr
    assert "2 fields of version 1 do not parse; `tripstore index errors" in shop.call("index", "status").stdout


def test_status_says_which_groups_have_no_worker_and_which_lag(shop: Shell, datastore: Datastore) -> None:
    put_trips(datastore, 5)

    code, index = status(shop)
    [version] = index["versions"]
    screen = shop.call("index", "status", NAME)

    assert (code, index["is_fine"], index["alias"]) == (1, False, 1)
    assert (version["state"], version["is_current"], version["is_configured"]) == ("ready", True, True)
    assert (version["lag_cells"], version["unserved"], version["errors"]) == (5, SHARDS, 0)
    assert version["lag_seconds"] > 0
    assert screen.code == 1
    assert f"no worker serves version 1 in {SHARDS} of {SHARDS} shards; `tripstore worker run`" in screen.stdout
    assert "answers queries" in screen.stdout


def test_status_says_which_index_is_not_created_or_answers_no_query_yet(shop: Shell, datastore: Datastore) -> None:
    put_trips(datastore, 1)
    (shop.folder / "indexes" / "other.yaml").write_text(DEFINITION.replace(NAME, "other_index"))

    absent = shop.call("index", "status", "other_index")
    assert absent.code == 1
    assert "configured, not created; `tripstore schema apply`" in absent.stdout
    assert "not created yet" in shop.call("index", "verify", "other_index").complaint

    assert shop.call("schema", "apply").code == 0
    assert "answers no queries yet; once a version is filled" in shop.call("index", "status", "other_index").stdout
    asked = shop.call("index", "query", "other_index", str(DRIVER))
    assert asked.code == 1
    assert "is being built" in asked.complaint


def test_a_datastore_without_an_index_says_how_to_get_one(store: Shell) -> None:
    ran = store.call("index", "status")

    assert ran.code == 0
    assert "define one under indexes:" in ran.stdout
    assert store.call("index", "status", "--json").document == {"is_fine": True, "indexes": []}
    assert "indexes: of the configuration" in store.call("index", "create", NAME).complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("status trips_of_drivers", "There is no index 'trips_of_drivers'.*Did you mean trips_of_driver?"),
        ("create trips_of_drivers", "No index 'trips_of_drivers' is configured.*Did you mean trips_of_driver?"),
        ("verify nonsense", "There is no index 'nonsense'.*trips_of_driver"),
        ("repair nonsense --yes", "There is no index 'nonsense'"),
        ("errors nonsense", "There is no index 'nonsense'"),
        ("promote nonsense", "There is no index 'nonsense'"),
        ("drop nonsense --version 1 --yes", "There is no index 'nonsense'"),
        ("query nonsense x", "There is no index 'nonsense'"),
        (f"verify {NAME} --version 7", "has no version 7.*Versions: 1"),
        (f"errors {NAME} --version 7", "has no version 7"),
        (f"promote {NAME} --version 7", "has no version 7"),
        (f"drop {NAME} --version 7 --yes", "has no version 7"),
        (f"drop {NAME}", "Missing option '--version'"),
        (f"drop {NAME} --version 1 --yes", "answers the queries.*Promote another"),
        (f"verify {NAME} --sample 11", "--sample"),
        (f"query {NAME}", "Missing argument 'SHARD_VALUE'"),
        (f"query {NAME} no-uuid", "is no UUID"),
        (f"query {NAME} {DRIVER} --where seats", "is no condition.*FIELD OPERATOR VALUE"),
        (f"query {NAME} {DRIVER} --where seats~2", "is no condition"),
        (f"query {NAME} {DRIVER} --where seat=2", "no field 'seat'.*Did you mean seats?"),
        (f"query {NAME} {DRIVER} --where seats=two", "seats is of type int, 'two' is not"),
        (f"query {NAME} {DRIVER} --where rating=good", "rating is of type float"),
        (f"query {NAME} {DRIVER} --where is_shared=1", "true or false"),
        (f"query {NAME} {DRIVER} --where seats==2", "'==' is no operator.*'='"),
        (f"query {NAME} {DRIVER} --where seats.in.[1", "is no condition"),
        (f"query {NAME} {DRIVER} --where created_at=2026-03-01T12:00:00", "no offset from UTC"),
        (f"query {NAME} {DRIVER} --order-by cty", "Did you mean city?"),
        (f"query {NAME} {DRIVER} --cursor nonsense", "is no cursor"),
        (f"query {NAME} {DRIVER} --limit 0", "limit"),
        (f"query {NAME} {DRIVER} --columns ,", "column"),
        (f"query {NAME} {DRIVER} --read nearest", "nearest"),
    ],
)
def test_wrong_input_is_named_with_a_way_out(shop: Shell, arguments: str, complaint: str) -> None:
    ran = shop.call("index", *arguments.split(), "--json")

    assert ran.code == 2
    assert re.search(complaint, ran.complaint.replace("\n", " "))
    assert ran.document["error"]["message"]


@pytest.mark.parametrize("condition", ["seats between 1", "seats in [1"])
def test_half_a_condition_is_named(shop: Shell, condition: str) -> None:
    ran = shop.call("index", "query", NAME, str(DRIVER), "--where", condition)

    assert ran.code == 2
    assert "FIELD OPERATOR VALUE" in ran.complaint
