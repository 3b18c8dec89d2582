"""Bodies in several forms side by side, on each engine: above it there are none but canonical bytes (I2, I3, I12)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    ColumnKey,
    Datastore,
    DictionaryMissing,
    InvalidCell,
    InvalidConfig,
    InvalidRequest,
    MemoryStore,
    PutStatus,
)
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import CompressionConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.bodies import MARK, BodyForms
from schemaless_core.engine.dictionaries import PREFIX
from schemaless_core.engine.frames import Frames
from schemaless_core.engine.groups import GroupStep
from tests.compressed import (
    COMPRESSION,
    OTHER,
    SOME,
    body_of,
    compressed_of,
    opening_beside,
    stored_bodies,
    teach,
)
from tests.damage import execute, spoil
from tests.factories import keys_in
from tests.property.operations import json_values
from tests.stores import Stores

SECONDS = 20.0
GROUP = "billing"


def soon() -> Deadline:
    return Deadline(SECONDS)


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    """One that compresses, as soon as it is taught."""
    return stores.fresh(datastore_engine, shards=2, compression=COMPRESSION)


@pytest.fixture
def beside(store: Datastore) -> Iterator[Callable[..., Datastore]]:
    with opening_beside(store) as open_it:
        yield open_it


def mixed(store: Datastore, beside: Callable[..., Datastore], row: UUID | None = None) -> list[Cell]:
    """Versions of a column in three forms: plain, and by two dictionaries; a tombstone is plain in each of them."""
    row = row or uuid4()
    cells = [Cell(row, "BASE", n, body_of(n)) for n in range(1, 7)] + [Cell(row, "NOTE", n, None) for n in range(1, 4)]
    for portion, dictionary in ((cells[0::3], None), (cells[1::3], SOME), (cells[2::3], OTHER)):
        if dictionary is not None:
            teach(store, dictionary)
        store.put_cells(portion)
    assert compressed_of(store)[0] == 4
    assert len({body[:5] for body in stored_bodies(store) if body.startswith(MARK)}) == 2
    return cells


def test_i2_bodies_in_all_forms_are_read_as_they_were_put(store: Datastore, beside: Callable[..., Datastore]) -> None:
    row = uuid4()
    cells = mixed(store, beside, row)
    shard, versions = store.shard_of(row), [cell for cell in cells if cell.column_name == "BASE"]

    for reader in (store, beside()):
        assert [reader.get_cell(*cell.key) for cell in cells] == cells
        assert reader.get_cells([cell.key for cell in cells]) == cells
        assert reader.get_cell_latest(row, "BASE") == versions[-1]
        assert reader.get_row(row) == {"BASE": versions[-1], "NOTE": cells[-1]}
        assert reader.get_history(row, "BASE") == versions[::-1]
        assert {cell.key for cell in reader.get_cells_for_shard(shard, 0, 100).cells} == {cell.key for cell in cells}
        assert sorted(reader.get_cells_for_shard(shard, 0, 100).cells, key=lambda cell: cell.key) == cells
        assert reader.scan_rows(shard).rows[0].cells == {"BASE": versions[-1], "NOTE": cells[-1]}


def test_checksums_and_digests_are_those_of_the_same_cells_uncompressed(
    store: Datastore, beside: Callable[..., Datastore]
) -> None:
    oracle = MemoryStore(shards=2)
    for _ in range(8):
        oracle.put_cells(mixed_again(store))

    for reader in (store, beside()):
        for shard in range(2):
            assert reader.checksum(shard) == oracle.checksum(shard)
            assert reader.checksum(shard, ["BASE"]) == oracle.checksum(shard, ["BASE"])
            sums = {bucket.number: bucket.sum for bucket in oracle.checksum(shard)}
            for number, total in sums.items():
                assert sum(each.hash for each in reader.digests(shard, [number])) % 2**64 == total


def mixed_again(store: Datastore) -> list[Cell]:
    row, cells = uuid4(), list[Cell]()
    for n, dictionary in enumerate((SOME, OTHER), 1):
        teach(store, dictionary)
        cells.append(Cell(row, "BASE", n, body_of(n)))
        store.put_cells(cells[-1:])
    return cells


@pytest.mark.parametrize("second", [(), ("BASE",)], ids=["off", "another dictionary"])
def test_i2_a_put_of_an_equal_body_exists_whatever_form_it_is_in(
    store: Datastore, beside: Callable[..., Datastore], second: tuple[str, ...]
) -> None:
    teach(store)
    row = uuid4()
    cells = [Cell(row, "BASE", n, body_of(n)) for n in range(1, 4)]
    store.put_cells(cells)
    other = beside(*second)
    if second:
        teach(other, OTHER)
    assert compressed_of(store) == (3, 3)

    for cell in cells:
        assert other.put_cell(*cell.key, cell.body).status is PutStatus.EXISTS
    assert {each.status for each in other.put_cells(cells)} == {PutStatus.EXISTS}
    encoded = [encode_cell(cell, 10_000) for cell in cells]
    assert other.put_encoded(encoded).existed == 3
    assert other.find_unequal(encoded) == []
    assert other.put_cell(row, "BASE", 3, cells[2].body, expect_latest=3).status is PutStatus.EXISTS
    with pytest.raises(CellConflict) as refused:
        other.put_cell(row, "BASE", 3, {"n": 1})
    assert refused.value.stored == cells[2]
    with pytest.raises(BatchFailed):
        other.put_cells([Cell(row, "BASE", 2, {"n": 1})])
    with pytest.raises(CellConflict):
        other.put_cell(row, "BASE", 4, {"n": 1}, expect_latest=2)
    assert other.put_cell(row, "BASE", 4, {"n": 1}, expect_latest=3).status is PutStatus.CREATED


def test_control_a_store_that_compares_stored_bytes_takes_equal_bodies_for_conflicts(
    store: Datastore, beside: Callable[..., Datastore], monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(store)
    row = uuid4()
    store.put_cell(row, "BASE", 1, body_of(1))
    monkeypatch.setattr(BodyForms, "plain", lambda _bodies, body: body)

    with pytest.raises(Exception, match=r"holds another body|malformed|invalid|no JSON"):
        beside().put_cell(row, "BASE", 1, body_of(1))


def test_the_bound_of_a_body_is_of_its_canonical_bytes(datastore_engine: str, stores: Stores) -> None:
    store = stores.fresh(datastore_engine, shards=2, compression=COMPRESSION, max_body_bytes=1_000)
    teach(store)
    with pytest.raises(InvalidCell):
        store.put_cell(uuid4(), "BASE", 1, "a" * 2_000)
    row = uuid4()
    store.put_cell(row, "BASE", 1, "a" * 900)
    assert len(stored_bodies(store)[0]) < 100
    found = store.get_cell_latest(row, "BASE")
    assert found is not None
    assert found.body == "a" * 900


def test_only_columns_that_are_named_are_compressed_and_none_without_a_dictionary(
    datastore_engine: str, stores: Stores
) -> None:
    store = stores.fresh(datastore_engine, shards=2, compression={"columns": ["BASE"]})
    store.put_cell(uuid4(), "BASE", 1, body_of(1))
    assert compressed_of(store) == (0, 1)
    teach(store, replace(SOME, column_name="BASE"))
    store.put_cell(uuid4(), "BASE", 1, body_of(2))
    store.put_cell(uuid4(), "NOTE", 1, body_of(3))
    assert compressed_of(store) == (1, 3)


@given(body=json_values)
def test_i2_each_json_value_is_read_as_it_was_put(taught: Datastore, body: Any) -> None:
    row = uuid4()
    taught.put_cell(row, "BASE", 1, body)
    found = taught.get_cell_latest(row, "BASE")
    assert found is not None
    assert canonical_bytes(found.body) == canonical_bytes(body)
    assert taught.put_cell(row, "BASE", 1, body).status is PutStatus.EXISTS


@pytest.fixture(scope="module")
def taught(stores: Stores) -> Datastore:
    made = stores.fresh("sqlite", shards=2, compression=COMPRESSION)
    teach(made)
    return made


@given(body=st.binary(max_size=40))
def test_no_json_begins_with_the_mark(body: bytes) -> None:
    with pytest.raises(Exception, match=r"malformed|truncated|invalid"):
        from_canonical(MARK + body)


def test_i12_a_body_whose_dictionary_is_missing_is_an_error_and_never_silence(
    store: Datastore, beside: Callable[..., Datastore]
) -> None:
    teach(store)
    row = uuid4()
    store.put_cell(row, "BASE", 1, body_of(1))
    holder = store._places.get(store.shard_of(row), soon()).cluster
    forget(store, holder)
    reader, shard = beside(), store.shard_of(row)

    asked: list[Callable[[], object]] = [
        lambda: reader.get_cell_latest(row, "BASE"),
        lambda: reader.get_row(row),
        lambda: reader.get_history(row, "BASE"),
        lambda: reader.get_cells_for_shard(shard, 0, 10),
        lambda: reader.scan_rows(shard),
        lambda: reader.checksum(shard),
        lambda: reader.digests(shard, range(16)),
        lambda: reader.put_cell(row, "BASE", 1, body_of(1)),
        lambda: reader.find_unequal([encode_cell(Cell(row, "BASE", 1, body_of(1)), 10_000)]),
    ]
    for ask in asked:
        with pytest.raises(DictionaryMissing, match=SOME.id.hex()) as missing:
            ask()
        assert "schema apply" in str(missing.value.hint)

    assert reader.dictionaries.spread() == 1
    found = reader.get_cell_latest(row, "BASE")
    assert found is not None
    assert found.body == body_of(1)


def forget(store: Datastore, cluster: str) -> None:
    """One server loses its dictionaries; the other one has them."""
    shard = next(n for n in range(2) if store._places.get(n, soon()).cluster == cluster)
    names = {"sqlite": "document"}
    node: Any = store.clusters[cluster].primary.node
    table = names.get(store.config.clusters[0].primary.engine) or node._names.document
    execute(store, shard, f"DELETE FROM {table} WHERE name = %s", f"{PREFIX}{SOME.id.hex()}")


def test_a_damaged_body_is_found_and_mended(store: Datastore, beside: Callable[..., Datastore]) -> None:
    teach(store)
    cell = Cell(uuid4(), "BASE", 1, body_of(1))
    store.put_cell(*cell.key, cell.body)
    before = store.checksum(store.shard_of(cell.row_key))
    (stored,) = stored_bodies(store)
    spoil(store, cell, stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:])

    assert store.checksum(store.shard_of(cell.row_key)) != before
    raw = store.mends.find(cell.key)
    assert raw is not None
    assert raw.canonical is None
    assert store.mends.mend(raw, canonical_bytes(cell.body))
    assert store.checksum(store.shard_of(cell.row_key)) == before


@pytest.mark.parametrize("dictionary", [None, OTHER], ids=["off", "another dictionary"])
def test_i7_a_put_that_joins_a_groups_progress_meets_its_own_body_in_another_form(
    store: Datastore, beside: Callable[..., Datastore], dictionary: Any
) -> None:
    teach(store)
    row = next(keys_in(store, 0))
    store.put_cell(row, "STATUS", 1, body_of(1))
    other = beside(*(() if dictionary is None else ("*",)))
    if dictionary is not None:
        teach(other, dictionary)
    node = other.clusters[store._places.get(0, soon()).cluster].primary.node
    tables, gate = node.groups, Gate(0, 1, Kind.OWNER, 0)
    tables.begin(GROUP, {0: 0}, soon())
    tables.claim(GROUP, {0: 7}, soon())
    same = NewCell(row.bytes, b"STATUS", 1, canonical_bytes(body_of(1)))
    new = NewCell(row.bytes, b"STATUS", 2, canonical_bytes(body_of(2)))
    conflicting = same._replace(body=b'{"n":1}')

    seen, stored = tables.put_and_advance(gate, GROUP, [conflicting], GroupStep(7, 1, 1, 1, ()), soon())
    assert (seen.offset.added_id if seen.offset else None, stored[0].body) == (0, same.body)
    seen, stored = tables.put_and_advance(gate, GROUP, [same, new], GroupStep(7, 1, 1, 1, ()), soon())
    assert (seen.offset.added_id if seen.offset else None) == 1
    assert {cell[1:5] for cell in stored} == {tuple(same), tuple(new)}
    assert store.get_history(row, "STATUS") == [Cell(row, "STATUS", n, body_of(n)) for n in (2, 1)]


def test_cells_that_are_alone_are_told_and_others_are_read(store: Datastore, beside: Callable[..., Datastore]) -> None:
    teach(store)
    row = next(keys_in(store, 0))
    store.put_cell(row, "BASE", 1, body_of(1))
    cell = NewCell(row.bytes, b"BASE", 1, canonical_bytes(body_of(1)))
    holder = store._places.get(0, soon()).cluster

    def not_alone(of: Datastore, body: bytes) -> int:
        found = of.clusters[holder].primary.node.find_not_alone({0: [cell._replace(body=body)]}, soon())
        return len(found[0].keys)

    assert not_alone(store, cell.body) == 0
    assert not_alone(store, b'{"n":1}') == 1
    store.put_cell(row, "BASE", 2, body_of(2))
    assert not_alone(store, cell.body) == 1
    assert not_alone(beside(), cell.body) == 1


def test_pages_end_by_what_bodies_say_and_not_by_what_they_take(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(store)
    row = next(keys_in(store, 0))
    rows = [row, *(key for key, _ in zip(keys_in(store, 0), range(3), strict=False))]
    store.put_cells([Cell(key, "BASE", n, f"{n}" + "a" * 1_000) for key in rows for n in range(1, 11)])
    monkeypatch.setattr("schemaless_core.cell.page_bytes.PAGE_BYTES", 3_500)

    assert len(store.get_history(row, "BASE")) == 4
    assert len(store.get_cells_for_shard(0, 0, 100).cells) == 4
    found, at = list[Cell](), 0
    while (page := store.get_cells_for_shard(0, at, 100)).cells:
        found += page.cells
        at = page.next_location
    assert len(found) == 40
    assert [cell.ref_key for each in store.get_newest([ColumnKey(key, "BASE") for key in rows], 10) for cell in each][
        :4
    ]


def test_without_zstandard_the_way_out_is_named_by_writers_and_readers(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.fresh("sqlite", shards=2, compression=COMPRESSION)
    teach(store)
    row = uuid4()
    store.put_cell(row, "BASE", 1, body_of(1))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr("schemaless_core.engine.bodies.frames_of", Frames)  # as in a process that made none yet

    with pytest.raises(InvalidRequest, match=r"tripstore\[compress\]"):
        Datastore(store.config)
    plain = Datastore(replace(store.config, compression=CompressionConfig()))
    with plain, pytest.raises(InvalidRequest, match=r"tripstore\[compress\]"):
        plain.get_cell_latest(row, "BASE")


@pytest.mark.parametrize(
    ("compression", "key"),
    [
        ({"columns": ["BASE"], "level": 20}, "compression.level"),
        ({"columns": "BASE"}, "compression.columns"),
        ({"columns": ["a\nb"]}, "compression.columns"),
        ({"colums": ["BASE"]}, "compression.colums"),
    ],
)
def test_what_no_column_or_level_is_is_refused_by_its_key(stores: Stores, compression: Any, key: str) -> None:
    with pytest.raises(InvalidConfig, match=key.replace(".", r"\.")):
        Datastore.open(stores.config("sqlite", compression=compression))
