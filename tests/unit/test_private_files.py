"""Files with what cells hold are readable by their owner only, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Datastore
from schemaless_core.private import private


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


def test_a_page_that_is_written_anew(tmp_path: Path) -> None:
    with open(tmp_path / "report.html", "w", encoding="utf-8", opener=private) as page:
        page.write("bodies")

    assert modes(tmp_path) == {"report.html": 0o600}


def test_control_a_file_that_is_simply_written_is_everybodys(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("bodies")

    assert modes(tmp_path) == {"report.html": 0o666}
