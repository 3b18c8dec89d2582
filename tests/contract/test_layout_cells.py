"""The contract of cells, on columns that a layout maps to a company's tables: a row with versions, facts, child rows.

The same calls go to the oracle; where a body or a tombstone has no place in the tables the store says so, and nothing
has happened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    CellKey,
    CellStore,
    ColumnKey,
    InvalidRequest,
    Json,
    MemoryStore,
    Row,
    SchemalessError,
)
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from tests.column_types import read_column_types
from tests.layout_strategy import bodies
from tests.legacy import USERS
from tests.legacy_backends import DRIVERS, SHARDS, Company, company, status
from tests.legacy_databases import FLAVOURS, postgres_server
from tests.scale import scaled
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.connections import connected
from tripstore.local.servers import LocalServers

CHILD = 1 << 20


@pytest.fixture(params=FLAVOURS, scope="module")
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """One company for the file: row keys are new."""
    with company(postgres_server(servers, FLAVOURS[request.param])) as made:
        yield made


@pytest.fixture
def store(trips: Company) -> CellStore:
    return trips.store


COLUMNS = ["BASE", "STATUS", "NOTES"]


def ref(column: str, number: int) -> int:
    """The number-th ref key of a column."""
    return number * CHILD if column == "NOTES" else number


def body(column: str, text: object = "one") -> dict[str, Json]:
    return {{"BASE": "status", "STATUS": "result", "NOTES": "text"}[column]: str(text)}


def new_row(trips: Company, column: str) -> UUID:
    """A row key under which the column's cells stand in its table."""
    return uuid4() if column == "BASE" else trips.base()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_put_cell_is_read_back_equal_by_every_read(trips: Company, column: str) -> None:
    store, row_key = trips.store, new_row(trips, column)
    cell = Cell(row_key, column, ref(column, 3), body(column))

    result = store.put_cell(*cell.key, cell.body)

    assert (result.status, result.readable, result.ref_key) == ("CREATED", True, cell.ref_key)
    assert store.get_cell(*cell.key) == cell
    assert store.get_cell_latest(row_key, column) == cell
    assert store.get_cells([cell.key, CellKey(row_key, column, ref(column, 4))]) == [cell, None]
    assert store.get_cells_latest([ColumnKey(row_key, column)]) == [cell]
    assert store.get_row(row_key)[column] == cell
    assert store.get_row(row_key, [column]) == {column: cell}
    assert cell in [found.cells[column] for found in walked(store, [column])]
    assert trips.queued(row_key, column) == [cell.ref_key]


def walked(store: CellStore, columns: list[str] | None = None) -> list[Row]:
    return [row for shard in range(SHARDS) for row in store.scan_rows(shard, columns=columns).rows]


@pytest.mark.parametrize("column", COLUMNS)
def test_what_was_never_put_is_not_there(store: CellStore, column: str) -> None:
    row_key = uuid4()

    assert store.get_cell(row_key, column, 1) is None
    assert store.get_cell_latest(row_key, column) is None
    assert store.get_history(row_key, column) == []
    assert store.get_row(row_key) == {}


@pytest.mark.parametrize("column", COLUMNS)
def test_nothing_is_below_the_lowest_ref_key_there_is(trips: Company, column: str) -> None:
    row_key = new_row(trips, column)
    trips.store.put_cell(row_key, column, ref(column, 1), body(column))

    assert trips.store.get_history(row_key, column, before=-(2**63)) == []


@pytest.mark.parametrize("column", COLUMNS)
def test_an_equal_cell_exists_and_another_conflicts(trips: Company, column: str) -> None:
    store, row_key = trips.store, new_row(trips, column)
    cell = Cell(row_key, column, ref(column, 1), body(column))
    store.put_cell(*cell.key, cell.body)

    assert store.put_cell(*cell.key, cell.body).status == "EXISTS"
    with pytest.raises(CellConflict) as raised:
        store.put_cell(*cell.key, body(column, "another"))

    assert raised.value.stored == cell
    assert raised.value.attempted == Cell(*cell.key, body(column, "another"))
    assert store.get_cell(*cell.key) == cell
    assert trips.queued(row_key, column) == [cell.ref_key]


@pytest.mark.parametrize("column", COLUMNS)
def test_an_older_version_arriving_late_does_not_become_the_latest(trips: Company, column: str) -> None:
    store, row_key = trips.store, new_row(trips, column)
    cells = [Cell(row_key, column, ref(column, number), body(column, number)) for number in (5, 2, 4)]

    for cell in cells:
        assert store.put_cell(*cell.key, cell.body).status == "CREATED"
    repeated = [store.put_cell(*cell.key, cell.body).status for cell in cells]

    assert repeated == ["EXISTS"] * 3
    assert store.get_cell_latest(row_key, column) == cells[0]
    assert store.get_history(row_key, column) == [cells[0], cells[2], cells[1]]
    assert store.get_cells([cell.key for cell in cells]) == cells


@pytest.mark.parametrize("column", COLUMNS)
def test_what_is_expected_of_the_latest_cell_is_exact(trips: Company, column: str) -> None:
    store, row_key = trips.store, new_row(trips, column)
    one, two, three = (ref(column, number) for number in (1, 2, 3))

    assert store.put_cell(row_key, column, one, body(column, 1), expect_latest=None).status == "CREATED"
    with pytest.raises(CellConflict) as raised:
        store.put_cell(row_key, column, two, body(column, 2), expect_latest=None)
    assert raised.value.stored == Cell(row_key, column, one, body(column, 1))
    assert store.put_cell(row_key, column, two, body(column, 2), expect_latest=one).status == "CREATED"
    with pytest.raises(CellConflict):
        store.put_cell(row_key, column, three, body(column, 3), expect_latest=one)
    assert store.put_cell(row_key, column, two, body(column, 2), expect_latest=one).status == "EXISTS"

    assert [cell.ref_key for cell in store.get_history(row_key, column)] == [two, one]


@pytest.mark.parametrize("column", COLUMNS)
def test_appended_cells_follow_one_another(trips: Company, column: str) -> None:
    store, row_key = trips.store, new_row(trips, column)

    refs = [store.append_cell(row_key, column, body(column, number)).ref_key for number in range(3)]

    assert refs == [ref(column, number) for number in (1, 2, 3)]
    latest = store.get_cell_latest(row_key, column)
    assert latest is not None
    assert latest.body == body(column, 2)


def test_a_child_row_changes_in_place_and_stays_below_higher_numbers(trips: Company) -> None:
    store, row_key = trips.store, trips.base()
    keys = [CHILD, CHILD + 1, 2 * CHILD, CHILD + 4, 2 * CHILD + 3]

    for number in keys:
        store.put_cell(row_key, "NOTES", number, body("NOTES", number))

    assert trips.versions(row_key, "NOTES") == sorted(keys, reverse=True)
    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s ORDER BY n", str(row_key)) == [
        (1, 4),
        (2, 3),
    ]


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1])
def test_a_ref_key_that_no_child_row_can_have_is_refused_or_kept(trips: Company, number: int) -> None:
    row_key = trips.base()

    if number < 0:
        with pytest.raises(InvalidRequest):
            trips.store.put_cell(row_key, "NOTES", number, body("NOTES"))
    else:
        with pytest.raises((Unrepresentable, LegacyRefused, InvalidRequest)):
            trips.store.put_cell(row_key, "NOTES", number, body("NOTES"))

    assert trips.store.get_history(row_key, "NOTES") == []


# -------------------------------------------------------------------------------------------------- tombstones


def test_a_tombstone_deletes_the_row_and_keeps_its_own_ref_key(trips: Company) -> None:
    store, row_key = trips.store, trips.base(1, 2)

    assert store.put_cell(row_key, "BASE", 7, None).status == "CREATED"

    assert trips.legacy.sql("SELECT 1 FROM trips WHERE trip_uuid = %s", str(row_key)) == []
    assert store.get_cell_latest(row_key, "BASE") == Cell(row_key, "BASE", 7, None)
    assert store.put_cell(row_key, "BASE", 7, None).status == "EXISTS"
    assert trips.versions(row_key) == [7, 2, 1]
    assert trips.queued(row_key) == [1, 2, 7]


def test_what_was_deleted_is_never_resurrected_by_a_late_mirror(trips: Company) -> None:
    """I4: a version below the tombstone is history, in whatever order it comes."""
    store, row_key = trips.store, trips.base(1)
    store.put_cell(row_key, "BASE", 5, None)

    store.put_cell(row_key, "BASE", 4, status("late"))
    assert trips.legacy.sql("SELECT 1 FROM trips WHERE trip_uuid = %s", str(row_key)) == []
    assert trips.versions(row_key) == [5, 4, 1]

    store.put_cell(row_key, "BASE", 6, status("back"))
    assert trips.versions(row_key) == [6, 5, 4, 1]
    assert trips.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(row_key)) == [(6,)]


def test_a_tombstone_that_comes_first_keeps_older_versions_out(trips: Company) -> None:
    store, row_key = trips.store, uuid4()

    store.put_cell(row_key, "BASE", 5, None)
    store.put_cell(row_key, "BASE", 4, status("older"))

    assert store.get_cell_latest(row_key, "BASE") == Cell(row_key, "BASE", 5, None)
    assert trips.versions(row_key) == [5, 4]
    assert trips.queued(row_key) == [4, 5]


def test_a_child_rows_tombstone_deletes_that_row_alone(trips: Company) -> None:
    store, row_key = trips.store, trips.base()
    for number in (CHILD, 2 * CHILD):
        store.put_cell(row_key, "NOTES", number, body("NOTES", number))

    store.put_cell(row_key, "NOTES", 2 * CHILD + 5, None)
    store.put_cell(row_key, "NOTES", 2 * CHILD + 3, body("NOTES", "late"))

    assert trips.versions(row_key, "NOTES") == [2 * CHILD + 5, 2 * CHILD + 3, 2 * CHILD, CHILD]
    assert trips.legacy.sql("SELECT n FROM notes WHERE trip_uuid = %s", str(row_key)) == [(1,)]
    with pytest.raises(CellConflict):
        store.put_cell(row_key, "NOTES", 2 * CHILD + 5, body("NOTES"))


def test_facts_have_no_tombstone_while_their_parent_is_there(trips: Company) -> None:
    store, row_key = trips.store, trips.base()
    store.put_cell(row_key, "STATUS", 1, body("STATUS"))

    with pytest.raises(Unrepresentable, match="with their parent"):
        store.put_cell(row_key, "STATUS", 2, None)

    assert trips.versions(row_key, "STATUS") == [1]


def test_a_tombstone_of_the_parent_is_refused_while_others_have_rows(trips: Company) -> None:
    store, row_key = trips.store, trips.base()
    store.put_cell(row_key, "NOTES", CHILD, body("NOTES"))

    with pytest.raises(LegacyRefused, match="NOTES") as refused:
        store.put_cell(row_key, "BASE", 2, None)

    assert refused.value.hint
    assert set(store.get_row(row_key)) == {"BASE", "NOTES", LEGACY_ID}
    store.put_cell(row_key, "NOTES", CHILD + 1, None)
    assert store.put_cell(row_key, "BASE", 2, None).status == "CREATED"


# ------------------------------------------------------------------------------------- children before their parent


@pytest.mark.parametrize("column", ["STATUS", "NOTES"])
def test_children_wait_for_their_parent_and_move_to_its_tables(trips: Company, column: str) -> None:
    store, row_key = trips.store, uuid4()
    early = Cell(row_key, column, ref(column, 2), body(column, "early"))
    store.put_cell(*early.key, early.body)
    assert store.get_cell_latest(row_key, column) == early
    assert store.put_cell(*early.key, early.body).status == "EXISTS"

    trips.base(1, row_key=row_key)

    table = {"STATUS": "attempts", "NOTES": "notes"}[column]
    assert trips.legacy.sql(f"SELECT 1 FROM {table} WHERE trip_uuid = %s", str(row_key)) == [(1,)]
    assert trips.legacy.sql("SELECT 1 FROM tripstore.cell WHERE row_key = %s", str(row_key)) == []
    assert store.get_cell_latest(row_key, column) == early
    assert store.put_cell(*early.key, early.body).status == "EXISTS"
    assert trips.queued(row_key, column) == [early.ref_key]


# ------------------------------------------------------------------------------------------- what no row can hold


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"driver_uuid": str(UUID(int=9))}, "driver_uuid"),
        ({"driver_uuid": "no uuid"}, "driver_uuid"),
        ({"status": 1}, "status"),
        ({"status": "a\0b"}, "status"),
        ({"fare": "1e400"}, "fare"),
        ({"fare": None}, "fare"),
        ({"request_at": "2026-02-30T00:00:00.000000Z"}, "request_at"),
    ],
)
def test_a_body_that_the_row_cannot_hold_is_refused_with_its_path(
    trips: Company, changes: dict[str, Json], path: str
) -> None:
    row_key = trips.base()

    with pytest.raises(Unrepresentable) as refused:
        trips.store.put_cell(row_key, "BASE", 2, status("x") | changes)

    assert refused.value.path == path
    assert trips.versions(row_key) == [1]
    assert trips.store.put_cell(row_key, "BASE", 2, status("fine")).status == "CREATED"


@pytest.mark.parametrize("odd", [None, 1, "text", [], True])
def test_a_body_that_is_no_object_is_refused_or_a_tombstone(trips: Company, odd: Json) -> None:
    row_key = trips.base()

    if odd is None:
        assert trips.store.put_cell(row_key, "BASE", 2, odd).status == "CREATED"
    else:
        with pytest.raises(Unrepresentable):
            trips.store.put_cell(row_key, "BASE", 2, odd)


def test_a_body_that_postgres_gives_back_otherwise_is_taken_back(trips: Company) -> None:
    """A trigger of the company's rounds: the caller hears of it, nothing was stored."""
    trips.legacy.sql(
        "CREATE OR REPLACE FUNCTION rounding() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.memo IS NULL AND NEW.fare = 1.239 THEN NEW.fare := round(NEW.fare, 2); END IF; "
        "RETURN NEW; END $$"
    )
    trips.legacy.sql(
        "CREATE OR REPLACE TRIGGER rounding BEFORE INSERT OR UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION rounding()"
    )
    row_key, other = trips.base(), uuid4()

    for key, number in ((row_key, 2), (other, 1)):
        with pytest.raises(Unrepresentable) as refused:
            trips.store.put_cell(key, "BASE", number, {"status": "x", "fare": "1.239"})
        assert refused.value.path == "fare"

    assert trips.versions(row_key) == [1]
    assert trips.versions(other) == []


def test_the_legacy_id_of_a_row_is_read_and_never_put(trips: Company) -> None:
    store, row_key = trips.store, trips.base()
    ((number,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))
    pair = Cell(row_key, LEGACY_ID, 0, {"id": number})

    assert store.get_cell(*pair.key) == pair
    assert store.get_cells([pair.key, CellKey(row_key, LEGACY_ID, 1)]) == [pair, None]
    assert store.get_cell_latest(row_key, LEGACY_ID) == pair
    assert store.get_history(row_key, LEGACY_ID) == [pair]
    assert store.get_row(row_key)[LEGACY_ID] == pair
    assert store.put_cell(*pair.key, pair.body).status == "EXISTS"
    with pytest.raises(Unrepresentable):
        store.put_cell(row_key, LEGACY_ID, 0, {"id": number + 1})
    with pytest.raises(Unrepresentable):
        store.put_cell(uuid4(), LEGACY_ID, 0, {"id": 1})


# ------------------------------------------------------------------------------------------------- whole and parts


def test_a_batch_over_all_kinds_of_columns_is_stored_in_order(trips: Company) -> None:
    store, row_key = trips.store, uuid4()
    shard = store.shard_of(row_key)
    head = store.get_cells_for_shard(shard, 0, 1).head
    cells = [
        Cell(row_key, "FREE", 1, "anything"),
        Cell(row_key, "BASE", 1, status("new")),
        Cell(row_key, "STATUS", 1, body("STATUS")),
        Cell(row_key, "FREE", 2, None),
        Cell(row_key, "NOTES", CHILD, body("NOTES")),
    ]

    with pytest.raises(BatchFailed) as failed:
        store.put_cells([*cells, Cell(row_key, "BASE", 2, {"fare": "x"}), Cell(row_key, "BASE", 1, status("another"))])

    outcomes = failed.value.results
    assert [getattr(outcome, "status", type(outcome)) for outcome in outcomes] == ["CREATED"] * 5 + [
        Unrepresentable,
        CellConflict,
    ]
    assert store.get_cells_for_shard(shard, head, 10).cells == cells
    assert {result.status for result in store.put_cells(cells)} == {"EXISTS"}


@settings(max_examples=scaled(400, least=20))
@given(data=st.data())
def test_whatever_the_layout_can_hold_comes_back_equal(trips: Company, data: st.DataObject) -> None:
    store, row_key = trips.store, uuid4()
    with connected(trips.legacy.url, "test") as connection:
        types = {column.name: read_column_types(connection, column.table) for column in store.layout.columns.values()}
    columns = store.layout.columns
    for name, number in (("BASE", 1), ("BASE", 2), ("STATUS", 1), ("NOTES", CHILD), ("NOTES", CHILD + 1)):
        drawn = data.draw(bodies(columns[name], types[name], {USERS: DRIVERS}), label=name)
        cell = Cell(row_key, name, number, drawn)

        assert store.put_cell(*cell.key, drawn).status == "CREATED"
        assert store.put_cell(*cell.key, drawn).status == "EXISTS"
        assert store.get_cell(*cell.key) == cell
        assert store.get_cell_latest(row_key, name) == cell


@pytest.mark.parametrize("seed", range(scaled(60, least=3)))
def test_random_puts_leave_what_the_oracle_has(trips: Company, seed: int) -> None:
    """I4: in any order, repeated, with tombstones among them; and every read agrees, row by row and cell by cell."""
    chance, oracle, store = random.Random(seed), MemoryStore(shards=SHARDS), trips.store
    keys = [UUID(int=chance.getrandbits(128)) for _ in range(3)]
    for _ in range(120):
        cell = random_cell(chance, keys)
        expectation = random_expectation(chance, oracle, cell)
        answer = outcome(store, cell, expectation)
        if answer in (LegacyRefused, Unrepresentable):
            # A parent with rows below it, facts with a parent: they have no tombstone. Nothing happened.
            assert cell.body is None
            assert cell.column_name in ("BASE", "STATUS")
            assert oracle.get_cell(*cell.key) is None
            assert len(oracle.get_row(cell.row_key)) > 1
        else:
            assert answer == outcome(oracle, cell, expectation), cell
    for key in keys:
        row = {name: cell for name, cell in store.get_row(key).items() if name != LEGACY_ID}
        assert row == oracle.get_row(key)
        for column in COLUMNS:
            history = store.get_history(key, column)
            assert history == oracle.get_history(key, column)
            assert paged(store, key, column) == history
            for number in range(7):
                for version in range(-1, 5) if column == "NOTES" else (0,):
                    place = number * CHILD + version if column == "NOTES" else number
                    assert store.get_cell(key, column, place) == oracle.get_cell(key, column, place)


def paged(store: CellStore, key: UUID, column: str) -> list[Cell]:
    cells, before = list[Cell](), None
    while page := store.get_history(key, column, before=before, limit=2):
        cells += page
        before = page[-1].ref_key
    return cells


def random_cell(chance: random.Random, keys: list[UUID]) -> Cell:
    column = chance.choice(COLUMNS)
    number = chance.randrange(1, 6)
    place = number % 3 * CHILD + chance.randrange(4) if column == "NOTES" else number
    text = f"{place}" if chance.random() < 0.9 else "another"
    return Cell(chance.choice(keys), column, place, None if chance.random() < 0.15 else body(column, text))


def random_expectation(chance: random.Random, oracle: MemoryStore, cell: Cell) -> dict[str, Any]:
    if chance.random() < 0.7:
        return {}
    latest = oracle.get_cell_latest(cell.row_key, cell.column_name)
    exact = None if latest is None else latest.ref_key
    return {"expect_latest": chance.choice([exact, exact, None, 3])}


def outcome(store: CellStore, cell: Cell, expectation: dict[str, Any]) -> object:
    try:
        return store.put_cell(*cell.key, cell.body, **expectation).status
    except CellConflict as conflict:
        return conflict.stored
    except SchemalessError as error:
        return type(error)


def test_walks_and_checksums_agree_with_the_oracle(servers: LocalServers) -> None:
    chance, oracle = random.Random(7), MemoryStore(shards=SHARDS)
    with company(postgres_server(servers, "machine")) as made:
        keys = [UUID(int=chance.getrandbits(128)) for _ in range(60)]
        for _ in range(300):
            cell = random_cell(chance, keys)
            if cell.body is not None and outcome(made.store, cell, {}) == "CREATED":
                oracle.put_cells([cell])
        for key in keys[:20]:
            if outcome(made.store, Cell(key, "BASE", 9, None), {}) == "CREATED":
                oracle.put_cells([Cell(key, "BASE", 9, None)])
        for key in keys:
            pair = made.store.get_cell_latest(key, LEGACY_ID)
            if pair is not None:
                oracle.put_cells([pair])

        for columns in (None, ["BASE"], ["STATUS", "NOTES"], [LEGACY_ID]):
            for shard in range(SHARDS):
                rows, after = [], None
                while True:
                    page = made.store.scan_rows(shard, after, 3, columns)
                    rows += page.rows
                    after = page.after
                    if after is None:
                        break
                assert rows == oracle.scan_rows(shard, columns=columns).rows
                for children in ({}, made.store.layout.child_bits):
                    buckets = made.store.checksum(shard, columns, children)
                    assert buckets == oracle.checksum(shard, columns, children)
                    assert len(buckets) == BUCKETS_PER_SHARD
            sums = made.store.sums.checksums(range(SHARDS), columns)
            assert list(sums.buckets.values()) == [
                bucket for shard in range(SHARDS) for bucket in oracle.checksum(shard, columns, children)
            ]
