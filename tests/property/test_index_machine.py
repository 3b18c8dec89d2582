"""Random cells in any order, entries written by anybody at any time, and every query held against the oracle's.

Verified answers are equal always; fast ones once the maintainer has caught up, whatever is written late after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch
from uuid import UUID, uuid5

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from schemaless_core import Cell, CellStore, Condition, Datastore, Json, MemoryStore
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import load_definitions
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.engine.index_sql import Clause
from schemaless_core.indexes import lookup
from schemaless_core.indexes.lookup import IndexQueries
from schemaless_core.indexes.rows import AloneCells, Rows
from schemaless_core.indexes.writer import EntryPlan
from tests.indexing import catch_up, nothing_after_commit
from tests.legacy_databases import FLAVOURS
from tests.property.operations import answer_of
from tests.scale import scaled
from tests.stores import DATASTORE_ENGINES, Stores
from tripstore.backends.postgres.queries import queries
from tripstore.backends.postgres.queries.sources import FreeSource

STEPS_PER_EXAMPLE = 30
STEPS = scaled(6_000, short=150)
SHARDS = 4
ROWS = 4

DEFINITIONS: list[Json] = [
    {
        "table": "by_owner",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [{"field": "owner", "type": "string"}, {"field": "seats", "type": "int"}],
            },
            {
                "column_key": "STATUS",
                "fields": [{"field": "state", "type": "string"}, {"field": "fare", "type": "decimal"}],
            },
        ],
    },
    {
        "table": "by_state",
        "column_defs": [
            {"column_key": "STATUS", "fields": [{"field": "state", "type": "string"}]},
            {"column_key": "BASE", "fields": [{"field": "seats", "type": "int"}]},
        ],
    },
]
VALUES: dict[str, list[Any]] = {
    "owner": ["a", "b", "c"],
    "state": ["a", "b"],
    "seats": [-1, 0, 1, 2],
    "fare": [Decimal("0.1"), Decimal(1), Decimal("12.50")],
}
FIELDS = {"by_owner": ["owner", "seats", "state", "fare"], "by_state": ["state", "seats"]}

_examples = itertools.count()

rows = st.integers(0, ROWS - 1)
refs = st.sampled_from([-(2**63), -3, 0, 1, 2, 3, 7, 2**63 - 1])
names = st.sampled_from(["a", "b", "c"])
base_bodies = st.one_of(
    st.fixed_dictionaries({"owner": names}, optional={"seats": st.sampled_from([-1, 0, 1, 2, "bad", None])}),
    st.sampled_from([None, {}, {"owner": 5}, ["no object"]]),
)
status_bodies = st.one_of(
    st.fixed_dictionaries(
        {"state": st.sampled_from(["a", "b"])}, optional={"fare": st.sampled_from(["0.1", 1, 12.5, "bad"])}
    ),
    st.sampled_from([None, {"fare": 1}]),
)
#: Row, column, ref key, body; the other column is of no index.
cells = st.one_of(
    st.tuples(rows, st.just("BASE"), refs, base_bodies),
    st.tuples(rows, st.just("BASE"), refs, base_bodies),
    st.tuples(rows, st.just("STATUS"), refs, status_bodies),
    st.tuples(rows, st.just("NOTES"), refs, base_bodies),
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, str, list[Condition], dict[str, Any]]:
    """An index, a shard value, conditions with every operator, and an order with pages."""
    index = draw(st.sampled_from(sorted(FIELDS)))
    where: list[Any] = []
    for field in draw(st.lists(st.sampled_from(FIELDS[index][1:]), max_size=2)):
        operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "between"]))
        value = draw(st.sampled_from(VALUES[field]))
        if operator == "in":
            value = draw(st.lists(st.sampled_from(VALUES[field]), max_size=3))
        elif operator == "between":
            value = (value, draw(st.sampled_from(VALUES[field])))
        where.append((field, operator, value))
    options = {
        "order_by": draw(st.none() | st.sampled_from(FIELDS[index])),
        "descending": draw(st.booleans()),
        "limit": draw(st.integers(1, 4)),
        "columns": draw(st.sampled_from([None, "*", ["BASE"]])),
    }
    return index, draw(names), where, options


def pages(store: CellStore, question: Any, consistency: Any) -> list[object]:
    """All pages of a question, cursors included."""
    index, shard_value, where, options = question
    found: list[object] = []
    cursor = None
    while True:
        page = store.query_index(index, shard_value, where, cursor=cursor, consistency=consistency, **options)
        found.append(page)
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(found) <= ROWS


class QueryMachine(RuleBasedStateMachine):
    """One store and the oracle. Each example has rows of its own, and shard values of its own."""

    store: ClassVar[CellStore]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        number = next(_examples)
        self.rows = [uuid5(UUID(int=number), str(n)) for n in range(ROWS)]
        self.prefix = f"{number}-"
        self.oracle = MemoryStore(
            shards=SHARDS, indexes=load_definitions(DEFINITIONS, Path.cwd(), "any"), lagging_indexes=False
        )

    def own(self, body: Json) -> Json:
        """A body whose shard values no other example has."""
        if not isinstance(body, dict):
            return body
        return {
            key: self.prefix + value if key in ("owner", "state") and isinstance(value, str) else value
            for key, value in body.items()
        }

    def asked(self, question: Any) -> Any:
        """A question about values of this example."""
        index, shard_value, where, options = question

        def own(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [own(each) for each in value]
            return self.prefix + value

        mine = [
            (field, operator, own(value) if field in ("owner", "state") else value) for field, operator, value in where
        ]
        return index, self.prefix + shard_value, mine, options

    def put_all(self, batch: Sequence[Cell]) -> None:
        type(self).steps += 1
        if len(batch) == 1:
            answers = [answer_of(lambda: store.put_cell(*batch[0].key, batch[0].body)) for store in self.both]  # noqa: B023
        else:
            answers = [answer_of(lambda: store.put_cells(batch)) for store in self.both]  # noqa: B023
        statuses = [_statuses(answer) for answer in answers]
        assert statuses[0] == statuses[1]

    @property
    def both(self) -> tuple[CellStore, CellStore]:
        return self.store, self.oracle

    @rule(batch=st.lists(cells, min_size=1, max_size=4))
    def put(self, batch: list[tuple[int, str, int, Json]]) -> None:
        self.put_all([Cell(self.rows[row], column, ref, self.own(body)) for row, column, ref, body in batch])

    @rule(question=questions())
    def ask_verified(self, question: Any) -> None:
        type(self).steps += 1
        self.compare(question, "verified")

    @rule(question=questions())
    def ask_fast_after_the_maintainer(self, question: Any) -> None:
        type(self).steps += 1
        self.settle()
        self.compare(question, "fast")

    def settle(self) -> None:
        """Nothing: a store without entries has none to write."""

    def compare(self, question: Any, consistency: str) -> None:
        asked = self.asked(question)
        assert pages(self.store, asked, consistency) == pages(self.oracle, asked, consistency)

    def compare_all(self, consistency: str) -> None:
        for index in FIELDS:
            for value in ("a", "b", "c"):
                options = {"order_by": None, "descending": False, "limit": ROWS, "columns": None}
                self.compare((index, value, [], options), consistency)

    def teardown(self) -> None:
        self.compare_all("verified")
        self.settle()
        self.compare_all("fast")


class IndexMachine(QueryMachine):
    """The same of a store whose entries anybody writes at any time."""

    store: ClassVar[Datastore]

    def __init__(self) -> None:
        super().__init__()
        self.versions = self.store.indexes.catalogue.kept()
        self.committed: list[Cell] = []
        #: What a maintainer has read and not written yet.
        self.plans: list[tuple[EntryPlan, list[Cell]]] = []

    def put_all(self, batch: Sequence[Cell]) -> None:
        super().put_all(batch)
        known = {cell.key for cell in self.committed}
        for cell in batch:
            stored = self.oracle.get_cell(*cell.key)
            if cell.key not in known and stored is not None:
                self.committed.append(stored)

    @rule(data=st.data(), may_be_alone=st.booleans())
    def a_maintainer_reads(self, data: st.DataObject, may_be_alone: bool) -> None:
        """A writer or a maintainer of any process begins with some cells, perhaps again."""
        if self.committed:
            chosen = data.draw(st.lists(st.sampled_from(range(len(self.committed))), min_size=1, max_size=3))
            some = [self.committed[n] for n in chosen]
            plans = self.store.indexes.writer.plan(self.versions, some, Deadline(20), may_be_alone=may_be_alone)
            self.plans += [(plan, some) for plan in plans]

    @rule(data=st.data(), is_last=st.booleans())
    def a_maintainer_writes(self, data: st.DataObject, is_last: bool) -> None:
        """Someone who read at any time before writes now, perhaps not for the last time."""
        if self.plans:
            n = data.draw(st.integers(0, len(self.plans) - 1))
            plan, some = self.plans.pop(n) if is_last else self.plans[n]
            assert self.store.indexes.writer.carry_out(plan, some, Deadline(20)) == [None] * len(some)

    def settle(self) -> None:
        catch_up(self.store, page_cells=3)

    def teardown(self) -> None:
        super().teardown()
        while self.plans:  # those who come after the maintainer
            plan, some = self.plans.pop()
            self.store.indexes.writer.carry_out(plan, some, Deadline(20))
        self.compare_all("fast")


def _statuses(answer: object) -> object:
    """What became of each cell; added ids differ, as examples share the logs."""
    if isinstance(answer, list):
        return [_statuses(part) for part in answer]
    return answer[0] if isinstance(answer, tuple) else answer


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries look at so few entries, cells and rows at once that they must come back for more."""
    monkeypatch.setattr(lookup, "ENTRIES_PER_PAGE", 2)
    monkeypatch.setattr(lookup, "CELLS_PER_PAGE", 3)
    monkeypatch.setattr(queries, "ROWS_PER_PORTION", 2)


@pytest.mark.parametrize("engine", [*DATASTORE_ENGINES, *FLAVOURS])
def test_queries_of_every_engine_equal_the_oracles_whatever_the_order_of_cells_and_writes(
    engine: str, stores: Stores
) -> None:
    store = stores.fresh_store(engine, shards=SHARDS, indexes=DEFINITIONS)
    base = IndexMachine if isinstance(store, Datastore) else QueryMachine
    machine = type("Machine", (base,), {"store": store, "steps": 0})

    with nothing_after_commit():
        while machine.steps < STEPS:  # type: ignore[attr-defined]  # made above
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=-(-STEPS // STEPS_PER_EXAMPLE),
                    stateful_step_count=STEPS_PER_EXAMPLE,
                    derandomize=False,
                ),
            )

    print(f"{engine}: {machine.steps:,} puts and queries equal to the oracle's")  # type: ignore[attr-defined]


class HastyMachine(IndexMachine):
    """The maintainer of a cell has read its row before the cell was committed."""

    def put_all(self, batch: Sequence[Cell]) -> None:
        self.plans += [(plan, []) for plan in self.store.indexes.writer.plan(self.versions, batch, Deadline(20))]
        super().put_all(batch)

    def settle(self) -> None:
        for plan, some in self.plans:
            self.store.indexes.writer.carry_out(plan, some, Deadline(20))


def _oldest(source: FreeSource, row_key: str, conditions: Sequence[CheckedCondition]) -> list[Clause]:
    places = super(FreeSource, source)._places(row_key, conditions)
    return [Clause(place.text.replace("ref_key DESC", "ref_key"), place.values) for place in places]


def _all_alone(_rows: Rows, keyed: Iterable[tuple[bytes, Cell]], _deadline: Deadline) -> AloneCells:
    return {(row_key, cell.column_name): cell for row_key, cell in keyed}


#: An engine, and what is replaced in it.
WRONG: dict[str, tuple[str, type[Any], str, Any]] = {
    "the version before is not looked for": ("sqlite", Rows, "before", lambda self, cells, deadline: ([], {})),
    "every cell is taken for alone": ("sqlite", Rows, "alone", _all_alone),
    "verified looks at entries only": ("sqlite", IndexQueries, "_touched", lambda self, version, deadline: set()),
    "the oldest cell of a free column counts": ("postgres", FreeSource, "_places", _oldest),
}


@pytest.mark.parametrize("wrong", [*WRONG, "rows are read before the commit"])
def test_the_machine_catches(wrong: str, stores: Stores) -> None:
    """The controls."""
    engine, *replaced = WRONG.get(wrong, ("sqlite",))
    store = stores.fresh_store(engine, shards=SHARDS, indexes=DEFINITIONS)
    base = {"sqlite": IndexMachine if replaced else HastyMachine, "postgres": QueryMachine}[engine]
    machine = type("Broken", (base,), {"store": store})

    with ExitStack() as patched:
        patched.enter_context(nothing_after_commit())
        if replaced:
            patched.enter_context(patch.object(*replaced))
        with pytest.raises(AssertionError):
            run_state_machine_as_test(
                machine, settings=settings(max_examples=500, stateful_step_count=30, phases=[Phase.generate])
            )
