"""Parked cells with row scope, on every engine: what goes before one that fails again, and what waits behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, Datastore
from schemaless_core.calls.lookups import BODIES_PER_CALL, Lookups
from schemaless_core.engine.groups import GroupStep, ParkedCell, Settling
from schemaless_core.errors import Unavailable
from schemaless_core.triggers.group import Tombstones, TriggerGroup
from schemaless_core.triggers.held import parked_cell
from schemaless_core.triggers.retries import Retries
from tests.crew import Notebook, noting, quick
from tests.damage import spoil
from tests.stores import Stores

FENCE = 4
ROW, OTHER = uuid4(), uuid4()


class Overtaken(TriggerGroup):
    """Tombstones may go before what fails."""

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        deleted = tombstones(behind)
        return [key for key in behind if key in deleted]


class Silent(TriggerGroup):
    """It cannot say what may go before what fails."""

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        raise Unavailable("no answer")


class Shard:
    """One whose cells are all parked, those of a row behind its first; and who holds it."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self.notebook = Notebook()
        self.failing = set[int]()
        self.notebook.failing = lambda cell: cell.row_key == ROW and cell.ref_key in self.failing
        self.trigger = noting(self.notebook, park_scope="row")
        store.triggers.register(self.trigger)

    def park(self, *cells: Cell) -> None:
        self.store.put_cells(cells)
        heads, parked = set[UUID](), []
        for cell in self.store.get_cells_for_shard(0, 0, len(cells)).cells:
            parked.append(parked_cell(cell, 0, "it failed", 0.0, is_waiting=cell.row_key in heads))
            heads.add(cell.row_key)
        self.store.triggers.offsets.claim("noted", {0: FENCE})
        self.store.triggers.offsets.advance("noted", {0: GroupStep(FENCE, 1, len(cells), 1, tuple(parked))})

    def retry(self, kind: type[TriggerGroup] = TriggerGroup) -> set[bytes]:
        """Every parked cell is tried at once; the rows that have some left."""
        triggers = self.store.triggers
        triggers.retry("noted")
        retries = Retries(triggers.parking, triggers.joined, triggers._lookups, self.store.config.triggers)
        return retries.retry_due(kind(self.trigger, self.store), 0, FENCE, 1)

    @property
    def due(self) -> set[int]:
        return self.store.triggers.parking.due("noted")

    @property
    def left(self) -> list[tuple[int, bool]]:
        """Of the row: ref keys, and whether they wait."""
        rows = self.store.triggers.parked("noted", limit=1000)
        return [(row.ref_key, row.is_waiting) for row in rows if row.row_key == ROW.bytes]


@pytest.fixture
def shard(datastore_engine: str, stores: Stores) -> Shard:
    return Shard(stores.fresh(datastore_engine, shards=1, triggers=quick(retry_seconds=60.0)))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many cells were read at once, whenever it was more than one by its key."""
    found, read_many = list[int](), Lookups._read_many

    def noted(lookups: Lookups, keys: Sequence[Any], *arguments: Any) -> Any:
        found.append(len(keys))
        return read_many(lookups, keys, *arguments)

    monkeypatch.setattr(Lookups, "_read_many", noted)
    return found


def cells(count: int, body: Callable[[int], str | None] = str) -> list[Cell]:
    return [Cell(ROW, "BASE", n, body(n)) for n in range(1, count + 1)]


def test_of_what_waits_nothing_is_read_for_a_group_in_which_nothing_overtakes(shard: Shard, read: list[int]) -> None:
    shard.failing = {1}
    shard.park(*cells(5))
    assert shard.retry() == {ROW.bytes}

    assert read == []
    assert shard.left == [(1, False), *((n, True) for n in range(2, 6))]


def test_what_waits_is_read_in_portions(shard: Shard, read: list[int]) -> None:
    count = 2 * BODIES_PER_CALL + 5
    shard.failing = {1}
    shard.park(*cells(count, lambda n: str(n) if n % 2 else None))
    assert shard.retry(Overtaken) == {ROW.bytes}

    assert read
    assert max(read) <= BODIES_PER_CALL
    assert [ref_key for ref_key, _is_waiting in shard.left] == list(range(1, count + 1, 2))


def test_a_torn_cell_waits_for_repair_and_takes_no_other_along(shard: Shard) -> None:
    torn, later, other = Cell(ROW, "BASE", 2, "2"), Cell(ROW, "BASE", 3, None), Cell(OTHER, "BASE", 1, "1")
    shard.failing = {1}
    shard.park(Cell(ROW, "BASE", 1, "1"), torn, later, other)
    spoil(shard.store, torn, b"torn")

    assert shard.retry() == {ROW.bytes}
    assert shard.notebook.cells == [other]
    assert shard.retry(Overtaken) == {ROW.bytes}
    assert shard.notebook.cells == [other, later]
    shard.failing = set()
    assert shard.retry() == {ROW.bytes}
    assert shard.left == [(2, False)]
    (parked,) = shard.store.triggers.parked("noted")
    assert parked.error.startswith("DecodeError")

    spoil(shard.store, torn, b'"2"')
    assert shard.retry() == set()
    assert [cell.ref_key for cell in shard.notebook.cells] == [1, 3, 1, 2]


def test_a_group_that_cannot_say_what_overtakes_holds_up_that_row_only(shard: Shard) -> None:
    shard.failing = {1}
    others = [Cell(UUID(int=n), "BASE", 1, "1") for n in (1, (1 << 128) - 1)]  # tried before this row, and after it
    shard.park(*cells(2), *others)
    assert shard.retry(Silent) == {ROW.bytes}

    assert shard.notebook.cells == others
    assert shard.left == [(1, False), (2, True)]


def test_what_fails_to_overtake_waits_behind_its_rows_first_as_before(shard: Shard) -> None:
    shard.failing = {1, 3}
    shard.park(*cells(4, lambda n: None if n in (2, 3) else str(n)))
    assert shard.retry(Overtaken) == {ROW.bytes}

    assert shard.left == [(1, False), (3, True), (4, True)]
    assert shard.store.triggers.parking.count("noted") == 1
    assert shard.due == set()  # neither what failed nor the first, which it was to overtake

    shard.failing = {3}
    assert shard.retry() == {ROW.bytes}
    assert shard.left == [(3, False), (4, True)]
    assert shard.due == set()
    shard.failing = set()
    assert shard.retry() == set()
    assert shard.left == []


def settled(shard: Shard, ref_key: int, *put: Cell) -> None:
    """Another worker delivered this cell, and put others with it."""
    triggers = shard.store.triggers
    (row,) = [row for row in triggers.parked("noted") if row.ref_key == ref_key]
    settling = Settling(FENCE, row.added_id, row.row_key, 1)
    if put:
        triggers.joined.settle("noted", 0, put, settling)
    else:
        triggers.parking.settle("noted", 0, settling)


def postponed(shard: Shard, *waiting: bool) -> None:
    """The cells of the row, as they failed or wait."""
    for row, is_waiting in zip(shard.store.triggers.parked("noted"), waiting, strict=True):
        news = ParkedCell(*row[1:5], 1, is_waiting, "it failed", 60.0)
        shard.store.triggers.parking.postpone("noted", 0, FENCE, news)


@pytest.mark.parametrize("put", [[], [Cell(ROW, "NOTES", 1, "put by it")]], ids=["alone", "with what it put"])
def test_the_first_of_a_row_is_the_next_even_where_another_one_does_not_wait(shard: Shard, put: list[Cell]) -> None:
    """As earlier versions left those that failed to overtake."""
    shard.park(*cells(4))
    postponed(shard, False, True, False, True)
    settled(shard, 1, *put)

    assert shard.left == [(2, False), (3, False), (4, True)]
    assert shard.due == {0}


@pytest.mark.parametrize("put", [[], [Cell(ROW, "NOTES", 1, "put by it")]], ids=["alone", "with what it put"])
@pytest.mark.parametrize("ref_key", [2, 3])
def test_when_one_that_overtook_is_settled_the_first_keeps_its_pause(
    shard: Shard, ref_key: int, put: list[Cell]
) -> None:
    shard.park(*cells(3))
    postponed(shard, False, True, True)
    settled(shard, ref_key, *put)

    assert shard.left == [(1, False), (5 - ref_key, True)]
    assert shard.due == set()


def test_cells_that_wait_for_no_other_keep_their_pause_when_one_is_settled(shard: Shard) -> None:
    """With cell scope."""
    shard.park(*cells(3))
    postponed(shard, False, False, False)
    settled(shard, 2)

    assert shard.left == [(1, False), (3, False)]
    assert shard.due == set()
