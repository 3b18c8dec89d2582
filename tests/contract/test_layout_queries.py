"""The contract of index queries, on columns that a layout maps to a company's tables, with bodies of its strategy.

Every put and every question goes to the oracle as well. Free columns have the contract itself, `query_index`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemaless_core import Cell, CellConflict, CellStore, Json, MemoryStore
from schemaless_core.definitions.index import load_definitions
from tests.column_types import ColumnType, read_column_types
from tests.integration.test_forks import forked
from tests.layout_strategy import bodies
from tests.legacy import USERS
from tests.legacy_backends import DRIVERS, SHARDS, Company, company, status
from tests.legacy_databases import FLAVOURS, PATIENT, postgres_server
from tests.questions import ask_both
from tests.scale import scaled
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, Unrepresentable
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.queries import queries
from tripstore.backends.postgres.queries.physical import PhysicalTypes
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.local.servers import LocalServers

ROWS = 5
CHILD = 1 << 20


def index(name: str, **columns: str) -> Json:
    """Fields are written like status:string."""
    return {
        "table": name,
        "column_defs": [
            {
                "column_key": column,
                "fields": [dict(zip(("field", "type"), each.split(":"), strict=True)) for each in fields.split()],
            }
            for column, fields in columns.items()
        ],
    }


#: `more` stands in the json beside the columns.
DEFINITIONS = load_definitions(
    [
        index(
            "by_driver",
            BASE="driver_uuid:UUID status:string fare:decimal distance:float request_at:datetime more:int",
            NOTES="text:string",
            FREE="free:UUID",
        ),
        index("by_status", BASE="status:string fare:decimal", STATUS="result:string"),
        index("by_fare", BASE="fare:decimal driver_uuid:UUID"),
        index("by_distance", BASE="distance:float status:string"),
        index("by_request", BASE="request_at:datetime distance:float", NOTES="text:string"),
        index("by_more", BASE="more:int status:string"),
        index("by_note", NOTES="text:string", BASE="driver_uuid:UUID fare:decimal"),
        index("by_result", STATUS="result:string", FREE="free:UUID"),
        index("by_free", FREE="free:UUID", BASE="driver_uuid:UUID distance:float"),
        index("by_id", _LEGACY_ID="id:int", BASE="status:string"),
    ],
    Path.cwd(),
    "trips",
)
MAPPED = [definition for definition in DEFINITIONS if definition.name != "by_id"]


@pytest.fixture(params=FLAVOURS, scope="module")
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    with company(postgres_server(servers, FLAVOURS[request.param]), indexes=DEFINITIONS) as made:
        yield made


@pytest.fixture(scope="module")
def types(trips: Company) -> dict[str, dict[str, ColumnType]]:
    with connected(trips.legacy.url, "test") as connection:
        return {name: read_column_types(connection, each.table) for name, each in trips.store.layout.columns.items()}


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements fetch so few rows that a page needs several."""
    monkeypatch.setattr(queries, "ROWS_PER_PORTION", 2)


def clear(trips: Company) -> None:
    """As if no trip had ever been."""
    trips.legacy.sql("DELETE FROM trips; DELETE FROM tripstore.cell; DELETE FROM tripstore.tomb")
    trips.legacy.sql("DELETE FROM tripstore.queue; DELETE FROM tripstore.log")


def drawn_cells(trips: Company, types: dict[str, dict[str, ColumnType]], keys: Sequence[UUID]) -> Any:
    """Cells of these rows in any order, with bodies that the layout can hold, or none."""
    more = st.fixed_dictionaries({}, optional={"more": st.sampled_from([1, 2, 11, "1", None])})
    of_column = {
        name: bodies(column, types[name], {USERS: DRIVERS}) for name, column in trips.store.layout.columns.items()
    }
    of_column["BASE"] = st.builds(lambda body, extra: body | extra, of_column["BASE"], more)
    of_column["FREE"] = st.uuids().map(lambda value: {"free": value.hex.upper()})
    refs = {"NOTES": [CHILD, CHILD + 1, 2 * CHILD], "STATUS": [1, 2], "BASE": [1, 2, 3], "FREE": [1, 2]}
    return st.lists(
        st.sampled_from(sorted(of_column)).flatmap(
            lambda name: st.builds(
                Cell,
                st.sampled_from(keys),
                st.just(name),
                st.sampled_from(refs[name]),
                st.one_of(of_column[name], of_column[name], of_column[name], st.none()),
            )
        ),
        min_size=ROWS,
        max_size=4 * ROWS,
    )


def put_both(store: CellStore, oracle: MemoryStore, cell: Cell) -> None:
    """The oracle hears of what the tables could take."""
    expected: AbstractContextManager[object] = nullcontext()
    try:
        store.put_cell(*cell.key, cell.body)
    except (LegacyRefused, Unrepresentable):
        assert cell.body is None  # a parent with rows below it, facts with a parent: they have no tombstone
        return
    except CellConflict:
        expected = pytest.raises(CellConflict)
    with expected:
        oracle.put_cell(*cell.key, cell.body)


@settings(max_examples=scaled(400, least=15))
@given(data=st.data())
def test_every_question_is_answered_as_by_the_oracle(
    trips: Company, types: dict[str, dict[str, ColumnType]], data: st.DataObject
) -> None:
    clear(trips)
    keys = [UUID(int=(number * 7919 % 251) << 120 | number) for number in range(ROWS)]
    oracle = MemoryStore(shards=SHARDS, indexes=DEFINITIONS, lagging_indexes=False)
    for key in keys:
        put_both(trips.store, oracle, Cell(key, "BASE", 1, {"driver_uuid": DRIVERS[0]}))
    for cell in data.draw(drawn_cells(trips, types, keys)):
        put_both(trips.store, oracle, cell)
    choose = data.draw(st.randoms(use_true_random=False))

    for definition in MAPPED:
        ask_both(trips.store, oracle, definition, keys, choose, columns=[None, ["BASE", "FREE"]])


def test_the_questions_find_rows_and_a_difference_would_be_seen(trips: Company) -> None:
    """The control: the oracle does not hear of one cell."""
    clear(trips)
    store, oracle, keys = (
        trips.store,
        MemoryStore(shards=SHARDS, indexes=DEFINITIONS, lagging_indexes=False),
        [uuid4() for _ in range(9)],
    )
    for number, key in enumerate(keys):
        put_both(store, oracle, Cell(key, "BASE", 1, {"driver_uuid": DRIVERS[number % 2], "fare": f"{number}.50"}))
        put_both(store, oracle, Cell(key, "NOTES", CHILD, {"text": "ab"[number % 2]}))
    choose = random.Random(7)

    def ask(times: int) -> int:
        return sum(ask_both(store, oracle, each, keys, choose) > 0 for _ in range(times) for each in MAPPED)

    assert ask(8) > 8
    store.put_cell(keys[0], "NOTES", CHILD + 1, {"text": "c"})
    with pytest.raises(AssertionError, match="by_"):
        ask(100)


def test_the_pair_of_a_row_is_found_by_its_id_with_all_cells_of_the_row(trips: Company) -> None:
    clear(trips)
    row_key = trips.base()
    trips.store.put_cell(row_key, "FREE", 1, {"free": 1})
    ((number,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))

    (entry,) = trips.store.query_index("by_id", number, columns="*").entries

    assert (entry.row_key, entry.fields) == (row_key, {"id": number, "status": "1"})
    assert entry.cells == trips.store.get_row(row_key)
    assert set(entry.cells or ()) == {"BASE", "FREE", LEGACY_ID}

    trips.store.put_cell(row_key, "BASE", 2, None)
    (entry,) = trips.store.query_index("by_id", number, columns="*").entries
    assert (entry.row_key, entry.fields) == (row_key, {"id": number, "status": None})
    assert entry.cells == trips.store.get_row(row_key)
    trips.base(3, row_key=row_key)
    (entry,) = trips.store.query_index("by_id", number).entries
    assert (entry.row_key, entry.fields) == (row_key, {"id": number, "status": "3"})


# ------------------------------------------------------------------------------------------------- one for all habits


def another(trips: Company, settings: LegacySettings = PATIENT) -> PostgresBackend:
    """A store on the same tables that was never asked anything."""
    database = LegacyDatabase(trips.legacy.url, settings)
    return PostgresBackend(database, trips.store.layout, shards=SHARDS, indexes=DEFINITIONS)


def test_the_types_of_columns_are_read_once_whatever_the_habits(trips: Company) -> None:
    with another(trips) as store, patch.object(PhysicalTypes, "read", wraps=PhysicalTypes.read) as read:
        for deadline in (20.0, 21.0, None):
            store.using(deadline=deadline).query_index("by_status", "x")
            store.using(deadline=deadline).query_index("by_driver", DRIVERS[0])

    assert read.call_count == 1


def test_threads_and_forked_children_share_a_store(trips: Company) -> None:
    clear(trips)
    for number in range(20):
        trips.store.put_cell(uuid4(), "BASE", 1, status(number) | {"driver_uuid": DRIVERS[0], "fare": f"{number % 3}"})
    expected = trips.store.query_index("by_driver", DRIVERS[0], order_by="fare")
    assert len(expected.entries) == 20

    with another(trips) as store, ThreadPoolExecutor(4) as pool:

        def ask(number: int) -> bool:
            page = store.using(deadline=20.0 + number).query_index("by_driver", DRIVERS[0], order_by="fare")
            return page == expected

        def ask_in_child() -> None:
            assert ask(0)

        asked = [pool.submit(ask, number) for number in range(20)]
        codes = [forked(ask_in_child) for _ in range(3)]
        answers = [each.result(60) for each in asked]

    assert codes == [0, 0, 0]
    assert all(answers)


def test_a_query_that_reads_more_than_its_page_has_the_time_of_a_scan(trips: Company) -> None:
    """A deadline that was asked for binds it all the same."""
    clear(trips)
    row_key = uuid4()
    trips.store.put_cell(row_key, "BASE", 1, {"driver_uuid": DRIVERS[0], "status": "x", "more": 1})
    hasty = replace(PATIENT, deadlines=replace(PATIENT.deadlines, read_seconds=1e-6))
    with another(trips, hasty) as store:
        store.using(deadline=20.0).query_index("by_status", "x")  # knows the types

        with closing(trips.legacy.connect()) as locked:  # else an answer may be there before anybody looks at the clock
            locked.cursor().execute("LOCK TABLE trips")
            for refused in (store, store.using(deadline=1e-6)):
                with pytest.raises(LegacyUnavailable):
                    refused.query_index("by_status", "x", order_by="fare")
            with pytest.raises(LegacyUnavailable):
                store.using(deadline=1e-6).query_index("by_more", 1)

        found = [
            store.query_index("by_more", 1),
            store.query_index("by_status", "x", order_by="result"),
            store.query_index("by_driver", DRIVERS[0], order_by="free"),
        ]
    assert [[entry.row_key for entry in page.entries] for page in found] == [[row_key]] * 3
