"""What no cell may have is refused by every call, and nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import (
    Cell,
    CellKey,
    CellStore,
    ColumnKey,
    Datastore,
    InvalidCell,
)
from tests.factories import make_cell
from tests.integration.wrong_input.refusing import ROW, Call, nowhere, refused

TOO_LARGE = "x" * (4 * 1024 * 1024 - 1)  # with its quotes one byte over


BAD_BODIES: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": [float("inf")],
    "an int over 64 bits": {"n": 2**64},
    "an int under 64 bits": -(2**63) - 1,
    "bytes": b"bytes",
    "a tuple": (1, 2),
    "a set": {1},
    "a UUID": [uuid4()],
    "a time": datetime(2026, 1, 1, tzinfo=UTC),
    "a decimal": Decimal("1.5"),
    "an int as a key": {1: "one"},
    "a lone surrogate": ["\ud800"],
    "one byte too many": TOO_LARGE,
}


BAD_ROWS: dict[str, Any] = {"a UUID as text": str(ROW), "bytes": ROW.bytes, "no row key": None}


BAD_NAMES: dict[str, Any] = {
    "an empty name": "", "65 bytes": "x" * 65, "an unprintable name": "a\nb", "a surrogate": "\ud800",
    "bytes as a name": b"BASE", "no name": None,
}  # fmt: skip


BAD_REFS: dict[str, Any] = {
    "a bool as ref key": True, "a ref key over int64": 2**63, "a ref key under int64": -(2**63) - 1,
    "a float as ref key": 1.0, "text as ref key": "1", "no ref key": None,
}  # fmt: skip


def _bad_body(body: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(ROW, "BASE", 1, body),
        lambda store: store.put_cells([make_cell(), make_cell(body=body)]),
        lambda store: store.append_cell(ROW, "BASE", body),
    ]


def _bad_row(row_key: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(row_key, "BASE", 1, "body"),
        lambda store: store.put_cells([make_cell(), Cell(row_key, "BASE", 1, "body")]),
        lambda store: store.append_cell(row_key, "BASE", "body"),
        lambda store: store.get_cell(row_key, "BASE", 1),
        lambda store: store.get_cell_latest(row_key, "BASE"),
        lambda store: store.get_cells([CellKey(ROW, "BASE", 1), CellKey(row_key, "BASE", 1)]),
        lambda store: store.get_cells_latest([ColumnKey(ROW, "BASE"), ColumnKey(row_key, "BASE")]),
        lambda store: store.get_row(row_key),
        lambda store: store.get_history(row_key, "BASE"),
        lambda store: store.shard_of(row_key),
    ]


def _bad_name(name: Any) -> list[Call]:
    return [
        lambda store: store.put_cell(ROW, name, 1, "body"),
        lambda store: store.put_cells([make_cell(), make_cell(column_name=name)]),
        lambda store: store.append_cell(ROW, name, "body"),
        lambda store: store.get_cell(ROW, name, 1),
        lambda store: store.get_cell_latest(ROW, name),
        lambda store: store.get_cells([CellKey(ROW, name, 1)]),
        lambda store: store.get_cells_latest([ColumnKey(ROW, name)]),
        lambda store: store.get_row(ROW, ["BASE", name]),
        lambda store: store.get_history(ROW, name),
        lambda store: store.scan_rows(0, columns=[name]),
        lambda store: store.checksum(0, [name]),
    ]


def _bad_ref(ref_key: Any) -> list[Call]:
    calls: list[Call] = [
        lambda store: store.put_cell(ROW, "BASE", ref_key, "body"),
        lambda store: store.put_cells([make_cell(), make_cell(ref_key=ref_key)]),
        lambda store: store.get_cell(ROW, "BASE", ref_key),
        lambda store: store.get_cells([CellKey(ROW, "BASE", ref_key)]),
    ]
    if ref_key is not None:  # to these None says something
        calls.append(lambda store: store.put_cell(ROW, "BASE", 1, "body", expect_latest=ref_key))
        calls.append(lambda store: store.get_history(ROW, "BASE", before=ref_key))
    return calls


BAD_CALLS: dict[str, list[Call]] = {
    **{f"body: {name}": _bad_body(value) for name, value in BAD_BODIES.items()},
    **{f"row key: {name}": _bad_row(value) for name, value in BAD_ROWS.items()},
    **{f"column: {name}": _bad_name(value) for name, value in BAD_NAMES.items()},
    **{f"ref key: {name}": _bad_ref(value) for name, value in BAD_REFS.items()},
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_what_no_cell_may_have_is_refused_by_every_call_and_nothing_is_written(store: CellStore, case: str) -> None:
    before = _heads(store)

    for call in BAD_CALLS[case]:
        with refused(InvalidCell):
            call(store)

    assert _heads(store) == before


@pytest.mark.parametrize("case", BAD_CALLS)
def test_what_no_cell_may_have_is_refused_before_a_server_is_asked(case: str) -> None:
    """Without a server, each call that needs one fails as unavailable."""
    config = {"datastore": "trips", "shards": 4, "clusters": {"a": {"primary": nowhere()}}}

    with Datastore.open(config) as unreachable:
        for call in BAD_CALLS[case]:
            with refused(InvalidCell):
                call(unreachable)


def _heads(store: CellStore) -> list[int]:
    return [page.head for page in store.get_cells_for_shards(dict.fromkeys(range(8), 0), 1).values()]
