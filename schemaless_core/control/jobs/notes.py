"""The note of a job in the ledger of its kind: the one thing of it that gates go by, kept up to date by every change.

A job has one note for as long as it exists, however many others there are.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.findings import count_open
from schemaless_core.control.jobs.parts import read_counts, text_of
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.control.tables import job as job_table
from schemaless_core.control.tables import ledger_note as table

#: How a job counts what was not compared, whatever of: none of it speaks for a switch, or is called equal (I12).
NOT_COMPARED = ("not_compared", "older_not_compared", "index_not_compared", "table_not_compared")
#: Counts that stand in a note by their own names: rows of the company's tables, and those that were compared.
NOTED = ("table_rows", "table_rows_compared")


#: Kinds that count what is open by themselves: their findings are a sample, or say that something was not compared.
COUNT_OPEN = frozenset({"diff"})


def keep_note(connection: sa.Connection, job: Job) -> None:
    """Write what is known of a job by now, or write it anew."""
    row = {"ledger": job.kind, "at": datetime.now(UTC).isoformat(timespec="microseconds")}
    row["body"] = text_of(_body(connection, job))
    is_it = job_table.c.id == job.id
    known = connection.execute(sa.select(job_table.c.note).where(is_it)).scalar()
    if known is not None and connection.execute(sa.update(table).where(table.c.id == known).values(row)).rowcount:
        return
    number = connection.execute(sa.insert(table).values(row)).inserted_primary_key
    assert number is not None
    connection.execute(sa.update(job_table).where(is_it).values(note=number[0]))


def _body(connection: sa.Connection, job: Job) -> dict[str, Json]:
    counts = read_counts(connection, job.id)
    body: dict[str, Json] = {
        "job": job.id,
        "begun_at": job.begun_at.isoformat(),
        "ended_at": None if job.ended_at is None else job.ended_at.isoformat(),
        "is_complete": job.state is JobState.DONE,
        "is_partial": bool(job.spec.get("is_partial")),
        "rows": counts.get("rows", 0),
        "open": counts.get("open", 0) if job.kind in COUNT_OPEN else count_open(connection, job.id),
        "not_compared": sum(counts.get(name, 0) for name in NOT_COMPARED),
    }
    body |= {name: counts[name] for name in NOTED if name in counts}
    more = job.spec.get("note")
    return {**more, **body} if isinstance(more, dict) else body
