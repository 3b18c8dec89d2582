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

from schemaless_core import Datastore
from schemaless_core.private import make_private, private


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

        found = modes(tmp_path)

    assert {"trips.db", "trips.db-wal", "control.db"} <= found.keys()
    assert set(found.values()) == {0o600}


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


def test_a_page_that_is_written_anew(tmp_path: Path) -> None:
    with open(tmp_path / "report.html", "w", encoding="utf-8", opener=private) as page:
        page.write("bodies")

    assert modes(tmp_path) == {"report.html": 0o600}


def test_control_a_file_that_is_simply_written_is_everybodys(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("bodies")

    assert modes(tmp_path) == {"report.html": 0o666}
