"""`Ledgers`: named counts and notes in the control database, added to by any number of processes.

Counts are kept by the hour, notes up to a number of them. What they are of is their users' business. A batch that was
sent again, because its answer was lost, counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.tables import ledger_count as count_table
from schemaless_core.control.tables import ledger_note as note_table
from schemaless_core.control.tables import ledger_writer as writer_table
from schemaless_core.failpoints import reach

#: Notes of one ledger that are kept, the newest.
NOTES_MAX = 1000
#: How long it is remembered which batch of a writer was the last; none is repeated later.
WRITER_DAYS = 7


class LedgerBatch(NamedTuple):
    """A writer and its batch's number, from 1. The writer sends each until it has arrived, then the next."""

    writer: str
    number: int


class Note(NamedTuple):
    """What a process noted, and when."""

    at: datetime
    body: dict[str, Json]


class Ledgers:
    """The ledgers of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control

    def add(
        self,
        ledger: str,
        counts: Mapping[str, int],
        hour: datetime,
        *,
        notes: Sequence[Mapping[str, Json]] = (),
        batch: LedgerBatch | None = None,
    ) -> None:
        """Add to the counts of an hour, and note, all or nothing.

        After a `ControlUnavailable` it may have happened: with a batch it may be repeated.
        """

        def work(connection: sa.Connection) -> None:
            if batch is not None and not _is_new(connection, batch):
                return
            _count(connection, ledger, counts, hour)
            for body in notes:
                _note(connection, ledger, body)
            reach("ledgers.added")

        try:
            make_change(self._control, work)
        except sa.exc.IntegrityError:  # the writer's first batch, sent again while the server was still at it
            make_change(self._control, work)

    def counts(self, ledger: str, since: datetime | None = None) -> dict[str, int]:
        """The sums, by name; `since` leaves out the hours before its own."""
        total = sa.func.sum(count_table.c.total)
        wanted = sa.select(count_table.c.name, total).where(count_table.c.ledger == ledger).group_by(count_table.c.name)
        if since is not None:
            wanted = wanted.where(count_table.c.hour >= hour_of(since))
        with self._control.begin() as connection:
            return {name: int(found) for name, found in connection.execute(wanted.order_by(count_table.c.name))}

    def hours(self, ledger: str, since: datetime | None = None) -> dict[datetime, dict[str, int]]:
        """The counts of each hour that has any, by name, the oldest first."""
        wanted = sa.select(count_table.c.hour, count_table.c.name, count_table.c.total)
        wanted = wanted.where(count_table.c.ledger == ledger).order_by(count_table.c.hour, count_table.c.name)
        if since is not None:
            wanted = wanted.where(count_table.c.hour >= hour_of(since))
        found: dict[datetime, dict[str, int]] = {}
        with self._control.begin() as connection:
            for hour, name, total in connection.execute(wanted):
                found.setdefault(_beginning(hour), {})[name] = int(total)
        return found

    def last_hours(self, ledger: str) -> dict[str, datetime]:
        """The last hour in which each name was counted."""
        last = sa.func.max(count_table.c.hour)
        wanted = sa.select(count_table.c.name, last).where(count_table.c.ledger == ledger).group_by(count_table.c.name)
        with self._control.begin() as connection:
            return {name: _beginning(hour) for name, hour in connection.execute(wanted.order_by(count_table.c.name))}

    def all_hours(self) -> Iterator[tuple[str, str, str, int]]:
        """Each count of each hour: ledger, name, hour and total."""
        columns = (count_table.c.ledger, count_table.c.name, count_table.c.hour)
        with self._control.begin() as connection:
            for ledger, name, hour, total in connection.execute(
                sa.select(*columns, count_table.c.total).order_by(*columns)
            ):
                yield ledger, name, hour, int(total)

    def note(self, ledger: str, body: Mapping[str, Json]) -> None:
        """Keep a note; the oldest goes when there are too many."""
        make_change(self._control, lambda connection: _note(connection, ledger, body))

    def notes(self, ledger: str, limit: int = 100) -> list[Note]:
        """The last ones, newest first."""
        wanted = sa.select(note_table.c.at, note_table.c.body).where(note_table.c.ledger == ledger)
        with self._control.begin() as connection:
            rows = connection.execute(wanted.order_by(note_table.c.id.desc()).limit(limit))
            return [Note(datetime.fromisoformat(at), json.loads(body)) for at, body in rows]


def hour_of(moment: datetime) -> str:
    """The hour of a moment, as it sorts."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H")


def _beginning(hour: str) -> datetime:
    return datetime.fromisoformat(f"{hour}:00:00+00:00")


def _count(connection: sa.Connection, ledger: str, counts: Mapping[str, int], hour: datetime) -> None:
    # In one order: two that add the same names wait for each other and never in a ring.
    rows = [
        {"ledger": ledger, "name": name, "hour": hour_of(hour), "total": counts[name]}
        for name in sorted(counts)
        if counts[name]
    ]
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        added = sqlite.insert(count_table).values(rows)
        total = count_table.c.total + added.excluded.total
        keys = [count_table.c.ledger, count_table.c.name, count_table.c.hour]
        connection.execute(added.on_conflict_do_update(index_elements=keys, set_={"total": total}))
    else:
        new = mysql.insert(count_table).values(rows)
        connection.execute(new.on_duplicate_key_update(total=count_table.c.total + new.inserted.total))


def _note(connection: sa.Connection, ledger: str, body: Mapping[str, Json]) -> None:
    row = {"ledger": ledger, "at": _moment(datetime.now(UTC)), "body": canonical_bytes(dict(body)).decode()}
    connection.execute(sa.insert(note_table).values(row))
    ids = sa.select(note_table.c.id).where(note_table.c.ledger == ledger)
    last = connection.execute(ids.order_by(note_table.c.id.desc()).limit(1).offset(NOTES_MAX)).scalar()
    if last is not None:
        connection.execute(sa.delete(note_table).where(note_table.c.ledger == ledger, note_table.c.id <= last))


def _is_new(connection: sa.Connection, batch: LedgerBatch) -> bool:
    """Whether a batch did not arrive before; from now on it did. A second sender waits for the writer's row."""
    now = datetime.now(UTC)
    if batch.number == 1:
        connection.execute(
            sa.delete(writer_table).where(writer_table.c.at < _moment(now - timedelta(days=WRITER_DAYS)))
        )
    known = sa.select(writer_table.c.batch).where(writer_table.c.writer == batch.writer).with_for_update()
    last = connection.execute(known).scalar()
    if last is not None and last >= batch.number:
        return False
    row = {"writer": batch.writer, "batch": batch.number, "at": _moment(now)}
    if last is None:
        connection.execute(sa.insert(writer_table).values(row))
    else:
        connection.execute(sa.update(writer_table).where(writer_table.c.writer == batch.writer).values(row))
    return True


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")
