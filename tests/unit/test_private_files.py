"""Files with what cells hold are readable by their owner only, whatever the umask."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from schemaless_core import Datastore
from schemaless_core.control.changes import BEGIN_TO_WRITE
from schemaless_core.engine.base import Fact
from schemaless_core.process.private import make_private, others_rights
from schemaless_core.servers.doctor import Doctor
from tests.reports import sample_report
from tripstore.cli.report import write


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The process would let everybody read and write what it makes."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_the_files_of_a_store_and_what_sqlite_makes_beside_them(tmp_path: Path) -> None:
    config = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    with Datastore.open(config) as store:
        store.create_schema()
        store.put_cell(uuid4(), "BASE", 1, {"name": "a person"})

        with store.control.begin() as connection:
            connection.execute(sa.text(BEGIN_TO_WRITE))
            connection.execute(sa.text("CREATE TABLE beside (id INTEGER)"))  # which is taken back, with its journal
            found = modes(tmp_path)
            connection.rollback()

    assert {"trips.db", "trips.db-wal", "trips.db-shm", "control.db", "control.db-journal"} <= found.keys()
    assert set(found.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_the_doctor_names_a_file_that_others_may_read(tmp_path: Path) -> None:
    """One that an earlier version made; the control is the file as this version makes it."""
    config = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    with Datastore.open(config) as store:
        store.create_schema()
        assert [fact.is_fine for fact in _files(store)] == [True, True]
        for name in ("control", "trips"):
            (tmp_path / "a" / f"{name}.db").chmod(0o644)
        found = _files(store)

    for fact, name in zip(found, ("control", "trips"), strict=True):
        assert (fact.is_fine, fact.is_refusal) == (False, False)
        assert fact.value == f"{tmp_path}/a/{name}.db has 644"
        assert fact.advice == f"chmod 600 {tmp_path}/a/{name}.db*"


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_journal_that_goes_while_the_doctor_looks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Another process commits between two looks at the files."""
    path, journal = tmp_path / "control.db", tmp_path / "control.db-journal"
    for each in (path, journal):
        each.touch(mode=0o644)
    assert others_rights(path) == f"{path} has 644, {journal} has 644"
    look, made = Path.stat, list[Path]()

    def stat_(each: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = look(each, follow_symlinks=follow_symlinks)
        made.append(each)
        if len(made) == looks:
            journal.unlink()
        return found

    monkeypatch.setattr(Path, "stat", stat_)
    assert others_rights(path).startswith(f"{path} has 644")


def _files(store: Datastore) -> list[Fact]:
    doctor = Doctor(store.config, store.clusters, store.control)
    return [each.fact for each in doctor.findings() if each.fact.name == "files"]


#: Another process writes the file, and is the last to close it as far as locks say.
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO cell VALUES (0)")
connection.close()
"""


@pytest.mark.parametrize(("touch", "is_kept"), [(make_private, True), (lambda path: open(path, "ab").close(), False)])
def test_i1_a_file_that_is_there_keeps_the_locks_that_this_process_has_on_it(
    tmp_path: Path, touch: Callable[[Path], object], is_kept: bool
) -> None:
    """The control opens it, and closes it: another process takes the log away under our connection."""
    path = tmp_path / "trips.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as ours:
        ours.execute("PRAGMA journal_mode = WAL")
        ours.execute("CREATE TABLE cell (added_id INTEGER)")
        ours.execute("INSERT INTO cell VALUES (1)")

        touch(path)
        subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True)

        assert (tmp_path / "trips.db-wal").exists() is is_kept


@pytest.mark.parametrize("is_there", [False, True])
def test_a_report_is_its_owners_whatever_stood_in_its_place(tmp_path: Path, *, is_there: bool) -> None:
    page = tmp_path / "report.html"
    if is_there:
        page.write_text("an earlier one")
        page.chmod(0o644)

    write(sample_report(), page)

    assert "<html" in page.read_text()
    assert modes(tmp_path) == {"report.html": 0o600}


def test_control_a_file_that_is_simply_written_is_everybodys(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("bodies")

    assert modes(tmp_path) == {"report.html": 0o666}
