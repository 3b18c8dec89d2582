"""The parts of a job, within a transaction that holds the job's row: claimed, saved, given back.

A lease is over when the control database's clock says so; the fence tells a worker that was away for too long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.control.clock import now_ms
from schemaless_core.control.jobs.records import JobState, Part, PartLost
from schemaless_core.control.tables import job_count as count_table
from schemaless_core.control.tables import job_part as table

PARTS_PER_STATEMENT = 500


def add_parts(connection: sa.Connection, job: str, bounds: Sequence[Json]) -> None:
    """Each is free, and at its beginning."""
    row = {"job": job, "checkpoint": "null", "fence": 0, "worker": None, "until_ms": 0, "is_done": False}
    for first in range(0, len(bounds), PARTS_PER_STATEMENT):
        some = enumerate(bounds[first : first + PARTS_PER_STATEMENT], first)
        rows = [row | {"number": number, "bounds": text_of(each), "saved_ms": None} for number, each in some]
        connection.execute(sa.insert(table), rows)


def claim_part(
    connection: sa.Connection,
    job: str,
    worker: str,
    lease_seconds: float,
    *,
    has_end: bool = False,
    stages: Sequence[int] = (),
) -> Part | None:
    """Take a part that no worker holds, or whose lease is over; the worker's own too, whose claim was never answered.

    Of a job that has an end the last part waits until all others are done; a part of a later stage waits for all parts
    of earlier ones.
    """
    now = now_ms(connection)
    is_free = table.c.worker.is_(None) | (table.c.until_ms < now) | (table.c.worker == worker)
    wanted = sa.select(table.c.number, table.c.bounds, table.c.checkpoint, table.c.fence)
    wanted = wanted.where(table.c.job == job, table.c.is_done.is_(False), is_free)
    found = connection.execute(wanted.order_by(table.c.number).limit(1)).first()
    if found is None or (has_end and _must_wait(connection, job, found.number)):
        return None
    if _is_early(connection, job, max((first for first in stages if first <= found.number), default=0)):
        return None
    taken = {"worker": worker, "fence": found.fence + 1, "until_ms": _until(now, lease_seconds)}
    connection.execute(sa.update(table).where(_is(job, found.number)).values(taken))
    return Part(job, found.number, json.loads(found.bounds), json.loads(found.checkpoint), found.fence + 1)


def save_part(
    connection: sa.Connection, part: Part, worker: str, checkpoint: Json, *, is_done: bool, lease_seconds: float
) -> bool:
    """Move the checkpoint and renew the lease; False: this very save is there already, its answer was lost.

    A lease that is over is no reason to refuse: no other worker has taken the part.
    """
    now, text = now_ms(connection), text_of(checkpoint)
    is_mine = _is(part.job, part.number) & (table.c.worker == worker) & (table.c.fence == part.fence)
    is_as_read = is_mine & (table.c.checkpoint == text_of(part.checkpoint)) & table.c.is_done.is_(False)
    saved = {"checkpoint": text, "fence": part.fence + 1, "is_done": is_done, "saved_ms": now}
    saved |= {"until_ms": _until(now, lease_seconds)}
    if connection.execute(sa.update(table).where(is_as_read).values(saved)).rowcount:
        return True
    # A claim of this worker's own would have been its next call: with the next fence there can only be its save.
    stored = connection.execute(
        sa.select(table.c.worker, table.c.fence, table.c.checkpoint, table.c.is_done).where(_is(part.job, part.number))
    ).first()
    if stored is None or tuple(stored) != (worker, part.fence + 1, text, is_done):
        raise PartLost(part, worker)
    return False


def is_held_by(connection: sa.Connection, part: Part, worker: str) -> bool:
    """Whether it is this worker's, by whichever fence: its lease is renewed meanwhile."""
    found = connection.execute(sa.select(table.c.worker).where(_is(part.job, part.number), table.c.is_done.is_(False)))
    return found.scalar_one_or_none() == worker


def release_part(connection: sa.Connection, part: Part, worker: str) -> None:
    """Give it back, if it is still held."""
    is_mine = _is(part.job, part.number) & (table.c.worker == worker) & (table.c.fence == part.fence)
    free = {"worker": None, "until_ms": 0, "fence": part.fence + 1}
    connection.execute(sa.update(table).where(is_mine, table.c.is_done.is_(False)).values(free))


def is_finished(connection: sa.Connection, job: str) -> bool:
    """Whether all its parts are done."""
    undone = sa.select(table.c.number).where(table.c.job == job, table.c.is_done.is_(False)).limit(1)
    return connection.execute(undone).first() is None


def _must_wait(connection: sa.Connection, job: str, number: int) -> bool:
    """Whether this is the last part and other workers still have parts to do."""
    others = sa.select(table.c.number).where(table.c.job == job, table.c.number != number)
    if connection.execute(others.where(table.c.number > number).limit(1)).first() is not None:
        return False
    return connection.execute(others.where(table.c.is_done.is_(False)).limit(1)).first() is not None


def _is_early(connection: sa.Connection, job: str, first: int) -> bool:
    """Whether a part that is numbered below the first of a stage is still to be done."""
    before = sa.select(table.c.number).where(table.c.job == job, table.c.number < first, table.c.is_done.is_(False))
    return first > 0 and connection.execute(before.limit(1)).first() is not None


def read_checkpoint(connection: sa.Connection, job: str, number: int) -> Json:
    found = connection.execute(sa.select(table.c.checkpoint).where(_is(job, number))).scalar_one_or_none()
    return None if found is None else cast(Json, json.loads(found))


def read_checkpoints(connection: sa.Connection, job: str) -> dict[int, Json]:
    wanted = sa.select(table.c.number, table.c.checkpoint).where(table.c.job == job).order_by(table.c.number)
    return {number: json.loads(text) for number, text in connection.execute(wanted)}


def read_begun(connection: sa.Connection, job: str) -> list[tuple[Json, Json]]:
    """Bounds and checkpoints of the parts that a worker ever took, and that are not done."""
    wanted = sa.select(table.c.bounds, table.c.checkpoint).where(
        table.c.job == job, table.c.is_done.is_(False), table.c.fence > 0
    )
    found = connection.execute(wanted.order_by(table.c.number))
    return [(json.loads(bounds), json.loads(checkpoint)) for bounds, checkpoint in found]


def survey(connection: sa.Connection, job: str) -> tuple[int, int, int, int | None]:
    """How many there are, are done, are held; and when the last one was saved."""
    now = now_ms(connection)
    is_held = table.c.is_done.is_(False) & table.c.worker.is_not(None) & (table.c.until_ms >= now)
    wanted = sa.select(
        sa.func.count(),
        sa.func.coalesce(sa.func.sum(sa.case((table.c.is_done, 1), else_=0)), 0),
        sa.func.coalesce(sa.func.sum(sa.case((is_held, 1), else_=0)), 0),
        sa.func.max(table.c.saved_ms),
    )
    parts, done, held, saved_ms = connection.execute(wanted.where(table.c.job == job)).one()
    return int(parts), int(done), int(held), saved_ms


def add_counts(connection: sa.Connection, job: str, counts: Mapping[str, int]) -> None:
    """Add to the totals of a job. The caller holds the job's row, so no other transaction adds at the same time."""
    rows = [{"job": job, "name": name, "total": counts[name]} for name in sorted(counts) if counts[name]]
    if not rows:
        return
    new: Any
    if connection.dialect.name == "sqlite":
        new = sqlite.insert(count_table).values(rows)
        total = count_table.c.total + new.excluded.total
        new = new.on_conflict_do_update(index_elements=[count_table.c.job, count_table.c.name], set_={"total": total})
    else:
        new = mysql.insert(count_table).values(rows)
        new = new.on_duplicate_key_update(total=count_table.c.total + new.inserted.total)
    connection.execute(new)


def read_counts(connection: sa.Connection, job: str) -> dict[str, int]:
    wanted = sa.select(count_table.c.name, count_table.c.total).where(count_table.c.job == job)
    return {name: int(total) for name, total in connection.execute(wanted.order_by(count_table.c.name))}


def text_of(document: Json) -> str:
    return canonical_bytes(document).decode()


def with_state(part: Part, state: JobState) -> Part:
    return Part(part.job, part.number, part.bounds, part.checkpoint, part.fence, state)


def _is(job: str, number: int) -> sa.ColumnElement[bool]:
    return (table.c.job == job) & (table.c.number == number)


def _until(now: int, lease_seconds: float) -> int:
    return now + round(lease_seconds * 1000)
