"""A verification of an index while rows move, and of rows that do not fit into a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Datastore, Json
from schemaless_core.cell import page_bytes
from schemaless_core.cell.answers import Scalar
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexField
from schemaless_core.definitions.values import IndexFieldType, index_shard_of
from schemaless_core.engine.base import EntryWrite, IndexTable, StoredEntry
from schemaless_core.indexes import entry_sums, verify, writer
from schemaless_core.indexes.entry_sums import EntryKey, EntrySums
from schemaless_core.indexes.verify import DifferenceKind, EntryDifference, Verification, VerificationReport
from tests.indexing import catch_up, nothing_after_commit
from tests.stores import Stores

NAME = "trips_of_driver"
ROWS = 30
INDEX: dict[str, Json] = {
    "table": NAME,
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]},
        {"column_key": "STATUS", "fields": [{"field": "word", "type": "string"}]},
    ],
}


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    """One shard, so one index shard."""
    config = stores.config(datastore_engine, shards=1, indexes=[INDEX])
    with Datastore.open(config | {"clusters": {"a": config["clusters"]["a"]}}) as store:
        store.create_schema()
        with nothing_after_commit():
            for n in range(ROWS):
                put_row(store, f"driver {n}")
        catch_up(store)
        yield store


def put_row(store: Datastore, driver: str) -> UUID:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, {"driver": driver})
    store.put_cell(row_key, "STATUS", 1, {"word": "x" * 50})
    return row_key


def write(store: Datastore, entry: EntryWrite) -> None:
    (version,) = store.indexes.catalogue.kept()
    assert store.indexes.writer.put(version, [entry], Deadline(10)) == {}


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something happen when all rows are looked at, and no entries yet."""
    real = Verification._entry_pages

    def arrange(happen: Callable[[], None]) -> None:
        def pages(its: Verification, shard: int) -> Any:
            monkeypatch.setattr(Verification, "_entry_pages", real)
            happen()
            return real(its, shard)

        monkeypatch.setattr(Verification, "_entry_pages", pages)

    return arrange


def stale_beside_one_that_goes(store: Datastore, between: Callable[[Callable[[], None]], None]) -> UUID:
    """As many entries as there should be: a wrong one came when a right one went. The row with the wrong one."""
    leaving, wronged = put_row(store, "leaving"), put_row(store, "right")
    catch_up(store)
    write(store, EntryWrite("elsewhere", wronged.bytes, ("elsewhere", None), (1, None)))

    def leave() -> None:
        store.put_cell(leaving, "BASE", 2, None)
        catch_up(store)

    between(leave)
    return wronged


def test_i12_a_stale_entry_is_found_though_another_one_went_meanwhile(
    store: Datastore, between: Callable[[Callable[[], None]], None]
) -> None:
    wronged = stale_beside_one_that_goes(store, between)

    report = store.indexes.verify(NAME)

    assert report.counts == {DifferenceKind.MISSING: 0, DifferenceKind.STALE: 1, DifferenceKind.DIFFERENT: 0}
    assert [(each.row_key, each.shard_value) for each in report.samples] == [(wronged, "elsewhere")]


def test_control_entries_that_are_counted_and_not_summed_hide_it(
    store: Datastore, between: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stale_beside_one_that_goes(store, between)
    monkeypatch.setattr(entry_sums, "hash", lambda _key: 1, raising=False)

    assert store.indexes.verify(NAME).counts == dict.fromkeys(DifferenceKind, 0)


def test_what_is_unlike_its_cells_counts_once_beside_a_stale_entry(store: Datastore) -> None:
    """All entries of a sum are looked at where one of them is stale."""
    with nothing_after_commit():  # it would mend what follows
        wronged = put_row(store, "right")
    catch_up(store)
    write(store, EntryWrite("right", wronged.bytes, ("right", "otherwise"), (1, 1)))
    write(store, EntryWrite("elsewhere", wronged.bytes, ("elsewhere", None), (1, None)))

    report = store.indexes.verify(NAME)

    assert report.counts == {DifferenceKind.MISSING: 0, DifferenceKind.STALE: 1, DifferenceKind.DIFFERENT: 1}


def test_i12_rows_that_do_not_fit_into_a_page_are_compared_whole(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_bytes, "PAGE_BYTES", 90)  # a row and a half

    report = store.indexes.verify(NAME)

    assert (report.rows, report.entries, report.late, report.not_compared) == (ROWS, ROWS, 0, 0)
    assert report.is_clean


def test_of_many_pages_those_alone_are_looked_at_that_differ(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page has its sums: what is right is not asked for entry by entry."""
    with nothing_after_commit():
        wronged = put_row(store, "right")
    catch_up(store)
    write(store, EntryWrite("right", wronged.bytes, ("right", "otherwise"), (1, 1)))
    monkeypatch.setattr(verify, "PER_PAGE", 4)
    asked, real = list[EntryKey](), Verification._at

    def at(its: Verification, keys: Iterable[EntryKey]) -> dict[EntryKey, StoredEntry]:
        listed = list(keys)
        asked.extend(listed)
        return real(its, listed)

    monkeypatch.setattr(Verification, "_at", at)

    report = store.indexes.verify(NAME)

    assert report.counts == {DifferenceKind.MISSING: 0, DifferenceKind.STALE: 0, DifferenceKind.DIFFERENT: 1}
    assert (report.rows, report.entries) == (ROWS + 1, ROWS + 1)
    assert ("right", wronged.bytes) in asked
    assert len(asked) <= 2 * 4  # its page, and once more


def test_i12_pages_find_what_is_wrong_wherever_it_is(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of each kind of difference, among pages of three rows; and one row more than there was at first."""
    monkeypatch.setattr(verify, "PER_PAGE", 3)
    with nothing_after_commit():
        stale, different = put_row(store, "a"), put_row(store, "b")
    catch_up(store)
    write(store, EntryWrite("elsewhere", stale.bytes, ("elsewhere", "x" * 50), (1, 1)))
    write(store, EntryWrite("b", different.bytes, ("b", "otherwise"), (1, 1)))
    with nothing_after_commit():
        missing = put_row(store, "c")
    monkeypatch.setattr(Verification, "_look_again", _all_of_them)

    report = store.indexes.verify(NAME)

    assert {(each.row_key, each.shard_value) for each in report.samples} == {
        (stale, "elsewhere"),
        (different, "b"),
        (missing, "c"),
    }


def _all_of_them(its: Verification, suspects: Sequence[Any], report: VerificationReport, *_: Any, **__: Any) -> None:
    """What the first look found: nothing waits for the index, so what is missing stays so."""
    for each in suspects:
        report.add(EntryDifference(DifferenceKind.MISSING, UUID(bytes=each.row_key), each.shard_value))


def test_i12_an_entry_in_the_shard_of_another_value_is_missing(
    datastore_engine: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is right, and no query finds it: each asks the shard that the value has."""
    config = stores.config(datastore_engine, shards=2, indexes=[INDEX])
    with Datastore.open(config | {"clusters": {"a": config["clusters"]["a"]}}) as store:
        store.create_schema()
        with nothing_after_commit():
            put_row(store, "right")
        monkeypatch.setattr(
            writer, "index_shard_of", lambda kind, value, shards: 1 - index_shard_of(kind, value, shards)
        )
        catch_up(store)

        report = store.indexes.verify(NAME)

    assert report.entries == 1
    assert report.counts == {DifferenceKind.MISSING: 1, DifferenceKind.STALE: 0, DifferenceKind.DIFFERENT: 0}


@pytest.mark.parametrize(
    ("kind", "wanted", "there"),
    [
        (IndexFieldType.INT, -1, -2),  # which have one hash
        (IndexFieldType.INT, 0, 2**61 - 1),
        (IndexFieldType.UUID, UUID(int=8), UUID(int=1 << 64)),
    ],
)
def test_i12_values_with_one_hash_are_told_apart(kind: IndexFieldType, wanted: Scalar, there: Scalar) -> None:
    table = IndexTable("t_v1", (IndexField("city", kind),), 1, (0,))
    page = EntrySums(table, 1).page(0, None)
    row_key = uuid4().bytes

    page.want(EntryWrite(wanted, row_key, (wanted,), (1,)))
    page.found(StoredEntry(row_key, (there,), (1,), is_dead=False))
    page.explained((wanted, row_key))

    assert hash(wanted) == hash(there)
    assert not page.is_equal
    assert page.may_have_others()
    assert page.may_have_others(row_key)


@pytest.mark.parametrize("refs", [(1, 2), (2, 1), (1, None)])
def test_i12_ref_keys_are_summed_up_with_the_fields(refs: tuple[int | None, ...]) -> None:
    table = IndexTable("t_v1", (IndexField("city", IndexFieldType.INT),), 2, (0,))
    page = EntrySums(table, 1).page(0, None)
    row_key = uuid4().bytes

    page.want(EntryWrite(7, row_key, (7,), (1, 2)))
    page.found(StoredEntry(row_key, (7,), refs, is_dead=False))

    assert page.is_equal == (refs == (1, 2))
