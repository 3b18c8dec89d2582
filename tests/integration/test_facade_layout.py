"""The layout's columns through the facade, while either backend is the authority: the same answers and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core.answers import PutResult
from schemaless_core.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import BatchFailed, CellConflict, SchemalessError, Unavailable
from tests.facades import Migration, migration
from tests.indexing import catch_up, only_maintained
from tests.legacy_backends import DRIVERS, deleting_layout, status
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore

PHASES = (Phase.DUALWRITE, Phase.LIVE)


@pytest.fixture(scope="module", params=PHASES)
def moved(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores) as made:
        made.phase(request.param)
        yield made


@pytest.fixture(scope="module", params=PHASES)
def deleting(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, wanted=deleting_layout()) as made:
        made.phase(request.param)
        yield made


def trip(store: TripStore) -> UUID:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, {**status("a"), "driver_uuid": DRIVERS[0]})
    return row_key


def settled(made: Migration, row_key: UUID) -> dict[CellKey, object]:
    """What both stores hold of a row's columns, which must be the same."""
    made.carry()
    sides = []
    for store in (made.duo.legacy_mirror, made.facade.store):
        found: dict[CellKey, object] = {}
        for column in ("BASE", "STATUS", "NOTES", "FREE"):
            found |= {cell.key: cell.body for cell in store.get_history(row_key, column)}
        sides.append(found)
    assert sides[0] == sides[1]
    return sides[0]


@pytest.mark.parametrize(
    ("column", "ref_key", "body", "path"),
    [
        ("BASE", 2, {"status": 5}, "status"),
        ("BASE", 2, {"driver_uuid": "nobody"}, "driver_uuid"),
        ("BASE", 2, "a text", ""),
        ("STATUS", 1, {"result": "ok", "more": 1}, "more"),
    ],
)
def test_what_no_row_can_hold_is_refused_by_name(
    moved: Migration, column: str, ref_key: int, body: object, path: str
) -> None:
    row_key = trip(moved.store)
    with pytest.raises(Unrepresentable) as raised:
        moved.store.put_cell(row_key, column, ref_key, body)  # type: ignore[arg-type]  # any JSON
    assert raised.value.path == path
    assert (column, ref_key) not in {(key.column_name, key.ref_key) for key in settled(moved, row_key)}


def test_of_a_batch_only_that_cell_is_refused(moved: Migration) -> None:
    row_key = trip(moved.store)
    cells = [
        Cell(row_key, "BASE", 2, status("b")),
        Cell(row_key, "BASE", 3, {"status": 5}),
        Cell(row_key, "FREE", 1, 1),
    ]
    with pytest.raises(BatchFailed) as raised:
        moved.store.put_cells(cells)
    assert [isinstance(result, SchemalessError) for result in raised.value.results] == [False, True, False]
    assert {key.ref_key for key in settled(moved, row_key) if key.column_name == "BASE"} == {1, 2}


def test_the_legacy_id_cannot_be_put(moved: Migration) -> None:
    row_key = trip(moved.store)
    with pytest.raises(Unrepresentable):
        moved.store.put_cell(row_key, LEGACY_ID, 0, {"id": 1 << 40})
    moved.carry()
    assert moved.duo.legacy_mirror.legacy_id(row_key) != 1 << 40


def test_an_append_to_child_rows_is_a_new_row(moved: Migration) -> None:
    row_key = trip(moved.store)
    notes = moved.store.facade.config.legacy
    assert notes is not None
    column = notes.layout.columns["NOTES"]
    found = [moved.store.append_cell(row_key, "NOTES", {"text": str(n)}).ref_key for n in range(3)]
    assert found == [column.compose(n, 0) for n in (1, 2, 3)]
    settled(moved, row_key)


def test_a_row_with_children_is_not_deleted_and_goes_when_they_are_gone(moved: Migration) -> None:
    row_key = trip(moved.store)
    note = moved.store.append_cell(row_key, "NOTES", {"text": "a"}).ref_key
    with pytest.raises(LegacyRefused, match="NOTES"):
        moved.store.put_cell(row_key, "BASE", 2, None)
    moved.store.put_cell(row_key, "NOTES", note + 1, None)
    moved.store.put_cell(row_key, "BASE", 2, None)
    assert settled(moved, row_key)[CellKey(row_key, "BASE", 2)] is None
    assert moved.legacy.sql("SELECT count(*) FROM trips WHERE trip_uuid = %s", str(row_key)) == [(0,)]


def test_facts_go_only_with_their_parent(moved: Migration) -> None:
    row_key = trip(moved.store)
    moved.store.put_cell(row_key, "STATUS", 1, {"result": "ok"})
    with pytest.raises(Unrepresentable, match="parent"):
        moved.store.put_cell(row_key, "STATUS", 2, None)
    settled(moved, row_key)


def test_where_the_layout_says_so_children_go_with_their_parent(deleting: Migration) -> None:
    row_key = trip(deleting.store)
    notes = [deleting.store.append_cell(row_key, "NOTES", {"text": str(n)}).ref_key for n in range(2)]
    deleting.store.put_cell(row_key, "STATUS", 4, {"result": "ok"})

    deleting.store.put_cell(row_key, "BASE", 2, None)

    found = settled(deleting, row_key)
    tombstones = {(key.column_name, key.ref_key) for key, body in found.items() if body is None}
    assert tombstones == {("BASE", 2), ("STATUS", 5), *(("NOTES", note + 1) for note in notes)}
    assert deleting.legacy.sql("SELECT count(*) FROM notes WHERE trip_uuid = %s", str(row_key)) == [(0,)]


def children(made: Migration, row_key: UUID) -> dict[str, Cell]:
    return {name: cell for name, cell in made.store.get_row(row_key).items() if name in ("STATUS", "NOTES")}


def test_an_old_deletion_that_is_put_again_takes_no_children(deleting: Migration) -> None:
    row_key = trip(deleting.store)
    deleting.store.put_cell(row_key, "BASE", 2, None)
    deleting.store.put_cell(row_key, "BASE", 3, status("again"))
    deleting.store.append_cell(row_key, "STATUS", {"result": "ok"})
    deleting.store.append_cell(row_key, "NOTES", {"text": "a"})
    before = children(deleting, row_key)

    assert deleting.store.put_cell(row_key, "BASE", 2, None).status == "EXISTS"

    assert children(deleting, row_key) == before
    settled(deleting, row_key)


def test_a_deletion_that_is_refused_takes_no_children(deleting: Migration) -> None:
    row_key = trip(deleting.store)
    deleting.store.append_cell(row_key, "STATUS", {"result": "ok"})
    deleting.store.append_cell(row_key, "NOTES", {"text": "a"})
    deleting.store.put_cell(row_key, "BASE", 2, status("b"))
    before = children(deleting, row_key)

    with pytest.raises(CellConflict):
        deleting.store.put_cell(row_key, "BASE", 9, None, expect_latest=1)
    with pytest.raises(CellConflict):
        deleting.store.put_cell(row_key, "BASE", 2, None)
    with pytest.raises(BatchFailed):
        deleting.store.put_cells([Cell(row_key, "BASE", 2, None)])

    assert children(deleting, row_key) == before
    settled(deleting, row_key)


def test_a_deletion_in_a_batch_takes_the_children_before_it(deleting: Migration) -> None:
    row_key = trip(deleting.store)
    notes = deleting.store.facade.config.legacy
    assert notes is not None
    note = notes.layout.columns["NOTES"].compose(1, 0)
    cells = [
        Cell(row_key, "NOTES", note, {"text": "a"}),
        Cell(row_key, "STATUS", 1, {"result": "ok"}),
        Cell(row_key, "BASE", 2, None),
    ]
    assert [result.status for result in deleting.store.put_cells(cells)] == ["CREATED"] * 3
    assert {name: cell.body for name, cell in children(deleting, row_key).items()} == {"NOTES": None, "STATUS": None}
    settled(deleting, row_key)


def test_a_deletion_that_is_put_again_takes_nothing_that_came_after_it(deleting: Migration) -> None:
    """I4: a child may come before its parent's next life."""
    row_key = trip(deleting.store)
    deleting.store.append_cell(row_key, "STATUS", {"result": "old"})
    deleting.store.put_cell(row_key, "BASE", 2, None)
    deleting.store.append_cell(row_key, "STATUS", {"result": "new"})
    before = children(deleting, row_key)

    deleting.store.put_cell(row_key, "BASE", 2, None)

    assert children(deleting, row_key) == before
    settled(deleting, row_key)


@pytest.mark.parametrize("deleting", [Phase.LIVE], indirect=True)
def test_children_stay_when_the_deletion_cannot_be_stored(deleting: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """And go when it is put again, wherever whoever put it died."""
    row_key = trip(deleting.store)
    deleting.store.append_cell(row_key, "STATUS", {"result": "ok"})
    deleting.store.append_cell(row_key, "NOTES", {"text": "a"})
    before = children(deleting, row_key)
    put_cell = Datastore.put_cell

    def failing(store: Datastore, key: UUID, column: str, *rest: Any, **options: Any) -> PutResult:
        if column in refused:
            raise Unavailable("the server is away")
        return put_cell(store, key, column, *rest, **options)

    monkeypatch.setattr(Datastore, "put_cell", failing)
    refused = {"BASE"}
    with pytest.raises(BatchFailed):
        deleting.store.put_cells([Cell(row_key, "BASE", 2, None)])
    assert children(deleting, row_key) == before
    refused = {"STATUS", "NOTES"}
    with pytest.raises(Unavailable):
        deleting.store.put_cell(row_key, "BASE", 2, None)
    refused = set()
    assert deleting.store.put_cell(row_key, "BASE", 2, None).status == "EXISTS"
    assert all(cell.body is None for cell in children(deleting, row_key).values())
    settled(deleting, row_key)


def test_legacy_ids_resolve_before_and_after_the_switch(servers: LocalServers, stores: Stores) -> None:
    with migration(servers, stores) as made:
        made.phase(Phase.DUALWRITE)
        number, row_key = made.legacy.trip()
        for phase in PHASES:
            made.carry()
            made.phase(phase)
            catch_up(made.facade.store)
            assert made.store.resolve_ids([number, 1 << 40]) == {number: row_key}
            assert made.store.legacy_ids([row_key, uuid4()]) == {row_key: number}


@pytest.mark.parametrize("phase", [Phase.LIVE, Phase.RAMPDOWN, Phase.COMPLETE])
def test_a_legacy_id_resolves_before_any_index_has_its_entry(
    servers: LocalServers, stores: Stores, phase: Phase
) -> None:
    with migration(servers, stores) as made:
        only_maintained(made.facade.store)
        made.phase(Phase.DUALWRITE)
        number, row_key = made.legacy.trip()
        made.carry()
        made.phase(phase)
        assert not made.facade.store.query_index(LEGACY_ID_INDEX, number).entries

        assert made.store.resolve_id(number) == row_key
        assert made.store.resolve_ids([number, 1 << 40]) == {number: row_key}
