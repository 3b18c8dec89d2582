"""Entries of indexes on real servers: what is written comes back, merges only move forward, repair takes no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schemaless_core import SchemaMissing, metrics
from schemaless_core.definitions.index import IndexField
from schemaless_core.definitions.values import TEXT_BYTES_MAX, IndexFieldType
from schemaless_core.engine import index_sql
from schemaless_core.engine.base import EntryQuery, EntryWrite, FieldError, IndexTable, StoredEntry
from schemaless_core.engine.mysql.indexes import entries as mysql_entries
from schemaless_core.errors import IndexMissing
from tests.chaos.actors import wait_for_a_lock_wait
from tests.integration.indexed import (
    EDGES,
    FIELDS,
    NOTHING,
    Indexed,
    IndexedFactory,
    Values,
    patience,
    table_of,
    write,
)
from tests.stores import ServerEngine, Stores

_VALUES: dict[IndexFieldType, SearchStrategy[Any]] = {
    IndexFieldType.UUID: st.uuids(),
    IndexFieldType.STRING: st.text(st.characters(codec="utf-8"), max_size=TEXT_BYTES_MAX // 4),
    IndexFieldType.INT: st.integers(-(2**63), 2**63 - 1),
    IndexFieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0),
    IndexFieldType.DECIMAL: st.integers(1 - 10**65, 10**65 - 1).map(lambda digits: Decimal(f"{digits}e-30")),
    IndexFieldType.BOOLEAN: st.booleans(),
    IndexFieldType.DATETIME: st.datetimes(
        min_value=datetime(1000, 1, 1, tzinfo=UTC).replace(tzinfo=None), timezones=st.just(UTC)
    ),
}
_ROWS = st.lists(st.tuples(*(st.none() | _VALUES[field.kind] for field in FIELDS[1:])), max_size=20)


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("kind", IndexFieldType)
def test_an_entry_is_found_under_exactly_its_shard_value_whatever_its_type(
    kind: IndexFieldType, datastore_engine: str, new_index: IndexedFactory
) -> None:
    fields = (IndexField("dead", kind), IndexField("row_key", kind))  # called like columns of ours: nothing comes of it
    index = new_index(datastore_engine, table_of(fields, (0, 0)))
    written = {value: write(value, values=(value,), refs=(1,)) for value in EDGES[kind]}
    index.put(*written.values())

    for value, entry in written.items():
        assert index.find(value) == [StoredEntry(entry.row_key, (value, value), (1,), False)]


@settings(max_examples=20, phases=[Phase.explicit, Phase.generate])
@given(rows=_ROWS)
def test_values_of_every_type_come_back_as_they_were_written(index: Indexed, rows: list[Values]) -> None:
    shard_value = str(uuid4())
    written = {uuid4().bytes: values for values in rows}

    index.put(*(write(shard_value, row_key, values) for row_key, values in written.items()))

    found = {entry.row_key: entry.values for entry in index.find(shard_value)}
    assert found == {row_key: (shard_value, *values) for row_key, values in written.items()}
    assert [_types(values[1:]) for values in found.values()] == [_types(written[row_key]) for row_key in found]


def _types(values: Values) -> list[type]:
    return [type(value) for value in values]


def test_decimals_come_back_without_the_zeros_of_their_column(index: Indexed) -> None:
    index.put(write(values=(None, None, None, None, Decimal("12.50"), None, None)))

    assert str(index.find("s")[0].values[5]) == "12.5"


# ---------------------------------------------------------------------------------------- merges only move forward


def _number(number: int) -> Values:
    return (number, None, None, None, None, None, None)


def _float(number: float) -> Values:
    return (None, None, None, number, None, None, None)


def _merged_in_all_orders(index: Indexed, writes: list[Callable[[bytes], EntryWrite]]) -> set[tuple[Any, ...]]:
    """Make the writes to one row each per order they can come in; return the different entries that result."""
    orders = [(uuid4().bytes, order) for order in permutations(writes)]
    for step in range(len(writes)):
        index.put(*(order[step](row_key) for row_key, order in orders))
    return {(entry.values, entry.refs, entry.is_dead) for entry in index.all()}


_WRITES: list[Callable[[bytes], EntryWrite]] = [
    lambda key: write("s", key, _number(1), (1, None)),
    lambda key: write("s", key, _float(0.2), (1, 2)),
    lambda key: write("s", key, _number(3), (3, 1)),
    lambda key: write("s", key, NOTHING, (2, None), is_dead=True),
    lambda key: write("s", key, (4, "four", None, 0.5, None, True, None), (4, 5)),
]


def test_each_source_column_only_moves_forward_whatever_order_its_writes_come_in(index: Indexed) -> None:
    assert _merged_in_all_orders(index, _WRITES) == {
        (("s", 4, "four", None, 0.5, None, True, None), (4, 5), False),
    }


def test_columns_move_each_by_its_own_ref_key(index: Indexed) -> None:
    """The newest version of one column and of the other come in different writes."""
    first_is_new = write("s", b"r" * 16, (9, "new", None, 0.1, None, None, None), (9, 1))
    second_is_new = write("s", b"r" * 16, (1, "old", None, 0.9, None, None, None), (1, 9))

    index.put(first_is_new)
    index.put(second_is_new)

    assert index.all()[0] == StoredEntry(b"r" * 16, ("s", 9, "new", None, 0.9, None, None, None), (9, 9), False)


def test_without_the_rule_the_end_depends_on_the_order(index: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: an upsert that takes whatever comes ends as its last writer wrote it."""

    def overwritten(table: IndexTable, incoming: Callable[[str], str]) -> str:
        return ", ".join(f"{column} = {incoming(column)}" for column in index_sql.columns(table)[2:])

    monkeypatch.setattr(index_sql, "assignments", overwritten)

    assert len(_merged_in_all_orders(index, _WRITES)) > 1


def test_writes_of_one_call_merge_as_if_they_came_one_by_one(index: Indexed) -> None:
    orders = list(permutations(_WRITES))
    index.put(*(make(number.to_bytes(16, "big")) for number, order in enumerate(orders) for make in order))

    assert len({(entry.values, entry.refs, entry.is_dead) for entry in index.all()}) == 1


def test_a_column_without_ref_key_leaves_its_fields_as_they_are(index: Indexed) -> None:
    row_key = uuid4().bytes
    index.put(write("s", row_key, (1, "one", None, 0.5, None, None, None), (1, 7)))
    index.put(write("s", row_key, (2, None, None, 0.9, None, None, None), (2, None)))

    assert index.find("s")[0].values == ("s", 2, None, None, 0.5, None, None, None)
    assert index.find("s")[0].refs == (2, 7)


def test_an_equal_ref_key_writes_its_fields_again(index: Indexed) -> None:
    """Repair mends an entry that is wrong under the right ref key."""
    row_key = uuid4().bytes
    index.put(write("s", row_key, _number(1), (5, None), is_dead=True))
    index.put(write("s", row_key, _number(2), (5, None)))

    assert [entry.values[1] for entry in index.find("s")] == [2]


def test_a_tombstone_hides_its_entry_until_a_higher_ref_key_of_the_shard_column_comes(index: Indexed) -> None:
    row_key = uuid4().bytes
    index.put(write("s", row_key, _number(1), (1, None)))
    index.put(write("s", row_key, NOTHING, (5, None), is_dead=True))
    index.put(write("s", row_key, _number(4), (4, 9)))  # late, and with news of the other column only

    assert index.find("s") == []
    assert [(entry.is_dead, entry.refs) for entry in index.all()] == [(True, (5, 9))]

    index.put(write("s", row_key, _number(6), (6, None)))
    assert [entry.refs for entry in index.find("s")] == [(6, 9)]


# ----------------------------------------------------------------------------------------------- many at a time


def test_entries_of_many_shards_are_cut_into_statements_and_transactions(
    index: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_entries, "SHARDS_PER_TRANSACTION", 2)
    monkeypatch.setattr(mysql_entries, "ROWS_PER_STATEMENT", 7)
    monkeypatch.setattr(mysql_entries, "BYTES_PER_STATEMENT", 2_000)
    writes = {shard: [write("ä" * (n % 200), values=_number(n)) for n in range(20)] for shard in index.shards}

    states = index.node.put_entries(index.table, writes, patience())

    assert list(states) == index.shards
    for shard, expected in writes.items():
        found = {(entry.values[0], entry.row_key, entry.values[1]) for entry in index.all(shard)}
        assert found == {(entry.shard_value, entry.row_key, entry.values[1]) for entry in expected}


def test_a_call_without_entries_still_says_what_the_shards_are(index: Indexed) -> None:
    assert index.node.put_entries(index.table, {}, patience()) == {}
    assert list(index.node.put_entries(index.table, {index.shards[1]: []}, patience())) == [index.shards[1]]


def test_concurrent_writers_of_the_same_entries_neither_fail_nor_lose_one(index: Indexed) -> None:
    keys = [(shard, f"v{n % 3}", n.to_bytes(16, "big")) for shard in index.shards for n in range(25)]

    def put(seed: int) -> dict[tuple[int, str, bytes], int]:
        choose = random.Random(seed)
        written: dict[tuple[int, str, bytes], int] = {}
        for _call in range(15):
            calls: dict[int, list[EntryWrite]] = {}
            for key in choose.sample(keys, 40):
                shard, value, row_key = key
                ref = choose.randrange(1, 1_000_000)
                calls.setdefault(shard, []).append(write(value, row_key, _number(ref), (ref, None)))
                written[key] = max(written.get(key, 0), ref)
            index.node.put_entries(index.table, calls, patience())
        return written

    with ThreadPoolExecutor(6) as threads:
        told = list(threads.map(put, range(6)))

    highest = {key: max(written.get(key, 0) for written in told) for key in keys}
    stored = {
        (shard, entry.values[0], entry.row_key): (entry.refs[0], entry.values[1])
        for shard in index.shards
        for entry in index.all(shard)
    }
    assert stored == {key: (ref, ref) for key, ref in highest.items() if ref}


def test_a_transaction_that_a_deadlock_is_resolved_against_is_sent_again(
    server_engine: ServerEngine, server_index: Indexed, stores: Stores
) -> None:
    """Another session holds the second shard's entry and wants the first one's, which ours holds: the lighter loses."""
    index, (first, second) = server_index, server_index.shards[:2]
    others = [write("other", values=_number(n)) for n in range(200)]
    row_key = uuid4().bytes
    for shard in (first, second):
        index.put(write("s", row_key, _number(1)), *others, shard=shard)
    news = {shard: [write("s", row_key, _number(2), (2, None))] for shard in (first, second)}
    before = metrics.REPEATS.labels("deadlock")._value.get()

    server = stores.clusters(server_engine)[0].primary
    with (
        pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password) as blocker,
        blocker.cursor() as cursor,
        ThreadPoolExecutor(1) as thread,
    ):
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE {_table(index, second)} SET f_number = f_number + 1")
        ours = thread.submit(index.node.put_entries, index.table, news, patience())
        wait_for_a_lock_wait(server)
        cursor.execute(f"UPDATE {_table(index, first)} SET dead = dead WHERE f_shard = 's'")
        blocker.commit()

        assert sorted(ours.result(30)) == [first, second]

    assert metrics.REPEATS.labels("deadlock")._value.get() == before + 1
    assert [index.find("s")[0].values[1] for shard in (first, second)] == [2, 2]


def _table(index: Indexed, shard: int) -> str:
    return f"{index.datastore}_{shard:04d}.{index.table.name}"


# ----------------------------------------------------------------------------------- states, missing tables, repair


def test_every_verb_says_what_the_shard_was_no_earlier_than_its_answer(
    server_engine: ServerEngine, server_index: Indexed, stores: Stores
) -> None:
    index, shard = server_index, server_index.shards[0]
    server = stores.clusters(server_engine)[0].primary
    state = f"{index.datastore}_meta.shard_state"
    server.query(f"UPDATE {state} SET epoch = epoch + 1 WHERE shard = {shard}")
    expected = index.node.heads([shard], patience())[shard].state
    assert expected.epoch > 1

    assert index.node.put_entries(index.table, {shard: [write()]}, patience()) == {shard: expected}
    assert index.node.find_entries(index.table, shard, EntryQuery("s", 1), patience())[0] == expected
    found_state, entries = index.node.scan_entries(index.table, shard, None, 1, patience())
    assert found_state == expected
    assert index.node.remove_entries(index.table, shard, entries, patience()) == (expected, 1)


def _calls(index: Indexed, table: IndexTable) -> list[Callable[[], object]]:
    node, shard = index.node, index.shards[0]
    return [
        lambda: node.put_entries(table, {shard: [write()]}, patience()),
        lambda: node.find_entries(table, shard, EntryQuery("s", 1), patience()),
        lambda: node.scan_entries(table, shard, None, 1, patience()),
        lambda: node.remove_entries(table, shard, [StoredEntry(b"r" * 16, ("s",), (1, 1), False)], patience()),
    ]


def test_a_version_that_was_never_created_is_missing(index: Indexed) -> None:
    for call in _calls(index, table_of(FIELDS, index.table.owners)):
        with pytest.raises(IndexMissing, match="entries_v"):
            call()


def test_a_version_that_was_dropped_is_missing_and_may_be_created_again(index: Indexed) -> None:
    index.put(write())

    for _again in range(2):
        index.node.drop_index(index.table.name, index.shards, patience())

    for call in _calls(index, index.table):
        with pytest.raises(IndexMissing):
            call()
    index.node.create_index(index.table, index.shards, patience())
    assert index.all() == []


def test_only_the_shards_that_are_named_lose_their_entries(index: Indexed) -> None:
    first, second = index.shards[:2]
    for shard in (first, second):
        index.put(write(), shard=shard)

    index.node.drop_index(index.table.name, [first], patience())

    assert len(index.all(second)) == 1


def test_a_shard_that_lacks_the_table_leaves_no_transaction_open(server_index: Indexed) -> None:
    """The others of its transaction are rolled back, and the next writer may write them at once."""
    index, (first, second) = server_index, server_index.shards[:2]
    index.node.drop_index(index.table.name, [second], patience())
    entry = write()

    with pytest.raises(IndexMissing):
        index.node.put_entries(index.table, {first: [entry], second: [entry]}, patience())

    assert index.all(first) == []
    index.put(entry, shard=first)
    assert len(index.all(first)) == 1


def test_a_shard_of_another_server_is_missing_as_a_shard(datastore_engine: str, index: Indexed) -> None:
    elsewhere = next(shard for shard in range(8) if shard not in index.shards)

    with pytest.raises(SchemaMissing) as raised:
        index.node.put_entries(index.table, {elsewhere: [write()]}, patience())

    # A server has no database for it, a file has a table for all shards.
    assert isinstance(raised.value, IndexMissing) == (datastore_engine != "sqlite")


def test_creations_that_race_leave_entries_as_they_are(index: Indexed) -> None:
    index.put(write())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _n: index.node.create_index(index.table, index.shards, patience()), range(8)))

    assert len(index.all()) == 1


def test_an_entry_is_removed_only_while_its_ref_keys_are_the_ones_seen(index: Indexed) -> None:
    kept, removed, half_known = (uuid4().bytes for _ in range(3))
    index.put(write(row_key=kept), write(row_key=removed, is_dead=True), write(row_key=half_known, refs=(1, None)))
    seen = index.all()
    index.put(write(row_key=kept, refs=(1, 2)))

    _state, count = index.node.remove_entries(index.table, index.shards[0], seen, patience())

    assert count == 2
    assert [entry.row_key for entry in index.all()] == [kept]
    assert index.node.remove_entries(index.table, index.shards[0], [], patience())[1] == 0


# ------------------------------------------------------------------------------------------- the index-error list


def _error(ref_key: int, reason: str | None, field: str = "fare", shard: int = 0) -> FieldError:
    return FieldError("trips", 1, shard, b"r" * 16, b"BASE", ref_key, field, reason)


def _known(index: Indexed) -> list[tuple[int, str, int, str | None]]:
    found = index.node.find_field_errors("trips", 1, 100, patience())
    assert index.node.count_field_errors("trips", 1, patience()) == len(found)
    assert all(error.at is not None for error in found)
    return [(error.shard, error.field, error.ref_key, error.reason) for error in found]


@pytest.fixture
def errors(index: Indexed) -> Indexed:
    index.node.drop_field_errors("trips", 1, patience())
    return index


def test_errors_are_listed_by_shard_and_field(errors: Indexed) -> None:
    given_errors = [_error(1, "it is no number", field, shard) for shard in (3, 1) for field in ("fare", "city")]

    errors.node.put_field_errors(given_errors, patience())

    assert [known[:2] for known in _known(errors)] == [(1, "city"), (1, "fare"), (3, "city"), (3, "fare")]
    assert len(errors.node.find_field_errors("trips", 1, 3, patience())) == 3
    assert errors.node.find_field_errors("trips", 2, 3, patience()) == []


@pytest.mark.parametrize("order", list(permutations([(1, "bad"), (2, None), (3, "worse")])))
def test_what_is_known_of_the_highest_ref_key_stays(errors: Indexed, order: list[tuple[int, str | None]]) -> None:
    for ref_key, reason in order:
        errors.node.put_field_errors([_error(ref_key, reason)], patience())

    assert _known(errors) == [(0, "fare", 3, "worse")]


def test_an_error_is_cleared_by_a_higher_ref_key_that_parses_and_does_not_come_back(errors: Indexed) -> None:
    errors.node.put_field_errors([_error(2, "bad")], patience())
    errors.node.put_field_errors([_error(1, None)], patience())
    assert _known(errors) == [(0, "fare", 2, "bad")]

    errors.node.put_field_errors([_error(3, None), _error(3, None, "city")], patience())
    assert _known(errors) == []

    errors.node.put_field_errors([_error(2, "bad")], patience())
    assert _known(errors) == []


def test_an_error_and_what_clears_it_may_come_in_one_call(errors: Indexed) -> None:
    errors.node.put_field_errors([_error(2, None), _error(1, "bad"), _error(5, "it's \\ bad ä", "city")], patience())

    assert _known(errors) == [(0, "city", 5, "it's \\ bad ä")]


def test_errors_of_a_dropped_version_are_forgotten(errors: Indexed) -> None:
    errors.node.put_field_errors([_error(1, "bad"), _error(1, "bad")._replace(version=2)], patience())

    errors.node.drop_field_errors("trips", 2, patience())

    assert len(_known(errors)) == 1
    assert errors.node.count_field_errors("trips", 2, patience()) == 0
