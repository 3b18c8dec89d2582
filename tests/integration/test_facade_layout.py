"""The layout's columns through the facade, while either backend is the authority: the same answers and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.servers.routing import Router
from tests.facades import Migration, migration
from tests.indexing import catch_up, only_maintained
from tests.legacy_backends import DRIVERS, deleting_layout, status
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID, VERSION_MAX
from tripstore.facade import layout_rules
from tripstore.handover.authority import Backend
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
        ("BASE", 2, {"driver_uuid": "no uuid"}, "driver_uuid"),
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


class Died(BaseException):
    """The process that put was killed there."""


@pytest.fixture
def busy(deleting: Migration) -> UUID:
    """A row with children."""
    row_key = trip(deleting.store)
    deleting.store.append_cell(row_key, "STATUS", {"result": "ok"})
    for text in ("a", "b"):
        deleting.store.append_cell(row_key, "NOTES", {"text": text})
    return row_key


def bodies(made: Migration, row_key: UUID) -> dict[str, object]:
    """Of each column, and of each child row: what is there now, in Schemaless."""
    store = made.facade.store.as_copier()
    found: dict[str, object] = {}
    for column, bits in (("BASE", 63), ("STATUS", 63), ("NOTES", 20)):
        for cell in reversed(store.get_history(row_key, column)):
            found[f"{column} {cell.ref_key >> bits}"] = cell.body
    return found


at_schemaless = pytest.mark.parametrize("deleting", [Phase.LIVE], indirect=True)


@at_schemaless
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_a_deletion_whose_process_dies_takes_all_or_nothing(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch, write: int, point: str
) -> None:
    """The caller does not put it again: a child that it had forgotten would stay alive for ever."""
    writes, put = [0], Router.write

    def dying(router: Router, *arguments: Any) -> Any:
        writes[0] += 1
        if (writes[0], point) == (write, "before"):
            raise Died
        answer = put(router, *arguments)
        if (writes[0], point) == (write, "after"):
            raise Died
        return answer

    monkeypatch.setattr(Router, "write", dying)
    with suppress(Died):
        deleting.store.put_cell(busy, "BASE", 2, None)
    monkeypatch.undo()

    found = bodies(deleting, busy)
    assert len(found) == 4
    is_gone = (write, point) != (1, "before")
    assert {body is None for body in found.values()} == {is_gone}
    settled(deleting, busy)
    assert deleting.store.put_cell(busy, "BASE", 2, None).status == ("EXISTS" if is_gone else "CREATED")
    assert set(bodies(deleting, busy).values()) == {None}
    settled(deleting, busy)


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_deletion_in_a_hand_over_takes_all_in_both_stores(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """What was put of it at the one authority is mirrored to the other, which refuses or repeats the rest."""
    with migration(servers, stores, wanted=deleting_layout()) as made:
        made.phase(Phase.LIVE)
        row_key = trip(made.store)
        made.store.append_cell(row_key, "STATUS", {"result": "ok"})
        made.store.append_cell(row_key, "NOTES", {"text": "a"})
        put = Router.write

        def meanwhile(router: Router, *arguments: Any) -> Any:
            monkeypatch.setattr(Router, "write", put)
            if point == "before":
                made.reverse()
                return put(router, *arguments)
            answer = put(router, *arguments)
            made.reverse()
            return answer

        monkeypatch.setattr(Router, "write", meanwhile)
        made.store.put_cell(row_key, "BASE", 2, None)

        assert made.duo.ports.control.authority().backend is Backend.LEGACY
        settled(made, row_key)
        assert set(bodies(made, row_key).values()) == {None}


@at_schemaless
def test_a_child_that_comes_while_a_deletion_looks_goes_with_it(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_history = Datastore.get_history

    def meanwhile(store: Datastore, *arguments: Any, **named: Any) -> list[Cell]:
        found = get_history(store, *arguments, **named)
        monkeypatch.setattr(Datastore, "get_history", get_history)
        deleting.store.append_cell(busy, "NOTES", {"text": "late"})
        deleting.store.append_cell(busy, "STATUS", {"result": "late"})
        return found

    monkeypatch.setattr(Datastore, "get_history", meanwhile)
    deleting.store.put_cell(busy, "BASE", 2, None)

    found = bodies(deleting, busy)
    assert len(found) == 5
    assert set(found.values()) == {None}
    settled(deleting, busy)


@at_schemaless
def test_a_row_that_moves_while_a_deletion_looks_keeps_its_children(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has become history by then, or is not what was expected any more, or its key is taken."""
    get_history = Datastore.get_history
    for ref_key, expected, moved_to in ((2, {}, 3), (9, {"expect_latest": 3}, 4), (5, {}, 5)):

        def meanwhile(store: Datastore, *arguments: Any, to: int = moved_to, **named: Any) -> list[Cell]:
            found = get_history(store, *arguments, **named)
            monkeypatch.setattr(Datastore, "get_history", get_history)
            deleting.store.put_cell(busy, "BASE", to, status(to))
            return found

        monkeypatch.setattr(Datastore, "get_history", meanwhile)
        if moved_to == 3:
            assert deleting.store.put_cell(busy, "BASE", ref_key, None).status == "CREATED"
        else:
            with pytest.raises(CellConflict):
                deleting.store.put_cell(busy, "BASE", ref_key, None, **expected)
        assert None not in bodies(deleting, busy).values()
    settled(deleting, busy)


@at_schemaless
def test_deletions_that_meet_each_other_and_children_leave_none_alive_below_their_parent(deleting: Migration) -> None:
    """Several at once: whatever was put before the tombstone is gone, and what came after it is of the next life."""
    store = deleting.store.using(deadline=20.0)
    rows = [trip(deleting.store) for _ in range(4)]

    def delete(row_key: UUID) -> None:
        store.put_cell(row_key, "BASE", 2, None)

    def note(row_key: UUID) -> None:
        store.append_cell(row_key, "NOTES", {"text": "a"})

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(work, row) for row in rows for work in (note, note, delete, note, delete)]:
            done.result()

    for row_key in rows:
        cells = [*deleting.facade.store.as_copier().get_history(row_key, "NOTES")]
        [tombstone] = [cell for cell in store.get_history(row_key, "BASE") if cell.body is None]
        assert tombstone.added_id is not None
        alive = {cell.ref_key for cell in cells if cell.body} - {cell.ref_key - 1 for cell in cells if not cell.body}
        assert all(cell.added_id > tombstone.added_id for cell in cells if cell.added_id and cell.ref_key in alive)
        settled(deleting, row_key)


@at_schemaless
def test_children_that_a_deletion_has_forgotten_go_when_it_is_put_again(deleting: Migration, busy: UUID) -> None:
    """As earlier versions left them."""
    deleting.facade.store.as_copier(1 << 40).put_cell(busy, "BASE", 2, None)
    assert deleting.store.put_cell(busy, "BASE", 2, None).status == "EXISTS"
    assert set(bodies(deleting, busy).values()) == {None}
    settled(deleting, busy)


@at_schemaless
def test_children_stay_when_the_deletion_cannot_be_stored(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_router: Router, *_arguments: Any) -> Any:
        raise Unavailable("the server is away")

    before = bodies(deleting, busy)
    monkeypatch.setattr(Router, "write", failing)
    with pytest.raises(BatchFailed):
        deleting.store.put_cells([Cell(busy, "BASE", 2, None)])
    monkeypatch.undo()
    assert bodies(deleting, busy) == before
    settled(deleting, busy)


@at_schemaless
def test_a_row_with_more_children_than_go_at_once_is_not_deleted(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bodies(deleting, busy)
    monkeypatch.setattr(layout_rules, "CELLS_TOGETHER", 3)
    with pytest.raises(LegacyRefused, match="3 rows of other columns"):
        deleting.store.put_cell(busy, "BASE", 2, None)
    assert bodies(deleting, busy) == before


def moving_rounds(made: Migration, row_key: UUID, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Another caller puts a cell of this row whenever a deletion looks; how often that was."""
    get_history, rounds = Datastore.get_history, list[int]()

    def meanwhile(store: Datastore, *arguments: Any, **named: Any) -> list[Cell]:
        found = get_history(store, *arguments, **named)
        if named.get("before") is None:  # the first page of a round
            rounds.append(made.store.append_cell(row_key, "FREE", len(rounds)).ref_key)
        return found

    monkeypatch.setattr(Datastore, "get_history", meanwhile)
    return rounds


@at_schemaless
def test_a_deletion_that_finds_its_row_moved_again_and_again_gives_up(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = moving_rounds(deleting, busy, monkeypatch)
    with pytest.raises(Unavailable, match="whenever it was to be deleted") as raised:
        deleting.store.put_cell(busy, "BASE", 2, None)
    monkeypatch.undo()

    assert raised.value.hint is not None
    assert len(rounds) == layout_rules.DELETION_TRIES
    assert None not in bodies(deleting, busy).values()
    assert deleting.store.put_cell(busy, "BASE", 2, None).status == "CREATED"
    assert set(bodies(deleting, busy).values()) == {None}
    settled(deleting, busy)


@at_schemaless
def test_a_deletion_that_finds_its_row_moved_keeps_to_the_deadline(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_rules, "DELETION_TRIES", 1 << 40)
    rounds = moving_rounds(deleting, busy, monkeypatch)
    with pytest.raises(Unavailable, match="whenever it was to be deleted"):
        deleting.store.using(deadline=1.0).put_cell(busy, "BASE", 2, None)
    monkeypatch.undo()

    assert len(rounds) > 1
    assert None not in bodies(deleting, busy).values()
    settled(deleting, busy)


@at_schemaless
@pytest.mark.parametrize("is_next_taken", [False, True])
def test_a_row_whose_child_has_no_version_left_is_not_deleted(
    deleting: Migration, busy: UUID, is_next_taken: bool
) -> None:
    """Right above the last version is the first key of another row."""
    legacy = deleting.store.facade.config.legacy
    assert legacy is not None
    column = legacy.layout.columns["NOTES"]
    deleting.store.put_cell(busy, "NOTES", column.compose(7, VERSION_MAX), {"text": "the last"})
    if is_next_taken:
        deleting.store.put_cell(busy, "NOTES", column.compose(8, 0), {"text": "another row"})
    before = bodies(deleting, busy)

    with pytest.raises(LegacyRefused, match="Row 7 of NOTES"):
        deleting.store.put_cell(busy, "BASE", 2, None)

    assert bodies(deleting, busy) == before
    settled(deleting, busy)


@at_schemaless
def test_children_that_are_too_many_are_not_all_looked_at(
    deleting: Migration, busy: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(8):
        deleting.store.append_cell(busy, "NOTES", {"text": str(n)})
    get_history, pages = Datastore.get_history, list[int]()

    def counted(store: Datastore, *arguments: Any, **named: Any) -> list[Cell]:
        found = get_history(store, *arguments, **named)
        pages.append(len(found))
        return found

    monkeypatch.setattr(layout_rules, "CELLS_TOGETHER", 3)
    monkeypatch.setattr(layout_rules, "HISTORY_PAGE", 1)
    monkeypatch.setattr(Datastore, "get_history", counted)
    with pytest.raises(LegacyRefused, match="at least 3 rows of other columns"):
        deleting.store.put_cell(busy, "BASE", 2, None)
    assert len(pages) <= 3


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
