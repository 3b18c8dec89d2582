"""What services do to rows of the company: notes, facts, and puts in the name of the facade."""

from __future__ import annotations

from uuid import UUID

from tests.legacy import (
    Legacy,
)
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.backends.postgres.wire.connections import rows


def note(n: int, version: int) -> int:
    return n << VERSION_BITS | version


def put_as(legacy: Legacy, origin: str, *statements: str) -> None:
    """One transaction of the facade's or the reverse mirror's."""
    connection = legacy.connect()
    try:
        rows(connection, "SELECT set_config('tripstore.origin', %s, true)", (origin,))
        for statement in statements:
            rows(connection, statement)
        connection.commit()
    finally:
        connection.close()


def facts(legacy: Legacy, *numbers: int) -> tuple[int, UUID]:
    id_, key = legacy.trip()
    for n in numbers:
        legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (%s, %s, 'ok')", id_, n)
    return id_, key
