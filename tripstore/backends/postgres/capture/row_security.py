"""Row security on a mapped table that holds for the owner of capture's functions. For the role that looks: `layout`."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Owners of capture's functions that the policies of a table hold for, but for the role that looks.
_HIDDEN_FROM = f"""
SELECT r.rolname::text FROM pg_catalog.pg_class c, pg_catalog.pg_roles r
WHERE c.oid = %s AND c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
AND (c.relforcerowsecurity OR NOT pg_catalog.pg_has_role(r.oid, c.relowner, 'USAGE'))
AND r.rolname <> current_user AND EXISTS (SELECT FROM pg_catalog.pg_proc p
    WHERE p.proowner = r.oid AND p.prosecdef AND p.pronamespace = pg_catalog.to_regnamespace('{SCHEMA}'))
ORDER BY 1"""


def row_security_complaints(connection: Connection, shape: Shape) -> Iterator[Complaint]:
    """What is hidden from us is refused by name wherever it is read; the company's deletions may be refused with it."""
    for (role,) in rows(connection, _HIDDEN_FROM, (shape.oid,)):
        yield error(
            str(shape.table),
            f"has row-level security that holds for {role}, which owns capture's functions",
            f"ALTER ROLE {role} BYPASSRLS. Until then Postgres may refuse the company's deletions.",
        )
