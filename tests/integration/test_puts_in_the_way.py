"""What a refused put is told is true at one moment, whatever others put between the looks for it (I2, I4)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Cell, CellConflict, Datastore, PutStatus
from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.base import Stored
from schemaless_core.engine.mysql import writes
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find, find_latest
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.failpoints import reach, use_folder
from tests.chaos.actors import wait_until
from tests.factories import make_cell
from tests.stores import ServerEngine, Stores

POINT = "put.latest_seen"


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores) -> Datastore:
    return stores.fresh(server_engine, shards=1)


@pytest.fixture
def points(failpoints: Path) -> Iterator[Path]:
    use_folder(failpoints)
    yield failpoints
    use_folder(None)


def put_meanwhile(store: Datastore, points: Path, refused: Cell, others: list[Cell]) -> object:
    """Put a cell that expects ref key 1 where there is none; others are put between the looks for the reason."""
    (points / POINT).write_text("wait")
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(store.using(deadline=30).put_cell, *refused.key, refused.body, expect_latest=1)
        wait_until("it has seen the latest", (points / f"{POINT}.hit").exists)
        for cell in others:
            store.put_cell(*cell.key, cell.body)
        (points / f"{POINT}.go").touch()
        return answer.exception() or answer.result()


def versions(*bodies: str) -> list[Cell]:
    row_key = uuid4()
    return [make_cell(row_key, ref_key=n, body=body) for n, body in enumerate(bodies, start=1)]


def test_i2_a_refused_put_that_another_did_meanwhile_is_there(store: Datastore, points: Path) -> None:
    """As when its own first packet, of which the client heard nothing, is run by the server only now."""
    first, second = versions("first", "second")

    answer = put_meanwhile(store, points, second, [first, second])

    assert getattr(answer, "status", answer) == PutStatus.EXISTS


def test_i2_a_refused_put_whose_key_was_taken_meanwhile_is_told_by_whom(store: Datastore, points: Path) -> None:
    first, second, third = versions("first", "second", "third")

    answer = put_meanwhile(store, points, Cell(*second.key, "another"), [first, second, third])

    assert isinstance(answer, CellConflict)
    assert (answer.stored, answer.expected) == (second, None)


def test_a_refused_put_beside_which_nothing_happens_is_told_the_latest(store: Datastore, points: Path) -> None:
    _, second = versions("first", "second")

    answer = put_meanwhile(store, points, second, [])

    assert isinstance(answer, CellConflict)
    assert (answer.stored, answer.expected) == (None, 1)


def key_first(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, _expected: int) -> Stored | None:
    key = find(connection, names, gate.shard, *cell[:3])
    reach(POINT)
    latest = find_latest(connection, names, gate.shard, cell.row_key, cell.column_name)
    return Stored(False, None, next(iter(key.cells or latest.cells), None))


def test_control_a_key_that_is_looked_for_first_is_told_of_two_moments(
    store: Datastore, points: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = versions("first", "second", "third")
    monkeypatch.setattr(writes, "_in_the_way", key_first)

    answer = put_meanwhile(store, points, second, [first, second, third])

    assert isinstance(answer, CellConflict)
    assert answer.stored == third
