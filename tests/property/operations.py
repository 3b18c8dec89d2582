"""Random calls of a cell store, and answers in a form that two stores can be compared by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    CellKey,
    CellStore,
    ColumnKey,
    InvalidCell,
    PutResult,
    RowPage,
)

#: Few keys, so that calls meet: duplicates, conflicts, gaps, late versions.
ROWS = 4
COLUMNS = ("BASE", "NOTES", "FARE ADJUSTMENT")
REFS = (-(2**63), -7, 0, 1, 2, 3, 5, 2**63 - 2)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
#: Mostly few bodies, so that equal ones meet; sometimes any JSON, sometimes a big one.
bodies = st.one_of(
    st.sampled_from(["requested", "completed", {"fare": 1}, {"fare": 1.0}, None, 1, True]),
    json_values,
    st.integers(1, 40_000).map(lambda size: {"blob": "ø'\\" * size}),
)
rows = st.integers(0, ROWS - 1)
columns = st.sampled_from(COLUMNS)
refs = st.sampled_from(REFS)
keys = st.tuples(rows, columns, refs)


def answer_of(call: Callable[[], Any]) -> object:
    """What a call answered or raised, without what may differ between stores: times, epochs."""
    try:
        return comparable(call())
    except CellConflict as conflict:
        return comparable(conflict)
    except InvalidCell as refusal:
        return ("invalid", refusal.reason)
    except BatchFailed as failed:
        return [comparable(result) for result in failed.results]


def comparable(answer: object) -> object:
    if isinstance(answer, PutResult):
        return (str(answer.status), answer.ref_key, answer.added_id, answer.shard, answer.readable)
    if isinstance(answer, CellConflict):
        return ("conflict", comparable(answer.attempted), comparable(answer.stored), answer.expected)
    if isinstance(answer, Cell):
        return ("cell", answer, answer.added_id)
    if isinstance(answer, RowPage):
        return ([(row.row_key, comparable(row.cells)) for row in answer.rows], answer.after)
    if isinstance(answer, list):
        return [comparable(part) for part in answer]
    if isinstance(answer, dict):
        return {key: comparable(part) for key, part in answer.items()}
    return answer


def read_everything(store: CellStore, row_keys: list[Any]) -> object:
    """All that can be read of some rows, in one comparable answer."""
    columns = [ColumnKey(row_key, name) for row_key in row_keys for name in COLUMNS]
    wanted = [CellKey(row_key, name, ref) for row_key, name in columns for ref in REFS]
    return comparable(
        [
            store.get_cells(wanted),
            store.get_cells_latest(columns),
            [store.get_row(row_key) for row_key in row_keys],
            [store.get_history(*column) for column in columns],
        ]
    )
