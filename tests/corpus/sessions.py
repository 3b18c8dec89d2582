"""Sessions of company services whose settings would change what is captured, if capture followed them.

No setting here changes what the corpus' expressions mean: the values are the same, only how they would be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

#: What stands in the way of names that somebody forgot to qualify.
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
