"""`tripstore shards move` and `copies`: planned, done, shown, taken back, dropped, and refused."""

from __future__ import annotations

import json

import pytest
import yaml

from schemaless_core import Datastore
from tests.acceptance.conftest import Shell
from tests.fscks import row_of
from tests.stores import ServerEngine, Stores


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores, shell: Shell) -> Datastore:
    """A datastore on servers, and its configuration beside the shell."""
    config = stores.config(server_engine, shards=4)
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config))))
    made = Datastore.open(config)
    made.create_schema()
    return made


def test_shards_go_are_shown_and_come_back(store: Datastore, shell: Shell) -> None:
    with store:
        row = row_of(store, 1)
        store.put_cell(row, "BASE", 1, "before")
        planned = shell.call("shards", "move", "0-1", "3", "--to", "b", "--dry-run", "--json")
        asked = shell.call("shards", "move", "0-1", "--to", "b")
        assert planned.document["there"] == [3]
        assert [(each["shard"], each["cells"]) for each in planned.document["moves"]] == [(0, 0), (1, 1)]
        assert "--yes" in asked.complaint
        assert store.put_cell(row, "BASE", 2, "not moved yet").epoch == 1

        moved = shell.run("shards", "move", "0-1", "--to", "b", "--hold-ms", "5000", "--yes", "--json")
        shown = shell.call("shards", "move", "--show", "last")

        assert (moved.code, moved.document["moved"], moved.document["stayed"]) == (0, 2, [])
        assert "2 of 2 shards have moved (done)" in shown.stdout
        assert store.put_cell(row, "BASE", 3, "at b").epoch == 2
        left = shell.call("shards", "copies", "--json").document["copies"]
        assert [(each["shard"], each["cluster"]) for each in left] == [(0, "a"), (1, "a")]

        back = shell.call("shards", "move", "--back", "last", "--yes", "--json")

        assert (back.code, back.document["moved"], back.document["cells"]) == (0, 2, 1)
        assert store.put_cell(row, "BASE", 4, "at a").epoch == 3
        left = shell.call("shards", "copies", "--json").document["copies"]
        assert [(each["shard"], each["cluster"]) for each in left] == [(0, "b"), (1, "b")]


def test_what_takes_too_long_and_what_is_no_order_are_said(store: Datastore, shell: Shell) -> None:
    with store:
        paused = shell.call("shards", "move", "7", "--to", "b", "--dry-run")
        unknown = shell.call("shards", "move", "0", "--to", "c", "--dry-run")
        mixed = shell.call("shards", "move", "0", "--show", "last")
        empty = shell.call("shards", "move", "--to", "b")
        none = shell.call("shards", "move", "--show", "last")

    assert [each.code for each in (paused, unknown, mixed, empty, none)] == [1, 2, 2, 2, 2]
    assert "There is no shard 7" in paused.complaint
    assert "There is no cluster c" in unknown.complaint
    assert "tripstore shards move 7 --to b" in empty.complaint
