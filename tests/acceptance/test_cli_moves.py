"""`tripstore shards move` and `copies`: planned, done, shown, taken back, dropped, and refused."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest
import yaml

from schemaless_core import Datastore
from schemaless_core.failpoints import FailpointReached
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.moves.splits import SplitOrder, Splits
from schemaless_core.promotion.ports import SILENT, Unheard
from tests.acceptance.conftest import Shell
from tests.fscks import row_of
from tests.repairs import failing_at
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

        job = moved.document["progress"]["job"]["job"]
        limits = ("--hold-ms", "4000", "--rate", "900")
        back, again = (shell.call("shards", "move", "--back", job, *limits, "--yes", "--json") for _ in range(2))

        spec = back.document["progress"]["job"]["spec"]
        assert (spec["hold_seconds"], spec["cells_per_second"]) == (4.0, 900.0), "those of this call, not the job's"
        assert (back.code, back.document["moved"], back.document["cells"]) == (0, 2, 1)
        assert (again.code, again.document["moves"]) == (0, [])
        assert "nothing goes back" in again.complaint
        assert store.put_cell(row, "BASE", 4, "at a").epoch == 3
        left = shell.call("shards", "copies", "--json").document["copies"]
        assert [(each["shard"], each["cluster"]) for each in left] == [(0, "b"), (1, "b")]


def test_copies_are_dropped_when_they_are_asked_for_alone(store: Datastore, shell: Shell) -> None:
    with store:
        row = row_of(store, 1)
        store.put_cell(row, "BASE", 1, "before")
        shell.run("shards", "move", "0-1", "--to", "b", "--hold-ms", "5000", "--yes")
        drop = ("shards", "copies", "--drop", "--older-than", "0")
        other = shell.call(*drop, "--on", "b", "--yes", "--json")
        young = shell.call("shards", "copies", "--drop", "--yes", "--json")
        asked = shell.call(*drop)
        assert (other.code, other.document) == (0, {"copies": [], "dropped": []})
        assert (young.code, len(young.document["copies"]), young.document["dropped"]) == (0, 2, [])
        assert "--yes" in asked.complaint
        begun = store.moves()
        job = begun.begin(begun.plan(MoveOrder((0,), "a")))

        one = shell.call(*drop, "--yes", "--json")
        shown = shell.call("shards", "copies", "1")

        assert (one.code, [each["shard"] for each in one.document["dropped"]]) == (1, [1])
        assert [each["shard"] for each in one.document["copies"]] == [0]
        assert f"part of {job.id}" in one.complaint
        assert "No moved shard has left a copy" in shown.stdout
        back = shell.run("shards", "move", "1", "--to", "a", "--hold-ms", "5000", "--yes", "--json")
        assert (back.code, back.document["cells"]) == (0, 1)
        assert store.get_cell(row, "BASE", 1) is not None


def test_what_takes_too_long_and_what_is_no_order_are_said(store: Datastore, shell: Shell) -> None:
    with store:
        paused = shell.call("shards", "move", "7", "--to", "b", "--dry-run")
        unknown = shell.call("shards", "move", "0", "--to", "c", "--dry-run")
        mixed = shell.call("shards", "move", "0", "--show", "last")
        many = shell.call("shards", "move", "0-99999999999", "--to", "b")
        limited = shell.call("shards", "move", "--resume", "last", "--hold-ms", "5000")
        halved = shell.call("shards", "split", "a", "--resume", "--rate", "5")
        empty = shell.call("shards", "move", "--to", "b")
        none = shell.call("shards", "move", "--show", "last")

    assert [each.code for each in (paused, unknown, mixed, empty, none)] == [1, 2, 2, 2, 2]
    assert [each.code for each in (many, limited, halved)] == [2, 2, 2]
    assert "are no shards" in many.complaint
    assert "leave the other options out" in limited.complaint
    assert "its limits stay as they are" in halved.complaint
    assert "There is no shard 7" in paused.complaint
    assert "There is no cluster c" in unknown.complaint
    assert "tripstore shards move 7 --to b" in empty.complaint


def test_a_cluster_is_split_shown_balanced_and_taken_back(store: Datastore, shell: Shell) -> None:
    with store:
        for shard in (0, 1):
            store.put_cell(row_of(store, shard), "BASE", 1, "x")
        planned = shell.call("shards", "split", "a", "--into", "b", "--dry-run", "--json").document
        asked = shell.call("shards", "split", "a", "--into", "b")
        assert (planned["job"], [each["shard"] for each in planned["moves"]], planned["stay"]) == (None, [1], [0])
        assert "--yes" in asked.complaint
        split = ("shards", "split", "a", "--into", "b", "--hold-ms", "5000", "--yes", "--json")

        first, again = shell.run(*split), shell.call(*split)
        shown = shell.call("shards", "split", "a", "--show")
        balance = shell.call("shards", "balance", "--plan", "--seconds", "0", "--json").document

        assert (first.code, first.document["moved"], again.code, again.document["moves"]) == (0, 1, 0, [])
        assert first.document["progress"]["job"]["job"] == again.document["job"]
        assert "shards split a --cancel" in again.complaint
        assert "1 of 1 shards have moved (done)" in shown.stdout
        assert (balance["moves"], [each["shards"] for each in balance["before"]]) == ([], [1, 3])
        for to, said in (("a", "shards move 1 --to b"), ("b", "It is done")):
            shell.call("shards", "move", "1", "--to", to, "--hold-ms", "5000", "--yes")
            repeated = shell.call(*split)
            assert (repeated.code, repeated.document["moves"]) == (1 if to == "a" else 0, [])
            assert said in repeated.complaint
        back = shell.call("shards", "split", "a", "--back", "--yes", "--json")
        assert (back.code, back.document["moved"]) == (0, 1)
        anew = shell.call("shards", "split", "a", "--into", "b", "--dry-run", "--json").document
        assert (anew["job"], len(anew["moves"])) == (None, 1)


def test_splits_that_are_paused_given_up_or_no_order_are_said(store: Datastore, shell: Shell) -> None:
    with store:
        splits = Splits(store.control, store.moves())
        splits.begin(splits.plan(SplitOrder("a", "b", hold_seconds=5.0)))
        split = ("shards", "split", "a", "--into", "b", "--yes")
        shell.call("shards", "split", "a", "--pause")

        paused = shell.call(*split)
        cancelled = shell.call("shards", "split", "a", "--cancel", "--yes", "--json")
        both = shell.call("shards", "split", "a", "--into", "b", "--show")
        neither = shell.call("shards", "split", "a")
        never = shell.call("shards", "split", "b", "--show")
        unplanned = shell.call("shards", "balance")

    assert (paused.code, cancelled.code, cancelled.document["moved"]) == (4, 0, 0)
    assert "shards split a --resume" in paused.complaint
    assert [each.code for each in (both, neither, never, unplanned)] == [2, 2, 2, 2]
    assert "never split" in never.complaint
    assert "balance --plan" in unplanned.complaint


def silent(*_call: object) -> Unheard:
    return SILENT


@pytest.mark.parametrize("died", ["move.beside", "move.arrive"])
def test_a_split_that_is_cancelled_again_opens_what_a_silent_server_left_closed(
    store: Datastore, shell: Shell, died: str
) -> None:
    """Before and behind the decision. Until then the refusals say which command does it."""
    with store:
        splits = Splits(store.control, store.moves())
        job = splits.begin(splits.plan(SplitOrder("a", "b", hold_seconds=5.0)))
        with failing_at(died), pytest.raises(FailpointReached):
            splits.moves.runner(job, "test").run()
        cancel, way_out = ("shards", "split", "a", "--cancel", "--yes"), f"shards move --cancel {job.id}"

        with patch.multiple(ClusterShards, arrive=silent, open=silent):
            first = shell.call(*cancel)
        ordered = shell.call("shards", "move", "1", "--to", "a", "--dry-run")
        decided = shell.call("shards", "move", "1", "--to", "b", "--dry-run")
        second = shell.call(*cancel)

        assert (first.code, second.code, ordered.code) == (1, 0, 4)
        assert way_out in first.complaint
        assert way_out in ordered.stdout
        assert (way_out in decided.stdout) == (died == "move.arrive")
        assert "take writes again" in second.complaint
        assert store.put_cell(row_of(store, 1), "BASE", 1, "open").epoch == 2
        assert splits.get("a").is_over
