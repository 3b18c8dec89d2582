"""A store that was opened and used before a fork, as a server with several workers does it."""

from __future__ import annotations

import asyncio
import os
from uuid import uuid4

from schemaless_core import Cell
from tests.integration.aio.test_cancellation import opened, pool_of
from tests.integration.test_forks import forked
from tests.stores import ServerEngine, Stores


def test_children_ask_on_connections_of_their_own_and_the_parent_goes_on(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store, rows = opened(server_engine, stores), [uuid4() for _ in range(40)]
    store.sync.put_cells([Cell(row, "BASE", 1, str(row)) for row in rows])

    async def ask() -> list[object]:
        cells = await asyncio.gather(*(store.get_cell(row, "BASE", 1) for row in rows))
        return [cell and cell.body for cell in cells]

    def ask_in_child() -> None:
        assert asyncio.run(ask()) == [str(row) for row in rows], "another's answers"
        asyncio.run(store.put_cell(rows[0], "NOTES", os.getpid(), "from a child"))

    assert asyncio.run(ask()) == [str(row) for row in rows]
    before = {connection.session_number for connection in pool_of(store)._idle}
    assert [forked(ask_in_child) for _ in range(2)] == [0, 0]

    assert asyncio.run(ask()) == [str(row) for row in rows]
    assert {connection.session_number for connection in pool_of(store)._idle} >= before
    assert len(store.sync.get_history(rows[0], "NOTES")) == 2
    asyncio.run(store.close())
