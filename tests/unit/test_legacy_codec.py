"""Rows to bodies and back, and the pairs that are looked up: nothing is invented, nothing goes missing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from schemaless_core import InvalidCell, Json, canonical_bytes
from tests.unit.test_canonical import nested
from tripstore.backends.postgres.codec import lookups
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache, WantedPairs
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)

TRIPS = TableName("public", "trips")
USERS = Lookup(TableName("public", "users"), "id", "user_uuid")
CITIES = Lookup(TableName("company", "cities"), 'co"de', "city_uuid")
FIELDS = (
    Field("driver_uuid", "driver_id", FieldType.UUID, USERS),
    Field("rider_uuid", "rider_id", FieldType.UUID, USERS),
    Field("city_uuid", "city", FieldType.UUID, CITIES),
    Field("fare", "fare_amount", FieldType.DECIMAL),
    Field("tip", "tip", FieldType.DECIMAL, keeps_null=True),
    Field("payment", "payment", FieldType.JSON),
    Field("two words", "odd", FieldType.STRING),
)
EMPTY = {"driver_id": None, "rider_id": None, "city": None, "fare_amount": None, "tip": None, "payment": None}
EMPTY |= {"odd": None, "rest": None}


def uuid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def layout(*fields: Field, extra: str | None = "rest") -> Layout:
    column = MappedColumn("BASE", TRIPS, "trip_uuid", None, RefKeySource(version="v"), fields or FIELDS, extra)
    return Layout("trips", RowKeySource(TRIPS, "id", "trip_uuid"), {"BASE": column})


class Database:
    """Answers what a cache asks, and counts: the key of a user is his number, that of a city its letter."""

    def __init__(self, users: Sequence[int] = range(1, 5_000), deleted: Mapping[int, str] | None = None) -> None:
        self.users = set(users)
        self.deleted = deleted or {}
        self.asked: list[tuple[str, list[str]]] = []

    def rows_of(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        texts = [text.strip('"') for text in parameters[0].strip("{}").split(",")]
        self.asked.append((statement, texts))
        if "tripstore.pair" in statement:
            assert parameters[1] in ("public.users.id.user_uuid", 'company.cities.co"de.city_uuid')
            return [(str(key), text) for key, text in self.deleted.items() if {str(key), text} & set(texts)]
        if '"company"."cities"' in statement:
            return [("aar", uuid(99))] if {"aar", uuid(99)} & set(texts) else []
        numbers = {int(text.rsplit("-", 1)[-1]) for text in texts}
        return [(str(number), uuid(number)) for number in sorted(numbers & self.users)]


def codec(database: Database | None = None, *fields: Field, extra: str | None = "rest") -> ColumnCodec:
    made = layout(*fields, extra=extra)
    return ColumnCodec(made.columns["BASE"], LookupCache(made, (database or Database()).rows_of))


def row(**texts: str | None) -> str:
    return json.dumps(EMPTY | texts)


def test_a_row_becomes_a_body_and_the_same_row_again() -> None:
    texts = EMPTY | {
        "driver_id": "7",
        "city": "aar",
        "fare_amount": "1.10",
        "payment": '{"a":1}',
        "rest": '{"note":"x"}',
    }
    body = codec().body(json.dumps(texts))

    assert body == {
        "driver_uuid": uuid(7),
        "city_uuid": uuid(99),
        "fare": "1.10",
        "tip": None,
        "payment": {"a": 1},
        "note": "x",
    }
    assert codec().row(body) == texts
    assert codec().canonical(json.dumps(texts)) == canonical_bytes(body)


def test_null_is_a_missing_field_unless_the_layout_keeps_it() -> None:
    assert codec().body(row()) == {"tip": None}
    assert codec().row({"tip": None}) == EMPTY


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        (None, "", "null, not an object"),
        ([], "", "a list, not an object"),
        ({}, "tip", "missing"),
        ({"tip": None, "fare": None}, "fare", "missing field"),
        ({"tip": None, "fare": 1}, "fare", "an integer"),
        ({"tip": None, "two words": 1}, "['two words']", "an integer"),
        ({"tip": None, "driver_uuid": uuid(9_999)}, "driver_uuid", "table users has no row of this user_uuid"),
        ({"tip": None, "city_uuid": uuid(1)}, "city_uuid", "table company.cities has no row"),
        ({"tip": None, "driver_uuid": "7"}, "driver_uuid", "small letters"),
    ],
)  # fmt: skip
def test_a_body_that_no_row_holds_is_refused_with_its_path(body: Json, path: str, reason: str) -> None:
    with pytest.raises(Unrepresentable) as refused:
        codec().row(body)

    assert refused.value.path == path
    assert reason in refused.value.reason
    assert (path or "the body") in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "path", "reason"),
    [
        ({"driver_id": "9999"}, "driver_uuid", "table users has no row of this id"),
        ({"fare_amount": "x"}, "fare", "no decimal"),
        ({"payment": '{"a":[1e400]}'}, "payment.a[0]", "exactly"),
        ({"rest": "[]"}, "rest", "not an object"),
        ({"rest": "null"}, "rest", "null"),
        ({"rest": '{"fare":"1"}'}, "rest.fare", "has this name"),
        ({"rest": '{"a":{"b":1,"b":2}}'}, "rest.a", "twice"),
    ],
)
def test_a_row_that_no_body_holds_is_refused_with_its_path(texts: dict[str, str], path: str, reason: str) -> None:
    with pytest.raises(UnreadableRow) as refused:
        codec().canonical(row(**texts))

    assert refused.value.path == path
    assert reason in refused.value.reason


def test_json_within_a_body_is_as_deep_as_the_body_allows() -> None:
    assert codec().canonical(row(payment=json.dumps(nested(199))))
    with pytest.raises(UnreadableRow, match="deeper") as refused:
        codec().canonical(row(payment=json.dumps(nested(200))))

    assert refused.value.path == "payment" + "[0]" * 199


def test_a_body_that_is_no_json_is_refused_too() -> None:
    bodies: list[Json] = [{"tip": None, "payment": float("nan")}, {"tip": None, "note": float("nan")}]
    for body in bodies:
        with pytest.raises(Unrepresentable):
            codec().row(body)
        with pytest.raises(InvalidCell):
            canonical_bytes(body)


def test_a_key_without_a_field_goes_to_the_extra_or_nowhere() -> None:
    assert codec().row({"tip": None, "z": 1, "a": [None]})["rest"] == '{"a":[null],"z":1}'
    with pytest.raises(Unrepresentable) as refused:
        codec(None, extra=None).row({"tip": None, "z": 1})

    assert refused.value.path == "z"


@pytest.mark.parametrize("text", ["", "[]", '{"fare_amount":1}', '{"fare_amount":"1"}', "null", '{"a":'])
def test_a_text_that_is_no_row_of_this_layout_is_refused(text: str) -> None:
    with pytest.raises(UnreadableRow, match="none of this layout's") as refused:
        codec().body(text)

    assert refused.value.path == "trips"
    assert refused.value.hint


def test_a_column_of_nothing_but_its_extra_holds_any_object() -> None:
    column = MappedColumn("BASE", TRIPS, "trip_uuid", None, RefKeySource(version="v"), (), "rest")
    free = ColumnCodec(column, LookupCache(layout()))

    assert free.body('{"rest":null}') == {}
    assert free.row({}) == {"rest": None}
    assert free.body(json.dumps(free.row({"a": {"b": -0.0}}))) == {"a": {"b": -0.0}}


# -------------------------------------------------------------------------------------------------------- lookups


def test_pairs_of_many_rows_are_asked_for_at_once_and_never_again() -> None:
    database = Database()
    made = layout()
    cache = LookupCache(made)
    codec = ColumnCodec(made.columns["BASE"], cache)
    texts = [row(driver_id=str(n), rider_id=str(n + 1), city="aar") for n in range(1, 100)]

    cache.fill(codec.missing(texts), database.rows_of)

    assert len(database.asked) == 2  # users and cities
    assert sorted(map(int, database.asked[0][1])) == list(range(1, 101))
    bodies = [codec.body(text) for text in texts]
    assert bodies[0] == {"driver_uuid": uuid(1), "rider_uuid": uuid(2), "city_uuid": uuid(99), "tip": None}
    assert not codec.missing(texts)
    assert not codec.missing_of_bodies(bodies)
    assert len(database.asked) == 2


def test_pairs_of_many_bodies_are_asked_for_at_once() -> None:
    database = Database()
    made = layout()
    cache = LookupCache(made)
    codec = ColumnCodec(made.columns["BASE"], cache)
    bodies: list[Json] = [{"driver_uuid": uuid(n), "tip": None} for n in range(1, 100)]
    nothing: list[Json] = [None, [], {"driver_uuid": 7}, {"driver_uuid": "x"}, {"driver_uuid": None}, {}]

    cache.fill(codec.missing_of_bodies(bodies + nothing), database.rows_of)

    assert len(database.asked) == 1
    assert [codec.row(body)["driver_id"] for body in bodies] == [str(n) for n in range(1, 100)]


def test_a_pair_that_was_not_fetched_before_is_asked_for_by_itself() -> None:
    database = Database()
    cache = LookupCache(layout(), database.rows_of)

    assert cache.uuid_of(USERS, 7) == uuid(7)
    assert cache.key_of(USERS, uuid(7)) == "7"  # known by then
    assert len(database.asked) == 1


def test_a_pair_that_is_missing_is_looked_for_again() -> None:
    database = Database(users=())
    cache = LookupCache(layout(), database.rows_of)
    assert cache.uuid_of(USERS, "7") is None

    database.users.add(7)

    assert cache.uuid_of(USERS, "7") == uuid(7)


def test_a_deleted_pair_is_asked_for_when_the_table_does_not_have_it() -> None:
    database = Database(users=(1, 2), deleted={3: uuid(3)})
    cache = LookupCache(layout(), database.rows_of)

    cache.fill(_wanted("1", "2"))
    cache.fill(_wanted("2", "3"))

    assert [cache.uuid_of(USERS, n) for n in (1, 2, 3)] == [uuid(1), uuid(2), uuid(3)]
    assert [("tripstore.pair" in statement, sorted(texts)) for statement, texts in database.asked] == [
        (False, ["1", "2"]),
        (False, ["3"]),
        (True, ["3"]),
    ]


def test_the_key_of_a_uuid_is_that_of_the_row_that_is_there() -> None:
    """A deleted row's UUID may come back under another key: only the other direction is for ever."""
    database = Database(users=(), deleted={3: uuid(7)})
    cache = LookupCache(layout(), database.rows_of)
    assert cache.key_of(USERS, uuid(7)) == "3"

    database.users.add(7)

    assert cache.key_of(USERS, uuid(7)) == "7"
    assert cache.uuid_of(USERS, "3") == cache.uuid_of(USERS, "7") == uuid(7)


def test_an_asking_codec_answers_and_keeps_nothing() -> None:
    database = Database()
    made = layout()
    cache = LookupCache(made)
    plain = ColumnCodec(made.columns["BASE"], cache)
    cache.fill(_wanted("1"), database.rows_of)
    asking = plain.asking(database.rows_of)
    body: Json = {"driver_uuid": uuid(1), "rider_uuid": uuid(2), "tip": None}

    assert asking.body(row(driver_id="1", rider_id="2")) == body
    assert asking.row(body) == EMPTY | {"driver_id": "1", "rider_id": "2"}
    assert [texts for _, texts in database.asked] == [["1"], ["2"], [uuid(2)]]  # what is kept is not asked for
    with pytest.raises(UnreadableRow, match="no row"):
        plain.body(row(rider_id="2"))
    assert len(cache) == 2


def test_a_column_that_points_nowhere_asks_no_server() -> None:
    plain = codec(None, Field("fare", "fare_amount", FieldType.DECIMAL))

    assert plain.asking(Database().rows_of) is plain


def test_without_a_database_only_what_was_filled_is_known() -> None:
    cache = LookupCache(layout())

    assert cache.uuid_of(USERS, "7") is None
    assert cache.key_of(USERS, uuid(7)) is None
    cache.fill(_wanted("7"))  # no connection to ask by
    assert len(cache) == 0


def test_statements_are_of_bounded_size_and_quote_names_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PAIRS_PER_STATEMENT", 10)
    database = Database()
    cache = LookupCache(layout(), database.rows_of)

    cache.fill(_wanted(*map(str, range(1, 26))))

    assert sorted(len(texts) for _, texts in database.asked) == [5, 10, 10]
    asked: list[tuple[str, Sequence[Any]]] = []

    def remember(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        asked.append((statement, parameters))
        return []

    LookupCache(layout(), remember).uuid_of(CITIES, 'a"\\b')
    statement, parameters = asked[0]
    assert statement.endswith('FROM "company"."cities" WHERE "co""de" = ANY (%s)')
    assert parameters == ('{"a\\"\\\\b"}',)


def test_the_cache_is_bounded_and_keeps_what_is_asked_for_often() -> None:
    database = Database()
    cache = LookupCache(layout(), database.rows_of, pairs_max=10)

    for number in range(1, 1_000):
        assert cache.uuid_of(USERS, str(number)) == uuid(number)
        assert cache.uuid_of(USERS, "1") == uuid(1)
        assert len(cache) <= 20  # ten in each direction

    assert sum("1" in texts for _, texts in database.asked) == 1


def test_however_little_room_there_is_the_answer_is_right() -> None:
    cache = LookupCache(layout(), Database().rows_of, pairs_max=1)

    assert [cache.uuid_of(USERS, n) for n in (1, 2, 1, 3, 9_999)] == [uuid(1), uuid(2), uuid(1), uuid(3), None]


def test_threads_share_the_cache() -> None:
    database = Database()
    cache = LookupCache(layout(), database.rows_of, pairs_max=100)
    wrong: list[int] = []
    start = threading.Barrier(4)

    def ask(seed: int) -> None:
        start.wait()
        for step in range(3_000):
            number = (step * 7919 + seed) % 500 + 1
            if cache.uuid_of(USERS, number) != uuid(number) or cache.key_of(USERS, uuid(number)) != str(number):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_forked_child_goes_on_with_the_cache_while_another_thread_is_asking() -> None:
    asking, answered = threading.Event(), threading.Event()

    def slow(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if parameters[0] == '{"1"}':
            asking.set()
            answered.wait()
        return Database().rows_of(statement, parameters)

    cache = LookupCache(layout(), slow)
    thread = threading.Thread(target=cache.uuid_of, args=(USERS, "1"))
    thread.start()
    asking.wait()

    child = os.fork()
    if child == 0:
        os._exit(0 if cache.uuid_of(USERS, "2") == uuid(2) else 1)
    _, status = os.waitpid(child, 0)
    answered.set()
    thread.join()

    assert status == 0


def _wanted(*keys: str) -> WantedPairs:
    wanted = WantedPairs()
    for key in keys:
        wanted.want_key(USERS, key)
    return wanted
