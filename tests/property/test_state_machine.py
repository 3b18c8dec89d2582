"""Random calls against every engine, each answer held against the oracle's (I2, I3, I4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID, uuid5

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from schemaless_core import Cell, CellKey, CellStore, ColumnKey, Datastore, Json, MemoryStore
from tests.property import operations as op
from tests.scale import scaled
from tests.stores import DATASTORE_ENGINES, Stores

STEPS_PER_EXAMPLE = 50
STEPS = scaled(20_000, short=400)

_examples = itertools.count()


class StoreMachine(RuleBasedStateMachine):
    """One store and the oracle, asked the same. Each example lives in rows of its own and in the logs' new ends."""

    store: ClassVar[CellStore]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        space = UUID(int=next(_examples))
        self.rows = [uuid5(space, str(n)) for n in range(op.ROWS)]
        self.shards = sorted({self.store.shard_of(row) for row in self.rows})
        self.oracle = MemoryStore(shards=self.store.config.shards)  # type: ignore[attr-defined]  # a Datastore
        # Cells of earlier examples fill the oracle's logs too, so that added ids are the same numbers.
        for shard in self.shards:
            head = self.store.get_cells_for_shard(shard, 0, 1).head
            self.oracle._logs[shard] = [Cell(UUID(int=0), "EARLIER", n, n, n) for n in range(1, head + 1)]
        self.heads = {shard: len(self.oracle._logs[shard]) for shard in self.shards}

    def both(self, call: Callable[[CellStore], Any]) -> None:
        type(self).steps += 1
        assert op.answer_of(lambda: call(self.store)) == op.answer_of(lambda: call(self.oracle))

    @rule(key=op.keys, body=op.bodies)
    def put(self, key: tuple[int, str, int], body: Json) -> None:
        self.both(lambda store: store.put_cell(self.rows[key[0]], key[1], key[2], body))

    @rule(key=op.keys, body=op.bodies, expected=st.none() | op.refs)
    def put_expecting(self, key: tuple[int, str, int], body: Json, expected: int | None) -> None:
        self.both(lambda store: store.put_cell(self.rows[key[0]], key[1], key[2], body, expect_latest=expected))

    @rule(row=op.rows, column=op.columns, body=op.bodies)
    def put_right_expectation(self, row: int, column: str, body: Json) -> None:
        latest = self.oracle.get_cell_latest(self.rows[row], column)
        ref = 1 if latest is None else min(latest.ref_key + 1, 2**63 - 1)
        expected = None if latest is None else latest.ref_key
        self.both(lambda store: store.put_cell(self.rows[row], column, ref, body, expect_latest=expected))

    @rule(batch=st.lists(st.tuples(op.keys, op.bodies), max_size=8))
    def put_batch(self, batch: list[tuple[tuple[int, str, int], Json]]) -> None:
        cells = [Cell(self.rows[row], column, ref, body) for (row, column, ref), body in batch]
        self.both(lambda store: store.put_cells(cells))

    @rule(row=op.rows, column=op.columns, body=op.bodies)
    def append(self, row: int, column: str, body: Json) -> None:
        self.both(lambda store: store.append_cell(self.rows[row], column, body))

    @rule(key=op.keys)
    def get(self, key: tuple[int, str, int]) -> None:
        self.both(lambda store: store.get_cell(self.rows[key[0]], key[1], key[2]))

    @rule(row=op.rows, column=op.columns)
    def get_latest(self, row: int, column: str) -> None:
        self.both(lambda store: store.get_cell_latest(self.rows[row], column))

    @rule(wanted=st.lists(op.keys, max_size=6))
    def get_many(self, wanted: list[tuple[int, str, int]]) -> None:
        keys = [CellKey(self.rows[row], column, ref) for row, column, ref in wanted]
        columns = [ColumnKey(row_key, column) for row_key, column, _ref in keys]
        self.both(lambda store: [store.get_cells(keys), store.get_cells_latest(columns)])

    @rule(row=op.rows, some=st.none() | st.lists(op.columns, max_size=3))
    def get_row(self, row: int, some: list[str] | None) -> None:
        self.both(lambda store: store.get_row(self.rows[row], some))

    @rule(row=op.rows, column=op.columns, before=st.none() | op.refs, limit=st.integers(1, 4))
    def get_history(self, row: int, column: str, before: int | None, limit: int) -> None:
        self.both(lambda store: store.get_history(self.rows[row], column, before=before, limit=limit))

    @rule(back=st.integers(0, 6), limit=st.integers(1, 5))
    def tail(self, back: int, limit: int) -> None:
        locations = {shard: max(self.heads[shard], len(self.oracle._logs[shard]) - back) for shard in self.shards}

        def pages(store: CellStore) -> object:
            answers = store.get_cells_for_shards(dict(locations), limit)
            return {shard: (page.cells, page.next_location, page.head) for shard, page in answers.items()}

        self.both(pages)

    @rule()
    def compare_whole_shards(self) -> None:
        for shard in self.shards:
            head = self.store.get_cells_for_shard(shard, len(self.oracle._logs[shard]), 1).head
            assert head == len(self.oracle._logs[shard])
        page = {shard: self.store.get_cells_for_shard(shard, self.heads[shard], 1000).cells for shard in self.shards}
        assert {shard: [(cell, cell.added_id) for cell in cells] for shard, cells in page.items()} == {
            shard: [(cell, cell.added_id) for cell in self.oracle._logs[shard][self.heads[shard] :]]
            for shard in self.shards
        }

    def teardown(self) -> None:
        assert op.read_everything(self.store, self.rows) == op.read_everything(self.oracle, self.rows)


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_every_engine_answers_random_calls_like_the_oracle(engine: str, stores: Stores) -> None:
    datastore: Datastore = stores.fresh(engine, shards=4)
    machine = type("Machine", (StoreMachine,), {"store": datastore, "steps": 0})
    examples = -(-STEPS // STEPS_PER_EXAMPLE)

    while machine.steps < STEPS:  # type: ignore[attr-defined]  # made above
        run_state_machine_as_test(
            machine, settings=settings(max_examples=examples, stateful_step_count=STEPS_PER_EXAMPLE, derandomize=False)
        )

    print(f"{engine}: {machine.steps:,} steps equal to the oracle's")  # type: ignore[attr-defined]  # made above
    assert machine.steps >= STEPS  # type: ignore[attr-defined]  # made above


def test_the_machine_catches_a_store_that_overwrites(stores: Stores) -> None:
    """The control: a store that lets the last writer win is told from the oracle at once (I2)."""

    class Overwriting(MemoryStore):
        config = type("Config", (), {"shards": 4})

        def _put(self, cell: Cell, expect_latest: Any) -> Any:
            self._rows[cell.row_key][cell.column_name].pop(cell.ref_key, None)
            return super()._put(cell, expect_latest)

    machine = type("Broken", (StoreMachine,), {"store": Overwriting(shards=4)})

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            machine, settings=settings(max_examples=50, stateful_step_count=30, phases=[Phase.generate])
        )
