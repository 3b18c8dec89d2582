"""Rows that go by their age alone: counts of ledgers, by their hour, and entries of the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby, takewhile
from operator import itemgetter

import sqlalchemy as sa

from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import hour_of
from schemaless_core.control.seals import prune_seals
from schemaless_core.control.tables import audit, ledger_count

PORTION_ROWS = 1_000

_AFTER = """\
(ledger > :ledger OR (ledger = :ledger AND (name > :name OR (name = :name AND hour > :hour))))"""


def count_portions(control: ControlDatabase, days: float, now: datetime) -> Iterator[int]:
    """Remove counts of hours that are older; the rows of each portion. The table is read once, in its own order."""
    before, after = hour_of(now - timedelta(days=days)), {"ledger": "", "name": "", "hour": ""}
    columns = (ledger_count.c.ledger, ledger_count.c.name, ledger_count.c.hour)
    old = sa.select(*columns).where(ledger_count.c.hour < before, sa.text(_AFTER))
    while True:
        with control.begin() as connection:
            rows = connection.execute(old.order_by(*columns).limit(PORTION_ROWS), after).all()
        if not rows:
            return
        # Hours of a name stand beside each other: a name is one range.
        ranges = [
            {"l": ledger, "n": name, "h": max(hour for _, _, hour in of)}
            for (ledger, name), of in groupby(rows, itemgetter(0, 1))
        ]
        is_in = (columns[0] == sa.bindparam("l")) & (columns[1] == sa.bindparam("n"))
        gone = sa.delete(ledger_count).where(is_in, columns[2] <= sa.bindparam("h"))
        make_change(control, lambda connection: connection.execute(gone, ranges))  # noqa: B023  # run at once
        after = dict(zip(after, rows[-1], strict=True))
        yield len(rows)


def audit_portions(control: ControlDatabase, days: float, now: datetime) -> Iterator[int]:
    """Remove entries that are older, from the first one on; the rows of each portion.

    No entry goes before one that stays, whatever the clocks of hosts say: what stays is a chain that begins later.
    """
    before = (now - timedelta(days=days)).astimezone(UTC).isoformat(timespec="microseconds")
    oldest = sa.select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(PORTION_ROWS)

    def work(connection: sa.Connection) -> int:
        old = [number for number, _at in takewhile(lambda entry: entry[1] < before, connection.execute(oldest))]
        if not old:
            return 0
        prune_seals(connection, old)
        return connection.execute(sa.delete(audit).where(audit.c.id.in_(old))).rowcount

    while removed := make_change(control, work):
        yield removed
