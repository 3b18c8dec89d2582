"""What share of the tables of three public schemas can be taken: docs/reference/limits.md has these figures."""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from pathlib import Path

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.layouts import FLAVOURS, company_database
from tests.public_keys import SCHEMAS, pointers, statements
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.proposals.fit import fitted
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

LIMITS = Path(__file__).parents[2] / "docs/reference/limits.md"


class Taken(StrEnum):
    """When a table can be taken, as rows of its own or as child rows of a table that it points to."""

    AT_ONCE = "at once"
    AFTER = "after the statements that `init` prints"
    NOT = "not"


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.mark.parametrize("schema", list(SCHEMAS))
def test_the_share_of_tables_that_can_be_taken_is_that_of_the_docs(
    servers: LocalServers, flavour: Flavour, schema: str
) -> None:
    found = {table: [[table], *([parent, table] for parent in parents)] for table, parents in pointers(schema).items()}

    _compare(schema, look(servers, flavour, schema, found), "")


@pytest.mark.parametrize("schema", list(SCHEMAS))
def test_the_share_of_tables_that_can_be_child_rows_is_that_of_the_docs(
    servers: LocalServers, flavour: Flavour, schema: str
) -> None:
    found = {table: [[parent, table] for parent in parents] for table, parents in pointers(schema).items() if parents}

    _compare(schema, look(servers, flavour, schema, found), ", as child rows")


def _compare(schema: str, taken: dict[str, Taken], kind: str) -> None:
    counted = Counter(taken.values())
    line = f"| {schema}{kind} | {len(taken)} | {' | '.join(str(counted[each]) for each in Taken)} |"
    docs, lacking = LIMITS.read_text(), [name for name, each in taken.items() if each is Taken.NOT]
    assert line in docs, f"{line}; not: {lacking}"
    assert [name for name in lacking if f"`{name}`" not in docs] == [], "what cannot be taken is named"


def look(servers: LocalServers, flavour: Flavour, schema: str, ways: dict[str, list[list[str]]]) -> dict[str, Taken]:
    """What can be taken, by any of its ways: tables of one proposal, the one in question last."""
    url = company_database(servers, flavour, "")
    with connected(url, "test", search_path="public") as connection:
        for statement in statements(schema):
            rows(connection, statement)
    with connected(url, "test") as connection:
        return {table: _taken(connection, each) for table, each in ways.items()}


def _taken(connection: Connection, ways: list[list[str]]) -> Taken:
    if any(_lacking(connection, way) is None for way in ways):
        return Taken.AT_ONCE
    # As child rows of another table if that can be. The statements of one way may have made the next one possible.
    for way in reversed(ways):
        for statement in _lacking(connection, way) or []:
            rows(connection, statement)
        if _lacking(connection, way) is None:
            return Taken.AFTER
    return Taken.NOT


def _lacking(connection: Connection, tables: list[str]) -> list[str] | None:
    """The statements that are said to be missing; None: it is proposed, and `schema plan` has no error."""
    try:
        names = [TableName("public", name) for name in tables]
        proposal, errors = fitted(connection, propose(connection, names, "company"))
    except InvalidLayout as refused:
        return re.findall(r"ALTER TABLE [^;]*", refused.hint or "")
    (column,) = [column for column in proposal.columns if column.table.name == tables[-1]]
    if column.ref_key is not None and not errors and proposal.table.name == tables[0]:
        return None
    return list(column.statements)
