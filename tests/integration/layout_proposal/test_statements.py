"""The statements that a proposal prints, and names in quotes."""

from __future__ import annotations

import yaml

from tests.integration.layout_proposal.proposing import Proposed
from tests.layouts import company_database
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.proposals.fit import fitted
from tripstore.backends.postgres.proposals.proposal import Proposal
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.proposals.text import render
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


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
