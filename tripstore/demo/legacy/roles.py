"""The roles that services act as. They may use the company's tables, each its own, and nothing else."""

from __future__ import annotations

import psycopg2
from psycopg2 import sql

from tripstore.demo.legacy.urls import driver_url

#: What each role may do; granted before there was a second schema.
GRANTS = {
    "svc_billing": (
        "SELECT ON public.trips, public.users, public.cities",
        "UPDATE (tip_amount, fraud_score) ON public.trips",
        "SELECT, INSERT, UPDATE (exported_at) ON public.billing_attempts",
    ),
    "svc_support": (
        "SELECT ON public.trips, public.users",
        "SELECT, INSERT, UPDATE, DELETE ON public.trip_notes",
        "USAGE ON SEQUENCE public.trip_notes_id_seq",
    ),
}

#: Roles belong to the server, not to a database: two databases may be made ready at once, or one after the other.
CREATE_ROLE = """
DO $$ BEGIN
  CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""


def create_roles(url: str) -> None:
    """Create the roles where they are missing, and give them their rights in this database. Safe to repeat."""
    connection = psycopg2.connect(driver_url(url))
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            for role, grants in GRANTS.items():
                name = sql.Identifier(role)
                cursor.execute(sql.SQL(CREATE_ROLE).format(role=name))
                for grant in grants:
                    cursor.execute(sql.SQL("GRANT {grant} TO {role}").format(grant=sql.SQL(grant), role=name))
    finally:
        connection.close()
