"""Whatever names stand in a configuration, MySQL and MariaDB get them as names, or they are refused before.

A canary lies beside: a database of another owner. Each configuration that is taken works, and leaves databases of its
own names alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from schemaless_core import Datastore
from schemaless_core.errors import SchemalessError
from tests.property.names import WORDS, hostile
from tests.scale import scaled
from tests.stores import PATIENT, SERVER_ENGINES, ServerEngine
from tripstore.local.binlog import BinlogServer
from tripstore.local.servers import LocalServers
from tripstore.migration.rights.mysql import account_of

ROW = UUID(int=7)
SEEN: Counter[str] = Counter()
#: Names that a configuration may give, by their places.
PLACES = ("datastore", "cluster", "index", "shard field", "field", "column", "control")
RULES = {
    "datastore": r"[a-z][a-z0-9_]{0,39}",
    "cluster": r"[A-Za-z][A-Za-z0-9_-]{0,31}",
    "index": r"[a-z_][a-z0-9_]{0,47}",
    "shard field": r"[a-z_][a-z0-9_]{0,47}",
    "field": r"[a-z_][a-z0-9_]{0,47}",
    "column": r"[A-Za-z' %`é]{1,64}",
    "control": r"[A-Za-z0-9_$-]{1,56}",
}
TAKEN = {place: st.from_regex(rule, fullmatch=True) | st.sampled_from(WORDS) for place, rule in RULES.items()}
NAMED = st.sampled_from(PLACES).flatmap(lambda place: st.tuples(st.just(place), hostile | TAKEN[place]))


@pytest.fixture(scope="module", params=SERVER_ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    engine: ServerEngine = request.param
    with LocalServers() as servers:
        made = servers.cluster(engine, "named", replicas=0).primary
        made.query("CREATE DATABASE canary")
        made.query("CREATE TABLE canary.canary (id INT PRIMARY KEY)")
        made.query("INSERT INTO canary.canary VALUES (1)")
        made.query("CREATE USER canary@localhost")
        yield made


def databases(server: BinlogServer) -> set[str]:
    return {str(row["Database"]) for row in server.query("SHOW DATABASES")}


def sings(server: BinlogServer) -> bool:
    """The canary lives."""
    rows = server.query("SELECT id FROM canary.canary")
    users = server.query("SELECT user FROM mysql.user WHERE user = 'canary'")
    return [row["id"] for row in rows] == [1] and len(users) == 1


def named(server: BinlogServer, names: dict[str, str]) -> dict[str, Any]:
    """A configuration in which these places have these names."""
    name = {place: names.get(place, f"a_{n}") for n, place in enumerate(PLACES)}
    fields = [{"field": name["shard field"], "type": "string"}, {"field": name["field"], "type": "int"}]
    return {
        "datastore": name["datastore"],
        "shards": 1,
        "clusters": {name["cluster"]: {"primary": server.url}},
        "control": f"{server.url}/{name['control']}",
        "deadlines": PATIENT,
        "indexes": [
            {
                "table": name["index"],
                "datastore": name["datastore"],
                "column_defs": [{"column_key": name["column"], "fields": fields}],
            }
        ],
    }


def work(document: dict[str, Any]) -> None:
    """What a service and an operator do with all of these names."""
    (index,) = document["indexes"]
    (definition,) = index["column_defs"]
    shard_field, field = (each["field"] for each in definition["fields"])
    with Datastore.open(document) as store:
        store.create_schema()
        store.put_cell(ROW, definition["column_key"], 1, {shard_field: "x'`\"%s", field: 2})
        (entry,) = store.query_index(index["table"], "x'`\"%s", consistency="verified").entries
        assert (entry.row_key, entry.fields[field]) == (ROW, 2)
        assert store.get_cell_latest(ROW, definition["column_key"]) is not None


def tried(server: BinlogServer, names: dict[str, str]) -> str:
    """What became of a configuration: it worked, or by which error it was refused."""
    document = named(server, names)
    before = databases(server)
    try:
        work(document)
        became = "worked"
    except SchemalessError as refused:  # of any kind: a server that complains of a statement has been given it
        became = type(refused).__name__
    own = databases(server) - before
    allowed = {str(document["control"]).rpartition("/")[2]}
    strangers = {each for each in own if each not in allowed and not each.startswith(f"{document['datastore']}_")}
    for each in own:
        server.query("DROP DATABASE `" + each.replace("`", "``") + "`")
    assert strangers == set()
    assert sings(server)
    return became


def fuzz(server: BinlogServer, count: int) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(NAMED)
    @example(("control", "x`; DROP DATABASE canary; --"))
    @example(("control", "a:b"))
    @example(("control", "a" * 64))
    @example(("field", "select"))
    @example(("index", "a" * 48))
    @example(("datastore", "a" * 40))
    def names(chosen: tuple[str, str]) -> None:
        place, name = chosen
        assume(place != "datastore" or not name.startswith(("canary", "mysql", "sys")))
        assume(place != "control" or name.lower() not in ("canary", "mysql", "sys"))
        SEEN[tried(server, {place: name})] += 1

    names()


def test_a_name_of_a_configuration_is_refused_or_reaches_the_server_as_a_name(
    server: BinlogServer, record_property: Callable[[str, object], None]
) -> None:
    SEEN.clear()
    fuzz(server, scaled(200))
    record_property("answers", str(SEEN))
    print(f"figures: {SEEN}")

    assert set(SEEN) == {"worked", "InvalidConfig"}


def test_control_a_name_that_no_check_has_seen_is_found(server: BinlogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemaless_core.config.check_database", lambda url: None)

    for name in ("x`; DROP DATABASE canary; --", "a`b"):
        assert tried(server, {"control": name}) not in ("worked", "InvalidConfig")


#: As MySQL limits them: no space at an end, no NUL, and of Unicode the first plane.
LOGINS = hostile.filter(
    lambda name: (
        len(name) <= 32
        and name == name.strip()
        and "\0" not in name
        and not any("\ud800" <= each <= "\udfff" or each > "\uffff" for each in name)
    )
)


def test_a_grant_is_for_the_login_that_was_named(server: BinlogServer) -> None:
    """`schema grants` prints statements that an operator pastes."""

    @settings(max_examples=scaled(200), suppress_health_check=list(HealthCheck), database=None)
    @given(LOGINS)
    @example("x'@'%' IDENTIFIED BY 'y'; --")
    @example("x\\'@localhost; --")
    @example("\\")
    def names(login: str) -> None:
        account = account_of(login, "localhost")
        server.query(f"CREATE USER {account}")
        try:
            server.query(f"GRANT SELECT ON canary.* TO {account}")
            found = server.query("SELECT user, host FROM mysql.db WHERE db = 'canary'")
            assert [(str(row["user"]), str(row["host"])) for row in found] == [(login, "localhost")]
        finally:
            server.query(f"DROP USER {account}")
        assert sings(server)

    names()
