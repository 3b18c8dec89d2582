"""Cells as a file of a backup has them: a head of text, the row key, the column's name, the body as it is in the log.

The head is added id, ref key, date, time, and how long name and body are, with a space behind each. Times are written
as servers write them, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.copies import CellRecord

#: No head is longer.
_HEAD_BYTES_MAX = 96
_FIELDS = 6
_KEY_BYTES = 16
#: `2026-11-29 12:00:00.123456`.
_TIME_BYTES = 26


def cell_of(record: CellRecord) -> StoredCell:
    """A cell with its time. `ValueError`: it has none."""
    at = datetime.fromisoformat(record.created_at.decode()).replace(tzinfo=UTC)
    return StoredCell(*record[:5], at)


def text_of(moment: datetime) -> bytes:
    """A time as records have it: of two texts the later one is the greater one."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds").encode()


def encoded(cells: Iterable[StoredCell]) -> bytes:
    """One record behind the other."""
    parts: list[bytes] = []
    for added_id, row_key, column_name, ref_key, body, created_at in cells:
        parts.append(b"%d %d %s %d %d " % (added_id, ref_key, text_of(created_at), len(column_name), len(body)))
        parts += (row_key, column_name, body)
    return b"".join(parts)


def decoded(records: bytes) -> Iterator[CellRecord]:
    """Yield the cells. `ValueError`: these are no records, or they end within one."""
    at, end = 0, len(records)
    while at < end:
        head = records[at : at + _HEAD_BYTES_MAX].split(b" ", _FIELDS)
        if len(head) <= _FIELDS:
            raise ValueError("a record is cut, or is none")
        added_id, ref_key, day, hour, name_bytes, body_bytes, _rest = head
        key_at = at + len(added_id) + len(ref_key) + len(day) + len(hour) + len(name_bytes) + len(body_bytes) + _FIELDS
        name_at = key_at + _KEY_BYTES
        body_at = name_at + int(name_bytes)
        at = body_at + int(body_bytes)
        created_at = day + b" " + hour
        if at > end or len(created_at) != _TIME_BYTES:
            raise ValueError("a record is cut, or is none")
        row_key, name = records[key_at:name_at], records[name_at:body_at]
        yield CellRecord(int(added_id), row_key, name, int(ref_key), records[body_at:at], created_at)
