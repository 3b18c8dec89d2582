"""What stands beside a shard's log on its server: which tables, and how they are copied with it."""

from __future__ import annotations

from typing import NamedTuple


class BesideTable(NamedTuple):
    """Statements of one table."""

    select: str
    #: Empty: rows are only added, or set to what the source says.
    delete: str
    insert: str
    update: str = ""


def _table(name: str, columns: str, *, where: str = "", update: str = "", is_replaced: bool = True) -> BesideTable:
    return BesideTable(
        f"SELECT {columns} FROM {name} WHERE shard = %s{where}",
        f"DELETE FROM {name} WHERE shard = %s{where}" if is_replaced else "",
        f"INSERT INTO {name} ({columns})",
        update,
    )


TABLES = {
    # Once a copy may have arrived, groups that the source does not know have begun there since: theirs stay.
    "trigger_offset": _table(
        "{offset}",
        "group_name, shard, epoch, added_id, fence, token, updated_at",
        update="ON DUPLICATE KEY UPDATE epoch = VALUES(epoch), added_id = VALUES(added_id), fence = VALUES(fence),"
        " token = VALUES(token), updated_at = VALUES(updated_at)",
        is_replaced=False,
    ),
    "trigger_parked": _table(
        "{parked}",
        "group_name, shard, added_id, row_key, column_name, ref_key, attempts, is_waiting, error, parked_at,"
        " next_attempt_at, token",
    ),
    "trigger_call": _table("{call}", "group_name, shard, epoch, added_id, claims, called_epoch, called_id, calls"),
    "index_error": _table(
        "{index_error}", "index_name, version, shard, row_key, field, column_name, ref_key, reason, at"
    ),
    "shard_epoch": _table("{history}", "shard, epoch, first_added_id, opened_at, why", where=" AND epoch > 0"),
    "shard_authority": _table("{authority}", "shard, authority_epoch, state, first_added_id, at"),
    # They are never taken back: a copy may have one of a time when it was the shard.
    "purged_key": _table(
        "{purged_key}",
        "shard, row_key, column_name, ref_key, is_erased, at",
        update="ON DUPLICATE KEY UPDATE is_erased = IF(VALUES(ref_key) >= {purged_key}.ref_key, VALUES(is_erased), 0),"
        " ref_key = GREATEST({purged_key}.ref_key, VALUES(ref_key))",
        is_replaced=False,
    ),
}
#: May be many, of which few change: what differs is found by sums of buckets of rows.
KEYS = "purged_key"
BUCKETS = 8192
_BUCKET = f"CRC32(row_key) %% {BUCKETS}"
KEY_SUMS = f"""\
SELECT {_BUCKET} AS bucket, COUNT(*), SUM(CRC32(CONCAT_WS('|', HEX(row_key), HEX(column_name), ref_key, is_erased)))
 FROM {{purged_key}} WHERE shard = %s GROUP BY bucket"""
KEYS_IN = f"{TABLES[KEYS].select} AND {_BUCKET} IN (BUCKETS)"

#: Of them those that have few rows of a shard, and of which a backup has a use.
FEW = ("trigger_offset", "shard_epoch", "shard_authority", "purged_key")
PARKED_AFTER = f"""\
{TABLES["trigger_parked"].select} AND (group_name > %s OR group_name = %s AND added_id > %s)
 ORDER BY group_name, added_id LIMIT %s"""

#: Before: what the source does not know was removed there, and would be begun with where it was left.
NO_OFFSETS = "DELETE FROM {offset} WHERE shard = %s"
ROW = "SELECT authority_epoch, last_created_at FROM {state} WHERE shard = %s"
TAKE_OVER = """\
UPDATE {state} SET authority_epoch = GREATEST(authority_epoch, %s), last_created_at = %s,
 guarded = EXISTS (SELECT 1 FROM {purged_key} k WHERE k.shard = %s) WHERE shard = %s"""
#: Lines behind one that were stripped of bodies after they were copied.
ERASE = """\
UPDATE {mended} m JOIN {purged_key} k ON k.shard = m.shard AND k.row_key = m.row_key AND k.is_erased
 SET m.old_body = NULL, m.new_body = NULL
 WHERE m.shard = %s AND m.id > %s AND (m.old_body IS NOT NULL OR m.new_body IS NOT NULL)
  AND (k.column_name = _binary''
   OR (k.column_name = m.column_name AND m.action = 'purge' AND m.ref_key <= k.ref_key))"""
MAY_ARRIVE = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why) VALUES (%s, %s, %s, UTC_TIMESTAMP(6), 'moved')"""
OFFSETS_STAY = "ON DUPLICATE KEY UPDATE fence = {offset}.fence"

_LINE = "token, shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at"
MENDED = f"SELECT id, {_LINE} FROM {{mended}} WHERE shard = %s AND id > %s AND id <= %s ORDER BY id"
# By numbers alone: a page ends after so many lines, also where most are of other shards.
NEWEST_LINE = "SELECT COALESCE(MAX(id), 0) FROM {mended}"
LINES = MENDED.replace("old_body, new_body", "NULL, NULL")
PUT_MENDED = f"INSERT INTO {{mended}} ({_LINE})"
SAME_TOKEN = "ON DUPLICATE KEY UPDATE token = {mended}.token"
#: A line that has lost its bodies since loses them here, too.
STRIPPED = """\
ON DUPLICATE KEY UPDATE old_body = IF(VALUES(old_body) IS NULL, NULL, {mended}.old_body),
 new_body = IF(VALUES(new_body) IS NULL, NULL, {mended}.new_body)"""

#: What is no part of the log, and of use to no one once another cluster has it.
FORGET = tuple(f"DELETE FROM {name} WHERE shard = %s" for name in ("{offset}", "{parked}", "{call}", "{index_error}"))
