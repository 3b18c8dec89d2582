"""What the workers of a job found, within a transaction that holds the job's row."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from uuid import UUID

import sqlalchemy as sa

from schemaless_core.control.clock import moment, now_ms
from schemaless_core.control.jobs.parts import text_of
from schemaless_core.control.jobs.records import Finding, StoredFinding
from schemaless_core.control.tables import job_finding as table

FINDINGS_PER_STATEMENT = 500

_FINDINGS = sa.select(
    table.c.kind,
    table.c.row_key,
    table.c.column_name,
    table.c.ref_key,
    table.c.body,
    table.c.id,
    table.c.job,
    table.c.at_ms,
    table.c.is_open,
).order_by(table.c.id)


def add_findings(connection: sa.Connection, job: str, findings: Sequence[Finding]) -> None:
    """Each is open."""
    if not findings:
        return
    now = now_ms(connection)
    for first in range(0, len(findings), FINDINGS_PER_STATEMENT):
        rows = [_row(job, now, each) for each in findings[first : first + FINDINGS_PER_STATEMENT]]
        connection.execute(sa.insert(table), rows)


def solve_findings(connection: sa.Connection, ids: Collection[int]) -> list[int]:
    """They are open no more, whichever job found them; say which of them were until now."""
    solved: list[int] = []
    for some in _portions(ids):
        is_open = table.c.id.in_(some) & table.c.is_open.is_(True)
        solved += connection.execute(sa.select(table.c.id).where(is_open)).scalars()
        connection.execute(sa.update(table).where(is_open).values(is_open=False))
    return solved


def jobs_of(connection: sa.Connection, ids: Collection[int]) -> set[str]:
    """The jobs that found these."""
    found: set[str] = set()
    for some in _portions(ids):
        found.update(connection.execute(sa.select(table.c.job).where(table.c.id.in_(some)).distinct()).scalars())
    return found


def count_open(connection: sa.Connection, job: str) -> int:
    counted = sa.select(sa.func.count()).where(table.c.job == job, table.c.is_open.is_(True))
    return int(connection.execute(counted).scalar_one())


def count_open_kinds(connection: sa.Connection, job: str) -> dict[str, int]:
    counted = sa.select(table.c.kind, sa.func.count()).where(table.c.job == job, table.c.is_open.is_(True))
    return {kind: int(count) for kind, count in connection.execute(counted.group_by(table.c.kind))}


def read_findings(
    connection: sa.Connection, job: str, kinds: Collection[str] | None, after: int, limit: int, *, open_only: bool
) -> list[StoredFinding]:
    """In the order in which they were found."""
    wanted = _FINDINGS.where(table.c.job == job, table.c.id > after)
    if open_only:
        wanted = wanted.where(table.c.is_open.is_(True))
    if kinds is not None:
        wanted = wanted.where(table.c.kind.in_(kinds))
    return [_stored(*row) for row in connection.execute(wanted.limit(limit))]


def read_open_of(connection: sa.Connection, job: str, row_keys: Collection[UUID]) -> list[StoredFinding]:
    """Those about some row keys."""
    found: list[StoredFinding] = []
    ordered = sorted(map(str, row_keys))
    for first in range(0, len(ordered), FINDINGS_PER_STATEMENT):
        some = ordered[first : first + FINDINGS_PER_STATEMENT]
        wanted = _FINDINGS.where(table.c.job == job, table.c.is_open.is_(True), table.c.row_key.in_(some))
        found += [_stored(*row) for row in connection.execute(wanted)]
    return found


def _row(job: str, now: int, found: Finding) -> dict[str, object]:
    return {
        "job": job,
        "at_ms": now,
        "is_open": True,
        "kind": found.kind,
        "row_key": None if found.row_key is None else str(found.row_key),
        "column_name": found.column_name,
        "ref_key": found.ref_key,
        "body": text_of(found.body),
    }


def _stored(
    kind: str,
    row_key: str | None,
    column_name: str | None,
    ref_key: int | None,
    body: str,
    number: int,
    job: str,
    at_ms: int,
    is_open: bool,
) -> StoredFinding:
    key = None if row_key is None else UUID(row_key)
    return StoredFinding(
        kind, key, column_name, ref_key, json.loads(body), id=number, job=job, at=moment(at_ms), is_open=is_open
    )


def _portions(ids: Collection[int]) -> list[list[int]]:
    ordered = sorted(ids)
    return [ordered[first : first + FINDINGS_PER_STATEMENT] for first in range(0, len(ordered), FINDINGS_PER_STATEMENT)]
