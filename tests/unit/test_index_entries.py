"""Which entries rows should have, without a store: the rules by themselves, and that no order of work breaks them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import NamedTuple
from uuid import UUID

import pytest

from schemaless_core import Cell, Json, Scalar
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.engine.base import EntryWrite
from schemaless_core.indexes.entries import IndexVersion, dead_entry, entries_of, living_entry
from tests.scale import scaled

ROW = UUID(int=7)
DEFINITION = IndexDefinition.from_document(
    {
        "table": "trips_of_driver",
        "datastore": "trips",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [{"field": "driver", "type": "string"}, {"field": "seats", "type": "int"}],
            },
            {"column_key": "STATUS", "fields": [{"field": "status", "type": "string"}]},
        ],
    },
    "test",
)
VERSION = IndexVersion(DEFINITION, 3)
#: A value for each kind of body that gives no shard value.
NO_DRIVER: list[Json] = [None, {}, {"driver": None}, {"driver": 7}, "no object", ["x"]]


def base(ref_key: int, driver: Json, seats: int | None = None) -> Cell:
    return Cell(ROW, "BASE", ref_key, {"driver": driver, "seats": seats})


def status(ref_key: int, body: Json) -> Cell:
    return Cell(ROW, "STATUS", ref_key, body)


def entries(latest: Iterable[Cell], versions: Iterable[Cell] = ()) -> list[EntryWrite]:
    return entries_of(VERSION, ROW.bytes, {cell.column_name: cell for cell in latest}, versions)


def test_a_version_names_its_table_and_its_group() -> None:
    assert VERSION.table.name == "trips_of_driver_v3"
    assert VERSION.table.owners == (0, 0, 1)
    assert VERSION.table.columns == 2
    assert VERSION.group_name == "index:trips_of_driver:v3"


def test_a_living_entry_has_the_fields_and_ref_keys_of_all_latest_cells() -> None:
    written = entries([base(4, "a", 2), status(9, {"status": "paid"})])

    assert written == [EntryWrite("a", ROW.bytes, ("a", 2, "paid"), (4, 9))]


def test_a_column_without_any_cell_says_nothing_of_its_fields() -> None:
    (written,) = entries([base(4, "a")])

    assert (written.values, written.refs) == (("a", None, None), (4, None))


def test_a_tombstone_of_a_column_says_that_its_fields_are_missing() -> None:
    (written,) = entries([base(4, "a"), status(2, None)])

    assert (written.values, written.refs) == (("a", None, None), (4, 2))


@pytest.mark.parametrize("body", NO_DRIVER, ids=repr)
def test_a_row_without_a_shard_value_has_no_living_entry(body: Json) -> None:
    assert entries([Cell(ROW, "BASE", 5, body), status(1, {"status": "paid"})]) == []


@pytest.mark.parametrize("body", NO_DRIVER, ids=repr)
def test_the_entry_before_a_version_without_shard_value_dies(body: Json) -> None:
    now = Cell(ROW, "BASE", 5, body)

    written = entries([now], versions=[now, base(4, "a")])

    assert written == [dead_entry(VERSION, ROW.bytes, "a", 5)]


def test_a_row_without_any_cell_of_the_shard_column_has_no_entry_at_all() -> None:
    assert entries([status(1, {"status": "paid"})]) == []


def test_a_moved_entry_dies_where_it_was_as_of_the_latest_ref_key() -> None:
    now, before = base(8, "b"), base(3, "a")

    written = entries([now], versions=[now, before])

    assert dead_entry(VERSION, ROW.bytes, "a", 8) in written
    assert [entry.shard_value for entry in written if not entry.is_dead] == ["b"]


def test_a_late_version_dies_under_its_own_value_and_that_of_the_one_before_it() -> None:
    late, before = base(3, "a"), base(1, "c")

    written = entries([base(8, "b")], versions=[late, before])

    assert {(entry.shard_value, entry.is_dead, entry.refs[0]) for entry in written} == {
        ("a", True, 8),
        ("c", True, 8),
        ("b", False, 8),
    }


def test_an_entry_that_stays_where_it_is_does_not_die() -> None:
    now, before = base(8, "a"), base(3, "a")

    assert [entry.is_dead for entry in entries([now], versions=[now, before])] == [False]


def test_a_dead_entry_claims_no_fields_of_other_columns() -> None:
    assert dead_entry(VERSION, ROW.bytes, "a", 8).refs == (8, None)


# --------------------------------------------------------------------------- all orders of what may happen


class Stored(NamedTuple):
    """An entry as a table holds it."""

    values: tuple[Scalar | None, ...]
    refs: tuple[int | None, ...]
    is_dead: bool


class Table:
    """What the engines' upserts do: each source column moves with its ref key, and only forward."""

    def __init__(self) -> None:
        self.entries: dict[Scalar, Stored] = {}

    def put(self, write: EntryWrite) -> None:
        stored = self.entries.get(write.shard_value)
        if stored is None:
            self.entries[write.shard_value] = Stored(write.values, write.refs, write.is_dead)
            return
        moves = [
            new is not None and (old is None or new >= old) for new, old in zip(write.refs, stored.refs, strict=True)
        ]
        owners = VERSION.table.owners
        self.entries[write.shard_value] = Stored(
            tuple(write.values[n] if moves[owners[n]] else stored.values[n] for n in range(len(owners))),
            tuple(write.refs[n] if moves[n] else stored.refs[n] for n in range(len(moves))),
            write.is_dead if moves[0] else stored.is_dead,
        )

    def living(self) -> list[Stored]:
        return [entry for entry in self.entries.values() if not entry.is_dead]


class Row:
    """A row whose cells come in any order, and what those who process them read and write."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def latest(self) -> Mapping[str, Cell]:
        return {cell.column_name: cell for cell in sorted(self.cells, key=lambda cell: cell.ref_key)}

    def read(self, cell: Cell) -> list[EntryWrite]:
        """What a process that has just committed or tailed a cell wants to write."""
        lower = [each for each in self.cells if each.column_name == "BASE" and each.ref_key < cell.ref_key]
        versions = [cell, *sorted(lower, key=lambda each: each.ref_key)[-1:]] if cell.column_name == "BASE" else []
        return entries_of(VERSION, ROW.bytes, self.latest(), versions)


def is_right(row: Row, table: Table) -> bool:
    expected = living_entry(VERSION, ROW.bytes, row.latest())
    wanted = [] if expected is None else [Stored(expected.values, expected.refs, False)]
    return table.living() == wanted


CELLS = [base(1, "a", 1), base(2, "b", 2), Cell(ROW, "BASE", 3, None), base(4, "a", 4)]


@pytest.mark.parametrize("order", list(permutations(CELLS)), ids=lambda order: "".join(str(c.ref_key) for c in order))
def test_whatever_order_cells_come_in_one_entry_is_left(order: tuple[Cell, ...]) -> None:
    row, table = Row(), Table()
    for cell in order:
        row.cells.append(cell)
        for write in row.read(cell):
            table.put(write)

    assert is_right(row, table)


def test_reads_and_writes_of_many_processes_may_mix_in_any_way() -> None:
    """Each cell is processed twice, as by writer and maintainer: each reads after the commit and writes later."""
    for seed in range(scaled(20_000)):
        row, table = mixed(Row(), random.Random(seed))
        assert is_right(row, table), seed


class Forgetful(Row):
    """Does not look for the version before the one it processes."""

    def read(self, cell: Cell) -> list[EntryWrite]:
        return entries_of(VERSION, ROW.bytes, self.latest(), [cell])


class Hasty(Row):
    """Reads before the commit of the cell it processes."""

    def read(self, cell: Cell) -> list[EntryWrite]:
        self.cells.remove(cell)
        early = super().read(cell)
        self.cells.append(cell)
        return early


@pytest.mark.parametrize("wrong", [Forgetful, Hasty])
def test_the_mixture_shows_what_is_wrong(wrong: type[Row]) -> None:
    """The controls: without the version before, or with reads from before the commit, entries are wrong."""
    assert any(not is_right(*mixed(wrong(), random.Random(seed))) for seed in range(300))


def mixed(row: Row, choose: random.Random) -> tuple[Row, Table]:
    """Random cells, and between any commit, read and write whatever step comes next."""
    table = Table()
    cells = [base(ref, choose.choice("abc"), ref) for ref in range(1, choose.randrange(3, 6))]
    cells += [Cell(ROW, "BASE", choose.randrange(6, 8), choose.choice(NO_DRIVER)), status(1, {"status": "x"})]
    body: Json = {"status": "y"}
    cells += [status(2, choose.choice([None, body]))]
    under_way = [_life_of(row, table, cell, choose) for cell in cells]
    while under_way:
        life = choose.choice(under_way)
        if next(life, None) is None:
            under_way.remove(life)
    return row, table


def _life_of(row: Row, table: Table, cell: Cell, choose: random.Random) -> Iterator[str]:
    """Commit, then twice: read, write. Others' steps come in between."""
    row.cells.append(cell)
    yield "committed"
    pending = []
    for _reader in range(2):
        pending.append(row.read(cell))
        yield "read"
    choose.shuffle(pending)
    for writes in pending:
        choose.shuffle(writes)
        for write in writes:
            table.put(write)
            yield "written"
