"""What puts and the replayer may rely on, whichever engine keeps what waits: each condition of each change (I5, I9)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import uuid4

import pytest

from schemaless_core import Datastore, StaleEpoch
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.buffers import BufferedPage, BufferTables, CellKeyBytes, Offered
from tests.stores import Stores

FOREIGN = 7
#: More bytes than any of these cells have.
MUCH = 1_000_000


def soon() -> Deadline:
    return Deadline(20.0)


def new_cell(ref_key: int = 1, body: bytes = b"1", row_key: bytes | None = None) -> NewCell:
    return NewCell(row_key or uuid4().bytes, b"BASE", ref_key, body)


class Kept(NamedTuple):
    """The buffer of one server, and the gate of a shard of that server."""

    store: Datastore
    node: Node
    gate: Gate

    @property
    def tables(self) -> BufferTables:
        return self.node.buffers

    def keep(self, *cells: NewCell, gate: Gate | None = None, shard: int = FOREIGN) -> list[bytes | None]:
        return self.tables.keep(gate or self.gate, [Offered(shard, cell) for cell in cells], soon())

    def cells(self) -> list[NewCell]:
        return [each.cell for each in self.tables.waiting(None, 100, MUCH, soon())]

    def numbers(self) -> list[int]:
        return [each.number for each in self.tables.waiting(None, 100, MUCH, soon())]


@pytest.fixture
def kept(datastore_engine: str, stores: Stores) -> Kept:
    store = stores.fresh(datastore_engine)
    node = store.clusters["a"].primary.node
    shard = min(node.heads(None, soon()))
    return Kept(store, node, Gate(shard, 1, Kind.OWNER, 0))


def test_cells_wait_in_the_order_of_arrival(kept: Kept) -> None:
    cells = [new_cell(), new_cell(body=b"\\'\x00\xff"), new_cell(ref_key=-5)]
    assert kept.keep(*cells[:2]) == [None, None]
    assert kept.keep(cells[2], shard=FOREIGN - 1) == [None]

    assert kept.cells() == cells
    assert kept.numbers() == sorted(set(kept.numbers()))
    assert [each.cell for each in kept.tables.waiting([FOREIGN - 1], 100, MUCH, soon())] == cells[2:]
    assert [each.cell for each in kept.tables.waiting([FOREIGN], 1, MUCH, soon())] == cells[:1]
    assert kept.tables.waiting([], 100, MUCH, soon()) == []
    of_both = [each.cell for each in kept.tables.waiting([FOREIGN, FOREIGN - 1], 1, MUCH, soon())]
    assert sorted(of_both) == sorted([cells[0], cells[2]])
    assert [each.cell for each in kept.tables.waiting([FOREIGN], 100, MUCH, soon())] == cells[:2]
    assert kept.tables.find([cells[2][:3], cells[1][:3], new_cell()[:3]], soon()) == cells[1:]
    assert kept.tables.find([], soon()) == []
    assert kept.tables.shards(soon()) == [FOREIGN - 1, FOREIGN]
    assert kept.tables.columns(soon()) == {"BASE"}


def test_what_waits_is_read_up_to_the_cell_that_brings_the_bytes(kept: Kept) -> None:
    kept.keep(*(new_cell(body=b"123456") for _ in range(4)), new_cell(body=b"1" * 100))
    kept.keep(new_cell(), shard=FOREIGN - 1)
    numbers = kept.numbers()

    def read(shards: list[int] | None, limit: int, body_bytes: int) -> list[int]:
        return [each.number for each in kept.tables.waiting(shards, limit, body_bytes, soon())]

    assert read(None, 100, 12) == read([FOREIGN - 1, FOREIGN], 100, 12) == numbers[:2]
    assert read(None, 100, 13) == numbers[:3]
    assert read([FOREIGN], 100, 1) == numbers[:1]
    assert read(None, 2, MUCH) == numbers[:2]
    assert read(None, 100, MUCH) == numbers


def test_of_a_row_the_latest_of_each_column_is_read_and_no_version_before(kept: Kept) -> None:
    """However many wait: a row may be written a million times while its cluster is down."""
    row, other = uuid4().bytes, uuid4().bytes
    versions = [new_cell(ref_key, b"%d" % ref_key, row) for ref_key in (1, 3, 2, -(2**63))]
    note = versions[0]._replace(column_name=b"NOTE")
    kept.keep(*versions, note, new_cell(row_key=other))

    assert sorted(kept.tables.latest([row], soon())) == sorted([versions[1], note])
    assert len(kept.tables.latest([row, other, uuid4().bytes], soon())) == 3
    assert kept.tables.latest([], soon()) == []


def test_of_a_column_a_page_is_read_newest_first(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    row = uuid4().bytes
    versions = [new_cell(ref_key, b"1" * 100, row) for ref_key in range(10)]
    kept.keep(*versions, versions[0]._replace(column_name=b"NOTE"))

    def read(before: int | None, limit: int) -> BufferedPage:
        return kept.tables.history(row, b"BASE", before, limit, soon())

    assert read(None, 100) == BufferedPage(versions[::-1])
    assert read(7, 2) == BufferedPage([versions[6], versions[5]])
    assert read(-(2**63), 2) == BufferedPage([])
    monkeypatch.setattr("schemaless_core.cell.page_bytes.PAGE_BYTES", 250)
    assert read(None, 100) == BufferedPage(versions[:6:-1], versions[7].ref_key)
    monkeypatch.setattr(kept.tables, "find", lambda _keys, _deadline: [], raising=False)  # all were carried meanwhile
    assert read(None, 100).cut_at == versions[7].ref_key


def test_an_equal_cell_is_kept_once_and_another_body_is_shown(kept: Kept) -> None:
    cell, fresh = new_cell(body=b'"first"'), new_cell()
    kept.keep(cell)

    assert kept.keep(cell._replace(body=b'"second"'), fresh, cell._replace(ref_key=2)) == [b'"first"', None, None]
    assert kept.keep(cell) == [None]
    assert kept.cells() == [cell, fresh, cell._replace(ref_key=2)]


def test_i1_what_is_kept_is_there_though_the_cell_in_its_way_is_carried_off_meanwhile(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the packet and the look at the other body; on SQLite both are one transaction."""
    first = new_cell(body=b'"first"')
    second = first._replace(body=b'"second"')
    kept.keep(first)
    find, numbers = kept.tables.find, kept.numbers()

    def carried_off(keys: Collection[CellKeyBytes], deadline: Deadline) -> list[NewCell]:
        if keys:
            kept.tables.settle(numbers, {}, soon())
        return find(keys, deadline)

    monkeypatch.setattr(kept.tables, "find", carried_off)

    (other,) = kept.keep(second)

    assert (other, kept.cells()) in [(None, [second]), (first.body, [first])]


@pytest.mark.parametrize(
    "wrong",
    [{"epoch": 2}, {"authority_epoch": 1}, {"authority_epoch": 3}],
    ids=str,
)
def test_i9_a_buffer_takes_only_what_the_shards_beside_it_would_take(kept: Kept, wrong: dict[str, int]) -> None:
    if "authority_epoch" in wrong:
        kept.node.open_to_owners(2, soon())

    with pytest.raises(StaleEpoch):
        kept.keep(new_cell(), gate=Gate(**{**kept.gate._asdict(), **wrong}))

    assert kept.cells() == []


def test_i9_a_buffer_is_shut_and_opened_with_the_shards_beside_it(kept: Kept) -> None:
    kept.node.close_to_owners(2, soon())
    with pytest.raises(StaleEpoch) as refused:
        kept.keep(new_cell(), gate=kept.gate._replace(authority_epoch=2))
    assert refused.value.is_of_authority
    kept.node.open_to_owners(3, soon())

    assert kept.keep(new_cell(), gate=kept.gate._replace(authority_epoch=3)) == [None]


def test_i5_what_is_settled_goes_and_what_conflicts_is_in_the_ledger_with_both_bodies(kept: Kept) -> None:
    cells = [new_cell(), new_cell(body=b"2"), new_cell()]
    kept.keep(*cells)
    there, conflict, left = kept.numbers()

    kept.tables.settle([there], {conflict: b"'3"}, soon())
    kept.tables.settle([there], {conflict: b"4"}, soon())  # by a second replayer: nothing of it is here any more

    assert kept.numbers() == [left]
    (found,) = kept.tables.conflicts(100, soon())
    assert (found.waiting.number, found.waiting.cell, found.stored) == (conflict, cells[1], b"'3")
    size = kept.tables.size(soon())
    assert (size.cells, size.bytes, size.conflicts) == (1, 1, 1)
    assert size.oldest_at is not None
    assert kept.tables.close_conflicts([conflict], soon()) == 1
    assert kept.tables.close_conflicts([conflict], soon()) == 0
    assert kept.tables.conflicts(100, soon()) == []
    assert kept.numbers() == [left]


def test_no_number_is_given_twice(kept: Kept) -> None:
    kept.keep(new_cell())
    (first,) = kept.numbers()
    kept.tables.settle([first], {}, soon())

    kept.keep(new_cell())

    assert kept.numbers() > [first]
    kept.tables.settle([first], {}, soon())  # of a replayer that was stopped
    assert len(kept.numbers()) == 1


def test_second_copies_are_told_and_count_as_waiting_when_they_are_old(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the last minute are where they belong, until proven otherwise."""
    plain, second = new_cell(), new_cell()
    kept.keep(plain)
    gate, offered = kept.gate, [Offered(FOREIGN, second)]

    for _time in range(2):  # repeated, it is kept once
        assert kept.tables.keep(gate, offered, soon(), are_second=True) == [None]

    assert [each.is_second for each in kept.tables.waiting(None, 100, MUCH, soon())] == [False, True]
    assert kept.tables.find([second[:3]], soon()) == [second]
    size = kept.tables.size(soon())
    assert (size.cells, size.young, size.waiting) == (2, 1, 1)
    (first, last) = kept.numbers()
    assert [each.number for each in kept.tables.waiting([FOREIGN], 100, MUCH, soon(), {FOREIGN: first})] == [last]
    engine = "mysql" if kept.node.name.startswith("mysql") else "sqlite"
    monkeypatch.setattr(f"schemaless_core.engine.{engine}.buffers.{YOUNG[engine][0]}", YOUNG[engine][1])
    assert kept.tables.size(soon()).waiting == 2
    kept.tables.settle([last], {}, soon())
    assert kept.numbers() == [first, last], "it was read before it became a second copy"
    kept.tables.settle([first, last], {}, soon(), second=[last])
    assert kept.tables.size(soon())[:2] == (0, 0)


def test_another_body_under_its_key_is_no_second_copy(kept: Kept) -> None:
    cell = new_cell(body=b'"first"')
    kept.keep(cell)

    other = [Offered(FOREIGN, cell._replace(body=b'"second"'))]
    assert kept.tables.keep(kept.gate, other, soon(), are_second=True) == [b'"first"']
    with pytest.raises(StaleEpoch):
        kept.tables.keep(kept.gate._replace(epoch=9), [Offered(FOREIGN, cell)], soon(), are_second=True)

    assert [each.is_second for each in kept.tables.waiting(None, 100, MUCH, soon())] == [False]


#: As if a minute had passed.
YOUNG: dict[str, tuple[str, object]] = {"mysql": ("YOUNG", "0"), "sqlite": ("SECOND_SECONDS", -1)}
