"""A mapped column that is renamed or dropped: the writer reads what to do, and `doctor` says that capture is broken."""

from __future__ import annotations

import re

import pytest

from schemaless_core.definitions.index import IndexDefinition
from tests.legacy import FLAVOURS, Legacy, captured, layout, legacy_server, refused
from tripstore.backends.postgres.capture import read_state
from tripstore.backends.postgres.sqlstates import COLUMN_GONE
from tripstore.cli.legacy.doctor import examine
from tripstore.config import load_config
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

NO_INDEXES: list[IndexDefinition] = []
#: By the column that is renamed: a statement that its table's functions meet it in.
WRITES = {
    "trips.status": ["INSERT INTO trips (memo) VALUES ('m')", "UPDATE trips SET fare = 1"],
    "trips.base_version": [
        "INSERT INTO trips (memo) VALUES ('m')",
        "UPDATE trips SET status = 's'",
        "DELETE FROM trips",
    ],
    "trips.trip_uuid": ["INSERT INTO trips (memo) VALUES ('m')", "INSERT INTO notes (trip_id, n) VALUES (1, 2)"],
    "attempts.result": ["INSERT INTO attempts (trip_id, attempt_no) VALUES (1, 2)"],
    "attempts.attempt_no": ["INSERT INTO attempts (trip_id, renamed) VALUES (1, 2)", "DELETE FROM attempts"],
    "notes.text": ["INSERT INTO notes (trip_id, n) VALUES (1, 2)", "UPDATE notes SET renamed = 't'"],
    "notes.n": [
        "INSERT INTO notes (trip_id, renamed) VALUES (1, 2)",
        "UPDATE notes SET text = 't'",
        "DELETE FROM notes",
    ],
}


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = captured(legacy_server(servers, flavour))
    made.sql("INSERT INTO trips (status) VALUES ('a')")
    made.sql("INSERT INTO attempts (trip_id, attempt_no) VALUES (1, 1); INSERT INTO notes (trip_id, n) VALUES (1, 1)")
    return made


def doctor(legacy: Legacy) -> list[str]:
    config = load_config(
        {
            "datastore": "trips",
            "shards": 4,
            "clusters": {"a": {"primary": "sqlite:///unused"}},
            "legacy": {"postgres": legacy.url, "layout": layout().to_document()},
        }
    ).legacy
    assert config is not None
    return [
        f"{each.where}: {each.reason}" for each in examine(config, NO_INDEXES, lambda: None).complaints if each.is_error
    ]


@pytest.mark.parametrize("column", WRITES)
def test_the_writer_reads_who_refuses_and_what_to_do(legacy: Legacy, column: str) -> None:
    table, name = column.split(".")
    legacy.sql(f"ALTER TABLE {table} RENAME {name} TO renamed")
    for statement in WRITES[column]:
        with refused(COLUMN_GONE) as caught:
            legacy.sql(statement)
        diag = caught.value.diag
        said = r"tripstore cannot capture rows of \w+, which lost a mapped column: "
        said += r'(record "(new|old)" has no field|column p\.\w+ does not exist)'
        assert re.match(said, str(diag.message_primary)), diag.message_primary
        assert "Rename the column back" in str(diag.message_hint)

    legacy.sql(f"ALTER TABLE {table} RENAME renamed TO {name}")
    before = len(legacy.changes())
    legacy.sql("INSERT INTO trips (status) VALUES ('b')")
    assert len(legacy.changes()) == before + 1


def test_a_session_that_wrote_before_reads_the_same(legacy: Legacy) -> None:
    """Its functions are compiled by then."""
    service = legacy.connect(autocommit=True)
    with service.cursor() as cursor:
        cursor.execute("UPDATE trips SET status = 'b'")
        legacy.sql("ALTER TABLE trips RENAME status TO state")
        with refused(COLUMN_GONE):
            cursor.execute("UPDATE trips SET fare = 2")
        legacy.sql("ALTER TABLE trips RENAME state TO status")
        cursor.execute("UPDATE trips SET fare = 2")
    service.close()

    assert legacy.sql("SELECT base_version FROM trips") == [(3,)]


def test_i8_doctor_says_that_capture_is_broken_when_a_column_was_dropped_with_its_trigger(legacy: Legacy) -> None:
    legacy.sql("ALTER TABLE trips DROP COLUMN status CASCADE")
    legacy.sql("UPDATE trips SET fare = 3")
    assert legacy.sql("SELECT base_version FROM trips") == [(1,)]  # the control: no version, no change, no error

    found = doctor(legacy)

    assert any("trips: trigger ~tripstore_base_update is missing" in each for each in found), found
    with legacy.ours() as connection:
        state = read_state(connection)
    assert state.since is None
    assert state.broken is not None


def test_before_capture_is_installed_doctor_names_what_does_not_fit_once(servers: LocalServers) -> None:
    legacy = Legacy(legacy_server(servers, "machine"))
    legacy.sql("ALTER TABLE trips DROP COLUMN status")

    found = doctor(legacy)

    assert len(found) == 1
    assert "status" in found[0]
