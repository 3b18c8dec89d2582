"""`tripstore export`: what the files hold, kills at every step, two at once, wrong input."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
import yaml

from schemaless_core import Cell, Datastore, Json
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE, FailpointReached
from tests.acceptance.conftest import SHARDS, Shell
from tests.chaos.actors import wait_until
from tests.documents import DOCS, block
from tests.exports import FILES, POINTS, answer, export_into, exported, logged, relation, rows_per_file
from tests.repairs import failing_at
from tripstore.export.commits import OWN_FOLDER, ExportCommit, ExportFolder, ExportPlace
from tripstore.export.errors import ExportOvertaken
from tripstore.export.exporter import CELLS_PER_PAGE

FIELDS = {
    "fare": "decimal",
    "riders": "int",
    "at": "datetime",
    "share": "float",
    "driver": "UUID",
    "is_pool": "boolean",
    "city": "string",
}
#: So little that each page is a commit.
SMALL = ("--commit-mb", "0.0001")


@contextmanager
def opened(store: Shell) -> Iterator[Datastore]:
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        yield datastore


def put(store: Shell, count: int, columns: tuple[str, ...] = ("BASE", "STATUS/é")) -> None:
    with opened(store) as datastore:
        datastore.put_cells([Cell(uuid4(), columns[n % len(columns)], n, {"n": n}) for n in range(count)])


def put_pages(store: Shell) -> None:
    """So many versions of one row that its log has three pages."""
    row = uuid4()
    with opened(store) as datastore:
        datastore.put_cells([Cell(row, "BASE", n, n) for n in range(2 * CELLS_PER_PAGE + 1)])


def with_index(store: Shell) -> None:
    file = store.folder / "tripstore.yaml"
    fields: list[Json] = [{"field": name, "type": kind} for name, kind in FIELDS.items()]
    index: Json = {"table": "trips_of_city", "column_defs": [{"column_key": "BASE", "fields": fields}]}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"indexes": [index]}))


def check(store: Shell, folder: str = "out") -> None:
    """Each cell of the logs is in exactly one file."""
    with opened(store) as datastore:
        assert exported(store.folder / folder) == logged(datastore)


def row_of(store: Shell, row_key: UUID) -> dict[str, Any]:
    found = relation(f"SELECT * FROM read_parquet('{store.folder}/out/{FILES}') WHERE row_key = '{row_key}'")
    (values,) = found.fetchall()
    return dict(zip(found.columns, values, strict=True))


def test_values_are_those_of_the_bodies_and_what_is_of_another_type_is_in_the_body_alone(store: Shell) -> None:
    with_index(store)
    driver, right, wrong, missing, gone, bare = (uuid4() for _n in range(6))
    fits: dict[str, Json] = {
        "fare": "23.500000001",
        "riders": 2**63 - 1,
        "at": "2014-08-01T14:00:00.000001+02:00",
        "share": 0.1,
        "driver": driver.hex,
        "is_pool": False,
        "city": "Zürich \U0001f600",
    }
    fits_not: dict[str, Json] = {
        "fare": "1e-10",
        "riders": 2**64 - 1,
        "at": "infinity",
        "share": "half",
        "driver": "none",
        "is_pool": 1,
        "city": 7,
    }
    with opened(store) as datastore:
        bodies: dict[UUID, Json] = {right: fits, wrong: fits_not, missing: {"city": None}, gone: None, bare: "text"}
        for row, body in bodies.items():
            datastore.put_cell(row, "BASE", 1, body)

    ran = store.call("export", "out", "--json")

    assert ran.code == 0
    assert ran.document["cells"] == 5
    assert ran.document["misfits"] == {f"BASE.{name}": 1 for name in fits_not} | {"BASE": 1}
    names = list(FIELDS)
    found = row_of(store, right)
    assert [found[name] for name in names] == [
        Decimal("23.500000001"),
        2**63 - 1,
        datetime(2014, 8, 1, 12, 0, 0, 1, UTC),
        0.1,
        driver,
        False,
        "Zürich \U0001f600",
    ]
    assert (found["column_name"], found["day"], found["is_tombstone"]) == ("BASE", datetime.now(UTC).date(), False)
    for row in (wrong, missing, gone, bare):
        assert [row_of(store, row)[name] for name in names] == [None] * len(names)
    assert [row_of(store, row)["body"] for row in (missing, gone, bare)] == ['{"city":null}', "null", '"text"']
    assert row_of(store, gone)["is_tombstone"]
    assert "18446744073709551615" in row_of(store, wrong)["body"]
    check(store)


def test_each_run_brings_what_came_since(store: Shell) -> None:
    put(store, 30)
    planned = store.call("export", "out", "--dry-run", "--json")
    assert planned.document == {"folder": "out", "cells_estimate": 30, "forked_shards": []}
    assert not (store.folder / "out").exists()

    first = store.call("export", "out", "--json")
    put(store, 5)
    ahead = store.call("export", "out", "--dry-run")
    second = store.run("export", "out", "--read", "replica")
    third = store.call("export", "out", "--json")

    assert (first.document["cells"], first.document["misfits"], first.document["lost"]) == (30, {}, [])
    assert "5 cells (est.) are not in out yet" in ahead.stdout
    assert "5 cells are in 2 new files of out" in second.stdout
    assert "cells: 5 of 5" in second.stderr
    nothing = {"cells": 0, "files": 0, "commits": 0, "misfits": {}, "lost": [], "left_estimate": 0}
    assert third.document == {"folder": "out"} | nothing
    check(store)


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_loses_and_doubles_no_cell(store: Shell, point: str, tmp_path: Path) -> None:
    points = tmp_path / "points"
    points.mkdir()
    for after in (0, 2):
        put_pages(store)
        (points / point).write_text(f"kill after={after}")
        killed = store.run("export", "out", *SMALL, environment={ENVIRONMENT_VARIABLE: str(points)})
        assert killed.code == -signal.SIGKILL
        seen = exported(store.folder / "out")
        assert len(set(seen)) == len(seen), "a reader meets no cell twice meanwhile"
        (points / f"{point}.hit").unlink()

    again = store.call("export", "out", "--json")

    assert again.code == 0
    check(store)
    assert not list((store.folder / "out" / OWN_FOLDER / "new").iterdir()), "what was not committed is gone"


def test_control_files_that_are_seen_before_they_are_committed_are_cells_twice(store: Shell) -> None:
    put(store, 4)
    assert store.call("export", "out").code == 0
    put(store, 20)

    def moved_early(folder: ExportFolder, commit: ExportCommit) -> None:
        with patch.object(folder, "last", commit):
            folder._settle()
        raise KeyboardInterrupt

    with patch.object(ExportFolder, "commit", moved_early):
        assert store.call("export", "out").code == 5
    for file in (store.folder / "out").glob(FILES.replace("*.parquet", "*2.parquet")):
        file.rename(file.with_stem("early"))  # those of the next run have a path of their own
    assert store.call("export", "out").code == 0

    with pytest.raises(AssertionError):
        check(store)


def test_of_two_at_once_one_is_told_that_the_other_is_at_work(store: Shell, tmp_path: Path) -> None:
    put(store, 20)
    points = tmp_path / "points"
    points.mkdir()
    (points / "export.before_commit").write_text("wait")
    first = store.start("export", "out", environment={ENVIRONMENT_VARIABLE: str(points)})
    wait_until("the first one is about to commit", (points / "export.before_commit.hit").exists)

    second = store.call("export", "out")
    (points / "export.before_commit.go").touch()
    first.communicate(timeout=60)

    assert second.code == 6
    assert "Another process exports into" in second.complaint
    assert first.returncode == 0
    check(store)


def test_of_two_that_do_not_see_each_others_lock_one_commits(tmp_path: Path) -> None:
    def commit_of(folder: ExportFolder) -> ExportCommit:
        return ExportCommit(folder.next_number, datetime.now(UTC), "trips", None, {0: ExportPlace(1, 1)})

    with patch("tripstore.export.commits.fcntl.flock"), patch.object(ExportFolder, "_forget_dead"):  # between hosts
        slow, quick = ExportFolder(tmp_path), ExportFolder(tmp_path)
        with slow.held():
            with slow.new_file() as (name, file):
                file.write(b"slow")
            with quick.held():
                assert (tmp_path / OWN_FOLDER / "new" / name).exists(), "it may be committed yet"
                quick.commit(commit_of(quick))
            with pytest.raises(ExportOvertaken):
                slow.commit(commit_of(slow))

    assert [each.number for each in ExportFolder(tmp_path).commits()] == [1]
    assert not list((tmp_path / OWN_FOLDER / "new").iterdir())


def test_a_link_that_is_there_counts_also_when_the_network_says_that_it_was_there_before(store: Shell) -> None:
    put(store, 8)

    def repeated(source: Path, place: Path) -> None:
        link(source, place)
        link(source, place)

    link = os.link
    with patch("tripstore.export.commits.os.link", repeated):
        ran = store.call("export", "out", "--json")

    assert (ran.code, ran.document["cells"]) == (0, 8)
    check(store)


def test_what_was_written_and_not_committed_goes_with_the_run_or_with_the_next_one(
    store: Shell, tmp_path: Path
) -> None:
    put(store, 8)
    new = store.folder / "out" / OWN_FOLDER / "new"
    for _run in range(2):
        with failing_at("export.file_written"), pytest.raises(FailpointReached), opened(store) as datastore:
            export_into(datastore, store.folder / "out")
        assert not list(new.iterdir())
    (tmp_path / "export.file_written").write_text("kill")
    store.run("export", "out", environment={ENVIRONMENT_VARIABLE: str(tmp_path)})
    assert len(list(new.iterdir())) == 1
    with ExportFolder(store.folder / "out").held():
        assert not list(new.iterdir())


def test_what_is_held_until_a_commit_is_bounded(store: Shell) -> None:
    put(store, 200, ("BASE",))

    with patch("tripstore.export.exporter.CELLS_PER_PAGE", 10):
        ran = store.call("export", "out", "--json", *SMALL)

    assert (ran.document["cells"], ran.document["commits"] > 4) == (200, True)
    assert max(rows_per_file(store.folder / "out")) <= SHARDS * 10
    check(store)


def test_columns_are_the_same_each_time_and_the_folder_is_of_one_datastore(store: Shell) -> None:
    put(store, 8)
    (store.folder / "full").mkdir()
    (store.folder / "full" / "a file").touch()

    some = store.call("export", "out", "--columns", "BASE", "--json")
    others = store.call("export", "out", "--columns", "OTHER")
    none = store.call("export", "out")
    full = store.call("export", "full")
    same = store.call("export", "out", "--columns", "BASE", "--json")

    assert (some.code, some.document["cells"]) == (0, 4)
    assert {row[3] for row in exported(store.folder / "out")} == {"BASE"}
    assert (same.code, same.document["cells"]) == (0, 0)
    for ran in (others, none):
        assert ran.code == 1
        assert "was begun with --columns BASE" in ran.complaint
    assert "has files that are no export" in full.complaint


def test_a_folder_of_another_log_is_refused_however_long_that_is(store: Shell, template: Path, tmp_path: Path) -> None:
    put(store, 8)
    assert store.call("export", "out").code == 0
    before = exported(store.folder / "out")
    shutil.copytree(template, tmp_path / "anew")
    anew = Shell(tmp_path / "anew")

    for cells in (0, 60):  # shorter, and longer
        put(anew, cells)
        for ran in (anew.call("export", str(store.folder / "out"), *words) for words in (["--dry-run"], [])):
            assert ran.code == 1
            assert "is an export of another log" in ran.complaint
            assert "into a new folder" in ran.complaint
    assert exported(store.folder / "out") == before


def test_a_file_system_without_hard_links_is_named_and_nothing_counts(store: Shell) -> None:
    put(store, 4)
    with patch("tripstore.export.commits.os.link", side_effect=PermissionError(errno.EPERM, "not permitted")):
        refused = store.call("export", "out")

    assert refused.code == 1
    assert "has no hard links" in refused.complaint
    assert exported(store.folder / "out") == []
    assert store.call("export", "out").code == 0
    check(store)


def test_without_the_extra_it_says_what_to_install(store: Shell) -> None:
    with patch.dict(sys.modules, {"pyarrow": None}):
        ran = store.call("export", "out")

    assert ran.code == 1
    assert "pip install 'tripstore[export]'" in ran.complaint


def test_the_query_of_the_page_runs(store: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with_index(store)
    with opened(store) as datastore:
        row = uuid4()
        for version, fare in enumerate(("20", "23.50")):
            datastore.put_cell(row, "BASE", version, {"city": "SF", "fare": fare})
        datastore.put_cell(uuid4(), "BASE", 1, {"city": "SF", "fare": "6.5"})
        datastore.put_cell(uuid4(), "BASE", 1, None)
    assert store.call("export", "warehouse").code == 0
    monkeypatch.chdir(store.folder)

    fares = answer(block(DOCS / "howto" / "export.md", "sql"))

    assert fares == [("SF", 2, Decimal("30.000000000"))]


def test_files_are_their_owners_alone(store: Shell) -> None:
    put(store, 4)
    assert store.call("export", "out").code == 0

    assert {each.stat().st_mode & 0o077 for each in [store.folder / "out", *(store.folder / "out").rglob("*")]} == {0}
    assert sum(rows_per_file(store.folder / "out")) == 4
