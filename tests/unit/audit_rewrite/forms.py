"""A function of a service with some lines of its own, rewritten."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

from tests.rewritten_service import ASSUMED, rewrite_service, write_service
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteAssumption

HEAD = """
from sqlalchemy import and_, func, select, text, update
from .db import cursor_of_unit, factory, other_unit
from .models import Note, Trip
from . import elsewhere

TIP = "UPDATE trips SET fare = %s WHERE id = %s"


def present(found):
    if found is None:
        raise LookupError
    return found


def changing(found):
    found.status = "x"
    return found


def use(session, cursor, trip_id, n, at, value):
"""


def rewritten(folder: Path, code: str, assume: tuple[RewriteAssumption, ...] = ASSUMED) -> CodeRewrite:
    return rewrite_service(
        write_service(folder, dedent(HEAD) + indent(dedent(code).strip("\n"), "    ") + "\n"), assume
    )


def added(found: CodeRewrite) -> str:
    """The function as it is now."""
    [file] = found.changed
    return dedent(file.after.partition("def use(session, cursor, trip_id, n, at, value):\n")[2]).strip()


def latest(name: str = "trip_id") -> str:
    return f'rewritten.latest_of_id(store, {name}, "BASE")'


FARE = "cursor.execute('SELECT id, fare FROM trips WHERE id = %s', (n,))"
FETCHED = f'rewritten.tuple_of({latest("n")}, lambda row: (row.number, rewritten.as_decimal(row.get("fare")),))'
