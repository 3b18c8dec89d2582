"""A closed datastore refuses its calls, and so do the stores that were made of it; others go on."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore, InvalidRequest
from tests.stores import Stores

INDEX = {"table": "by_kind", "column_defs": [{"column_key": "BASE", "fields": [{"field": "kind", "type": "string"}]}]}


def calls_of(store: Datastore, cell: Cell) -> list[Callable[[], object]]:
    shard = store.shard_of(cell.row_key)
    return [
        lambda: store.put_cell(*cell.key, cell.body),
        lambda: store.put_cells([cell]),
        lambda: store.append_cell(cell.row_key, "NOTES", "x"),
        lambda: store.get_cell(*cell.key),
        lambda: store.get_cells([cell.key]),
        lambda: store.get_row(cell.row_key),
        lambda: store.get_cells_for_shard(shard, 0, 10),
        lambda: store.scan_rows(shard),
        lambda: store.checksum(shard),
        lambda: store.query_index("by_kind", "x"),
        lambda: store.triggers.offsets.find("billing"),
    ]


@pytest.mark.parametrize("is_used_before", [True, False])
def test_a_closed_store_refuses_every_call(datastore_engine: str, stores: Stores, is_used_before: bool) -> None:
    other = stores.fresh(datastore_engine, shards=2, indexes=[INDEX])
    cell = Cell(uuid4(), "BASE", 1, {"kind": "x"})
    store = Datastore(other.config)
    patient = store.using(deadline=20.0)
    if is_used_before:
        patient.put_cell(*cell.key, cell.body)

    store.close()
    store.close()

    for closed in (store, patient, store.using(read="replica")):
        for call in calls_of(closed, cell):
            with pytest.raises(InvalidRequest, match=r"The datastore is closed\. Datastore\.open"):
                call()
    assert other.append_cell(cell.row_key, "NOTES", "the control: a store that is open").status == "CREATED"
    assert (other.get_cell(*cell.key) is not None) == is_used_before
