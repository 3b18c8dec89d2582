"""Prepared puts, whatever becomes of the tables meanwhile."""

from __future__ import annotations

from uuid import uuid4

import psycopg2
import pytest
from prometheus_client import REGISTRY

from schemaless_core import InvalidServer, Json, SchemalessError
from tests.integration.prepared_puts.ways import COLUMN, NUMBERS, Place, Ways, string_layout, table_sql
from tests.legacy_databases import PATIENT, run
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.put.row_statements import RowStatements
from tripstore.backends.postgres.cells.rows import ColumnRows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared

SMALL = {"a": "int", "b": "varchar(5)", "c": "numeric(10,2)", "d": "text"}


class Things:
    """A table of its own, and puts into it that are prepared already."""

    def __init__(self, place: Place) -> None:
        self.place, self.schema = place, f"things_{next(NUMBERS)}"
        self.layout = string_layout(self.schema, "things", {name: name for name in SMALL})
        run(place.url, f"CREATE SCHEMA {self.schema}")
        run(place.url, table_sql(self.layout, SMALL))
        self.ways = Ways(place, self.layout)
        self.store = self.ways.store
        self.updated = uuid4()
        self.store.put_cell(self.updated, COLUMN, 1, {"a": "1"})
        self.store.put_cell(self.updated, COLUMN, 2, {"a": "2"})

    def alter(self, statements: str) -> None:
        run(self.place.url, f"SET search_path = {self.schema}, odd, public; {statements}")

    def put(self, body: Json) -> list[str]:
        """What became of it as INSERT and as UPDATE."""
        inserted = uuid4()
        return [
            self.ways.outcome(inserted, lambda: self.store.put_cell(inserted, COLUMN, 1, body)),
            self.ways.outcome(self.updated, lambda: self.store.put_cell(self.updated, COLUMN, 3, body)),
        ]


@pytest.fixture
def things(place: Place) -> Things:
    return Things(place)


def repeats() -> float:
    return REGISTRY.get_sample_value("schemaless_repeats_total", {"cause": "transaction_lost"}) or 0.0


SWAPPED = """
CREATE TABLE other (LIKE things INCLUDING ALL);
ALTER TABLE other ALTER a TYPE text;
INSERT INTO other SELECT * FROM things;
ALTER TABLE things RENAME TO former;
ALTER TABLE other RENAME TO things;
"""


@pytest.mark.parametrize(
    ("statements", "field", "text", "is_taken"),
    [
        ("ALTER TABLE things ALTER a TYPE text", "a", "007", True),
        ("ALTER TABLE things ALTER a TYPE text", "a", "x", True),
        ("ALTER TABLE things ALTER a TYPE smallint", "a", "40000", False),
        ("ALTER TABLE things ALTER b TYPE varchar(10)", "b", "abcdefg", True),
        ("ALTER TABLE things ALTER b TYPE varchar(2)", "b", "abc", False),
        ("ALTER TABLE things ALTER b TYPE int USING NULL", "b", "7", True),
        ("ALTER TABLE things ALTER c TYPE numeric(10,4)", "c", "1.2345", True),
        ("ALTER TABLE things ALTER c TYPE float8", "c", "1e+300", True),
        ("ALTER TABLE things ALTER d TYPE timestamptz USING NULL", "d", "2014-08-01 12:00:00+00", True),
        ("CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE things ALTER d TYPE mood USING NULL", "d", "sad", True),
        ("CREATE DOMAIN above AS int CHECK (VALUE > 0); ALTER TABLE things ALTER a TYPE above", "a", "0", False),
        ("ALTER TABLE things DROP a, ADD a text", "a", "007", True),
        ("ALTER TABLE things ADD e int NOT NULL DEFAULT 5", "a", "7", True),
        ("ALTER TABLE things DROP CONSTRAINT things_pkey", "d", "x", True),
        (SWAPPED, "a", "007", True),
    ],
)
def test_whatever_is_altered_the_next_put_goes_by_it(
    things: Things, statements: str, field: str, text: str, is_taken: bool
) -> None:
    """I2: on the same connection, without an error that the alteration alone explains."""
    pid = things.place.alone(lambda connection: connection.pid)
    things.alter(statements)

    outcomes = things.put({field: text})

    taken = [outcome.startswith("{") and f'"{field}":"{text}"' in outcome for outcome in outcomes]
    assert taken == [is_taken] * 2, outcomes
    assert is_taken or all(outcome.startswith("Unrepresentable") for outcome in outcomes)
    assert things.place.alone(lambda connection: connection.pid) == pid
    things.place.prepared()


@pytest.mark.parametrize(
    ("statement", "field", "text"),
    [
        ("ALTER TABLE things ALTER a TYPE text", "a", "007"),
        ("ALTER TABLE things ALTER b TYPE int USING NULL", "b", "7"),
        ("ALTER TABLE things DROP a, ADD a text", "a", "x"),
    ],
)
def test_control_who_does_not_look_at_the_types_goes_by_the_old_ones(
    place: Place, statement: str, field: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowStatements, "types", property(lambda _self: Prepared("", "SELECT 1")))
    things = Things(place)
    things.alter(statement)

    assert all(outcome.startswith("Unrepresentable") for outcome in things.put({field: text}))


def test_a_table_is_not_altered_between_the_look_at_its_types_and_the_write(things: Things) -> None:
    statements = RowStatements(things.layout, ColumnRows(things.layout.parent))

    def look(connection: LegacyConnection) -> None:
        connection.rows(f"BEGIN; {connection.call(statements.types)}")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            things.alter("SET lock_timeout = '50ms'; ALTER TABLE things ALTER a TYPE text")
        connection.rows("ROLLBACK")

    things.place.alone(look)
    things.alter("SET lock_timeout = '5s'; ALTER TABLE things ALTER a TYPE text")


def test_an_alteration_costs_one_repetition(things: Things) -> None:
    before = repeats()
    things.alter("ALTER TABLE things ALTER a TYPE text")

    for version in (3, 4, 5):
        things.store.put_cell(things.updated, COLUMN, version, {"a": f"{version}"})
        things.store.put_cell(uuid4(), COLUMN, 1, {"a": "x"})

    assert repeats() == before + 1


def test_statements_that_are_gone_are_prepared_anew(things: Things) -> None:
    things.place.alone(lambda connection: connection.rows("DEALLOCATE ALL"))
    assert things.store.get_cell_latest(things.updated, COLUMN) is not None

    things.place.alone(lambda connection: connection.rows("DEALLOCATE ALL"))
    assert all(outcome.startswith("{") for outcome in things.put({"a": "7"}))


def test_what_a_trigger_does_not_support_is_not_repeated(things: Things) -> None:
    """Its error has the code of an outdated statement, which would be repeated until the deadline."""
    things.alter(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '0A000'; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    before = repeats()

    with pytest.raises(SchemalessError, match="not here"):
        things.store.put_cell(uuid4(), COLUMN, 1, {"a": "7"})

    assert repeats() == before


def test_a_privilege_is_asked_for_at_each_put(things: Things) -> None:
    """A statement that is prepared gives nothing to a role that has lost its privilege."""
    place, role = things.place, f"putter{next(NUMBERS)}"
    own = "tripstore.cell, tripstore.tomb, tripstore.kept"
    run(
        place.url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA {things.schema}, tripstore TO {role}; "
        f"GRANT SELECT, INSERT ON {things.schema}.things TO {role}; GRANT SELECT ON {own} TO {role}",
    )
    url = place.url.replace(f"//{place.url.split('//')[1].split('@')[0]}@", f"//{role}:secret@")
    with PostgresBackend(LegacyDatabase(url, PATIENT), things.layout, shards=8) as store:
        assert store.put_cell(uuid4(), COLUMN, 1, {"a": "7"}).status == "CREATED"
        run(place.url, f"REVOKE INSERT ON {things.schema}.things FROM {role}")
        with pytest.raises(InvalidServer):
            store.put_cell(uuid4(), COLUMN, 1, {"a": "7"})
        run(place.url, f"GRANT INSERT ON {things.schema}.things TO {role}")
        assert store.put_cell(uuid4(), COLUMN, 1, {"a": "7"}).status == "CREATED"
