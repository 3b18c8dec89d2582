"""Row security on a mapped table: whether it holds for capture's functions, or for the role that looks."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.tables import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Roles that meet the policies of a table, among the one that looks and the owners of capture's functions.
_HIDDEN_FROM = f"""
SELECT r.rolname::text FROM pg_catalog.pg_class c, pg_catalog.pg_roles r
WHERE c.oid = %s AND c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
AND (c.relforcerowsecurity OR NOT pg_catalog.pg_has_role(r.oid, c.relowner, 'USAGE'))
AND (r.rolname = current_user OR EXISTS (SELECT FROM pg_catalog.pg_proc p
    WHERE p.proowner = r.oid AND p.prosecdef AND p.pronamespace = pg_catalog.to_regnamespace('{SCHEMA}')))
ORDER BY 1"""


def row_security_complaints(connection: Connection, shape: Shape) -> Iterator[Complaint]:
    """What is hidden from us is refused by name wherever it is read; the company's deletions may be refused with it."""
    for (role,) in rows(connection, _HIDDEN_FROM, (shape.oid,)):
        yield error(
            str(shape.table),
            f"has row security that holds for {role}, of legacy.postgres or capture",
            f"ALTER ROLE {role} BYPASSRLS. Until then tripstore's reads of it are refused.",
        )
