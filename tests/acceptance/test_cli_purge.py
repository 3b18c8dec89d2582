"""`tripstore purge`: what it counts, deletes, says and exits with; jobs; wrong input."""

from __future__ import annotations

import shlex
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellPurged, Datastore
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.acceptance.conftest import Shell
from tests.backups import expire


def filled(store: Shell, rows: int = 3) -> list[UUID]:
    """Rows of three cells each."""
    keys = [uuid4() for _ in range(rows)]
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        datastore.put_cells([Cell(key, "BASE", n, {"n": n}) for key in keys for n in (1, 2)])
        datastore.put_cells([Cell(key, "NOTE", 1, "secret") for key in keys])
    return keys


def listed(store: Shell, *keys: UUID) -> str:
    file = store.folder / "forget.txt"
    file.write_text("".join(f"{key}\n" for key in keys))
    return str(file)


def row(store: Shell, key: UUID) -> dict[str, Cell]:
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        return datastore.get_row(key)


def test_rows_are_counted_and_then_deleted_for_good(store: Shell) -> None:
    gone, also, kept = filled(store)
    file = listed(store, gone, also, uuid4())

    dry = store.call("purge", "--rows-file", file, "--dry-run", "--json").document
    assert (dry["cells"], dry["rows"], dry["waiting"], dry["conflicts"]) == (6, 2, 0, 0)
    assert "6 cells of 2 rows" in store.run("purge", "--rows-file", file, "--dry-run").stdout
    assert "Files of backups" in "".join(dry["not_reached"])
    assert row(store, gone) != {}

    done = store.call("purge", "--rows-file", file, "--yes", "--json").document

    assert (done["cells"], done["rows"], done["left"]) == (6, 2, [])
    assert row(store, gone) == row(store, also) == {}
    assert len(row(store, kept)) == 2
    with Datastore.open(store.folder / "tripstore.yaml") as datastore, pytest.raises(CellPurged):
        datastore.put_cell(gone, "BASE", 1, {"n": 1})
    assert "6 cells of 2 rows deleted" in store.run("purge", "--show", "last").stdout
    assert store.run("fsck", "--deep").code == 0


def test_superseded_versions_are_deleted(store: Shell) -> None:
    (key,) = filled(store, 1)

    def cells(age: str, *more: str) -> int:
        order = ("--superseded", "--older-than", age, "--columns", "BASE,NOTE", "--versioned", "NOTE,BASE")
        found: int = store.call("purge", *order, *more, "--json").document["cells"]
        return found

    assert cells("0m", "--dry-run") == 1
    assert cells("90d", "--yes") == 0
    assert cells("0m", "--rate", "1000", "--yes") == 1
    assert {name: cell.ref_key for name, cell in row(store, key).items()} == {"BASE": 2, "NOTE": 1}


def test_one_that_was_killed_is_gone_on_with_and_one_that_is_left_says_so(store: Shell, tmp_path: Path) -> None:
    keys = filled(store)
    points = tmp_path / "points"
    points.mkdir()
    (points / "purge.kept").write_text("kill")
    killed = store.run(
        "purge", "--rows-file", listed(store, *keys), "--yes", environment={ENVIRONMENT_VARIABLE: str(points)}
    )
    assert killed.code != 0
    assert row(store, keys[0]) != {}

    assert store.run("purge", "--pause", "last").code == 0
    shown = store.run("purge", "--show", "last", "--json")
    assert (shown.code, shown.document["progress"]["job"]["state"]) == (5, "paused")
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        expire(datastore)
    assert store.run("purge", "--resume", "last").code == 0
    assert all(row(store, key) == {} for key in keys)

    detached = store.run("purge", "--rows-file", listed(store, uuid4()), "--yes", "--detach", "--json")
    assert detached.document["progress"]["job"]["is_detached"] is True
    assert store.run("purge", "--cancel", "last", "--yes").code == 0
    assert store.run("purge", "--show", "last").code == 1


@pytest.mark.parametrize("point", ["purge.kept", "mends.done", "purge.saved", "purge.before_erase"])
def test_i12_a_cancelled_job_names_rows_that_were_begun_and_what_it_does_not_reach(
    store: Shell, tmp_path: Path, point: str
) -> None:
    gone, second = filled(store, 2)
    points = tmp_path / "points"
    points.mkdir()
    (points / point).write_text("kill")
    armed = {ENVIRONMENT_VARIABLE: str(points)}
    assert store.run("purge", "--rows-file", listed(store, gone, second), "--yes", environment=armed).code != 0

    shown = store.run("purge", "--pause", "last").stdout
    assert "2 rows were begun and not finished: `tripstore purge --resume" in " ".join(shown.split())
    cancelled = store.run("purge", "--cancel", "last", "--yes").stdout
    document = store.run("purge", "--show", "last", "--json").document

    assert "Purge them again" in cancelled
    assert set(document["unfinished"]) == {str(gone), str(second)}
    assert "Files of backups" in "".join(document["not_reached"])
    again = listed(store, *(UUID(key) for key in document["unfinished"]))
    done = store.call("purge", "--rows-file", again, "--yes", "--json").document
    assert done["unfinished"] == done["left"] == []
    assert row(store, gone) == row(store, second) == {}
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        lines = datastore.mends.lines()
        assert lines
        assert all(line.old_body is None for line in lines), "no body stays"


def test_of_a_job_that_was_cancelled_before_it_began_no_row_is_named(store: Shell) -> None:
    (key,) = filled(store, 1)
    assert store.run("purge", "--rows-file", listed(store, key), "--yes", "--detach").code == 0

    cancelled = store.run("purge", "--cancel", "last", "--yes", "--json").document

    assert cancelled["unfinished"] == []
    assert row(store, key) != {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "Say what to purge"),
        ("--superseded --columns BASE", "goes with --older-than and --columns"),
        ("--older-than 3x --superseded --columns BASE", "write 90d, 36h or 15m"),
        ("--rows-file FILE --columns BASE", "goes without them"),
        ("--rows-file FILE --versioned BASE", "goes without them"),
        ("--versioned BASE --superseded", "goes with --older-than and --columns"),
        ("--superseded --older-than 1d --columns BASE,NOTE --versioned NOTE --dry-run", "say so: --versioned BASE"),
        ("--superseded --older-than 1d --columns BASE --versioned NOTE,BASE", "NOTE is not among the columns"),
        ("--resume last --dry-run", "leave the other options out"),
        ("--superseded --older-than 1d --columns ''", "is no list of columns"),
        ("--rows-file NONE", "does not exist"),
        ("--rows-file EMPTY", "names no row key"),
        ("--rows-file FILE", "Then say --yes"),
        ("--show last", "There is no purge"),
    ],
)
def test_wrong_input_is_refused_with_a_way_out(store: Shell, options: str, said: str) -> None:
    file, empty = listed(store, uuid4()), store.folder / "empty.txt"
    empty.write_text("")
    given = shlex.split(options.replace("FILE", file).replace("EMPTY", str(empty)))

    ran = store.run("purge", *given)

    assert ran.code in ((4,) if "--yes" in said else (1, 2))
    assert said in " ".join((ran.stdout + ran.stderr).split())
