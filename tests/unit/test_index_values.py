"""What a value of a body, or of a caller, is as an index's type; and how values are ordered and placed on shards."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidRequest, Scalar, canonical_bytes
from schemaless_core.cell.canonical import from_canonical
from schemaless_core.definitions import values
from schemaless_core.definitions.values import (
    BadValue,
    IndexFieldType,
    check,
    index_shard_of,
    json_form,
    parse,
    sort_key,
    value_bytes,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
T = TypeVar("T")
DRIVER = UUID("00112233-4455-6677-8899-aabbccddeeff")

decimals = st.builds(
    lambda sign, before, after: Decimal(f"{sign}{before}.{after:030d}"),
    st.sampled_from(["", "-"]),
    st.integers(0, 10**35 - 1),
    st.integers(0, 10**30 - 1),
)
#: Values as callers and bodies of all types may give them.
GIVEN: Mapping[IndexFieldType, st.SearchStrategy[Any]] = {
    IndexFieldType.UUID: st.uuids(),
    IndexFieldType.STRING: st.text(st.characters(codec="utf-8"), max_size=120),
    IndexFieldType.INT: st.integers(-(2**63), 2**63 - 1),
    IndexFieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    IndexFieldType.DECIMAL: decimals | st.integers(-(10**34), 10**34),
    IndexFieldType.BOOLEAN: st.booleans(),
    IndexFieldType.DATETIME: st.builds(
        lambda microseconds, zone: NOON.astimezone(zone) + timedelta(microseconds=microseconds),
        st.integers(-(10**16) * 3, 10**17 * 2),
        st.just(UTC) | st.just(timezone(timedelta(hours=9))),
    ),
}
kinds_and_values = st.sampled_from(IndexFieldType).flatmap(lambda kind: st.tuples(st.just(kind), GIVEN[kind]))


def reason(found: Scalar | BadValue) -> str:
    assert isinstance(found, BadValue)
    return found.reason


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (IndexFieldType.UUID, "00112233-4455-6677-8899-aabbccddeeff", DRIVER),
        (IndexFieldType.UUID, "00112233445566778899AABBCCDDEEFF", DRIVER),
        (IndexFieldType.STRING, "", ""),
        (IndexFieldType.STRING, "æ" * 256, "æ" * 256),
        (IndexFieldType.INT, -(2**63), -(2**63)),
        (IndexFieldType.INT, 2**63 - 1, 2**63 - 1),
        (IndexFieldType.FLOAT, 12.5, 12.5),
        (IndexFieldType.FLOAT, 7, 7.0),
        (IndexFieldType.DECIMAL, "23.50", Decimal("23.5")),
        (IndexFieldType.DECIMAL, "+.5", Decimal("0.5")),
        (IndexFieldType.DECIMAL, "5.", Decimal(5)),
        (IndexFieldType.DECIMAL, "1e3", Decimal(1000)),
        (IndexFieldType.DECIMAL, 23, Decimal(23)),
        (IndexFieldType.DECIMAL, 0.1, Decimal("0.1")),
        (IndexFieldType.DECIMAL, "9" * 35 + "." + "9" * 30, Decimal("9" * 35 + "." + "9" * 30)),
        (IndexFieldType.DECIMAL, "0e9999", Decimal(0)),
        (IndexFieldType.BOOLEAN, False, False),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00Z", NOON),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00.000000Z", NOON),
        (IndexFieldType.DATETIME, "2026-11-20 12:00+00", NOON),
        (IndexFieldType.DATETIME, "2026-11-20t14:30:00+02:30", NOON),
        (IndexFieldType.DATETIME, "2026-11-20T07:00:00,0-0500", NOON),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00.123456789Z", NOON.replace(microsecond=123456)),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00.5Z", NOON.replace(microsecond=500000)),
        (IndexFieldType.DATETIME, "1000-01-01T00:00:00Z", datetime(1000, 1, 1, tzinfo=UTC)),
        (IndexFieldType.DATETIME, "9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ],
)
def test_a_body_gives_a_value_in_its_types_python_form(kind: IndexFieldType, given: Any, value: Scalar) -> None:
    parsed = parse(kind, given)

    assert parsed == value
    assert type(parsed) is type(value)


TIMES = [
    *("2026-11-20T12:00:00Z", "2026-11-20T12:00:00.123456Z", "2024-02-29T23:59:59Z", "1000-01-01T00:00:00Z"),
    *("2026-02-30T12:00:00Z", "2026-11-20T24:00:00Z", "2026-11-20T12:60:00Z", "2026-11-20T12:00:60Z"),
    *("0999-12-31T23:59:59Z", "2026-W47-5T12:00:00Z", "2026-11-20T12:00:00,123456Z", "2026-11-20T12:00:00z"),
    *("2026-11-20T12:00:00", "2026-11-20t12:00:00Z", "2026-11-20T12:00:00Z\n", "２026-11-20T12:00:00Z"),
]


@pytest.mark.parametrize("text", TIMES)
def test_a_time_that_is_read_fast_is_read_as_any_other(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = parse(IndexFieldType.DATETIME, text)

    monkeypatch.setattr(values, "PLAIN_TIME_MAX", 0)

    assert fast == parse(IndexFieldType.DATETIME, text)
    assert isinstance(fast, BadValue) or getattr(fast, "tzinfo", None) is UTC


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (IndexFieldType.UUID, "no uuid", "32 hexadecimal digits"),
        (IndexFieldType.UUID, "{00112233-4455-6677-8899-aabbccddeeff}", "32 hexadecimal digits"),
        (IndexFieldType.UUID, "0-0112233445566778899aabbccddeeff", "32 hexadecimal digits"),
        (IndexFieldType.UUID, "00112233445566778899aabbccddeeff\n", "32 hexadecimal digits"),
        (IndexFieldType.UUID, 7, "it is a int"),
        (IndexFieldType.STRING, "x" * 513, "longer than 512 bytes"),
        (IndexFieldType.STRING, "æ" * 257, "longer than 512 bytes"),
        (IndexFieldType.STRING, ["x"], "it is a list"),
        (IndexFieldType.INT, 2**63, "64 bits"),
        (IndexFieldType.INT, True, "it is a bool"),
        (IndexFieldType.INT, 1.0, "it is a float"),
        (IndexFieldType.INT, "1", "it is a str"),
        (IndexFieldType.FLOAT, "1.5", "it is a str"),
        (IndexFieldType.FLOAT, False, "it is a bool"),
        (IndexFieldType.DECIMAL, "1" + "0" * 35, "35 digits before"),
        (IndexFieldType.DECIMAL, 1e300, "35 digits before"),
        (IndexFieldType.DECIMAL, "1e9999", "35 digits before"),
        (IndexFieldType.DECIMAL, 5e-324, "30 digits after"),
        (IndexFieldType.DECIMAL, "0." + "0" * 30 + "1", "30 digits after"),
        (IndexFieldType.DECIMAL, "1e10000", "no number"),
        (IndexFieldType.DECIMAL, "NaN", "no number"),
        (IndexFieldType.DECIMAL, "Infinity", "no number"),
        (IndexFieldType.DECIMAL, "1_000", "no number"),
        (IndexFieldType.DECIMAL, "١", "no number"),
        (IndexFieldType.DECIMAL, " 1", "no number"),
        (IndexFieldType.DECIMAL, ".", "no number"),
        (IndexFieldType.DECIMAL, True, "it is a bool"),
        (IndexFieldType.BOOLEAN, 1, "it is a int"),
        (IndexFieldType.BOOLEAN, "true", "it is a str"),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00", "no offset"),
        (IndexFieldType.DATETIME, "2026-11-20", "ISO 8601"),
        (IndexFieldType.DATETIME, "20261120T120000Z", "ISO 8601"),
        (IndexFieldType.DATETIME, 1763640000, "it is a int"),
        (IndexFieldType.DATETIME, "2026-02-30T12:00:00Z", "no such time"),
        (IndexFieldType.DATETIME, "2026-11-20T24:00:00Z", "no such time"),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:60Z", "no such time"),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00+24:00", "no such time"),
        (IndexFieldType.DATETIME, "2026-11-20T12:00:00+01:60", "no such time"),
        (IndexFieldType.DATETIME, "0999-12-31T23:59:59Z", "1000 to 9999"),
        (IndexFieldType.DATETIME, "1000-01-01T00:00:00+01:00", "1000 to 9999"),
        (IndexFieldType.DATETIME, "9999-12-31T23:59:59-01:00", "1000 to 9999"),
        (IndexFieldType.DATETIME, "0001-01-01T00:00:00+01:00", "1000 to 9999"),
    ],
)
def test_what_is_none_of_the_type_is_refused_with_its_reason(kind: IndexFieldType, given: Any, why: str) -> None:
    assert why in reason(parse(kind, given))


@pytest.mark.parametrize("kind", IndexFieldType)
def test_no_reason_tells_the_value(kind: IndexFieldType) -> None:
    assert "s3cr3t" not in reason(parse(kind, ["s3cr3t"]))
    if kind is not IndexFieldType.STRING:
        assert "s3cr3t" not in reason(parse(kind, "s3cr3t"))


@pytest.mark.parametrize("kind", IndexFieldType)
@pytest.mark.parametrize("given", [None, [], {}])
def test_null_lists_and_objects_are_no_values(kind: IndexFieldType, given: Any) -> None:
    assert isinstance(parse(kind, given), BadValue)


def test_a_decimal_is_kept_exactly_and_without_needless_zeros() -> None:
    long = "1" * 35 + "." + "1" * 30

    assert str(parse(IndexFieldType.DECIMAL, long)) == long
    assert str(parse(IndexFieldType.DECIMAL, "1.50")) == "1.5"
    assert str(parse(IndexFieldType.DECIMAL, "-0.0")) == "0"
    assert str(parse(IndexFieldType.DECIMAL, "2E+3")) == "2000"
    assert str(check(IndexFieldType.DECIMAL, Decimal("1E+2"), "x")) == "100"


def test_there_is_no_negative_zero() -> None:
    assert math.copysign(1, parse(IndexFieldType.FLOAT, -0.0)) == 1.0  # type: ignore[arg-type]  # it is a float
    assert value_bytes(IndexFieldType.FLOAT, -0.0) == value_bytes(IndexFieldType.FLOAT, 0.0)


# ----------------------------------------------------------------------------------------------- from callers


@given(kinds_and_values)
def test_a_callers_value_comes_out_by_value_and_goes_through_json_and_back(pair: tuple[IndexFieldType, Any]) -> None:
    kind, given_value = pair

    value = check(kind, given_value, "the value")

    if kind is not IndexFieldType.FLOAT:  # large ints are rounded
        assert value == given_value
    assert check(kind, value, "the value") == value
    assert parse(kind, from_canonical(canonical_bytes(json_form(kind, value)))) == value


def test_times_of_any_zone_come_out_in_utc_as_plain_datetimes() -> None:
    class Special(datetime):
        pass

    given_time = Special(2026, 11, 20, 14, tzinfo=timezone(timedelta(hours=2)))

    value = check(IndexFieldType.DATETIME, given_time, "the time")

    assert (value, type(value)) == (NOON, datetime)
    assert isinstance(value, datetime)
    assert value.tzinfo is UTC


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (IndexFieldType.UUID, "no uuid"),
        (IndexFieldType.UUID, DRIVER.bytes),
        (IndexFieldType.STRING, b"bytes"),
        (IndexFieldType.STRING, "\ud800"),
        (IndexFieldType.STRING, "x" * 513),
        (IndexFieldType.INT, True),
        (IndexFieldType.INT, 1.0),
        (IndexFieldType.INT, 10**5_000),
        (IndexFieldType.FLOAT, math.nan),
        (IndexFieldType.FLOAT, math.inf),
        (IndexFieldType.FLOAT, 10**400),
        (IndexFieldType.FLOAT, Decimal(1)),
        (IndexFieldType.DECIMAL, 0.1),
        (IndexFieldType.DECIMAL, Decimal("NaN")),
        (IndexFieldType.DECIMAL, Decimal("-Infinity")),
        (IndexFieldType.DECIMAL, Decimal("1E+35")),
        (IndexFieldType.BOOLEAN, 0),
        (IndexFieldType.DATETIME, datetime(2026, 11, 20)),  # noqa: DTZ001  # naive on purpose
        (IndexFieldType.DATETIME, datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
        (IndexFieldType.DATETIME, 5),
        *((kind, None) for kind in IndexFieldType),
        *((kind, object()) for kind in IndexFieldType),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_callers_wrong_value_is_refused_with_a_way_out(kind: IndexFieldType, given: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^The shard value") as refused:
        check(kind, given, "The shard value")

    assert refused.value.hint
    assert len(str(refused.value)) < 400


# ------------------------------------------------------------------------------------------- order and shards


@given(kinds_and_values.flatmap(lambda pair: st.tuples(st.just(pair), GIVEN[pair[0]])))
def test_equal_values_and_only_they_have_equal_bytes_and_sort_keys(
    pair: tuple[tuple[IndexFieldType, Any], Any],
) -> None:
    (kind, first), second = pair
    one, other = check(kind, first, "one"), check(kind, second, "other")

    assert (value_bytes(kind, one) == value_bytes(kind, other)) == (one == other)
    assert (sort_key(kind, one) == sort_key(kind, other)) == (one == other)
    assert sort_key(kind, None) < sort_key(kind, one)


def test_a_decimal_filled_up_by_a_database_is_the_same_value() -> None:
    filled = Decimal("1.5" + "0" * 29)

    assert value_bytes(IndexFieldType.DECIMAL, filled) == value_bytes(IndexFieldType.DECIMAL, Decimal("1.5"))
    assert value_bytes(IndexFieldType.DECIMAL, Decimal("-0.000")) == value_bytes(IndexFieldType.DECIMAL, Decimal(0))
    assert json_form(IndexFieldType.DECIMAL, filled) == "1.5"
    assert json_form(IndexFieldType.DECIMAL, Decimal("100")) == "100"


def shuffled(values: list[T]) -> list[T]:
    return random.Random(7).sample(values, len(values))


def test_text_is_ordered_by_its_bytes_and_uuids_by_theirs() -> None:
    texts = ["", "B", "a", "a\0", "aa", "é", "\uffff", "\U0001f695"]
    uuids = [UUID(int=1), UUID(int=2**64), UUID(int=2**127), UUID(int=2**128 - 1)]

    assert sorted(shuffled(texts), key=lambda text: sort_key(IndexFieldType.STRING, text)) == texts
    assert sorted(shuffled(uuids), key=lambda uuid: sort_key(IndexFieldType.UUID, uuid)) == uuids


@pytest.mark.parametrize(
    ("kind", "value", "shard"),
    [
        (IndexFieldType.UUID, DRIVER, 278),
        (IndexFieldType.STRING, "København", 3300),
        (IndexFieldType.INT, -7, 2171),
        (IndexFieldType.FLOAT, 12.5, 732),
        (IndexFieldType.DECIMAL, Decimal("23.50"), 1489),
        (IndexFieldType.BOOLEAN, True, 8),
        (IndexFieldType.DATETIME, NOON, 2644),
    ],
)
def test_the_shard_of_an_index_value_never_changes(kind: IndexFieldType, value: Scalar, shard: int) -> None:
    """Entries are where they were written: another answer here would lose them all. Computed with md5sum."""
    assert index_shard_of(kind, value, 4096) == shard


@given(st.sampled_from([1, 8, 4096]), kinds_and_values)
def test_every_value_has_one_shard(shards: int, pair: tuple[IndexFieldType, Any]) -> None:
    kind, given_value = pair
    value = check(kind, given_value, "the value")

    assert 0 <= index_shard_of(kind, value, shards) < shards
    assert index_shard_of(kind, check(kind, value, "again"), shards) == index_shard_of(kind, value, shards)
