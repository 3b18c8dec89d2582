"""`Queue`: changes that the other store does not have yet. They are claimed, rendered, marked as delivered, or parked.

A claim is a lease in the row itself, so that a relay that is killed blocks no other for long. To deliver a change
twice does no harm, and the order does not matter. A parked change stays where it is: history reads it there, claims
pass it by, and a count of the queue includes it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from schemaless_core.cell.cell import Cell, CellKey
from tripstore.backends.postgres.capture.timeline import TIMELINE, is_accepted
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.rows import Found, text
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.errors import InvalidLayout, PostgresNotAccepted, UnreadableRow
from tripstore.backends.postgres.handover.walk import QueueWalk
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY, Ids, legacy_id_body
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared, Row
from tripstore.errors import StaleLayout

#: What is the same in queue and log.
COLUMNS = "row_key, column_name, ref_key, id, xid, at, layout, row, previous, origin, application, role, epoch"
#: One that fails again and again is claimed less and less often, or it would keep the others behind it waiting.
LEASE_DOUBLINGS = 5

#: Why a change is parked: another body is there, no body can hold it, the store never takes it.
Kind = Literal["conflict", "unreadable", "refused"]
#: Its layout is unknown, or its row is no body.
_UNREADABLE = (UnreadableRow, InvalidLayout)

# A plan is kept for a while, and made for the queue as it was then: an empty one is read from end to end at no cost. So
# neither statement may scan it, however little is in it: what was delivered is there until a vacuum. Rows that were
# found are named by their place, since keys might be joined by reading everything.
_NO_SCAN = "SET LOCAL enable_seqscan = off; "

# Free changes first, the oldest first; one's own, which could not be delivered, with what room is left. A relay
# waits for no row that another one is claiming or marking, and one that changed since our snapshot is left alone. The
# epoch is of the same snapshot: no younger than a change, and so is the layout in force. A relay that goes by another
# one claims nothing. Nothing is sorted, as the planner might for a limit that it
# does not know: the index has the order, and is read no further than is wanted.
#
# This commit is durable before anything is sent, and with it all that was committed before, asynchronously too: the
# WAL is flushed up to this commit, and what we saw had written its own there before we could see it.
_IS_IN_FORCE = f"(SELECT coalesce(a.layout = $6, true) AND {is_accepted('a.timeline')} FROM tripstore.authority AS a)"
_CLAIM_BEGINS = f"{_NO_SCAN}SET LOCAL enable_sort = off; "
_CLAIM = f"""\
WITH free AS (
    SELECT q.ctid AS place FROM tripstore.queue AS q
    WHERE q.parked IS NULL AND q.id >= $1 AND {{is_free}} AND {_IS_IN_FORCE}
    ORDER BY q.id LIMIT $2 FOR UPDATE SKIP LOCKED
), own AS (
    SELECT q.ctid AS place FROM tripstore.queue AS q
    WHERE $3 AND q.parked IS NULL AND q.claimed_by = $4 AND NOT ({{is_free}}) AND {_IS_IN_FORCE}
    ORDER BY q.id LIMIT $2 - (SELECT count(*) FROM free) FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE tripstore.queue AS q SET claimed_by = $4, attempts = q.attempts + 1,
        claimed_until = now() + $5 * interval '1 s' * (1 << least(q.attempts, {LEASE_DOUBLINGS}))
    WHERE q.ctid = ANY (ARRAY(SELECT place FROM free UNION ALL SELECT place FROM own))
    RETURNING q.row_key, q.column_name, q.ref_key, q.id, q.at, q.layout, q.row, q.previous
)
SELECT a.epoch, (SELECT last_value FROM tripstore.queue_id_seq), c.id, a.layout,
    a.backend, a.timeline, {TIMELINE},
    c.row_key::text, c.column_name, c.ref_key, c.layout, c.row, c.at, c.previous
FROM tripstore.authority AS a LEFT JOIN claimed AS c ON true ORDER BY c.id"""
_CLAIM_TYPES, _CLAIM_ARGUMENTS = "bigint, bigint, boolean, text, float8, text", "%s, %s, %s, %s, %s, %s"
_IS_FREE = "(q.claimed_until IS NULL OR q.claimed_until < now())"

_IS_FIRST = "(q.previous IS NULL AND q.layout IS NOT NULL AND q.column_name = {parent})"
# By place, which is one order for all: two relays that mark the same never wait for each other. Each key is looked up
# by itself. Not durable: what a crash takes back is delivered once more. A Postgres that was promoted may give the key
# of a change that it has lost to another: a claim of before its acceptance marks nothing of what came after it.
_MARK_BEGINS = f"{_NO_SCAN}SET LOCAL synchronous_commit = off; "
_MARK = f"""\
WITH gone AS (
    DELETE FROM tripstore.queue AS q WHERE q.ctid = ANY (ARRAY(
        SELECT found.place
        FROM unnest($1, $2, $3, $4) AS g (row_key, column_name, ref_key, is_whole)
        CROSS JOIN LATERAL (
            SELECT q.ctid AS place FROM tripstore.queue AS q
            WHERE (q.row_key, q.column_name, q.ref_key) = (g.row_key, g.column_name, g.ref_key)
            AND (g.is_whole OR NOT {{is_first}}) AND (q.epoch < $5) IS NOT FALSE
            LIMIT 1
        ) AS found
    )) RETURNING q.*
), logged AS (
    INSERT INTO tripstore.log ({COLUMNS}, delivered_at) SELECT {COLUMNS}, pg_catalog.clock_timestamp() FROM gone
)
SELECT count(*) FROM gone"""
_MARK_TYPES = "uuid[], text[], bigint[], boolean[], bigint"
_MARK_ARGUMENTS = "%s::uuid[], %s::text[], %s::bigint[], %s::boolean[], %s"
_COUNT = "SELECT count(*) FROM tripstore.queue"
_LOOK = """\
SELECT count(*), count(q.parked), COALESCE(pg_catalog.date_part(
    'epoch', pg_catalog.clock_timestamp() - min(q.at) FILTER (WHERE q.parked IS NULL)), 0)
FROM tripstore.queue AS q"""
# By its index: a queue that the mirror is late with is long, and what waits for the mirror asks again and again.
_OLDEST = f"""\
{_NO_SCAN}SET LOCAL enable_sort = off;
SELECT GREATEST(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - q.at), 0)
FROM tripstore.queue AS q WHERE q.parked IS NULL ORDER BY q.id LIMIT 1"""

_PARK = """\
UPDATE tripstore.queue AS q SET parked = %s, because = %s, claimed_by = NULL, claimed_until = NULL
FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) AS g (row_key, column_name, ref_key)
WHERE q.row_key = g.row_key
AND ((q.column_name, q.ref_key) = (g.column_name, g.ref_key) OR (g.column_name = '{legacy_id}' AND {is_first}))"""
_UNPARK = "UPDATE tripstore.queue AS q SET parked = NULL, because = NULL, attempts = 0 WHERE q.parked IS NOT NULL"
_OF_KEYS = """\
 AND (q.row_key, q.column_name, q.ref_key) IN (SELECT * FROM unnest(%s::uuid[], %s::text[], %s::bigint[]))"""
_PARKED = """\
SELECT q.row_key::text, q.column_name, q.ref_key, q.parked, q.because, q.attempts, q.at, q.layout, q.row
FROM tripstore.queue AS q WHERE q.parked IS NOT NULL"""


class QueueLook(NamedTuple):
    """The queue at one moment."""

    #: All of it, parked changes included.
    queued: int
    parked: int
    #: Age of the oldest change that is not parked, by the server's clock; 0 when there is none.
    seconds: float


class ParkedChange(NamedTuple):
    """A change that was set aside, as it stands in the queue."""

    key: CellKey
    kind: Kind
    because: str
    attempts: int
    at: datetime
    layout: int | None
    row: str | None  #: What capture wrote; None: a tombstone.


class Claimant(NamedTuple):
    """Which relay claims, and for how long: one that is killed keeps its changes from the others for this time."""

    name: str
    lease_seconds: float


class Claim(NamedTuple):
    """What was claimed, in order, each `_LEGACY_ID` before the first change of its row."""

    cells: tuple[Cell, ...]
    #: Of the authority row, no younger than the cells.
    epoch: int
    #: Rows whose first change is here, and whose legacy id is not known.
    without_id: frozenset[UUID]


class Queue:
    """The queue of a datastore, on whatever connection is handed in. Threads share it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._digest = layout.digest
        self._bodies = Bodies(Codecs(layout))
        self._walk = QueueWalk()
        is_first = _IS_FIRST.format(parent=text(layout.parent.name))
        self._claim_free, self._claim_any = (
            Prepared(_CLAIM_TYPES, _CLAIM.format(is_free=is_free)) for is_free in (_IS_FREE, "true")
        )
        self._mark = Prepared(_MARK_TYPES, _MARK.format(is_first=is_first))
        self._park = _PARK.format(is_first=is_first, legacy_id=LEGACY_ID)

    def claim(
        self,
        connection: LegacyConnection,
        claimant: Claimant,
        limit: int,
        *,
        from_others: bool = False,
        with_own: bool = True,
    ) -> Claim:
        """Claim changes, durably, and render them. What no body can hold is parked on the way.

        `StaleLayout` when another layout is in force than this queue's. `PostgresNotAccepted`: a promoted Postgres.
        """
        claim, began = (self._claim_any, 0) if from_others else (self._claim_free, self._walk.begin())
        started = time.monotonic()
        rows = connection.rows(
            _CLAIM_BEGINS + connection.call(claim, _CLAIM_ARGUMENTS),
            (began, limit, with_own, claimant.name, claimant.lease_seconds, self._digest),
        )
        epoch, last, first_id, in_force, backend, given, now = rows[0][:7]
        if given not in (None, now):
            raise PostgresNotAccepted(backend, epoch, given, now)
        if in_force not in (None, self._digest):
            raise StaleLayout(self._digest, in_force)
        self._walk.found(began, first_id, last, time.monotonic() - started)
        changes = [row[7:] for row in rows if row[2] is not None]
        cells, first = self._rendered(connection, changes)
        ids = Ids(connection.rows, self._layout, is_captured=True).legacy_ids(first)
        whole: list[Cell] = []
        for cell in cells:
            if cell.row_key in ids and cell.row_key in first and cell.column_name == self._layout.parent.name:
                whole.append(_legacy_id(cell, ids[cell.row_key]))
                first.discard(cell.row_key)
            whole.append(cell)
        return Claim(tuple(whole), epoch, frozenset(first))

    def mark_delivered(
        self,
        connection: LegacyConnection,
        cells: Collection[Cell],
        without_id: Collection[UUID] = (),
        below: int | None = None,
    ) -> int:
        """Move changes to the log; return how many were moved. The first of a row goes with its `_LEGACY_ID` only.

        `below`: those that were captured at a lower epoch alone; None: all.
        """
        whole = {cell.row_key for cell in cells if cell.column_name == LEGACY_ID}.union(without_id)
        keys = [cell.key for cell in cells if cell.column_name != LEGACY_ID]
        if not keys:
            return 0
        mark = _MARK_BEGINS + connection.call(self._mark, _MARK_ARGUMENTS)
        return int(connection.rows(mark, (*_arrays(keys), [key.row_key in whole for key in keys], below))[0][0])

    def count(self, connection: LegacyConnection) -> int:
        """All of it, also changes that a relay has claimed or locked."""
        return int(connection.rows(_COUNT)[0][0])

    def oldest_seconds(self, connection: LegacyConnection) -> float:
        """Age of the first change that is not parked; 0: there is none. Costs the same however long the queue is."""
        rows = connection.rows(_OLDEST)
        return float(rows[0][0]) if rows else 0.0

    def look(self, connection: LegacyConnection) -> QueueLook:
        queued, parked, seconds = connection.rows(_LOOK)[0]
        return QueueLook(queued, parked, max(float(seconds), 0.0))

    def park(self, connection: LegacyConnection, keys: Sequence[CellKey], kind: str, because: str) -> None:
        """Set changes aside; a `_LEGACY_ID` stands for the first change of its row. What is gone is no error."""
        connection.rows(self._park, (kind, because, *_arrays(keys)))

    def unpark(self, connection: LegacyConnection, keys: Sequence[CellKey] | None = None) -> int:
        """Let relays try again: these, or all. Returns how many were parked."""
        unpark = _UNPARK if keys is None else _UNPARK + _OF_KEYS
        return len(connection.rows(f"{unpark} RETURNING 1", None if keys is None else _arrays(keys)))

    def parked(self, connection: LegacyConnection, limit: int) -> list[ParkedChange]:
        """The oldest first."""
        return [_parked(row) for row in connection.rows(f"{_PARKED} ORDER BY q.id LIMIT %s", (limit,))]

    def find_parked(self, connection: LegacyConnection, key: CellKey) -> ParkedChange | None:
        found = connection.rows(_PARKED + _OF_KEYS, _arrays([key]))
        return _parked(found[0]) if found else None

    def _rendered(self, connection: LegacyConnection, changes: Sequence[Row]) -> tuple[list[Cell], set[UUID]]:
        """Cells, and the rows of which these are the first change of all."""
        stored = [_stored(*change[:6]) for change in changes]
        cells, first = list[Cell](), set[UUID]()
        self._prefetch(connection, stored)
        for each, change in zip(stored, changes, strict=True):
            try:
                cells.append(self._bodies.cell(connection, each))
            except _UNREADABLE as error:
                self.park(
                    connection,
                    [CellKey(each.row_key, each.column_name, each.found.ref_key)],
                    "unreadable",
                    error.message,
                )
                continue
            if change[6] is None and each.found.layout is not None and each.column_name == self._layout.parent.name:
                first.add(each.row_key)
        return cells, first

    def _prefetch(self, connection: LegacyConnection, stored: list[StoredRow]) -> None:
        with suppress(*_UNREADABLE):  # each is asked for by itself then, and one of them is parked
            self._bodies.prefetch(connection, stored)


def _stored(row_key: str, column: str, ref_key: int, layout: int | None, row: str | None, at: datetime) -> StoredRow:
    return StoredRow(UUID(row_key), column, Found(ref_key, layout, row, None, at))


def _legacy_id(cell: Cell, number: int) -> Cell:
    return Cell(cell.row_key, LEGACY_ID, LEGACY_ID_REF_KEY, legacy_id_body(number), None, cell.created_at)


def _parked(row: Row) -> ParkedChange:
    row_key, column, ref_key, *rest = row
    return ParkedChange(CellKey(UUID(row_key), column, ref_key), *rest)


def _arrays(keys: Sequence[CellKey]) -> tuple[Any, ...]:
    return [str(key.row_key) for key in keys], [key.column_name for key in keys], [key.ref_key for key in keys]
