"""`tripstore buffer` and the replayer of `tripstore worker run`: look, carry, settle conflicts."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore, PutStatus
from tests.acceptance.conftest import Shell
from tests.acceptance.workers import WAIT_SECONDS
from tests.chaos.actors import wait_until

SETTINGS = """
buffer:
  put_seconds: 5
deadlines:
  put_seconds: 0.2
"""


@pytest.fixture
def kept(store: Shell) -> Shell:
    """A datastore in folders with buffers."""
    config = store.folder / "tripstore.yaml"
    config.write_text(config.read_text() + SETTINGS)
    return store


@contextmanager
def opened(shell: Shell) -> Iterator[Datastore]:
    with Datastore.open(shell.folder / "tripstore.yaml") as datastore:
        yield datastore


@contextmanager
def held(datastore: Datastore) -> Iterator[UUID]:
    """A row of the first cluster, whose file another writer has meanwhile."""
    own, *_others = datastore.clusters
    shards = datastore.schema.plan().topology.shards_of(own)
    row = next(row for row in iter(uuid4, None) if datastore.shard_of(row) in shards)
    primary = next(cluster.primary for cluster in datastore.config.clusters if cluster.name == own)
    path = f"{primary.folder}/{datastore.config.datastore}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield row
        other.execute("ROLLBACK")


def keep(shell: Shell, body: str = "waits") -> UUID:
    with opened(shell) as datastore, held(datastore) as row:
        assert datastore.put_cell(row, "BASE", 1, body).status is PutStatus.BUFFERED
    return row


def latest(shell: Shell, row: UUID) -> Cell | None:
    with opened(shell) as datastore:
        return datastore.get_cell_latest(row, "BASE")


def test_what_waits_is_shown_and_carried(kept: Shell) -> None:
    row = keep(kept)

    shown = kept.call("buffer", "status", "--json").document
    drained = kept.call("buffer", "drain", "--json")

    assert (shown["is_configured"], shown["is_fine"]) == (True, True)
    assert sorted(each["cells"] for each in shown["clusters"]) == [0, 1]
    assert (drained.code, drained.document["carried"], drained.document["is_empty"]) == (0, 1, True)
    assert latest(kept, row) == Cell(row, "BASE", 1, "waits")
    assert "0 cells were carried" in kept.call("buffer", "drain").stdout


def test_what_cannot_be_carried_is_told(kept: Shell) -> None:
    keep(kept)
    with opened(kept) as datastore, held(datastore):
        drained = kept.call("buffer", "drain", "--wait", "0.1", "--json")

    assert drained.code == 1
    assert (drained.document["carried"], drained.document["is_empty"]) == (0, False)


def test_a_worker_carries_it(kept: Shell) -> None:
    row = keep(kept)
    process = kept.start("worker", "run", "--only", "buffer")
    try:
        wait_until("the worker carries it", lambda: latest(kept, row) is not None)
    finally:
        process.terminate()
        try:
            _, said = process.communicate(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "serves buffers" in said


def test_a_conflict_is_shown_with_both_bodies_and_closed(kept: Shell) -> None:
    row = keep(kept)
    with opened(kept) as datastore:
        datastore.put_cell(row, "BASE", 1, "there first")
    assert kept.call("buffer", "drain").code == 0

    shown = kept.call("buffer", "conflicts", "--json")
    (conflict,) = shown.document["conflicts"]

    assert shown.code == 1
    assert kept.call("buffer", "status").code == 1
    assert (conflict["waited"], conflict["stored"], conflict["row_key"]) == ("waits", "there first", str(row))
    which = ("--close", str(conflict["number"]), "--cluster", conflict["cluster"])
    assert "--yes" in kept.call("buffer", "conflicts", *which).complaint
    assert kept.call("buffer", "conflicts", *which, "--yes").code == 0
    again = kept.call("buffer", "conflicts", *which, "--yes")
    assert (again.code, "There is no conflict" in again.complaint) == (2, True)
    assert kept.call("buffer", "status").code == 0
    assert latest(kept, row) == Cell(row, "BASE", 1, "there first")


def test_without_the_section_it_says_so(store: Shell) -> None:
    ran = store.call("buffer", "status")

    assert ran.code == 0
    assert "No buffers are configured" in ran.stdout


@pytest.mark.parametrize(
    "arguments", [("--close", "1"), ("--cluster", "a"), ("--close", "1", "--cluster", "nowhere", "--yes")], ids=str
)
def test_a_ledger_is_named_with_the_number(kept: Shell, arguments: tuple[str, ...]) -> None:
    assert kept.call("buffer", "conflicts", *arguments).code == 2
