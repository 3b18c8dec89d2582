"""An installation of an earlier version: `doctor` and `schema apply` of this one take it for capture, with no gap (I8).

What the earlier version made is a file, as Postgres shows it.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.integration.capture_versions.rows import note
from tests.legacy import (
    FLAVOURS,
    MOVING_TABLE,
    USERS,
    Legacy,
    apply,
    attempts,
    base,
    layout,
    legacy_server,
    moving_layout,
    notes,
    refused,
)
from tests.scale import SCALE
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import capture_steps, read_state, verify
from tripstore.backends.postgres.capture.functions.gate import GATE, WRITERS_GATE
from tripstore.backends.postgres.capture.names import EVENT_TRIGGER, LAST, LOGGED, pair_slug
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.layout.layout import DeletePolicy
from tripstore.backends.postgres.schema_steps import examine_capture
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FORMER = Path(__file__).parents[1] / "former_capture.sql"
#: The same of rows that move to another partition.
FORMER_MOVES = FORMER.with_name("former_moves.sql")
#: Refuses that an UPDATE gives a deleted user's key to another.
PAIR_UPDATED = f"{LOGGED}{pair_slug(USERS)}_updated"
#: What no earlier version had.
FORGET = f"""
DROP EVENT TRIGGER {EVENT_TRIGGER};
DROP FUNCTION tripstore.partitions_changed();
DROP FUNCTION tripstore.look_at_partitions();
DELETE FROM tripstore.partition;
DROP TRIGGER "{LAST}notes_move" ON notes;
DROP TRIGGER "{LOGGED}notes_moved" ON notes;
DROP TRIGGER "{LOGGED}notes_moved_lift" ON notes;
DROP FUNCTION tripstore.notes_move();
DROP TRIGGER "{PAIR_UPDATED}" ON users;
"""
PARTED_USERS = """
ALTER TABLE trips DROP CONSTRAINT trips_driver_id_fkey;
DROP TABLE users;
CREATE TABLE users (id int PRIMARY KEY, user_uuid uuid NOT NULL, name text) PARTITION BY HASH (id);
CREATE TABLE users_0 PARTITION OF users FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE users_1 PARTITION OF users FOR VALUES WITH (MODULUS 2, REMAINDER 1);
"""
#: It records no row, whatever it does.
GATE_RETURNS = (
    "CREATE OR REPLACE FUNCTION tripstore.gate_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
)


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else FLAVOURS[:1])
def former(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    """Capture as an earlier version made it."""
    flavour: Flavour = request.param
    legacy = Legacy(legacy_server(servers, flavour))
    legacy.install(layout())
    legacy.sql(f"{FORMER.read_text()}; {FORGET}")
    return legacy


@pytest.fixture
def legacy(servers: LocalServers) -> Legacy:
    """Capture as this version makes it."""
    made = Legacy(legacy_server(servers, FLAVOURS[0]))
    made.install(layout())
    return made


def since(legacy: Legacy) -> datetime | None:
    with legacy.ours() as connection:
        return read_state(connection).since


def examined(legacy: Legacy) -> list[Complaint]:
    """What `doctor` says of capture."""
    with legacy.ours() as connection:
        return examine_capture(connection, layout())


def applied(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        apply(capture_steps(layout()), connection)


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
def test_i8_an_upgrade_is_no_gap(former: Legacy, *, looks: bool) -> None:
    before = since(former)
    assert before is not None
    if looks:
        found = examined(former)
        notes = {each.reason for each in found if not each.is_error}
        for name in ("base_updated", "base_update", "notes_insert", "notes_deleted", "status_delete", "base_truncate"):
            assert f"function {name} is of an earlier version, and records the same" in notes
        for what in (f"trigger {LAST}notes_move", f"trigger {LOGGED}notes_moved", "function notes_move"):
            assert f"{what} is not there yet: what it captures is refused" in notes
        errors = [each for each in found if each.is_error]
        assert {each.where for each in errors} == {"partitions", "users"}
        assert all(each.misses_nothing and each.hint == "Run `tripstore schema apply`." for each in errors)

    applied(former)

    assert since(former) == before
    with former.ours() as connection:
        assert verify(connection, layout()) == []


def test_i8_what_an_earlier_version_made_records_every_change(former: Legacy) -> None:
    id_, key = former.trip()
    former.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    former.sql("UPDATE trips SET status = 'done' WHERE id = %s", id_)
    earlier = former.changes(key)
    applied(former)
    former.sql("UPDATE trips SET status = 'over' WHERE id = %s", id_)

    assert len(earlier) == 3
    assert [change.ref_key for change in former.changes(key, "BASE")] == [1, 2, 3]


def test_i8_another_number_of_a_child_is_refused_until_this_version_captures_it(former: Legacy) -> None:
    id_, key = former.trip()
    former.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", id_)
    with refused(sqlstates.KEY_CHANGED):
        former.sql("UPDATE notes SET n = 2")
    applied(former)
    former.sql("UPDATE notes SET n = 2")

    assert [change.ref_key for change in former.changes(key, "NOTES")] == [note(1, 0), note(1, 1), note(2, 0)]


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
def test_control_a_trigger_that_is_missing_while_the_one_before_it_is_there_is_a_gap(
    legacy: Legacy, *, looks: bool
) -> None:
    before = since(legacy)
    legacy.sql(f'DROP TRIGGER "{LOGGED}notes_moved" ON notes')
    if looks:
        assert f"trigger {LOGGED}notes_moved is missing" in {each.reason for each in examined(legacy) if each.is_error}

    applied(legacy)

    assert since(legacy) not in (before, None)


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
@pytest.mark.parametrize("parts", ["", PARTED_USERS], ids=["table", "partitions"])
def test_i8_that_no_trigger_asked_an_update_for_its_key_is_no_gap(
    servers: LocalServers, parts: str, *, looks: bool
) -> None:
    """Every change was recorded by an installation that lacks this trigger alone. It is named, and made."""
    legacy = Legacy(legacy_server(servers, FLAVOURS[0]))
    if parts:
        legacy.sql(parts)
    legacy.install(layout())
    before = since(legacy)
    legacy.sql(f'DROP TRIGGER "{PAIR_UPDATED}" ON users')
    if looks:
        reason = f"trigger {PAIR_UPDATED} is not there yet: what it refuses is let through"
        assert [(each.reason, each.misses_nothing) for each in examined(legacy)] == [(reason, True)]
    with legacy.ours() as connection:
        assert [each.title for each in capture_steps(layout()) if not each.is_done(connection)] == ["triggers of users"]

    applied(legacy)

    assert since(legacy) == before is not None
    with legacy.ours() as connection:
        assert verify(connection, layout()) == []


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
@pytest.mark.parametrize(
    "statement",
    [
        f'DROP TRIGGER "{LOGGED}{pair_slug(USERS)}_deleted" ON users; DROP TRIGGER "{PAIR_UPDATED}" ON users',
        f'ALTER TABLE users DISABLE TRIGGER "{PAIR_UPDATED}"',
    ],
    ids=["deleted, too", "disabled"],
)
def test_control_a_trigger_of_pairs_that_every_version_made_or_none_disabled_is_a_gap(
    legacy: Legacy, statement: str, *, looks: bool
) -> None:
    before = since(legacy)
    legacy.sql(statement)
    if looks:
        assert [each.misses_nothing for each in examined(legacy) if each.is_error].count(False) == 1

    applied(legacy)

    assert since(legacy) not in (before, None)


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
def test_control_a_foreign_function_is_a_gap(former: Legacy, *, looks: bool) -> None:
    """One word of it is another, and changes go elsewhere."""
    before = since(former)
    text = FORMER.read_text()
    assert text.count("INSERT INTO tripstore.queue") > 1
    former.sql(text.replace("INSERT INTO tripstore.queue", "INSERT INTO public.queue"))
    if looks:
        examined(former)
        assert since(former) is None

    applied(former)

    assert since(former) not in (before, None)


@pytest.mark.parametrize("looks", [False, True], ids=["apply", "doctor first"])
def test_i8_what_records_no_row_leaves_no_gap_whichever_version_made_it(former: Legacy, *, looks: bool) -> None:
    before = since(former)
    former.sql(GATE_RETURNS)
    if looks:
        assert "function gate_slow is not what this layout and version make of it" in {
            each.reason for each in examined(former) if each.is_error
        }

    applied(former)

    assert since(former) == before


@pytest.mark.parametrize("word", ["", "1 + "], ids=["former", "control"])
def test_i8_that_deleted_facts_were_not_remembered_one_by_one_is_no_gap(servers: LocalServers, word: str) -> None:
    """The control: a function that is no former one either."""
    legacy, ignore = Legacy(legacy_server(servers, FLAVOURS[0])), DeletePolicy.IGNORE
    wanted = layout(base(ignore), attempts(ignore), notes(ignore))
    legacy.install(wanted)
    ((text,),) = legacy.sql("SELECT pg_get_functiondef('tripstore.status_delete'::regproc)")
    former = re.sub(r"  INSERT INTO tripstore.kept \(.*\n.*~.*;\n", "", text).replace("top := ", f"top := {word}")
    assert former.count("tripstore.kept") == text.count("tripstore.kept") - 1
    before = since(legacy)
    legacy.sql(former)

    with legacy.ours() as connection:
        apply(capture_steps(wanted), connection)
        assert verify(connection, wanted) == []

    assert (since(legacy) == before) is (word == "")


def test_i8_rows_that_asked_for_the_timeline_each_time_recorded_the_same(former: Legacy) -> None:
    applied(former)
    before = since(former)
    made = former.sql(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'tripstore'::regnamespace "
        "AND strpos(prosrc, %s) > 0",
        WRITERS_GATE,
    )
    assert made
    former.sql("; ".join(definition.replace(WRITERS_GATE, GATE) for (definition,) in made))

    assert [each for each in examined(former) if each.is_error] == []
    applied(former)

    assert since(former) == before
    with former.ours() as connection:
        assert verify(connection, layout()) == []


def test_i8_rows_that_moved_by_the_word_of_a_setting_are_no_gap(servers: LocalServers) -> None:
    """Where a row began in its other partition, an earlier version had from `tripstore.moved`."""
    legacy = Legacy(legacy_server(servers, FLAVOURS[0]), tables=MOVING_TABLE)
    with legacy.ours() as connection:
        apply(capture_steps(moving_layout()), connection)
    before = since(legacy)
    legacy.sql(FORMER_MOVES.read_text())
    key = "00000000-0000-0000-0000-000000000001"
    legacy.sql("INSERT INTO trips VALUES (1, %s, 1, 'a')", key)
    legacy.sql("UPDATE trips SET region = 2")  # it does what it did
    with legacy.ours() as connection:
        found = verify(connection, moving_layout())
        assert not [each for each in found if each.is_error and not each.reason.startswith("no unique index")]
        assert {"base_inserted", "base_updated", "base_lifted", "base_deleted"} <= {
            word for each in found for word in each.reason.split() if "earlier version" in each.reason
        }
        apply(capture_steps(moving_layout()), connection)
        assert not [each for each in verify(connection, moving_layout()) if "earlier version" in each.reason]
    legacy.sql("UPDATE trips SET region = 1")

    assert since(legacy) == before
    assert [each.ref_key for each in legacy.changes()] == [1, 2, 3]
