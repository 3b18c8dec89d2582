"""How large the tables of the control database are that grow, for people who look after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import hour_of
from schemaless_core.control.tables import audit, job, job_count, job_finding, job_part, ledger_count, ledger_note
from schemaless_core.engine.base import Fact

GROWING = (audit, job, job_count, job_finding, job_part, ledger_count, ledger_note)

#: Counts that are older than they may be by so much are pruned by no worker.
LATE_DAYS = 2
#: InnoDB's own estimates: counting all rows would take as long as there are many.
_TOLD = sa.text(
    "SELECT LOWER(table_name), table_rows, data_length + index_length FROM information_schema.tables "
    "WHERE table_schema = DATABASE()"
)


class TableSize(NamedTuple):
    """About how many rows a table has, and how many bytes; None: the server does not say."""

    table: str
    rows: int
    size_bytes: int | None


def table_sizes(control: ControlDatabase) -> list[TableSize]:
    """The tables that grow, by name."""
    with control.begin() as connection:
        if connection.dialect.name == "sqlite":
            counted = ((table.name, sa.select(sa.func.count()).select_from(table)) for table in GROWING)
            return [TableSize(name, int(connection.execute(count).scalar_one()), None) for name, count in counted]
        told = {name: (int(rows or 0), int(size or 0)) for name, rows, size in connection.execute(_TOLD)}
    return [TableSize(table.name, *told[table.name]) for table in GROWING if table.name in told]


def size_fact(control: ControlDatabase, counts_days: int, now: datetime) -> Fact:
    """For the doctor: the sizes, and whether a worker prunes what is too old."""
    sizes = table_sizes(control)
    total = sum(each.size_bytes or 0 for each in sizes)
    value = (f"{total / 1024**2:.1f} MiB: " if total else "") + ", ".join(map(_told_size, sizes))
    is_pruned = not counts_days or not _has_older(control, now - timedelta(days=counts_days + LATE_DAYS))
    advice = "No worker prunes it: start `tripstore worker run` (or leave out --only, or add `jobs` to it)."
    return Fact("size", value, is_pruned, advice="" if is_pruned else advice)


def _told_size(size: TableSize) -> str:
    about = "" if size.size_bytes is None else "about "
    return f"{size.table} {about}{size.rows:,} rows"


def _has_older(control: ControlDatabase, moment: datetime) -> bool:
    old = sa.select(ledger_count.c.hour).where(ledger_count.c.hour < hour_of(moment)).limit(1)
    with control.begin() as connection:
        return connection.execute(old).first() is not None
