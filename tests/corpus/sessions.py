"""Sessions of company services, and roles, whose settings would change what is captured, if capture followed them.

No setting of a session changes what the corpus' expressions mean: the values are the same, only how they would be
written. Those of roles may: a store or mirror that connects as one says itself what its texts mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.local.postgres import PostgresServer

#: What stands in the way of names that our SQL forgot to qualify.
HOSTILE_SCHEMA = """
CREATE SCHEMA hostile;
CREATE DOMAIN hostile.text AS pg_catalog.varchar(1);
CREATE FUNCTION hostile.row_to_json(anyelement) RETURNS pg_catalog.json LANGUAGE sql
    AS $$ SELECT '{}'::pg_catalog.json $$;
CREATE FUNCTION hostile.textcat(pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql
    AS $$ SELECT ''::pg_catalog.text $$;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
"""

HOSTILE: Mapping[str, Mapping[str, str]] = {
    "kolkata": {
        "TimeZone": "Asia/Kolkata",
        "DateStyle": "SQL, DMY",
        "IntervalStyle": "iso_8601",
        "extra_float_digits": "0",
        "bytea_output": "escape",
        "array_nulls": "on",
    },
    "latin1": {
        "client_encoding": "LATIN1",
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "search_path": "hostile, public, pg_catalog",
        "TimeZone": "America/St_Johns",
        "extra_float_digits": "-15",
    },
    "german": {
        "client_encoding": "SQL_ASCII",
        "DateStyle": "German, DMY",
        "IntervalStyle": "sql_standard",
        "TimeZone": "<+0530>-05:30",
        "extra_float_digits": "3",
        "bytea_output": "escape",
        "xmloption": "document",
        "default_transaction_isolation": "serializable",
        "synchronous_commit": "off",
    },
}

#: What roles have beside the settings of the session of their name, or instead of them.
OF_ROLES: Mapping[str, Mapping[str, str]] = {
    "kolkata": {"default_transaction_isolation": "repeatable read", "array_nulls": "off"},
    "latin1": {"default_transaction_read_only": "on"},
    "german": {"plan_cache_mode": "force_custom_plan"},
}


def create_roles(server: PostgresServer) -> dict[str, str]:
    """A role for each session, with its settings and the server's password, by the session's name."""
    roles = {name: f"corpus_{name}" for name in HOSTILE}
    for name, role in roles.items():
        if server.query("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
            continue
        statements = [f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{server.password}'"]
        for setting, value in {**HOSTILE[name], **OF_ROLES[name]}.items():
            shown = value if setting == "search_path" else f"'{value}'"
            statements.append(f"ALTER ROLE {role} SET {setting} = {shown}")
        server.query("; ".join(statements))
    return roles


@contextmanager
def hostile_session(url: str, name: str) -> Iterator[Connection]:
    """A connection with settings of its own; autocommit."""
    connection = psycopg2.connect(url, application_name=f"corpus {name}")
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for setting, value in HOSTILE[name].items():
                if setting == "client_encoding":
                    connection.set_client_encoding(value)
                else:
                    cursor.execute("SELECT pg_catalog.set_config(%s, %s, false)", (setting, value))
        yield connection
    finally:
        connection.close()
