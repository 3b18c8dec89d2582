"""What the database itself says of capture: which layout, since when nothing is missed, and what broke it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.canonical import canonical_bytes
from tripstore.backends.postgres.capture.migrate import revision
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import rows

#: Digest and document of the layout in force.
IN_FORCE = """
SELECT l.digest, l.document, l.number FROM tripstore.authority a JOIN tripstore.layout l ON l.digest = a.layout
"""
DOCUMENT = "SELECT document FROM tripstore.layout WHERE digest = %s"
NUMBER = "SELECT number FROM tripstore.layout WHERE digest = %s"
REGISTER = """
INSERT INTO tripstore.layout (digest, document)
SELECT given.digest, given.document FROM (VALUES (%s, %s)) AS given (digest, document)
WHERE NOT EXISTS (SELECT FROM tripstore.layout l WHERE l.digest = given.digest) ON CONFLICT (digest) DO NOTHING
"""
STATE = "SELECT since, layout, broken FROM tripstore.capture"
BEGIN_AT = """
UPDATE tripstore.capture SET since = pg_catalog.clock_timestamp(), layout = %s, broken = NULL
WHERE since IS NULL OR layout IS DISTINCT FROM %s
"""
GAP = """
UPDATE tripstore.capture SET since = NULL, broken = pg_catalog.concat_ws('; ', broken, %s)
WHERE since IS NOT NULL OR broken IS NULL OR pg_catalog.strpos(broken, %s) = 0
"""


@dataclass(frozen=True, slots=True)
class CaptureState:
    since: datetime | None  #: Nothing that was committed later is missed; None: that is not known.
    layout: int | None
    broken: str | None


def read_state(connection: Connection) -> CaptureState:
    found = rows(connection, STATE) if revision(connection) else []
    return CaptureState(*found[0]) if found else CaptureState(None, None, None)


def note_gap(connection: Connection, reason: str) -> None:
    """Changes may have been missed: a backfill is needed, and none starts before `schema apply` mended capture."""
    rows(connection, GAP, (reason, reason))


def begin(connection: Connection, number: int) -> None:
    """All triggers are in place. A backfill whose snapshot is younger misses nothing."""
    rows(connection, BEGIN_AT, (number, number))


def find_number(connection: Connection, layout: Layout) -> int | None:
    """The number that changes by this layout carry; None: there are none yet."""
    found = rows(connection, NUMBER, (layout.digest,)) if revision(connection) else []
    return int(found[0][0]) if found else None


def has_begun(connection: Connection, layout: Layout) -> bool:
    """Whether capture by this layout stands, as far as was noted."""
    state, number = read_state(connection), find_number(connection, layout)
    return state.since is not None and state.layout == number


def document_of(ask: Callable[[str, tuple[str]], Sequence[Sequence[Any]]], digest: str) -> str:
    """The document of a layout, which was registered before it was put in force."""
    return str(ask(DOCUMENT, (digest,))[0][0])


def register(connection: Connection, layout: Layout) -> int:
    """Its number, a new one when this layout was never installed before."""
    rows(connection, REGISTER, (layout.digest, canonical_bytes(layout.to_document()).decode()))
    number = find_number(connection, layout)
    assert number is not None
    return number
