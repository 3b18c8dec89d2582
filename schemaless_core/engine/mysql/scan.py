"""Walks over a whole shard: rows in key order, and checksums computed where the cells are."""

from __future__ import annotations

from collections.abc import Sequence

from pymysql import err

from schemaless_core.engine.base import BucketSum, Sighting
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads
from schemaless_core.engine.mysql.rows import stored_cell
from schemaless_core.errors import missing_shard
from schemaless_core.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash
from schemaless_core.standing import ShardState

SCAN = """\
SELECT c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM (SELECT r.row_key, v.column_name, MAX(v.ref_key) AS ref_key
   FROM (SELECT DISTINCT row_key FROM {cell} WHERE AFTER COLUMNS ORDER BY row_key LIMIT %s) r
   JOIN {cell} v ON v.row_key = r.row_key WHERE TRUE COLUMNS GROUP BY r.row_key, v.column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 ORDER BY c.row_key, c.column_name"""

# The sum of unsigned 64-bit hashes is exact: MySQL adds integers as decimals.
CHECKSUM = """\
SELECT CAST(CONV(SUBSTR(MD5(c.row_key), 9, 8), 16, 10) AS UNSIGNED) % BUCKETS AS bucket, COUNT(*),
  SUM(CAST(CONV(LEFT(MD5(CONCAT(c.row_key, c.column_name, _binary'\\0',
    CAST(CAST(c.ref_key AS CHAR) AS BINARY), _binary'\\0', c.body)), 16), 16, 10) AS UNSIGNED))
 FROM (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell}
   WHERE TRUE COLUMNS GROUP BY row_key, column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 GROUP BY bucket ORDER BY bucket""".replace("BUCKETS", str(BUCKETS_PER_SHARD))

#: MySQL 9.6 moved md5() into a component that is not installed by default; without a database it says 1046.
_NO_SUCH_FUNCTION = frozenset({1046, 1305})
ROWS_PER_PAGE = 1000


def scan(
    connection: DeadlineConnection,
    names: Names,
    shard: int,
    after: bytes | None,
    limit: int,
    columns: Sequence[bytes] | None,
) -> Sighting:
    statement, chosen = _with_columns(SCAN, columns)
    statement = statement.replace("AFTER", "TRUE" if after is None else "row_key > %s")
    values = [*([] if after is None else [after]), *chosen, limit, *chosen]
    with connection.cursor() as cursor:
        cursor.execute(names.sql(statement, shard), values)
        cells = [stored_cell(found) for found in cursor.fetchall()]
    return Sighting(_state(connection, names, shard), cells)


def checksum(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> tuple[ShardState, list[BucketSum]]:
    try:
        sums = _checksum_there(connection, names, shard, columns)
    except err.MySQLError as error:
        if error.args[0] not in _NO_SUCH_FUNCTION:
            raise
        sums = _checksum_here(connection, names, shard, columns)
    return _state(connection, names, shard), sums


def _checksum_there(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> list[BucketSum]:
    statement, chosen = _with_columns(CHECKSUM.replace("%", "%%"), columns)
    with connection.cursor() as cursor:
        cursor.execute(names.sql(statement, shard), chosen)
        return [BucketSum(int(number), int(cells), int(total)) for number, cells, total in cursor.fetchall()]


def _checksum_here(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> list[BucketSum]:
    """The same sums in this process, row by row, for a server without md5()."""
    cells, totals = [0] * BUCKETS_PER_SHARD, [0] * BUCKETS_PER_SHARD
    after: bytes | None = None
    while True:
        page = scan(connection, names, shard, after, ROWS_PER_PAGE, columns).cells
        for _added_id, row_key, column_name, ref_key, body, _created_at in page:
            number = bucket_of(row_key)
            cells[number] += 1
            totals[number] += cell_hash(row_key, column_name, ref_key, body)
        if not page:
            break
        after = page[-1].row_key
    return [BucketSum(n, cells[n], totals[n]) for n in range(BUCKETS_PER_SHARD) if cells[n]]


def _with_columns(template: str, columns: Sequence[bytes] | None) -> tuple[str, list[bytes]]:
    if columns is None:
        return template.replace("COLUMNS", ""), []
    places = ", ".join(["%s"] * len(columns)) or "NULL"
    return template.replace("COLUMNS", f"AND column_name IN ({places})"), list(columns)


def _state(connection: DeadlineConnection, names: Names, shard: int) -> ShardState:
    seen = heads(connection, names, [shard])
    if shard not in seen:
        raise missing_shard(shard)
    return seen[shard].state
