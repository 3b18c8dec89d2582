"""Creation of shards: databases and tables first, the counter row last. A shard is complete when it has its row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from pymysql import err
from pymysql.constants import ER

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.engine import tableformat
from schemaless_core.engine.mysql import documents
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.failpoints import reach

TABLES = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
ALL_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
PRESENT = "SELECT shard FROM {state}"
COUNT = "SELECT shards, format FROM {meta}.datastore WHERE one = 1"
RECORD = """\
INSERT INTO {meta}.datastore (one, shards, format) VALUES (1, %s, %s)
 ON DUPLICATE KEY UPDATE format = GREATEST(format, VALUES(format))"""
OPEN_EPOCH = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why) VALUES (%s, 1, 1, UTC_TIMESTAMP(6), 'created')
 ON DUPLICATE KEY UPDATE shard = shard"""
OPEN_STATE = """\
INSERT INTO {state} (shard, epoch, authority_epoch, state, next_added_id, last_created_at, guarded)
 SELECT %s, 1, 0, %s, COALESCE(MAX(added_id), 0) + 1, COALESCE(MAX(created_at), UTC_TIMESTAMP(6)),
  EXISTS (SELECT 1 FROM {purged_key} k WHERE k.shard = %s) FROM {cell}
 ON DUPLICATE KEY UPDATE shard = VALUES(shard)"""

OPEN_AUTHORITY = """\
INSERT INTO {authority} (shard, authority_epoch, state, first_added_id, at)
 SELECT shard, authority_epoch, state, 1, UTC_TIMESTAMP(6) FROM {state} WHERE shard = %s
 ON DUPLICATE KEY UPDATE at = {authority}.at"""

#: What tables of an earlier version lack; see docs/decisions/0084.
GUARD_COLUMN = "shard_state.guarded"
ADD_GUARD = "ALTER TABLE {state} ADD COLUMN guarded TINYINT UNSIGNED NOT NULL DEFAULT 0"

#: Shards per packet of DDL: what a kill can leave half-made, and one look of the progress.
SHARDS_PER_PACKET = 32


def create_meta(connection: DeadlineConnection, names: Names) -> None:
    """Nothing where all of it is there: a login that may create nothing may repeat it."""
    if _has_table(connection, names, "datastore") and not tables_missing(connection, names):
        return
    # Before `purged_key`: a process that finds that table finds the column.
    if _has_table(connection, names, "shard_state") and not _has_guard(connection, names):
        _add_guard(connection, names)
        reach("schema.guard_added")
    _run(connection, ddl("meta.sql").format(meta=names.meta))


def create_shards(connection: DeadlineConnection, names: Names, shards: Sequence[int], status: ShardStatus) -> None:
    """Create one packet of shards; whatever of it exists stays as it is."""
    template = ddl("shard.sql")
    _run(connection, ";\n".join(template.format(database=names.database(shard)) for shard in shards))
    reach("schema.tables_created")
    with connection.cursor() as cursor:
        connection.begin()
        for shard in shards:
            cursor.execute(names.sql(OPEN_EPOCH, shard), (shard,))
            cursor.execute(names.sql(OPEN_STATE, shard), (shard, status.value, shard))
            cursor.execute(names.meta_sql(OPEN_AUTHORITY), (shard,))
        connection.commit()
    reach("schema.shards_opened")


def create_tables(connection: DeadlineConnection, names: Names, shard: int) -> None:
    """Of a copy, which has no shard's row yet."""
    _run(connection, ddl("shard.sql").format(database=names.database(shard)))


def shards_present(connection: DeadlineConnection, names: Names) -> set[int]:
    if not _has_table(connection, names, "shard_state"):
        return set()
    with connection.cursor() as cursor:
        cursor.execute(PRESENT.format(state=names.shard_state))
        return {shard for (shard,) in cursor.fetchall()}


def tables_missing(connection: DeadlineConnection, names: Names) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(ALL_TABLES, (f"{names.datastore}_meta",))
        there = {name for (name,) in cursor.fetchall()}
    wanted = re.findall(r"CREATE TABLE IF NOT EXISTS {meta}\.(\w+)", ddl("meta.sql"))
    if not there:
        return []
    missing = [name for name in wanted if name not in there]
    return missing if "shard_state" in missing or _has_guard(connection, names) else [*missing, GUARD_COLUMN]


def shard_count(connection: DeadlineConnection, names: Names) -> int | None:
    if not _has_table(connection, names, "datastore"):
        return None
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(meta=names.meta))
        found = cursor.fetchone()
    if found is None:
        return None
    count, number = found
    tableformat.check(connection.node, number, lambda: documents.find(connection, names, tableformat.DOCUMENT))
    return int(count)


def record_shard_count(connection: DeadlineConnection, names: Names, count: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(RECORD.format(meta=names.meta), (count, tableformat.FORMAT))
        cursor.execute(COUNT.format(meta=names.meta))
        known, _format = cursor.fetchone() or (count, None)
    documents.put(connection, names, tableformat.document())
    return int(known)


def _add_guard(connection: DeadlineConnection, names: Names) -> None:
    try:
        _run(connection, ADD_GUARD.format(state=names.shard_state))
    except err.OperationalError as error:
        if error.args[0] != ER.DUP_FIELDNAME:  # another process was faster
            raise


def _has_guard(connection: DeadlineConnection, names: Names) -> bool:
    names.guard.look(connection, again=True)
    return names.guard.is_told


def _has_table(connection: DeadlineConnection, names: Names, table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(TABLES, (f"{names.datastore}_meta", table))
        (found,) = cursor.fetchone() or (0,)
        return bool(found)


def ddl(name: str) -> str:
    text = files("schemaless_core.engine.mysql").joinpath("sql", name).read_text()
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def _run(connection: DeadlineConnection, statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statements)
        while cursor.nextset():
            pass
