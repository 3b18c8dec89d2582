"""Whether a function of ours is what this version makes of it: its text, its settings, and the role it runs as."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.functions.former import records_alike
from tripstore.backends.postgres.capture.functions.function import Function
from tripstore.backends.postgres.layout.complaints import Complaint, error, harmless, note
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

APPLY = "Run `tripstore schema apply`."
APPLY_AND_COPY = "Run `tripstore schema apply`, then a backfill."

FUNCTION = """
SELECT p.prosrc, p.prosecdef, COALESCE(p.proconfig, '{}'), pg_catalog.obj_description(p.oid, 'pg_proc')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
WHERE s.nspname = %s AND p.proname = %s AND pg_catalog.pg_get_function_identity_arguments(p.oid) = %s
"""


def function_complaints(
    connection: Connection, where: str, function: Function, comment: str | None
) -> Iterator[Complaint]:
    """`comment`: what it says of the table that it was made for; None: it is of none, and records no row."""
    found = rows(connection, FUNCTION, (SCHEMA, function.name, function.arguments))
    if not found and function.is_later:
        yield note(where, f"function {function.name} is not there yet: what it captures is refused", APPLY)
        return
    if not found:
        yield _wrong(where, f"function {function.name} is missing", comment)
        return
    body, definer, config, said = found[0]
    settings = {name.lower(): value.replace('"', "") for name, value in (each.split("=", 1) for each in config)}
    wanted = {name.lower(): value for name, value in function.settings.items()}
    is_ours = (body, settings) == (function.body, wanted)
    if definer != function.as_owner or not (is_ours or records_alike(function, body, settings)):
        yield _wrong(where, f"function {function.name} is not what this layout and version make of it", comment)
    elif comment is not None and said != comment:
        yield error(where, "it is another table than the one that capture was installed on", APPLY_AND_COPY)
    elif not is_ours:
        yield note(where, f"function {function.name} is of an earlier version, and records the same", APPLY)


def _wrong(where: str, reason: str, comment: str | None) -> Complaint:
    return harmless(where, reason, APPLY) if comment is None else error(where, reason, APPLY_AND_COPY)
