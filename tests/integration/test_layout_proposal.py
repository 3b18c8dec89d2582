"""A proposal loads, fits the tables it was made from, and says of everything else that it did not decide it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.layouts import FLAVOURS, company_database, document
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.check import check_layout
from tripstore.backends.postgres.layout.layout import Layout, Lookup, RefKeyKind, TableName
from tripstore.backends.postgres.layout.proposal import propose
from tripstore.backends.postgres.layout.proposal_fit import fitted
from tripstore.backends.postgres.layout.proposal_text import render, undecided
from tripstore.backends.postgres.layout.proposed import Proposal
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TABLES = ("billing_attempts", "trips", "trip_notes")


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


class Proposed:
    """What is proposed for tables after some statements, and what is said of it."""

    def __init__(
        self,
        servers: LocalServers,
        flavour: Flavour,
        statements: str = "",
        tables: tuple[str, ...] = TABLES,
        facts: tuple[str, ...] = (),
    ) -> None:
        with connected(company_database(servers, flavour), "test", search_path="public") as connection:
            if statements:
                rows(connection, statements)
                rows(connection, "SELECT pg_stat_force_next_flush()")
            names, said = ([TableName("public", name) for name in each] for each in (tables, facts))
            self.proposal: Proposal
            self.proposal, _ = fitted(connection, propose(connection, names, "trips", said))
            self.text = render(self.proposal)
            self.layout: Layout = load_layout(yaml.safe_load(self.text))
            self.errors = [str(each) for each in check_layout(connection, self.layout) if each.is_error]
        self.undecided = undecided(self.proposal)

    def says(self, words: str) -> bool:
        """In the list and in the text."""
        return any(words in remark for remark in self.undecided) and words.lower() in self.text.lower()


def test_a_proposal_loads_and_fits_the_tables(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour)

    assert proposed.errors == []
    assert list(proposed.layout.columns) == ["BASE", "BILLING_ATTEMPTS", "NOTES"]
    assert proposed.layout.parent.table == TableName("public", "trips")
    assert proposed.layout.row_key.uuid == "trip_uuid"
    base = proposed.layout.parent.fields_by_name
    assert base["driver_uuid"].lookup == Lookup(TableName("public", "users"), "id", "user_uuid")
    hand_written = load_layout(document()).parent.fields_by_name
    assert {field.column: field.kind for field in base.values()} == {
        field.column: field.kind for field in hand_written.values()
    }
    assert proposed.says("updated_at: changes whenever anything does")


FILLED = """
INSERT INTO trips (id) VALUES (1);
INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 1, 'declined'), (1, 2, 'captured');
INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'hello');
"""


def test_child_rows_are_versions_unless_facts_are_asked_for(servers: LocalServers, flavour: Flavour) -> None:
    """A restored copy has counted inserts alone: taken for facts, the company's UPDATE would fail after `apply`."""
    proposed = Proposed(servers, flavour, FILLED)

    assert {column.ref_key.kind for column in proposed.layout.children} == {RefKeyKind.CHILD}
    assert proposed.says("2 inserts and no change were counted; if rows of billing_attempts never change")
    assert proposed.says("--facts billing_attempts")
    assert proposed.says("rows change: there is updated_at")


def test_facts_are_proposed_when_they_are_asked_for_and_what_speaks_against_it_is_said(
    servers: LocalServers, flavour: Flavour
) -> None:
    changed = FILLED + "UPDATE billing_attempts SET result = 'captured';"
    proposed = Proposed(servers, flavour, changed, facts=("billing_attempts",))

    assert proposed.layout.columns["BILLING_ATTEMPTS"].ref_key.kind is RefKeyKind.FACT
    assert proposed.layout.columns["NOTES"].ref_key.kind is RefKeyKind.CHILD
    assert proposed.says("facts, as was asked for")
    assert proposed.says("but 2 updates were counted")


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ("ALTER TABLE trips ADD price money", "lc_monetary"),
        ("ALTER TABLE trips ADD twice numeric GENERATED ALWAYS AS (fare_amount * 2) STORED", "Postgres computes it"),
        ("ALTER TABLE trips ADD local_at timestamp", "has no time zone"),
        ('ALTER TABLE trips ADD "50%" int', "a character that is not supported"),
        (
            "CREATE TABLE cars (id int PRIMARY KEY); ALTER TABLE trips ADD car_id int REFERENCES cars (id)",
            "points to cars, which has no unique NOT NULL uuid",
        ),
    ],
)
def test_columns_that_it_cannot_decide_stand_as_comments(servers: LocalServers, statements: str, words: str) -> None:
    proposed = Proposed(servers, "machine", statements)

    assert proposed.says(words)
    assert proposed.errors == []


@pytest.mark.parametrize(
    ("statements", "words", "is_proposed"),
    [
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key",
            "its own key is taken for the number",
            True,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key",
            "no whole number tells the rows of one trip_id apart",
            False,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE (trip_id)",
            "one row per parent has no number",
            False,
        ),
        ("ALTER TABLE trip_notes ALTER trip_id DROP NOT NULL", "trip_id may be NULL", False),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES trips (id) ON DELETE SET NULL",
            "ON DELETE SET NULL, which would change the parent of rows",
            False,
        ),
        ("ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey", "no foreign key leads to trips.id", False),
    ],
)
def test_a_table_without_a_number_or_parent_is_said_to_lack_it(
    servers: LocalServers, statements: str, words: str, is_proposed: bool
) -> None:
    proposed = Proposed(servers, "machine", statements)

    assert proposed.says(words)
    assert ("NOTES" in proposed.layout.columns) is is_proposed
    assert "NOTES:" in proposed.text


def test_an_existing_uuid_is_taken_for_the_row_key(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, "ALTER TABLE trips ADD public_key uuid NOT NULL UNIQUE")

    assert proposed.layout.row_key.uuid == "public_key"
    assert "is taken for the key of each row" not in proposed.text


def test_a_unique_uuid_that_may_change_is_taken_with_a_remark(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, "ALTER TABLE trips ADD session_token uuid NOT NULL UNIQUE")

    assert "trips.session_token is taken for the key of each row, which never changes" in proposed.text


def test_the_statements_of_complaints_name_columns_as_postgres_knows_them(
    servers: LocalServers, flavour: Flavour
) -> None:
    odd = """
    CREATE TABLE "Rides" ("Id" int PRIMARY KEY);
    CREATE TABLE "Legs" ("rideId" int NOT NULL REFERENCES "Rides" ("Id"), "Nr" int NOT NULL)
    """
    columns = {
        "BASE": {"table": "Rides", "ref_key": {"version": "base_version"}, "extra": "rest"},
        "LEG": {
            "table": "Legs",
            "parent": {"column": "rideId", "uuid": "uuid"},
            "ref_key": {"column": "Nr", "version": "v"},
            "extra": "rest",
        },
    }
    row_key = {"table": "Rides", "id": "Id", "uuid": "uuid"}
    layout = load_layout({"datastore": "rides", "row_key": row_key, "columns": columns})
    with connected(company_database(servers, flavour, odd), "test") as connection:
        (hint,) = [str(each.hint) for each in check_layout(connection, layout) if "unique index" in each.reason]
        rows(connection, hint.rstrip("."))

        assert [each for each in check_layout(connection, layout) if "unique index on exactly" in each.reason] == []


def test_what_schema_apply_added_is_taken_again_and_mapped_as_no_field(servers: LocalServers) -> None:
    added = """
    ALTER TABLE trips ADD trip_uuid uuid NOT NULL UNIQUE, ADD base_version bigint NOT NULL DEFAULT 1;
    ALTER TABLE trips ADD base_extra json;
    ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL, ADD note_version bigint NOT NULL DEFAULT 0;
    COMMENT ON COLUMN trips.base_version IS 'Added by tripstore.';
    COMMENT ON COLUMN trips.base_extra IS 'Added by tripstore.';
    COMMENT ON COLUMN trip_notes.note_version IS 'Added by tripstore.';
    """
    first, again = Proposed(servers, "machine"), Proposed(servers, "machine", added)

    assert again.errors == []
    assert again.layout.parent.extra == "base_extra"
    assert again.layout.parent.fields == first.layout.parent.fields
    assert again.layout.columns["NOTES"] == first.layout.columns["NOTES"]


def test_a_number_of_the_companys_own_is_taken_for_no_version(servers: LocalServers, flavour: Flavour) -> None:
    """Capture counts versions itself, whatever is written: a service's own number would be written over."""
    own = """
    ALTER TABLE trip_notes ADD note_version int NOT NULL DEFAULT 1, ADD note_version_2 text, ADD note_extra json;
    ALTER TABLE trips ADD base_version int;
    """
    proposed = Proposed(servers, flavour, own)

    assert proposed.errors == []
    assert proposed.layout.parent.ref_key.version == "base_version_2"
    column = proposed.layout.columns["NOTES"]
    assert column.ref_key.version == "note_version_3"
    assert {"note_version", "note_version_2", "note_extra"} <= set(column.captured)


LONG = f"""
CREATE TABLE {"a" * 63} (id bigserial PRIMARY KEY, {"b" * 63} text);
CREATE TABLE {"旅" * 21} (id bigserial PRIMARY KEY, {"c" * 63} bigint NOT NULL REFERENCES {"a" * 63}, メモ text);
"""


def test_what_is_named_after_a_table_with_a_long_name_is_cut(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, LONG, ("a" * 63, "旅" * 21))

    assert proposed.errors == []
    assert proposed.layout.row_key.uuid == "a" * 58 + "_uuid"
    assert proposed.layout.columns["旅" * 13].ref_key.version == "旅" * 18 + "_version"


KEYS_IN_THE_WAY = """
CREATE TABLE scores (id int PRIMARY KEY, trip_id bigint REFERENCES trips (id) ON DELETE SET NULL);
CREATE TABLE stops (trip_id bigint NOT NULL REFERENCES trips (id) INITIALLY DEFERRED, place text);
"""


def test_no_statement_is_printed_where_the_foreign_key_is_in_the_way(servers: LocalServers, flavour: Flavour) -> None:
    """NOT NULL beside ON DELETE SET NULL keeps the company from deleting its parents."""
    proposed = Proposed(servers, flavour, KEYS_IN_THE_WAY, ("trips", "scores", "stops"))

    assert proposed.says("is ON DELETE SET NULL, which would change the parent of rows")
    assert proposed.says("is INITIALLY DEFERRED, so rows may come before their parent")
    assert [column.statements for column in proposed.proposal.columns] == [(), (), ()]
    assert not proposed.says("may be NULL")


def test_a_table_of_another_schema_and_names_in_quotes_are_proposed(servers: LocalServers, flavour: Flavour) -> None:
    odd = """
    CREATE SCHEMA "Fleet";
    CREATE TABLE "Fleet"."Car Rides" (id int PRIMARY KEY, "Total Fare" numeric, "null" text, "on" bool);
    """
    with connected(company_database(servers, flavour, odd), "test") as connection:
        proposal = propose(connection, [TableName("Fleet", "Car Rides")], "rides")
        layout = load_layout(yaml.safe_load(render(proposal)))

        assert [each for each in check_layout(connection, layout) if each.is_error] == []
    assert layout.parent.captured == ("Total Fare", "null", "on")


@pytest.mark.parametrize(
    ("statements", "tables", "words"),
    [
        ("", ("trips", "trip_note"), "Did you mean trip_notes?"),
        ("CREATE TABLE lists (name text)", ("lists",), "no unique column of whole numbers"),
        ("CREATE VIEW all_trips AS SELECT * FROM trips", ("all_trips",), "is no table"),
    ],
)
def test_tables_that_cannot_be_described_are_refused_by_name(
    servers: LocalServers, statements: str, tables: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(InvalidLayout) as refused:
        Proposed(servers, "machine", statements, tables)

    assert words in str(refused.value)


ODD = """
CREATE TABLE receipts (trip_id bigint PRIMARY KEY REFERENCES trips (id) ON DELETE CASCADE, total numeric);
CREATE TABLE tags (trip_id bigint REFERENCES trips (id), k text, v text, PRIMARY KEY (trip_id, k));
CREATE TABLE ratings (id int PRIMARY KEY, trip_id bigint REFERENCES trips (id), stars int);
CREATE TABLE riders (trip_id bigint REFERENCES trips (id), rider_id int, seat int, PRIMARY KEY (trip_id, rider_id));
CREATE TABLE payments (
    id int NOT NULL, trip_id bigint NOT NULL, paid_at date NOT NULL, paid_in int GENERATED ALWAYS AS (id * 2) STORED,
    PRIMARY KEY (paid_at, id)
)
    PARTITION BY RANGE (paid_at);
CREATE TABLE payments_1 PARTITION OF payments FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE payments_2 PARTITION OF payments FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
ALTER TABLE payments_1 ADD FOREIGN KEY (trip_id) REFERENCES trips (id);
ALTER TABLE payments_2 ADD FOREIGN KEY (trip_id) REFERENCES trips (id);
INSERT INTO trips (id) VALUES (1), (2);
INSERT INTO receipts VALUES (1, 3); INSERT INTO tags VALUES (1, 'a', 'b'), (1, 'c', 'd');
INSERT INTO ratings VALUES (1, 1, 5);
INSERT INTO payments (id, trip_id, paid_at) VALUES (7, 1, '2026-01-02');
"""
ODD_TABLES = ("receipts", "tags", "ratings", "riders", "payments")


def test_tables_that_cannot_be_taken_stand_as_comments_and_the_others_are_proposed(
    servers: LocalServers, flavour: Flavour
) -> None:
    """A table of one row per parent, whose key is the pointer itself, made the whole proposal fail."""
    proposed = Proposed(servers, flavour, ODD, ("trips", "trip_notes", *ODD_TABLES))

    assert proposed.errors == []
    assert list(proposed.layout.columns) == ["BASE", "NOTES", "RIDERS"]
    assert proposed.says("one row per parent has no number")
    assert proposed.says("no whole number tells the rows of one trip_id apart, its key is (trip_id, k)")
    assert proposed.says("trip_id may be NULL")
    assert proposed.says("it is partitioned by paid_at, so no unique index can hold (trip_id, id) to one row")


def test_the_statements_that_a_proposal_prints_are_all_that_a_table_lacks(
    servers: LocalServers, flavour: Flavour
) -> None:
    url = company_database(servers, flavour)
    names = [TableName("public", name) for name in ("trips", *ODD_TABLES)]
    with connected(url, "test", search_path="public") as connection:
        rows(connection, ODD)
        lacking = {column.table.name: column.statements for column in propose(connection, names, "trips").columns}
        for table in ("receipts", "tags", "ratings", "payments"):
            for statement in lacking[table]:
                rows(connection, statement)
        names = [name for name in names if name.name != "payments"] + [TableName("public", "payments_by_trip_id")]
        assert rows(connection, "SELECT trip_id, id FROM payments_by_trip_id") == [(1, 7)]
        again, errors = fitted(connection, propose(connection, names, "trips"))

    assert errors == []
    assert [column.table.name for column in again.columns if column.ref_key is None] == []
    assert rows_of(again, "receipts") == "n"


def test_a_copy_of_a_partitioned_table_counts_on_where_the_first_one_was(servers: LocalServers) -> None:
    """An identity column, which such tables have from Postgres 17 on: services leave it away."""
    counted = ODD.replace("id int NOT NULL, trip_id", "id int GENERATED ALWAYS AS IDENTITY, trip_id")
    counted = counted.replace("VALUES (7, 1, '2026-01-02')", "OVERRIDING SYSTEM VALUE VALUES (7, 1, '2026-01-02')")
    names = [TableName("public", name) for name in ("trips", "payments")]
    with connected(company_database(servers, "wheel"), "test", search_path="public") as connection:
        rows(connection, counted)
        (payments,) = [each for each in propose(connection, names, "trips").columns if each.table.name == "payments"]
        for statement in payments.statements:
            rows(connection, statement)
        rows(connection, "INSERT INTO payments_by_trip_id (trip_id, paid_at) VALUES (1, '2026-01-03')")
        found = rows(connection, "SELECT trip_id, id FROM payments_by_trip_id ORDER BY id")

    assert found == [(1, 7), (1, 8)]
    assert "in one transaction" in str(payments.remarks)


def rows_of(proposal: Proposal, table: str) -> str | None:
    """The number of a table."""
    (found,) = [column.ref_key for column in proposal.columns if column.table.name == table]
    return found.column if found is not None else None


def test_foreign_keys_that_only_some_partitions_have_are_none_of_the_table(servers: LocalServers) -> None:
    statements = ODD + "ALTER TABLE payments_2 DROP CONSTRAINT payments_2_trip_id_fkey"
    proposed = Proposed(servers, "machine", statements, ("trips", "payments"))

    assert proposed.says("no foreign key leads to trips.id")


FILLING = """
CREATE TABLE films (
    id serial PRIMARY KEY, title text NOT NULL, fulltext tsvector NOT NULL, slug text NOT NULL, shout text,
    email text, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, seen_at timestamptz, "Odd" text
);
CREATE TRIGGER fulltext BEFORE INSERT OR UPDATE ON films FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger(fulltext, 'pg_catalog.english', title);
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- NEW.title := 'no';
    IF NEW.title = 'NEW.title := x' THEN
        RAISE NOTICE 'NEW.title := %', NEW.title;
    END IF;
    IF NEW.slug IS NULL THEN NEW.slug := lower(NEW.title); END IF;
    NEW.email = lower(NEW.email);
    NEW.updated_at = now();
    NEW."Odd" := 'x';
    SELECT upper(NEW.title) INTO NEW.shout;
    RETURN NEW;
END $$;
CREATE TRIGGER fill BEFORE INSERT OR UPDATE ON films FOR EACH ROW EXECUTE FUNCTION fill();
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.seen_at := now(); RETURN NEW; END';
CREATE TRIGGER seen BEFORE UPDATE ON films FOR EACH ROW WHEN (NEW.title = 'seen') EXECUTE FUNCTION seen();
"""


def test_columns_that_a_trigger_fills_are_left_out_with_a_remark(servers: LocalServers, flavour: Flavour) -> None:
    """As a field each change of the title would come out of Postgres otherwise than it was put, and be parked."""
    proposed = Proposed(servers, flavour, FILLING, ("films",))

    assert set(proposed.layout.parent.fields_by_name) == {"title", "slug", "email", "created_at", "seen_at"}
    for column, trigger in {"fulltext": "fulltext", "updated_at": "fill", "Odd": "fill", "shout": "fill"}.items():
        assert proposed.says(f"{column}: trigger {trigger} fills it")
    for column, trigger in {"slug": "fill", "email": "fill", "seen_at": "seen"}.items():
        assert any(
            remark.startswith(f"films.{column}: ") and f"trigger {trigger} may change it" in remark
            for remark in proposed.undecided
        )
    assert proposed.errors == []


def test_control_without_the_triggers_they_are_fields(servers: LocalServers, flavour: Flavour) -> None:
    gone = FILLING + "DROP TRIGGER fill ON films; ALTER TABLE films DISABLE TRIGGER fulltext"
    proposed = Proposed(servers, flavour, gone, ("films",))

    assert {"fulltext", "updated_at", "Odd", "shout"} <= set(proposed.layout.parent.fields_by_name)


def test_a_column_that_the_application_fills_puts_no_proposal_in_error(servers: LocalServers, flavour: Flavour) -> None:
    """Rails: `updated_at` is NOT NULL and has no default. Left out, no put could insert a row."""
    statements = "CREATE TABLE posts (id serial PRIMARY KEY, body text, updated_at timestamp NOT NULL)"
    proposed = Proposed(servers, flavour, statements, ("posts",))

    assert proposed.errors == []
    assert "updated_at" in proposed.layout.parent.fields_by_name
    assert proposed.says('to leave it out: ALTER TABLE "public"."posts" ALTER COLUMN "updated_at" SET DEFAULT now()')
    with_default = Proposed(
        servers, flavour, statements + " ; ALTER TABLE posts ALTER updated_at SET DEFAULT now()", ("posts",)
    )
    assert "updated_at" not in with_default.layout.parent.fields_by_name


LATE = """
CREATE TABLE stages (
    trip_id bigint NOT NULL REFERENCES trips (id), stage int NOT NULL, place text,
    UNIQUE (trip_id, stage) DEFERRABLE
);
"""


def test_a_pair_that_is_unique_at_the_commit_needs_an_index_and_no_identity_column(
    servers: LocalServers, flavour: Flavour
) -> None:
    """An identity column rewrites the table. Both are run: the one that is printed is all that it lacks."""
    with connected(company_database(servers, flavour), "test", search_path="public") as connection:
        rows(connection, LATE)
        names = [TableName("public", name) for name in ("trips", "stages")]
        (statement,) = propose(connection, names, "trips").columns[1].statements
        assert statement == 'CREATE UNIQUE INDEX CONCURRENTLY ON "public"."stages" ("trip_id", "stage")'
        rows(connection, statement)
        again, errors = fitted(connection, propose(connection, names, "trips"))

    assert errors == []
    assert rows_of(again, "stages") == "stage"


KEYED_BY_UUID = """
CREATE TABLE accounts (account uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text);
CREATE TABLE logins (id bigserial PRIMARY KEY, account uuid NOT NULL REFERENCES accounts, at timestamptz);
CREATE TABLE tokens (id bigserial PRIMARY KEY, account uuid NOT NULL REFERENCES accounts, token text);
"""


def test_a_table_whose_key_is_a_uuid_stands_as_a_comment_with_what_adds_an_id(
    servers: LocalServers, flavour: Flavour
) -> None:
    """Most tables point to it: taken for the table of the rows it made the whole proposal fail."""
    proposed = Proposed(servers, flavour, KEYED_BY_UUID, ("accounts", "trips", "trip_notes", "logins", "tokens"))

    assert proposed.errors == []
    assert list(proposed.layout.columns) == ["BASE", "NOTES"]
    assert proposed.says("Most tables point to accounts, whose rows have no id")
    assert proposed.says("it has no unique column of whole numbers that is NOT NULL")
    assert 'ALTER TABLE "public"."accounts" ADD COLUMN id bigint GENERATED BY DEFAULT AS IDENTITY' in proposed.text


def test_with_the_id_that_is_printed_such_a_table_can_be_taken_alone(servers: LocalServers, flavour: Flavour) -> None:
    with connected(company_database(servers, flavour), "test", search_path="public") as connection:
        rows(connection, KEYED_BY_UUID)
        with pytest.raises(InvalidLayout) as refused:
            propose(connection, [TableName("public", "accounts")], "accounts")
        rows(connection, str(refused.value.hint).partition("the table: ")[2])
        proposal, errors = fitted(connection, propose(connection, [TableName("public", "accounts")], "accounts"))

    assert errors == []
    assert (proposal.id, proposal.uuid) == ("id", "account")


DOTTED = """
CREATE SCHEMA "odd.one";
CREATE TABLE "odd.one"."ride.log" (id int PRIMARY KEY, text text);
CREATE TABLE "legs.of" (id serial PRIMARY KEY, ride int NOT NULL REFERENCES "odd.one"."ride.log" (id), km int);
"""


def test_names_with_a_dot_are_proposed_in_quotes(servers: LocalServers, flavour: Flavour) -> None:
    ride, legs = TableName.find('"odd.one"."ride.log"'), TableName.find('"legs.of"')
    assert ride == TableName("odd.one", "ride.log")
    assert legs == TableName("public", "legs.of")
    with connected(company_database(servers, flavour, DOTTED), "test", search_path="public") as connection:
        proposal, errors = fitted(connection, propose(connection, [ride, legs], "rides"))
        text = render(proposal)
        layout = load_layout(yaml.safe_load(text))

        assert errors == []
    assert layout.tables == {ride, legs}
    assert load_layout(layout.to_document()) == layout
