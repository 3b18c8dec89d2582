"""A row that came back is lifted in the writer's own name: his rights, his search_path, his triggers (I2, I8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from psycopg2 import errors
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.legacy import FLAVOURS, MOVING_TABLE, Legacy, apply, layout, legacy_server, moving_layout, refused
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: A trigger of the company's that finds its table by the search_path, and writes down who it runs as.
AUDITED = """
CREATE SCHEMA books;
CREATE TABLE books.audit (who text, path text, what text);
CREATE FUNCTION auditing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO audit VALUES (current_user, current_setting('search_path'), TG_OP); RETURN NULL; END $$;
CREATE TRIGGER auditing AFTER INSERT OR UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION auditing();
GRANT USAGE ON SCHEMA books TO PUBLIC;
GRANT INSERT ON books.audit TO PUBLIC;
"""
PATH = "books, public"


@pytest.fixture(params=FLAVOURS)
def make(request: pytest.FixtureRequest, servers: LocalServers) -> Callable[..., Legacy]:
    flavour: Flavour = request.param
    return lambda **options: Legacy(legacy_server(servers, flavour), **options)


@contextmanager
def writer(legacy: Legacy, grants: str) -> Iterator[tuple[str, Connection]]:
    """A role with some rights on trips, and its session."""
    role = f"writer_{uuid4().hex[:12]}"
    legacy.sql(f"CREATE ROLE {role}; {grants.format(role=role)}")
    connection = legacy.connect(autocommit=True)
    try:
        rows(connection, f"SET ROLE {role}; SET search_path = {PATH}")
        yield role, connection
    finally:
        connection.close()
        legacy.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def come_back(connection: Connection, key: UUID) -> None:
    rows(connection, "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'a')", (str(key),))
    rows(connection, "DELETE FROM trips WHERE trip_uuid = %s", (str(key),))
    rows(connection, "INSERT INTO trips (trip_uuid, status) VALUES (%s, 'b')", (str(key),))


GRANTS = "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}; GRANT SELECT, INSERT, DELETE"


def test_the_companys_triggers_run_as_the_writer(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.sql(AUDITED)
    legacy.install(layout())
    key = uuid4()
    with writer(legacy, GRANTS + ", UPDATE ON trips TO {role}") as (role, connection):
        come_back(connection, key)

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]
    assert legacy.sql("SELECT DISTINCT who, path FROM books.audit") == [(role, PATH)]


@pytest.mark.parametrize(
    "grants",
    [
        GRANTS + " ON trips TO {role}",
        GRANTS + ", UPDATE (status) ON trips TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role};"
        "GRANT INSERT, DELETE, UPDATE, SELECT (id, trip_uuid) ON trips TO {role}",
    ],
)
def test_who_may_not_update_the_version_may_insert_the_row_again(make: Callable[..., Legacy], grants: str) -> None:
    legacy = make()
    legacy.install(layout())
    key = uuid4()
    with writer(legacy, grants) as (_role, connection):
        come_back(connection, key)
        with pytest.raises(errors.InsufficientPrivilege):
            rows(connection, "UPDATE trips SET base_version = 9 RETURNING base_version")

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]


def test_who_writes_through_a_view_needs_no_right_on_the_schema_behind_it(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.sql("CREATE SCHEMA front; CREATE VIEW front.trips AS SELECT id, trip_uuid, status FROM public.trips")
    legacy.install(layout())
    key = uuid4()
    grants = (
        "REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA front TO {role};"
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role};"
        "GRANT SELECT, INSERT, DELETE ON front.trips TO {role}"
    )
    with writer(legacy, grants) as (_role, connection):
        rows(connection, "SET search_path = front")
        come_back(connection, key)

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]


def test_a_policy_that_refuses_updates_does_not_keep_out_what_it_lets_in(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.sql(
        "ALTER TABLE trips ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY seen ON trips FOR SELECT USING (true);"
        "CREATE POLICY gone ON trips FOR DELETE USING (true);"
        "CREATE POLICY made ON trips FOR INSERT WITH CHECK (true);"
        "CREATE POLICY moved ON trips FOR UPDATE USING (true) WITH CHECK (status = 'never')"
    )
    legacy.install(layout())
    key = uuid4()
    with writer(legacy, GRANTS + ", UPDATE ON trips TO {role}") as (_role, connection):
        come_back(connection, key)

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]


def test_a_row_that_a_trigger_has_moved_before_it_was_lifted_is_left_there(make: Callable[..., Legacy]) -> None:
    """Rows of one INSERT that all come back; each one's trigger changes the others."""
    legacy = make()
    legacy.install(layout())
    id_, key = legacy.trip()
    insert = "INSERT INTO notes (trip_id, n, text) SELECT %s, n, 'x' FROM generate_series(1, 5) AS n"
    legacy.sql(insert, id_)
    legacy.sql("DELETE FROM notes")
    legacy.sql(
        "CREATE FUNCTION others() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE public.notes SET text = text || NEW.n WHERE trip_id = NEW.trip_id AND n <> NEW.n; RETURN NULL; END $$;"
        "CREATE TRIGGER others AFTER INSERT ON notes FOR EACH ROW EXECUTE FUNCTION others()"
    )
    legacy.sql(insert, id_)

    changes = legacy.changes(key, "NOTES")
    assert len({change.ref_key for change in changes}) == len(changes)
    for n, version, text in legacy.sql("SELECT n, note_version, text FROM notes ORDER BY n"):
        of_note = [change for change in changes if change.ref_key >> 20 == n]
        assert of_note[-1].ref_key == n << 20 | version
        assert of_note[-1].row is not None
        assert of_note[-1].row["text"] == text


def test_who_sees_no_row_may_insert_it_again(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.sql(
        "ALTER TABLE trips ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY seen ON trips FOR ALL USING (status = 'a') WITH CHECK (true)"
    )
    legacy.install(layout())
    key = uuid4()
    with writer(legacy, GRANTS + ", UPDATE ON trips TO {role}") as (_role, connection):
        come_back(connection, key)

    assert legacy.versions(key) == [(1, "a"), (2, None), (3, "b")]


def test_a_trigger_that_suppresses_the_update_is_told(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.sql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER no BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION no()"
    )
    legacy.install(layout())
    connection = legacy.connect(autocommit=True)
    key = uuid4()
    with refused(sqlstates.BELOW_TOMBSTONE):
        come_back(connection, key)
    connection.close()

    assert legacy.versions(key) == [(1, "a"), (2, None)]


def test_a_trigger_that_inserts_another_row_that_came_back_lifts_both(make: Callable[..., Legacy]) -> None:
    """The inner lifting ends in the middle of the outer one, before its version is decided."""
    legacy = make()
    first, second = uuid4(), uuid4()
    for key in (first, second):
        legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'a')", str(key))
    legacy.install(layout())
    legacy.sql("DELETE FROM trips")
    legacy.sql(
        "CREATE FUNCTION twin() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"INSERT INTO trips (trip_uuid, status) SELECT '{second}', 'twin' WHERE NEW.trip_uuid = '{first}' "
        f"AND NOT EXISTS (SELECT FROM trips WHERE trip_uuid = '{second}'); RETURN NEW; END $$;"
        "CREATE TRIGGER twin BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION twin()"
    )
    legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'b')", str(first))

    assert legacy.versions(first)[-1] == (3, "b")
    assert legacy.versions(second)[-1] == (3, "twin")
    assert legacy.sql("SELECT DISTINCT base_version FROM trips") == [(3,)]


def test_rows_move_between_partitions_in_the_writers_name(make: Callable[..., Legacy]) -> None:
    legacy = make(tables=MOVING_TABLE)
    legacy.sql(AUDITED)
    with legacy.ours() as ours:
        apply(capture_steps(moving_layout()), ours)
    key = uuid4()
    grants = "GRANT SELECT, INSERT, UPDATE (region, base_version), DELETE ON trips TO {role}"
    with writer(legacy, grants) as (role, connection):
        insert = "INSERT INTO trips (id, trip_uuid, region, status) VALUES (1, %s, 1, 'a')"
        rows(connection, insert, (str(key),))
        rows(connection, "UPDATE trips SET region = 2 WHERE id = 1")
    legacy.sql(f"SET search_path = {PATH}; UPDATE trips SET region = 1 WHERE id = 1")

    assert legacy.versions(key) == [(1, "a"), (2, "a"), (3, "a")]
    assert (role, PATH, "INSERT") in legacy.sql("SELECT who, path, what FROM books.audit")


def test_a_row_that_stands_above_its_floor_is_not_lifted(make: Callable[..., Legacy]) -> None:
    """The function that lifts may be called by everybody: it does nothing but what capture asked for."""
    legacy = make()
    legacy.install(layout())
    id_, key = legacy.trip("a")
    legacy.sql("UPDATE trips SET status = 'b' WHERE id = %s", id_)
    with writer(legacy, "SELECT '{role}'") as (_role, connection):
        for version in (3, 4, 1 << 62):
            rows(connection, "SELECT set_config('tripstore.lifting', %s, false)", (f"{key} base 0 {version}",))
            with refused(sqlstates.BELOW_TOMBSTONE):
                rows(connection, "SELECT tripstore.base_lifted()")

    assert legacy.versions(key) == [(1, "a"), (2, "b")]


def test_a_child_that_came_back_is_lifted_for_its_writer_and_its_sibling_is_let_be(make: Callable[..., Legacy]) -> None:
    """The writer may not update: our own function does it, and finds the row by its number too."""
    legacy = make()
    legacy.install(layout())
    id_, key = legacy.trip()
    with writer(legacy, "GRANT SELECT, INSERT, DELETE ON notes TO {role}") as (_role, connection):
        for text in "ab":
            rows(connection, "INSERT INTO public.notes (trip_id, n, text) VALUES (%s, 1, %s)", (id_, text))
            rows(connection, "INSERT INTO public.notes (trip_id, n) VALUES (%s, 2) ON CONFLICT DO NOTHING", (id_,))
            if text == "a":
                rows(connection, "DELETE FROM public.notes WHERE n = 1")

    assert legacy.sql("SELECT n, note_version FROM notes ORDER BY n") == [(1, 2), (2, 0)]
    assert [ref_key & 0xFFFFF for ref_key, _ in legacy.versions(key, "NOTES")] == [0, 1, 2, 0]


def test_what_is_said_of_a_row_of_another_column_is_not_for_this_one(make: Callable[..., Legacy]) -> None:
    legacy = make()
    legacy.install(layout())
    id_, key = legacy.trip()
    legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 0, 'a')", id_)
    with writer(legacy, "SELECT '{role}'") as (_role, connection):
        rows(connection, "SELECT set_config('tripstore.lifting', %s, false)", (f"{key} base 0 5",))
        rows(connection, "SELECT tripstore.notes_lifted()")  # the control says notes, and is refused
        rows(connection, "SELECT set_config('tripstore.lifting', %s, false)", (f"{key} notes 0 5",))
        with refused(sqlstates.BELOW_TOMBSTONE):
            rows(connection, "SELECT tripstore.notes_lifted()")

    assert legacy.sql("SELECT note_version FROM notes") == [(0,)]
