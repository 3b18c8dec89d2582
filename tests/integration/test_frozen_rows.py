"""Rows at the last version there is, which no service can change: `repair --frozen` gives them one again (I2, I8)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from schemaless_core.errors import InvalidServer
from schemaless_core.failpoints import FailpointReached
from tests.facades import Migration, as_other_role, migration
from tests.legacy import refused
from tests.repairs import failing_at
from tests.stores import Stores
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.changes import MAY_SAY
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.cells.mend import frozen as frozen_rows
from tripstore.backends.postgres.cells.mend.frozen import StaysFrozen
from tripstore.backends.postgres.layout.layout import VERSION_BITS, VERSION_MAX
from tripstore.local.servers import LocalServers
from tripstore.migration.repair import heights
from tripstore.migration.repair.frozen import Jump
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import Target
from tripstore.phase import Phase

MAX = 2**63 - 1
ORIGIN = "SELECT set_config('tripstore.origin', 'facade', true)"


@pytest.fixture(params=["postgres", "postgres18"])
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as found:
        found.phase(Phase.SHADOW)
        yield found


def believing(made: list[Made]) -> list[Made]:
    """Capture as it was before what a session says counted for its role alone."""
    return [
        (replace(function, body=re.sub(re.escape(MAY_SAY), "true", function.body)), trigger)
        for function, trigger in made
    ]


def freeze(made: Migration, *versions: int) -> UUID:
    """A row that an earlier version let a session freeze, with a child; both are carried."""
    id_, key = made.legacy.trip()
    made.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 3, 'a')", id_)
    made.legacy.sql("UPDATE trips SET status = 'mine' WHERE id = %s", id_)
    made.legacy.install(made.duo.legacy.layout, saboteur=believing)
    for version in versions or (MAX,):
        made.legacy.sql(f"{ORIGIN}; UPDATE trips SET base_version = {version}, status = 'frozen' WHERE id = %s", id_)
    made.legacy.sql(f"{ORIGIN}; UPDATE notes SET note_version = {VERSION_MAX}, text = 'b' WHERE trip_id = %s", id_)
    made.legacy.install(made.duo.legacy.layout)
    made.carry()
    return key


def change(made: Migration, key: UUID) -> None:
    made.legacy.sql("UPDATE trips SET status = 'done' WHERE trip_uuid = %s", str(key))
    made.legacy.sql("UPDATE notes SET text = 'c' WHERE trip_uuid = %s", str(key))


def versions(made: Migration, key: UUID, column: str = "BASE") -> list[tuple[int, object]]:
    """What the mirror has, the oldest first."""
    cells = made.facade.store.get_history(key, column)
    field = {"BASE": "status", "NOTES": "text"}[column]
    return [(cell.ref_key, cell.body[field]) for cell in reversed(cells) if isinstance(cell.body, dict)]


def lower(made: Migration, jumps: list[Jump]) -> None:
    frozen = Repairs(made.facade).frozen()
    for jump in jumps:
        outcome = frozen.lower(jump)
        assert outcome is not None
        assert outcome.is_equal


def note(version: int) -> int:
    return 3 << VERSION_BITS | version


def test_i8_a_frozen_row_and_a_frozen_child_are_lowered_and_go_on(made: Migration) -> None:
    key = freeze(made)
    with refused(sqlstates.OUT_OF_RANGE):  # the control: nothing of a service's helps
        change(made, key)
    with refused(sqlstates.OUT_OF_RANGE):
        made.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))
    jumps = Repairs(made.facade).frozen().find()
    assert {(jump.key.ref_key, jump.to) for jump in jumps} == {(MAX, 3), (note(VERSION_MAX), note(1))}

    lower(made, jumps)
    change(made, key)
    made.carry()

    assert versions(made, key) == [(1, "requested"), (2, "mine"), (3, "frozen"), (4, "done")]
    assert versions(made, key, "NOTES") == [(note(0), "a"), (note(1), "b"), (note(2), "c")]
    for column in ("BASE", "NOTES"):
        ours = made.duo.legacy.get_history(key, column)
        assert ours == made.facade.store.get_history(key, column)
    assert [change.previous for change in made.legacy.changes(key, "BASE")] == [None, 1, 2, 3]
    assert Repairs(made.facade).frozen().find() == []
    lines = Repairs(made.facade).audit.newest(2)
    assert {line.action for line in lines} == {"repair.lower_frozen"}
    made.legacy.install(made.duo.legacy.layout)  # its triggers stand as before


def test_versions_that_it_had_since_it_jumped_go_with_the_jump(made: Migration) -> None:
    """A change of a service's was the last one that there was."""
    key = freeze(made, MAX - 2, MAX - 1, MAX)
    jumps = [jump for jump in Repairs(made.facade).frozen().find() if jump.key.column_name == "BASE"]
    assert [(jump.to, jump.jumped) for jump in jumps] == [(3, (MAX, MAX - 1, MAX - 2))]

    lower(made, jumps)

    assert versions(made, key) == [(1, "requested"), (2, "mine"), (3, "frozen")]


@pytest.mark.parametrize("is_asked", [True, False], ids=["", "control"])
def test_i2_a_row_older_than_capture_does_not_get_the_version_that_it_had(
    made: Migration, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither store has that version: the jump says that it replaced one. The control: another body under its key."""
    if not is_asked:
        monkeypatch.setattr(PostgresBackend, "replaced", lambda _backend, _key, _limit: [])
    id_, key = made.legacy.trip()
    made.legacy.sql("DELETE FROM tripstore.queue WHERE row_key = %s", str(key))
    before = made.duo.legacy.get_cell(key, "BASE", 1)
    assert before is not None
    made.legacy.install(made.duo.legacy.layout, saboteur=believing)
    made.legacy.sql(f"{ORIGIN}; UPDATE trips SET base_version = {MAX}, status = 'frozen' WHERE id = %s", id_)
    made.legacy.install(made.duo.legacy.layout)

    (jump,) = Repairs(made.facade).frozen().find()
    assert (jump.to, jump.is_first) == ((2, False) if is_asked else (1, True))
    if not is_asked:
        Repairs(made.facade).frozen().lower(jump)
        assert made.duo.legacy.get_cell(key, "BASE", 1) != before
        return
    lower(made, [jump])
    assert [change.previous for change in made.legacy.changes(key, "BASE")] == [1]


@pytest.mark.parametrize("ends", [frozen_rows.ENDS, ("tripstore.kept",)], ids=["", "control"])
def test_i2_a_child_that_was_deleted_after_it_jumped_and_came_back_is_lowered(
    made: Migration, ends: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tombstone goes with the jump. The control: below a tombstone that stays the child can stand nowhere."""
    monkeypatch.setattr(frozen_rows, "ENDS", ends)
    id_, key = made.legacy.trip()
    made.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 3, 'a')", id_)
    made.legacy.install(made.duo.legacy.layout, saboteur=believing)
    forged = f"{ORIGIN}; UPDATE notes SET note_version = {VERSION_MAX - 3}, text = 'b' WHERE trip_id = %s"
    made.legacy.sql(forged, id_)
    made.legacy.install(made.duo.legacy.layout)
    made.legacy.sql("DELETE FROM notes WHERE trip_id = %s", id_)
    made.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 3, 'back')", id_)
    made.legacy.sql("UPDATE notes SET text = 'last' WHERE trip_id = %s", id_)
    made.carry()
    (jump,) = Repairs(made.facade).frozen().find()
    assert (jump.to, jump.jumped) == (note(1), tuple(note(VERSION_MAX - below) for below in range(4)))

    if "tripstore.tomb" not in ends:
        with pytest.raises(StaysFrozen, match="did not get"):
            lower(made, [jump])
        return
    lower(made, [jump])
    made.legacy.sql("UPDATE notes SET text = 'c' WHERE trip_id = %s", id_)
    made.carry()

    assert versions(made, key, "NOTES") == [(note(0), "a"), (note(1), "last"), (note(2), "c")]
    assert made.duo.legacy.get_history(key, "NOTES") == made.facade.store.get_history(key, "NOTES")


@pytest.mark.parametrize("lasts", [heights.LAST_VERSIONS, 0], ids=["", "control"])
def test_i4_a_process_that_dies_between_the_stores_leaves_a_difference_like_any_other(
    made: Migration, lasts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a repair that lifts rows to the last version freezes it again."""
    monkeypatch.setattr(heights, "LAST_VERSIONS", lasts)
    key = freeze(made, MAX - 1, MAX)
    (jump,) = [jump for jump in Repairs(made.facade).frozen().find() if jump.key.column_name == "BASE"]
    for point, is_lowered in (("frozen.before_commit", False), ("frozen.lowered", True)):
        with failing_at(point), pytest.raises(FailpointReached):
            Repairs(made.facade).frozen().lower(jump)
        standing = made.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(key))
        assert standing == [(3 if is_lowered else MAX,)]
    made.carry()
    assert versions(made, key)[-1][0] == MAX

    outcome = Repairs(made.facade).repairing(made.duo.ports.control.authority().backend).repair([_latest(key)])

    assert outcome[0].is_equal
    made.carry()
    if not lasts:
        assert versions(made, key)[-1][0] == MAX
        return
    assert versions(made, key) == [(1, "requested"), (2, "mine"), (3, "frozen")]


def test_i2_a_row_that_changed_meanwhile_and_one_that_used_up_its_versions_stay(made: Migration) -> None:
    """Another process of the command was quicker, and a session froze the row once more."""
    key = freeze(made)
    (jump,) = [jump for jump in Repairs(made.facade).frozen().find() if jump.key.column_name == "BASE"]
    frozen = Repairs(made.facade).frozen()
    with pytest.raises(StaysFrozen, match="used up"):
        frozen.lower(jump._replace(to=None))
    frozen.lower(jump)
    made.legacy.install(made.duo.legacy.layout, saboteur=believing)
    made.legacy.sql(f"{ORIGIN}; UPDATE trips SET base_version = {MAX}, status = 'again' WHERE trip_uuid = %s", str(key))
    with pytest.raises(StaysFrozen, match="did not get"):
        frozen.lower(jump)

    made.carry()
    assert versions(made, key)[2:] == [(3, "frozen"), (MAX, "again")]
    assert [jump.to for jump in frozen.find() if jump.key.column_name == "BASE"] == [4]


def test_a_role_that_does_not_own_the_table_is_told_and_changes_nothing(made: Migration) -> None:
    key = freeze(made)
    with as_other_role(made) as (store, _role):
        frozen = Repairs(store.facade).frozen()
        with pytest.raises(InvalidServer, match="owner of table") as refused_:
            frozen.lower(frozen.find()[0])

    assert refused_.value.hint
    assert versions(made, key)[-1] == (MAX, "frozen")


def test_writers_of_the_table_wait_for_no_longer_than_a_try(made: Migration) -> None:
    """A transaction that holds a row of it: the command gives way, again and again, and then says so."""
    freeze(made)
    frozen = Repairs(made.facade).frozen()
    jump = frozen.find()[0]
    with pytest.MonkeyPatch.context() as patch, made.legacy.connect() as writer, writer.cursor() as cursor:
        patch.setattr("tripstore.backends.postgres.cells.mend.frozen.TRIES", 2)
        patch.setattr("tripstore.backends.postgres.cells.mend.frozen.PAUSE_SECONDS", 0.0)
        cursor.execute("INSERT INTO trips (status) VALUES ('mine'); INSERT INTO notes (trip_id, n) VALUES (1, 9)")
        with pytest.raises(StaysFrozen, match="is busy"):
            frozen.lower(jump)
        writer.rollback()
    writer.close()
    frozen.lower(jump)


def _latest(key: UUID) -> Target:
    return Target(key, "BASE")
