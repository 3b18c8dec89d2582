"""Whatever a company calls its schemas, tables and columns: Postgres gets them as names, or the layout is refused.

The whole way is gone with each: capture is installed, rows of services are captured and mirrored, copied and compared,
and written through the facade. A canary, a table of another name, lies beside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from psycopg2 import sql

from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration
from tests.layouts import company_database
from tests.property.names import WORDS, hostile
from tests.scale import scaled
from tripstore.backends.postgres.layout.reading_names import is_supported
from tripstore.local.servers import LocalServers

NAME_BYTES_MAX = 63
PLACES = ("schema", "table", "child", "id", "uuid", "version", "extra", "field", "parent", "number")
TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.{table} ({id} bigserial PRIMARY KEY, {field} text NOT NULL);
CREATE TABLE {schema}.{child} (
    {parent} bigint NOT NULL REFERENCES {schema}.{table} ({id}) ON DELETE CASCADE,
    {number} int NOT NULL,
    {field} text NOT NULL,
    PRIMARY KEY ({parent}, {number})
);
CREATE TABLE public.canary (id int PRIMARY KEY);
INSERT INTO public.canary VALUES (1);
"""
ADD = """
WITH added AS (INSERT INTO {schema}.{table} ({field}) VALUES (%(value)s) RETURNING {id})
INSERT INTO {schema}.{child} ({parent}, {number}, {field}) SELECT {id}, 1, %(value)s FROM added
"""
LISTED = """
SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> ALL ('{pg_catalog,information_schema,tripstore}')
"""
VALUE = 'it\'s "odd" `%s` \\ $1'
SEEN: Counter[str] = Counter()
_NUMBERS = count(1)

#: What Postgres takes as a name at all, and keeps as it is.
NAMES = st.one_of(hostile, st.sampled_from(WORDS)).filter(
    lambda name: (
        0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX
        and "\0" not in name
        and not any("\ud800" <= each <= "\udfff" for each in name)
        and not name.startswith("pg_")
    )
)
NAMED = st.dictionaries(st.sampled_from(PLACES), NAMES, min_size=1, max_size=4)


def is_taken(names: Mapping[str, str]) -> bool:
    """Whether a layout may have them."""
    return all(map(is_supported, names.values()))


def chosen(names: Mapping[str, str]) -> dict[str, str]:
    return {place: names.get(place, f"a_{place}") for place in PLACES}


def written(name: str) -> str:
    """A part of a table's name as a layout has it."""
    return f'"{name}"'


def layout(names: Mapping[str, str]) -> dict[str, Any]:
    schema = written(names["schema"])
    parent, child = (f"{schema}.{written(names[place])}" for place in ("table", "child"))
    fields = {"said": {"column": names["field"], "type": "string"}}
    return {
        "datastore": "trips",
        "row_key": {"table": parent, "id": names["id"], "uuid": names["uuid"]},
        "columns": {
            "BASE": {
                "table": parent,
                "ref_key": {"version": names["version"]},
                "fields": fields,
                "extra": names["extra"],
            },
            "CHILD": {
                "table": child,
                "parent": {"column": names["parent"]},
                "ref_key": {"column": names["number"]},
                "fields": fields,
            },
        },
    }


class Named(Migration):
    """A company whose tables have these names; SQL of its services quotes them as the driver does."""

    def __init__(self, servers: LocalServers, folder: Path, names: Mapping[str, str]) -> None:
        folder.mkdir()
        super().__init__(Shell(folder), company_database(servers, "machine", ""))
        self._names = {place: sql.Identifier(name) for place, name in names.items()}
        self.execute(TABLES)
        self.configure()
        (folder / "layout.yaml").write_text(yaml.safe_dump(layout(names)))

    def execute(self, text: str) -> None:
        with self.connection() as connection, connection.cursor() as cursor:
            # The driver's own %: a name may have one.
            statement = sql.SQL(text).format(**self._names).as_string(connection)
            cursor.execute(statement.replace("%(value)s", sql.Literal(VALUE).as_string(connection)))

    def work(self, names: Mapping[str, str]) -> None:
        """All that reads and writes these tables."""
        self.run("schema", "apply")
        self.execute(ADD)
        self.run("phase", "set", "dualwrite")
        self.execute(ADD)
        self.run("mirror", "drain")
        self.run("backfill", "start")
        self.run("diff", "start", "--no-indexes")
        row = uuid4()
        with self.store() as store:
            for at in range(2):
                store.put_cell(row, "BASE", 1 + at, {"said": f"{VALUE}{at}", "more": [VALUE]})
            store.put_cell(row, "CHILD", 1, {"said": VALUE})
            latest = store.get_cell_latest(row, "BASE")
            assert latest is not None
            assert latest.body == {"said": f"{VALUE}1", "more": [VALUE]}
            assert store.get_cell(row, "CHILD", 1) is not None
        self.run("mirror", "drain")
        self.run("diff", "start", "--no-indexes")
        self.run("doctor", "--quick")


def tried(servers: LocalServers, folder: Path, given: Mapping[str, str]) -> str:
    """What became of a company of such names."""
    names = chosen(given)
    made = Named(servers, folder / f"named{next(_NUMBERS)}", names)
    before = set(made.ask(LISTED))
    if is_taken(given):
        made.work(names)
        became = "worked"
    else:
        refused = made.run("schema", "apply", code=2).complaint
        assert "layout.yaml" in refused
        became = "refused"
    assert set(made.ask(LISTED)) == before
    assert made.ask("SELECT id FROM public.canary") == [(1,)]
    return became


def test_a_companys_name_is_refused_or_reaches_postgres_as_a_name(
    servers: LocalServers, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    @settings(max_examples=scaled(60), suppress_health_check=list(HealthCheck), database=None)
    @given(NAMED)
    @example({"table": "x'; DROP TABLE canary; --", "schema": "$$; DROP TABLE canary; $$", "field": "{name}"})
    @example({"uuid": "x`; --", "version": "a:b \\", "extra": "select", "id": "İ", "parent": "a.b", "number": "$1"})
    @example({"field": "100%"})
    @example({"child": 'x"y'})
    def names(given: dict[str, str]) -> None:
        whole = chosen(given)
        columns = [name for place, name in whole.items() if place not in ("schema", "table", "child")]
        assume(len(set(columns)) == len(columns) and whole["table"] != whole["child"])
        assume("canary" not in whole.values() and "tripstore" not in whole.values())
        SEEN[tried(servers, tmp_path, given)] += 1

    SEEN.clear()
    names()
    record_property("answers", str(SEEN))
    print(f"figures: {SEEN}")
    assert set(SEEN) == {"worked", "refused"}


def test_control_a_name_that_is_not_quoted_is_found(
    servers: LocalServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tripstore.backends.postgres.layout.layout.quoted", lambda name: name)

    with pytest.raises(AssertionError):
        tried(servers, tmp_path, {"table": "x y"})
