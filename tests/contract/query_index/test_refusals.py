"""Queries that cannot be are refused with a way out."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import (
    CellStore,
    Invalid,
    InvalidRequest,
)
from tests.contract.query_index.asking import put_trip, settle
from tests.facades import FACADES_IN_SHORT
from tests.legacy_databases import FLAVOURS
from tests.stores import HTTP_STORES, STORE_ENGINES

pytestmark = pytest.mark.parametrize(
    "cell_store", [*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT, *HTTP_STORES], indirect=True
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"index": "trips_of_drivers"}, "There is no index 'trips_of_drivers'. Did you mean trips_of_driver?"),
        ({"index": "zzz"}, "Indexes: driver_partner_index, "),
        ({"index": "trips_of_driver_v1"}, "There is no index"),
        ({"index": None}, "There is no index None"),
        ({"index": ["trips_of_driver"]}, "There is no index"),
        ({"shard_value": None}, "The shard value, driver is None"),
        ({"shard_value": "no uuid"}, "is no UUID"),
        ({"shard_value": 7}, "is no UUID"),
        ({"where": [("citi", "=", "Aarhus")]}, "Did you mean city?"),
        ({"where": [("city", "==", "Aarhus")]}, "Did you mean '='?"),
        ({"where": [("city", "like", "Aarhus")]}, "Operators: ="),
        ({"where": [("city", "=", None)]}, "A missing field"),
        ({"where": [("city", "=", b"Aarhus")]}, "is no string"),
        ({"where": [("city", "=", "x" * 513)]}, "longer than 512 bytes"),
        ({"where": [("city", "=", "\ud800")]}, "lone surrogate"),
        ({"where": [("seats", "=", True)]}, "is no int: it is a bool"),
        ({"where": [("seats", "=", 2**63)]}, "64 bits"),
        ({"where": [("distance", "=", float("nan"))]}, "not finite"),
        ({"where": [("is_shared", "=", 1)]}, "is no boolean: it is a int"),
        ({"where": [("fare", "=", 0.1)]}, "is no decimal: it is a float"),
        ({"where": [("created_at", ">", datetime(2026, 1, 1))]}, "it has no time zone"),  # noqa: DTZ001  # on purpose
        ({"where": [("created_at", ">", "2026-01-01T00:00:00")]}, "it has no offset from UTC"),
        ({"where": [("city", "in", "Aarhus")]}, "Pass a list of values"),
        ({"where": [("city", "between", ["a"])]}, "(low, high)"),
        ({"where": ("city", "=", "Aarhus")}, "is no condition"),
        ({"where": "city = Aarhus"}, "is no list of conditions"),
        ({"fields": ["town"]}, "has no field 'town'"),
        ({"fields": "city"}, "Pass ['city']"),
        ({"columns": "BASE"}, "Pass ['BASE'], or \"*\""),
        ({"columns": [""]}, "is empty"),
        ({"order_by": "row_key"}, "has no field 'row_key'"),
        ({"descending": "yes"}, "descending='yes'"),
        ({"limit": 0}, "The limit 0"),
        ({"limit": True}, "The limit True"),
        ({"limit": 10**6}, "The limit 1000000"),
        ({"cursor": "garbage"}, "'garbage' is no cursor"),
        ({"cursor": 5}, "5 is no cursor"),
        ({"consistency": "strong"}, "consistency='strong' is unknown"),
    ],
)
def test_a_wrong_call_is_refused_with_a_way_out(store: CellStore, driver: UUID, changes: Any, says: str) -> None:
    call: Any = {"index": "trips_of_driver", "shard_value": driver} | changes

    with pytest.raises(Invalid) as refused:
        store.query_index(**call)

    assert says in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shard_value": UUID(int=1)}, "another shard value or other conditions"),
        ({"where": [("city", "=", "Odense")]}, "another shard value or other conditions"),
        ({"where": ()}, "another shard value or other conditions"),
        ({"order_by": "city"}, "in the order of 'seats (int)'"),
        ({"order_by": None}, "in the order of 'seats (int)'"),
        ({"descending": True}, "in the other direction"),
        ({"index": "driver_partner_index", "where": (), "order_by": None}, "of index 'trips_of_driver'"),
    ],
)
def test_a_cursor_of_another_query_is_refused(store: CellStore, driver: UUID, changes: Any, says: str) -> None:
    for seats in (1, 2):
        put_trip(store, driver, city="Aarhus", seats=seats)
    settle(store)
    call: Any = {
        "index": "trips_of_driver",
        "shard_value": driver,
        "where": [("city", "=", "Aarhus")],
        "order_by": "seats",
    }
    cursor = store.query_index(**call, limit=1).cursor
    assert cursor is not None
    assert len(store.query_index(**call, cursor=cursor).entries) == 1

    with pytest.raises(InvalidRequest) as refused:
        store.query_index(**(call | changes), cursor=cursor)

    assert says in str(refused.value)
    assert refused.value.hint
