"""Reads that include what waits in buffers: one deadline for a call, and pages that skip nothing (I5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from schemaless_core import Cell, CellKey, Datastore, NodeUnavailable
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.integration.test_buffered_puts import Lame, lame
from tests.stores import ServerEngine, Stores

#: Of a call; and what it may take on two busy cores. Buffers, then shards, then shards again took three of the first.
DEADLINE_SECONDS, PATIENCE_SECONDS = 2.0, 2.8


@pytest.fixture
def half(server_engine: ServerEngine, stores: Stores) -> Iterator[Lame]:
    with lame(server_engine, stores) as made:
        yield made


@pytest.mark.parametrize("at_once", [1_000, 2])
def test_a_read_of_a_silent_cluster_and_its_buffers_has_one_deadline(
    half: Lame, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """It swallows packets, and its breaker is closed: each question to it is waited for. The other one has its time."""
    monkeypatch.setattr("schemaless_core.buffers.buffers.KEYS_PER_CALL", at_once)
    store = half.store
    on_a, on_b = rows_on(store, "a", 3), rows_on(store, "b", 3)
    cells = [Cell(row, "BASE", 1, "x") for row in (*on_a, *on_b)]
    store.put_cells([cell for cell in cells if cell.row_key in on_b])
    with half.down("swallow"):
        store.put_cells([cell for cell in cells if cell.row_key in on_a])
        everywhere = store.using(include_buffered=True, deadline=DEADLINE_SECONDS)
        keys = [cell.key for cell in cells]
        store.clusters["a"].primary.reads.succeeded()

        started = time.monotonic()
        assert everywhere.get_cells(keys) == cells
        took = time.monotonic() - started

        with pytest.raises(NodeUnavailable):
            everywhere.get_cells([*keys, CellKey(on_a[0], "BASE", 2)])
    assert took < PATIENCE_SECONDS


@pytest.mark.parametrize("large", ["stored", "waiting"])
def test_i5_pages_of_a_column_of_which_some_versions_wait_skip_none(
    half: Lame, monkeypatch: pytest.MonkeyPatch, large: str
) -> None:
    """Of one kind a page holds two, of the other all: behind the second of them stands what the page lacks."""
    store, body = half.store, {"stored": "x", "waiting": "x"} | {large: "x" * 100}
    (row,) = rows_on(store, "a", 1)
    for ref_key in range(0, 12, 2):
        store.put_cell(row, "BASE", ref_key, body["stored"])
    with half.down():
        for ref_key in range(1, 12, 2):
            store.put_cell(row, "BASE", ref_key, body["waiting"])
    everywhere = store.using(include_buffered=True)
    wait_until("it answers again", lambda: _answers(store, row))
    monkeypatch.setattr("schemaless_core.cell.page_bytes.PAGE_BYTES", 2 * 102)

    found: list[int] = []
    while page := everywhere.get_history(row, "BASE", before=found[-1] if found else None, limit=5):
        assert len(page) <= 5
        found += [cell.ref_key for cell in page]

    assert found == [*range(11, -1, -1)]
    assert everywhere.get_cell_latest(row, "BASE") == Cell(row, "BASE", 11, body["waiting"])
    assert {cell.ref_key for cell in everywhere.get_row(row).values()} == {11}


def _answers(store: Datastore, row: UUID) -> bool:
    try:
        return store.get_cell(row, "BASE", 0) is not None
    except NodeUnavailable:
        return False
