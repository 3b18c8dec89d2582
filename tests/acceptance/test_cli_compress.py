"""`tripstore cell train`, `dictionaries` and `compress`: what they do, say and exit with; jobs; wrong input."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from schemaless_core import Cell, Datastore, Json
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.acceptance.conftest import Shell
from tests.backups import expire
from tests.compressed import compressed_of


def filled(store: Shell, cells: int = 400) -> None:
    """Cells of a column that the configuration compresses, and of one that it does not."""
    file = store.folder / "tripstore.yaml"
    file.write_text(file.read_text() + "\ncompression: {columns: [BASE]}\n")
    with Datastore.open(file) as datastore:
        bodies: list[Json] = [
            {"city": "San Francisco", "driver": f"{n:032x}", "status": "completed"} for n in range(cells)
        ]
        datastore.put_cells([Cell(uuid4(), "BASE", 1, body) for body in bodies])
        datastore.put_cells([Cell(uuid4(), "NOTE", 1, body) for body in bodies[:10]])


def stored(store: Shell) -> tuple[int, int]:
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        return compressed_of(datastore)


def test_old_cells_are_compressed_and_made_plain_again(store: Shell) -> None:
    filled(store)
    dry = store.call("cell", "train", "BASE", "--dry-run", "--json").document
    assert dry["bytes_compressed"] < dry["bytes_plain"]
    assert not dry["is_kept"]
    assert store.call("cell", "dictionaries", "--json").document["dictionaries"] == []

    assert "Dictionary 1 of BASE" in store.call("cell", "train", "BASE").stdout
    (listed,) = store.call("cell", "dictionaries", "--json").document["dictionaries"]
    assert (listed["column"], listed["number"]) == ("BASE", 1)
    assert "BASE" in store.call("cell", "dictionaries").stdout

    planned = store.call("cell", "compress", "--dry-run", "--json").document
    assert (planned["cells"], planned["looked"]) == (400, 410)
    assert stored(store) == (0, 410)
    done = store.call("cell", "compress", "--json").document
    assert done["cells"] == 400
    assert (done["bytes_before"], done["bytes_after"]) == (planned["bytes_before"], planned["bytes_after"])
    assert stored(store) == (400, 410)
    assert store.run("fsck", "--deep").code == 0
    assert "400 cells stored anew" in store.call("cell", "compress", "--show", "last").stdout

    file = store.folder / "tripstore.yaml"
    file.write_text(file.read_text().replace("columns: [BASE]", "columns: []"))
    assert store.call("cell", "compress", "--rate", "100000", "--json").document["cells"] == 400
    assert stored(store) == (0, 410)


def test_one_that_was_killed_is_gone_on_with(store: Shell, tmp_path: Path) -> None:
    filled(store)
    store.call("cell", "train", "BASE")
    points = tmp_path / "points"
    points.mkdir()
    (points / "compress.before_save").write_text("kill")
    assert store.run("cell", "compress", environment={ENVIRONMENT_VARIABLE: str(points)}).code != 0
    assert 0 < stored(store)[0] < 400

    assert store.run("cell", "compress", "--pause", "last").code == 0
    assert store.run("cell", "compress", "--show", "last").code == 5
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        expire(datastore)
    assert store.run("cell", "compress", "--resume", "last").code == 0
    assert stored(store) == (400, 410)

    detached = store.call("cell", "compress", "--detach", "--json").document
    assert detached["progress"]["job"]["is_detached"] is True
    assert store.run("cell", "compress", "--cancel", "last", "--yes").code == 0
    assert store.run("cell", "compress", "--show", "last").code == 1


def test_wrong_input_is_refused(store: Shell) -> None:
    filled(store, 20)
    few = store.run("cell", "train", "BASE")
    assert few.code == 2
    assert "too few" in few.stderr
    assert store.run("cell", "compress", "--show", "last", "--rate", "5").code == 2
    file = store.folder / "tripstore.yaml"
    file.write_text(file.read_text().replace("columns: [BASE]", "columns: [BASE], level: 30"))
    assert "compression.level" in store.run("cell", "row", str(uuid4())).stderr
