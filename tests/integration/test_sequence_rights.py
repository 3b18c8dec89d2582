"""A role that may not draw from the sequence of a column's numbers: `schema plan` and `doctor` print the GRANT."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.layouts import company_database
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.cli.legacy_advice import AdviceDocument, advice_notes, advised
from tripstore.local.servers import LocalServers

SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), name text);
CREATE TABLE orders (
    id bigserial PRIMARY KEY, customer_id int NOT NULL REFERENCES customers (id), customer_uuid uuid NOT NULL, total int
);
CREATE INDEX ON orders (customer_uuid, id);
CREATE ROLE clerk LOGIN PASSWORD 'secret';
GRANT SELECT, INSERT, UPDATE ON customers, orders TO clerk;
"""
LAYOUT = load_layout(
    {
        "datastore": "shop",
        "row_key": {"table": "customers", "id": "id", "uuid": "uuid"},
        "columns": {
            "BASE": {"table": "customers", "ref_key": {"version": "v"}, "fields": {"name": {"type": "string"}}},
            "ORDERS": {
                "table": "orders",
                "parent": {"column": "customer_id", "uuid": "customer_uuid"},
                "ref_key": {"column": "id", "version": "v"},
                "fields": {"total": {"type": "int"}},
            },
        },
    }
)


def said(url: str) -> tuple[list[AdviceDocument], list[Complaint]]:
    """What `schema plan` advises, and the errors among what `doctor` says."""
    with connected(url, "test") as connection:
        errors = [each for each in advice_notes(connection, LAYOUT, ()) if each.is_error]
        return advised(connection, LAYOUT, ()), errors


def test_a_role_without_the_right_is_told_the_grant_and_the_grant_helps(servers: LocalServers) -> None:
    url = company_database(servers, "machine", SHOP)
    place = urlsplit(url)
    clerk = place._replace(netloc=f"clerk:secret@{place.hostname}:{place.port}").geturl()
    assert said(url) == ([], []), "the control: the owner may draw"

    (planned,), (examined,) = said(clerk)
    assert planned.statements == ['GRANT USAGE, SELECT ON SEQUENCE "public"."orders_id_seq" TO clerk']
    assert examined.reason == planned.reason == "clerk may not draw from it: a row that is appended gets no number"
    assert examined.hint == f"{planned.statements[0]};"

    with connected(url, "test") as connection:
        rows(connection, planned.statements[0])
    assert said(clerk) == ([], [])
