"""A child's own UUID is not taken for its parent's key: not by a proposal, nor by `plan`, `apply` and the gates.

Both stores agree on cells under a wrong row key, so no diff tells (I12): the rows themselves are asked.
"""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest
import yaml

from tests.layouts import FLAVOURS, company_database
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.checks.row_keys import check_all_row_keys, look_at_keys
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_match import SAMPLE_ROWS, sample_keys
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.layout import Layout, RowKeySource, TableName
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.proposals.text import render, undecided
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

CUSTOMERS, ORDERS = TableName("public", "customers"), TableName("public", "orders")

#: Each table has a UUID of its own, by the same name.
SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), name text);
CREATE TABLE orders (
    id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    uuid uuid DEFAULT gen_random_uuid() NOT NULL, total numeric, UNIQUE (customer_id, id)
);
"""
ROWS = """
INSERT INTO customers (id, name) SELECT n, 'c' || n FROM generate_series(1, 40) n;
INSERT INTO orders (id, customer_id, total) SELECT n, 1 + n % 40, n FROM generate_series(1, 400) n;
"""
#: The company's own way to carry its parent's key.
CARRIED = "UPDATE orders o SET uuid = c.uuid FROM customers c WHERE c.id = o.customer_id"
NO_DEFAULT = "ALTER TABLE orders ALTER uuid DROP DEFAULT"


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


def layout(**parent: str) -> Layout:
    """By hand; what a parent.uuid is not given for is called as in the parent."""
    own = {"uuid": {"type": "uuid"}} if parent else {}
    columns: dict[str, Any] = {
        "BASE": {"table": "customers", "ref_key": {"version": "v"}, "fields": {"name": {"type": "string"}}},
        "ORDERS": {
            "table": "orders",
            "parent": {"column": "customer_id", **parent},
            "ref_key": {"column": "id", "version": "v"},
            "fields": {"total": {"type": "decimal"}, **own},
        },
    }
    row_key = {"table": "customers", "id": "id", "uuid": "uuid"}
    return load_layout({"datastore": "shop", "row_key": row_key, "columns": columns})


class Shop:
    """A database after some statements."""

    def __init__(self, servers: LocalServers, flavour: Flavour, *statements: str) -> None:
        self.url = company_database(servers, flavour, SHOP)
        for statement in statements:
            self.run(statement)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with connected(self.url, "test", search_path="public") as connection:
            return rows(connection, statement)

    def proposed(self) -> tuple[Layout, list[str]]:
        with connected(self.url, "test") as connection:
            proposal = propose(connection, [CUSTOMERS, ORDERS], "shop")
        return load_layout(yaml.safe_load(render(proposal))), undecided(proposal)

    def errors(self, checked: Layout) -> list[str]:
        with connected(self.url, "test") as connection:
            return [str(each) for each in check_layout(connection, checked) if each.is_error]

    def install(self, installed: Layout) -> None:
        with connected(self.url, "test") as connection:
            list(apply_all(schema_steps(installed), connection, lambda _step: lambda _done, _all: None))


@pytest.mark.parametrize("statements", [[ROWS], []], ids=["with rows", "empty"])
def test_a_uuid_of_the_childs_own_is_a_field_and_the_parents_gets_a_free_name(
    servers: LocalServers, flavour: Flavour, statements: list[str]
) -> None:
    shop = Shop(servers, flavour, *statements)

    proposed, said = shop.proposed()

    orders = proposed.columns["ORDERS"]
    assert (proposed.row_key.uuid, orders.uuid) == ("uuid", "customer_uuid")
    assert "uuid" in orders.fields_by_name
    assert any("uuid is not customers.uuid" in remark for remark in said)
    assert shop.errors(proposed) == []
    # What it says can be done: the company's own INSERT goes on, and carries the key.
    shop.install(proposed)
    shop.run("INSERT INTO customers (id) VALUES (900); INSERT INTO orders (id, customer_id) VALUES (900, 900)")
    assert shop.run("SELECT o.customer_uuid = c.uuid FROM orders o JOIN customers c ON c.id = 900 AND o.id = 900") == [
        (True,)
    ]


def test_control_the_name_of_the_parents_column_alone_breaks_every_insert(
    servers: LocalServers, flavour: Flavour
) -> None:
    """What a layout by the same name did, installed without a look at the rows; the refusal names the way out."""
    shop = Shop(servers, flavour, ROWS)
    shop.install(layout())

    with pytest.raises(psycopg2.Error) as refused:
        shop.run("INSERT INTO orders (id, customer_id) VALUES (901, 1)")

    assert "parent: {column: customer_id, uuid: …}" in str(refused.value.diag.message_hint)


def test_names_that_are_taken_in_the_child_are_passed_over(servers: LocalServers) -> None:
    taken = "ALTER TABLE orders ADD customer_uuid text, ADD customer_row_uuid int"
    shop = Shop(servers, "machine", ROWS, taken)

    proposed, _ = shop.proposed()

    assert proposed.columns["ORDERS"].uuid == "customer_row_uuid_2"
    assert shop.errors(proposed) == []


def test_a_column_that_carries_the_parents_key_is_taken(servers: LocalServers, flavour: Flavour) -> None:
    shop = Shop(servers, flavour, ROWS, CARRIED, NO_DEFAULT)

    proposed, _ = shop.proposed()

    assert proposed.columns["ORDERS"].uuid == "uuid"
    assert shop.errors(proposed) == []


def test_what_schema_apply_added_to_a_child_is_taken_again(servers: LocalServers) -> None:
    shop = Shop(servers, "machine", ROWS)
    first, _ = shop.proposed()
    shop.install(first)

    again, _ = shop.proposed()

    assert again.columns["ORDERS"].uuid == first.columns["ORDERS"].uuid == "customer_uuid"


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ([ROWS], "holds another UUID than the parent's customers.uuid in 400 of 400 rows looked at"),
        ([ROWS, NO_DEFAULT], "in 400 of 400 rows looked at"),
        ([ROWS, NO_DEFAULT, CARRIED, "UPDATE orders SET uuid = gen_random_uuid() WHERE id = 7"], "in 1 of 400 rows"),
        ([], "has a default, which is not the parent's customers.uuid"),
    ],
)
def test_a_column_of_another_uuid_is_an_error_that_names_the_remedy(
    servers: LocalServers, flavour: Flavour, statements: list[str], words: str
) -> None:
    shop = Shop(servers, flavour, *statements)

    (found,) = shop.errors(layout())

    assert found.startswith("orders.uuid: ")
    assert words in found
    assert (
        "write parent: {column: customer_id, uuid: customers_uuid} in columns.ORDERS and map uuid as a field" in found
    )
    assert shop.errors(layout(uuid="customers_uuid")) == []


def test_control_a_column_that_carries_the_key_is_no_error(servers: LocalServers, flavour: Flavour) -> None:
    shop = Shop(servers, flavour, ROWS, CARRIED, NO_DEFAULT)

    assert shop.errors(layout()) == []


def test_i12_one_wrong_row_among_many_is_found_when_all_are_looked_at(servers: LocalServers, flavour: Flavour) -> None:
    many = "INSERT INTO orders (id, customer_id) SELECT n, 1 FROM generate_series(1000, 30000) n"
    wrong = "UPDATE orders SET uuid = gen_random_uuid() WHERE id = 29999"
    shop = Shop(servers, flavour, ROWS, many, NO_DEFAULT, CARRIED, "VACUUM ANALYZE orders")
    with connected(shop.url, "test") as connection:
        assert list(check_all_row_keys(connection, layout())) == []
        shop.run(wrong)
        (found,) = check_all_row_keys(connection, layout())
        look = look_at_keys(connection, layout())[ORDERS]

    assert "in 1 rows" in str(found)
    assert (look.compared, look.different, look.is_all) == (29_401, 1, True)


def test_i12_of_a_table_of_many_rows_a_gate_compares_a_sample_and_says_so(
    servers: LocalServers, flavour: Flavour
) -> None:
    many = "INSERT INTO orders (id, customer_id) SELECT n, 1 FROM generate_series(1000, 100000) n"
    shop = Shop(servers, flavour, ROWS, many, "VACUUM ANALYZE orders")
    with connected(shop.url, "test") as connection:
        look = look_at_keys(connection, layout(), all_up_to=50_000)[ORDERS]

    assert not look.is_all
    assert look.different == look.compared
    assert 1_000 < look.compared <= 5_000


#: The first rows carry their parent's key, as an old job filled them; the many after them have one of their own.
GROWN = """
ALTER TABLE orders SET (autovacuum_enabled = false);
INSERT INTO customers (id, name) SELECT n, 'c' || n FROM generate_series(1, 40) n;
INSERT INTO orders (id, customer_id, uuid, total)
    SELECT n, c.id, c.uuid, n FROM generate_series(1, 6000) n JOIN customers c ON c.id = 1 + n % 40 ORDER BY n;
INSERT INTO orders (id, customer_id, total) SELECT n, 1 + n % 40, n FROM generate_series(6001, 60000) n;
"""


@pytest.mark.parametrize("analysed", ["", "ANALYZE orders;"])
def test_the_sample_of_a_table_that_was_never_analysed_or_has_grown_since_is_not_its_beginning(
    servers: LocalServers, flavour: Flavour, analysed: str
) -> None:
    """Its first 5,000 rows were compared, which are right."""
    first, second = GROWN.rstrip().rsplit("INSERT", 1)
    with connected(company_database(servers, flavour, SHOP + NO_DEFAULT), "test", search_path="public") as connection:
        for statement in (
            first,
            analysed,
            f"ALTER TABLE orders ALTER uuid SET DEFAULT gen_random_uuid(); INSERT{second}",
        ):
            if statement:
                rows(connection, statement)
        live = LiveCatalogue.read(connection, [CUSTOMERS, ORDERS]).tables
        column = KeyColumn(ORDERS, "uuid", "customer_id", RowKeySource(CUSTOMERS, "id", "uuid"))
        match = sample_keys(connection, column, live[ORDERS], live[CUSTOMERS])

    assert 0 < match.compared <= SAMPLE_ROWS
    assert match.different > match.compared // 2
