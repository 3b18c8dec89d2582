"""A closed store refuses its calls, and so do the stores that were made of it; others go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest

from schemaless_core import Cell, CellStore, Datastore, StoreClosed
from schemaless_core.control.audit import AuditLog
from tests.facades import migration
from tests.legacy import legacy_server
from tests.legacy_backends import company
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

INDEX = {"table": "by_kind", "column_defs": [{"column_key": "BASE", "fields": [{"field": "kind", "type": "string"}]}]}


def calls_of(store: CellStore, cell: Cell) -> list[Callable[[], object]]:
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
        more: list[Callable[[], object]] = [
            partial(closed.query_index, "by_kind", "x"),
            partial(closed.triggers.offsets.find, "billing"),
        ]
        for call in [*calls_of(closed, cell), *more]:
            with pytest.raises(StoreClosed, match=r"The datastore is closed\. Datastore\.open"):
                call()
    assert other.append_cell(cell.row_key, "NOTES", "the control: a store that is open").status == "CREATED"
    assert (other.get_cell(*cell.key) is not None) == is_used_before


def test_a_closed_control_database_refuses_and_says_so(datastore_engine: str, stores: Stores) -> None:
    other = stores.fresh(datastore_engine, shards=2)
    store = Datastore(other.config)
    assert store.control.version() is not None
    store.close()

    for call in (store.control.version, lambda: AuditLog(store.control).newest(1), store.create_schema):
        with pytest.raises(StoreClosed, match=r"is closed\. .*Datastore\.open"):
            call()
    assert other.control.version() is not None, "the control: one that is open"
    other.create_schema()


@pytest.mark.parametrize("is_used_before", [True, False])
def test_a_closed_legacy_store_refuses_every_call(servers: LocalServers, is_used_before: bool) -> None:
    with company(legacy_server(servers, "machine")) as made:
        other = type(made.store)(type(made.store.database)(made.legacy.url), made.store.layout, shards=8)
        cell = Cell(uuid4(), "FREE", 1, "x")
        owner = made.store.as_owner(1)
        if is_used_before:
            made.store.put_cell(*cell.key, cell.body)

        made.store.close()
        made.store.close()

        for closed in (made.store, made.store.using(deadline=5.0), owner):
            for call in calls_of(closed, cell):
                with pytest.raises(StoreClosed, match=r"The legacy store is closed\. Open another one"):
                    call()
        with other:
            assert other.append_cell(cell.row_key, "FREE", "the control: a store that is open").status == "CREATED"


@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
def test_a_closed_facade_refuses_every_call(servers: LocalServers, stores: Stores, phase: Phase) -> None:
    with migration(servers, stores) as made:
        made.phase(phase)
        cell = Cell(uuid4(), "FREE", 1, "x")
        patient = made.store.using(deadline=20.0)
        patient.put_cell(*cell.key, cell.body)
        assert made.store.get_cell(*cell.key) is not None, "the control: a store that is open"

        made.store.close()
        made.store.close()

        for closed in (made.store, patient, made.store.at_authority()):
            more: list[Callable[[], object]] = [
                partial(closed.resolve_id, 1),
                partial(closed.query_index, "by_kind", "x"),
            ]
            for call in [*calls_of(closed, cell), *more]:
                with pytest.raises(StoreClosed, match=r"The store is closed\. tripstore\.connect"):
                    call()
