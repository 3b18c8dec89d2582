"""What stood beside a shard's log, as a file has it; and what of it a restored shard is given.

Offsets go without the fences of workers that are gone. What is of indexes is left out: their groups begin anew, and
fill them from the cells. So are notes of calls that were under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from schemaless_core.backups.compression import compressed, decompressed
from schemaless_core.backups.files import StoredFile, keep_bytes, read_bytes
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.engine.copies import Beside, Rows
from schemaless_core.errors import BackupDamaged

#: Groups that keep indexes.
INDEX_GROUPS = b"index:"


#: Column of lines of the audit table: the new body follows.
_OLD_BODY = 7


class _Kept(msgspec.Struct, frozen=True):
    authority_epoch: int
    last_created_at: str
    tables: dict[str, list[tuple[Any, ...]]]
    mended: list[tuple[Any, ...]]


def keep_beside(folder: BackupFolder, name: str, beside: Beside) -> StoredFile:
    """Write it. Times become texts, which servers read as they write them.

    Of the audit table without bodies: what was purged is in no later backup. Purged ids are in the files of the log.
    """
    tables = {table: list(rows) for table, rows in beside.tables.items() if table != "purged"}
    mended = [(*line[:_OLD_BODY], None, None, *line[_OLD_BODY + 2 :]) for line in beside.mended]
    kept = _Kept(beside.authority_epoch, str(beside.last_created_at), tables, mended)
    packed = msgspec.msgpack.encode(kept)
    return keep_bytes(folder, name, compressed(packed))


def read_beside(folder: BackupFolder, file: StoredFile) -> Beside:
    """Return it as it was written."""
    data = read_bytes(folder, file)
    try:
        kept = msgspec.msgpack.decode(decompressed(data), type=_Kept)
    except (ValueError, msgspec.MsgspecError) as problem:
        raise BackupDamaged(file.name, f"cannot be read ({problem})") from problem
    return Beside(kept.authority_epoch, kept.last_created_at, kept.tables, kept.mended, 0)


def mended_between(before: Beside, after: Beside) -> set[int]:
    """Added ids at which repair has changed something since an earlier look, or at which a promotion undid that.

    What tells lines of the audit table from each other is the same on whatever server they are.
    """
    lines = [{bytes(line[0]): int(line[2]) for line in look.mended} for look in (before, after)]
    differ = lines[0].keys() ^ lines[1].keys()
    return {added_id for each in lines for token, added_id in each.items() if token in differ}


def is_history_of(before: Beside, after: Beside) -> bool:
    """Whether a shard's epochs of an earlier look are among those of a later one: if not, it is another shard.

    One that was made anew under the same name, or restored, has opened its epochs at other times.
    """
    return _epochs(before) <= _epochs(after)


def _epochs(beside: Beside) -> set[tuple[int, int, datetime]]:
    return {
        (int(row[1]), int(row[2]), row[3] if isinstance(row[3], datetime) else datetime.fromisoformat(row[3]))
        for row in beside.tables["shard_epoch"]
    }


def for_restored(beside: Beside, last: int, last_created_at: datetime | str) -> Beside:
    """What a shard is given whose log ends at `last`."""
    tables = beside.tables
    given: dict[str, Rows] = {
        "trigger_offset": [_offset(row, last) for row in _of_triggers(tables["trigger_offset"])],
        "trigger_parked": [(*row[:-1], 0) for row in _of_triggers(tables["trigger_parked"]) if row[2] <= last],
        "trigger_call": [],
        "index_error": [],
        "shard_epoch": [(row[0], row[1], min(row[2], last + 1), *row[3:]) for row in tables["shard_epoch"]],
        "shard_authority": [(*row[:3], min(row[3], last + 1), row[4]) for row in tables["shard_authority"]],
        "purged": [],  # they came with the log
        "purged_key": tables.get("purged_key", ()),  # of whatever time: what was purged later is not brought back
    }
    mended = [line for line in beside.mended if line[2] <= last]
    return Beside(beside.authority_epoch, last_created_at, given, mended, 0)


def _of_triggers(rows: Rows) -> Iterable[tuple[Any, ...]]:
    return (row for row in rows if not bytes(row[0]).startswith(INDEX_GROUPS))


def _offset(row: tuple[Any, ...], last: int) -> tuple[Any, ...]:
    """Group, shard, epoch, added id, fence, token, time: any worker may claim it."""
    return (*row[:3], min(row[3], last), 0, 0, row[6])
