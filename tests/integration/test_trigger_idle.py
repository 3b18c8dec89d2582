"""A worker with nothing to do looks less often, and hears of the next cell all the same (I7)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from uuid import uuid4

import pytest

from schemaless_core import Cell
from schemaless_core.cell.standing import ShardHead
from schemaless_core.triggers.watch import HeadsWatch
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, working
from tests.stores import Stores

POLL_SECONDS, IDLE_SECONDS = 0.002, 0.2


@pytest.mark.parametrize("idle_poll_seconds", [IDLE_SECONDS, POLL_SECONDS])
def test_an_idle_worker_looks_less_often_until_something_moves(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, idle_poll_seconds: float
) -> None:
    """Control: with one pause for all times it looks as often as ever."""
    looked_at: list[float] = []
    look = HeadsWatch.look

    def counted(watch: HeadsWatch) -> Mapping[int, ShardHead]:
        looked_at.append(time.monotonic())
        return look(watch)

    monkeypatch.setattr(HeadsWatch, "look", counted)
    triggers = quick(poll_seconds=POLL_SECONDS, idle_poll_seconds=idle_poll_seconds)
    store, notebook = stores.fresh("sqlite", shards=2, triggers=triggers), Notebook()

    def pause_seconds() -> float:
        return looked_at[-1] - looked_at[-2]

    with working(store, [noting(notebook)]):
        if idle_poll_seconds == POLL_SECONDS:
            wait_until("it has looked very often", lambda: len(looked_at) > 300)
            assert sum(b - a < IDLE_SECONDS for a, b in itertools.pairwise(looked_at)) > 250
            return
        wait_until("its pauses are long", lambda: len(looked_at) > 2 and pause_seconds() >= IDLE_SECONDS)
        store.put_cell(uuid4(), "BASE", 1, "news")
        put_at = time.monotonic()
        wait_until("it is delivered", lambda: len(notebook.cells) == 1, 5)
        assert time.monotonic() - put_at < 2.0
        since = len(looked_at)
        wait_until("it looks often again", lambda: len(looked_at) > since + 20, 5)
        short = [b - a for a, b in zip(looked_at[since:], looked_at[since + 1 :], strict=False)]
        assert sorted(short)[len(short) // 2] < IDLE_SECONDS / 4
        assert notebook.cells == [Cell(*notebook.cells[0].key, "news")]
