"""What a session says of itself proves nothing: of a role that is not ours no version and no origin counts (I2, I4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.legacy import FLAVOURS, MOVING_TABLE, Legacy, apply, captured, layout, legacy_server, moving_layout, refused
from tripstore.audit.database import ForeignWriter, audit_database
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.capture.functions.changes import JUMP, MAY_SAY
from tripstore.backends.postgres.capture.functions.gate import IS_OURS, GateReading, GateState, gate_function, set_gate
from tripstore.backends.postgres.capture.plan import Made, Saboteur
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.servers import LocalServers

MAX = 2**63 - 1
#: Roles are the server's, and other tests have theirs.
FORGER = """
DO $$ BEGIN
    CREATE ROLE forger LOGIN PASSWORD 'secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO forger;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO forger
"""


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    made = captured(legacy_server(servers, request.param))
    made.sql(FORGER)
    return made


@pytest.fixture(params=FLAVOURS)
def moving(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    """Rows with versions in partitions, which move from one to the other."""
    made = Legacy(legacy_server(servers, request.param), tables=MOVING_TABLE)
    with made.ours() as connection:
        apply(capture_steps(moving_layout()), connection)
    made.sql(FORGER)
    return made


@contextmanager
def forging(legacy: Legacy, **said: str) -> Iterator[Connection]:
    """A transaction of a service's role, which sets what only tripstore does."""
    with closing(psycopg2.connect(re.sub(r"//[^@]*@", "//forger:secret@", legacy.url))) as connection, connection:
        for name, value in said.items():
            rows(connection, "SELECT set_config(%s, %s, true)", (f"tripstore.{name}", value))
        yield connection


def freeze(legacy: Legacy, key: UUID, origin: str) -> None:
    statement = "UPDATE trips SET base_version = %s, status = 'frozen' WHERE trip_uuid = %s"
    with forging(legacy, origin=origin) as connection:
        rows(connection, statement, (MAX, str(key)))


def lift(legacy: Legacy, key: UUID) -> None:
    """The other way to say a version: what the trigger of a row that came back goes by."""
    with forging(legacy, lifting=f"{key} base 0 {MAX}") as connection:
        rows(connection, "UPDATE trips SET base_version = %s WHERE trip_uuid = %s", (MAX, str(key)))


def freeze_moved(legacy: Legacy, key: UUID) -> None:
    """The same where a session could say that the row has moved, and where it stood: lifted, and put."""
    said = f"{key} {MAX - 1} base"
    with forging(legacy, moved=said, lifting=f"{key} base 0 {MAX}") as connection:
        rows(connection, "UPDATE trips SET base_version = %s WHERE trip_uuid = %s", (MAX, str(key)))


def put_moved(legacy: Legacy) -> UUID:
    key = uuid4()
    with forging(legacy, moved=f"{key} {MAX - 1} base") as connection:
        rows(connection, "INSERT INTO trips VALUES (9, %s, 1, 'put')", (str(key),))
    return key


def believing(made: list[Made]) -> list[Made]:
    """The control: the word of the session, as an earlier version took it."""
    said = "(SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m)"
    kept = re.compile(r"GREATEST\((\(SELECT t.ref_key FROM tripstore.tomb [^()]*\)), \(SELECT t.ref_key[^()]*\)\)")
    bodies = [kept.sub(rf"GREATEST(\1, {said})", function.body) for function, _trigger in made]
    return [(replace(function, body=body), trigger) for (function, trigger), body in zip(made, bodies, strict=True)]


def change(legacy: Legacy, key: UUID) -> None:
    legacy.sql("UPDATE trips SET status = 'completed' WHERE trip_uuid = %s", str(key))


def rewriting(old: str, new: str) -> Saboteur:
    """An installation that goes without: the controls."""

    def sabotage(made: list[Made]) -> list[Made]:
        return [(replace(function, body=re.sub(old, new, function.body)), trigger) for function, trigger in made]

    return sabotage


@pytest.mark.parametrize("origin", ["facade", "reverse"])
def test_i4_a_forged_version_is_the_next_one_and_the_change_is_everybodys(legacy: Legacy, origin: str) -> None:
    _id, key = legacy.trip()
    freeze(legacy, key, origin)
    change(legacy, key)

    assert legacy.versions(key) == [(1, "requested"), (2, "frozen"), (3, "completed")]
    assert [each.origin for each in legacy.changes(key)] == [None, "forged", None]
    assert legacy.sql("SELECT count(*) FROM tripstore.queue WHERE row_key = %s", str(key)) == [(3,)], "it is mirrored"


def test_control_a_session_that_is_believed_freezes_the_row_for_good(legacy: Legacy) -> None:
    legacy.install(layout(), saboteur=rewriting(re.escape(MAY_SAY), "true"))
    _id, key = legacy.trip()
    freeze(legacy, key, "facade")

    with refused(sqlstates.OUT_OF_RANGE):
        change(legacy, key)
    assert legacy.versions(key)[-1] == (MAX, "frozen")


def test_a_row_is_inserted_at_the_first_version_whatever_is_said(legacy: Legacy) -> None:
    with forging(legacy, origin="facade") as connection:
        ((key,),) = rows(
            connection, "INSERT INTO trips (status, base_version) VALUES ('new', %s) RETURNING trip_uuid", (MAX,)
        )

    assert legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", key) == [(1,)]


def test_a_forged_tombstone_stands_above_the_row_and_no_higher(legacy: Legacy) -> None:
    _id, key = legacy.trip()
    with forging(legacy, origin="facade", tombstone=f"{MAX} BASE") as connection:
        rows(connection, "DELETE FROM trips WHERE trip_uuid = %s", (str(key),))

    assert legacy.versions(key) == [(1, "requested"), (2, None)]
    legacy.trip(row_key=key)
    assert legacy.versions(key)[-1] == (3, "requested")


def test_i2_a_forged_lifting_is_refused(legacy: Legacy) -> None:
    _id, key = legacy.trip()
    with refused(sqlstates.VERSION_STANDS):
        lift(legacy, key)
    change(legacy, key)

    assert legacy.versions(key) == [(1, "requested"), (2, "completed")]


def test_control_without_a_bound_on_jumps_it_freezes_the_row(legacy: Legacy) -> None:
    legacy.install(layout(), saboteur=rewriting(rf"{JUMP}\n  IF ", f"{JUMP}\n  IF false AND "))
    _id, key = legacy.trip()
    lift(legacy, key)

    with refused(sqlstates.OUT_OF_RANGE):
        change(legacy, key)


def test_i2_where_a_row_of_a_partition_begins_no_session_says(moving: Legacy) -> None:
    key = uuid4()
    moving.sql("INSERT INTO trips VALUES (1, %s, 1, 'requested')", str(key))
    with refused(sqlstates.VERSION_STANDS):
        freeze_moved(moving, key)
    put = put_moved(moving)
    for each in (key, put):
        change(moving, each)

    assert moving.versions(key) == [(1, "requested"), (2, "completed")]
    assert moving.versions(put) == [(1, "put"), (2, "completed")]


@pytest.mark.parametrize("way", ["lifted", "put"])
def test_control_a_session_that_is_believed_where_a_row_was_freezes_it(moving: Legacy, way: str) -> None:
    moving.install(moving_layout(), saboteur=believing)
    key = uuid4()
    if way == "lifted":
        moving.sql("INSERT INTO trips VALUES (1, %s, 1, 'requested')", str(key))
        freeze_moved(moving, key)
    else:
        key = put_moved(moving)

    with refused(sqlstates.OUT_OF_RANGE):
        change(moving, key)
    assert moving.versions(key)[-1][0] == MAX


def test_a_role_that_may_put_our_cells_says_its_versions(legacy: Legacy) -> None:
    """The facade of a role that neither owns our functions nor is a member of who does."""
    legacy.sql("GRANT INSERT ON tripstore.cell TO forger")
    _id, key = legacy.trip()
    with forging(legacy, origin="facade") as connection:
        rows(connection, "UPDATE trips SET base_version = 7, status = 'put' WHERE trip_uuid = %s", (str(key),))

    assert legacy.versions(key) == [(1, "requested"), (7, "put")]
    assert legacy.changes(key)[-1].origin == "facade"


def shut_behind(legacy: Legacy, *, has_statement_gates: bool) -> UUID:
    """A trip behind a shut gate. Partitions made since have no gate for statements, and logical apply passes it."""
    legacy.sql("GRANT INSERT ON tripstore.cell TO forger")  # else nothing that it says counts
    _id, key = legacy.trip()
    if not has_statement_gates:
        legacy.sql('ALTER TABLE trips DISABLE TRIGGER "0_tripstore_gate"')
    with legacy.ours() as connection:
        set_gate(connection, GateReading(1, GateState.CLOSED))
    return key


@pytest.mark.parametrize("has_statement_gates", [True, False])
def test_i9_a_service_that_says_it_is_the_reverse_mirror_stays_behind_the_gate(
    legacy: Legacy, has_statement_gates: bool
) -> None:
    """It may put cells, as a facade does, and is no member of the role that owns our functions."""
    key = shut_behind(legacy, has_statement_gates=has_statement_gates)

    with refused(sqlstates.GATE_SHUT):
        freeze(legacy, key, "reverse")
    assert legacy.versions(key) == [(1, "requested")]
    if has_statement_gates:
        with refused(sqlstates.GATE_SHUT):  # also where it finds no row
            freeze(legacy, uuid4(), "reverse")


@pytest.mark.parametrize("has_statement_gates", [True, False])
def test_i9_control_where_the_word_of_a_session_is_enough_it_writes_behind_the_gate(
    legacy: Legacy, has_statement_gates: bool
) -> None:
    legacy.install(layout(), saboteur=rewriting(re.escape(IS_OURS), "true"))
    gate = gate_function("trips")
    legacy.sql(replace(gate, body=gate.body.replace(IS_OURS, "true")).create)
    key = shut_behind(legacy, has_statement_gates=has_statement_gates)

    freeze(legacy, key, "reverse")

    assert legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(key)) == [("frozen",)]


def test_the_audit_counts_forged_origins_among_the_direct_writers(legacy: Legacy) -> None:
    _id, key = legacy.trip()
    freeze(legacy, key, "facade")
    with forging(legacy) as connection:
        rows(connection, "UPDATE trips SET status = 'honest' WHERE trip_uuid = %s", (str(key),))

    found = writers(legacy)
    assert (found["forger"].changes, found["forger"].forged) == (2, 1)
    assert [writer.forged for role, writer in found.items() if role != "forger"] == [0]


def test_control_the_audit_sees_nothing_of_a_session_that_is_believed(legacy: Legacy) -> None:
    legacy.install(layout(), saboteur=rewriting(re.escape(MAY_SAY), "true"))
    _id, key = legacy.trip()
    freeze(legacy, key, "facade")

    assert "forger" not in writers(legacy)


def writers(legacy: Legacy) -> dict[str, ForeignWriter]:
    with legacy.ours() as connection:
        return {writer.role: writer for writer in audit_database(connection, layout()).writers}
