"""Walks over a whole shard: rows in key order, and checksums computed where the cells are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import md5
from typing import TypeVar

from pymysql import err

from schemaless_core.engine.base import BucketSum, HashedCell, Sighting
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads
from schemaless_core.engine.mysql.rows import stored_cell
from schemaless_core.errors import missing_shard
from schemaless_core.sharding import BUCKETS_PER_SHARD, bucket_of
from schemaless_core.standing import ShardState

T = TypeVar("T")

SCAN = """\
SELECT c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM (SELECT r.row_key, v.column_name, MAX(v.ref_key) AS ref_key
   FROM (SELECT DISTINCT row_key FROM {cell} WHERE AFTER COLUMNS ORDER BY row_key LIMIT %s) r
   JOIN {cell} v ON v.row_key = r.row_key WHERE TRUE COLUMNS GROUP BY r.row_key, v.column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 ORDER BY c.row_key, c.column_name"""

# How many cells and columns there are: by the index alone.
COUNTS = """\
SELECT COALESCE(SUM(versions), 0), COUNT(*)
 FROM (SELECT COUNT(*) AS versions FROM {cell} WHERE TRUE COLUMNS GROUP BY row_key, column_name) v"""
_LATEST = """\
(SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell} WHERE TRUE COLUMNS GROUP BY row_key, column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key"""
_SUPERSEDED = """\
(SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell} WHERE TRUE COLUMNS GROUP BY row_key, column_name
   HAVING COUNT(*) > 1) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key < m.ref_key"""
# The last digit of the second four bytes of md5: it is they modulo 16.
_BUCKET = "SUBSTR(MD5(c.row_key), 16, 1)"
assert BUCKETS_PER_SHARD == 16
_BYTES = "CONCAT(c.row_key, c.column_name, _binary'\\0', c.ref_key, _binary'\\0', c.body)"
_HASH = f"CAST(CONV(LEFT(MD5({_BYTES}), 16), 16, 10) AS UNSIGNED)"
# The sum of unsigned 64-bit hashes is exact: MySQL adds integers as decimals.
CHECKSUM = f"SELECT {_BUCKET} AS bucket, COUNT(*), SUM({_HASH}) FROM {_LATEST} GROUP BY bucket"
# The same of one moment, where few cells have a version above them: all that there are, less those few.
CHECKSUM_OF_FEW_VERSIONS = f"""\
SELECT {_BUCKET} AS bucket, COUNT(*), SUM({_HASH}) FROM {{cell}} c WHERE TRUE COLUMNS GROUP BY bucket
 UNION ALL SELECT {_BUCKET} AS bucket, -COUNT(*), -SUM({_HASH}) FROM {_SUPERSEDED} GROUP BY bucket"""
#: Up to so many versions of a column, on average, that is cheaper.
VERSIONS_FEW = 1.3

DIGESTS = f"SELECT c.row_key, c.column_name, c.ref_key, {_HASH} FROM {_LATEST} WHERE {_BUCKET} IN (BUCKETS)"
# What is hashed, of as many columns as fit into a page, in one piece: the driver takes long for each value of a row.
PACKED = f"""\
SELECT {_BYTES} FROM
 (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {{cell}} WHERE AFTER COLUMNS
   GROUP BY row_key, column_name ORDER BY row_key, column_name LIMIT %s) m
 JOIN {{cell}} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 ORDER BY c.row_key, c.column_name"""

#: MySQL 9.6 moved md5() into a component that is not installed by default; without a database it says 1046.
_NO_SUCH_FUNCTION = frozenset({1046, 1305})
CELLS_PER_PAGE = 5_000


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
    sums = _there_or_here(
        lambda: _checksum_there(connection, names, shard, columns),
        lambda: _checksum_here(connection, names, shard, columns),
    )
    return _state(connection, names, shard), sums


def digests(
    connection: DeadlineConnection,
    names: Names,
    shard: int,
    buckets: Collection[int],
    columns: Sequence[bytes] | None,
) -> tuple[ShardState, list[HashedCell]]:
    found = _there_or_here(
        lambda: _digests_there(connection, names, shard, buckets, columns),
        lambda: [
            HashedCell(*key, int.from_bytes(hashed[:8], "big"))
            for number, key, hashed in _hashed_here(connection, names, shard, columns)
            if number in buckets
        ],
    )
    return _state(connection, names, shard), found


def _there_or_here(there: Callable[[], T], here: Callable[[], T]) -> T:
    try:
        return there()
    except err.MySQLError as error:
        if error.args[0] not in _NO_SUCH_FUNCTION:
            raise
        return here()


def _checksum_there(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> list[BucketSum]:
    totals: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    with connection.cursor() as cursor:
        statement, chosen = _with_columns(COUNTS, columns)
        cursor.execute(names.sql(statement, shard), chosen)
        ((cells, found),) = cursor.fetchall()
        template = CHECKSUM_OF_FEW_VERSIONS if cells <= found * VERSIONS_FEW else CHECKSUM
        statement, chosen = _with_columns(template, columns)
        cursor.execute(names.sql(statement, shard), chosen * template.count("COLUMNS"))
        for digit, count, total in cursor.fetchall():
            bucket = totals[int(digit, 16)]
            bucket[0] += int(count)
            bucket[1] += int(total)
    return [BucketSum(number, *totals[number]) for number in sorted(totals) if totals[number][0]]


def _digests_there(
    connection: DeadlineConnection, names: Names, shard: int, buckets: Collection[int], columns: Sequence[bytes] | None
) -> list[HashedCell]:
    statement, chosen = _with_columns(DIGESTS, columns)
    digits = ", ".join(f"'{number:x}'" for number in sorted(buckets)) or "NULL"
    with connection.cursor() as cursor:
        cursor.execute(names.sql(statement.replace("BUCKETS", digits), shard), chosen)
        return [HashedCell(*found) for found in cursor.fetchall()]


def _checksum_here(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> list[BucketSum]:
    """The same sums in this process, for a server without md5()."""
    cells, totals = [0] * BUCKETS_PER_SHARD, [0] * BUCKETS_PER_SHARD
    for number, _key, hashed in _hashed_here(connection, names, shard, columns):
        cells[number] += 1
        totals[number] += int.from_bytes(hashed[:8], "big")
    return [BucketSum(n, cells[n], totals[n]) for n in range(BUCKETS_PER_SHARD) if cells[n]]


def _hashed_here(
    connection: DeadlineConnection, names: Names, shard: int, columns: Sequence[bytes] | None
) -> Iterator[tuple[int, tuple[bytes, bytes, int], bytes]]:
    """Bucket, key and md5 of each latest cell, page by page."""
    template, chosen = _with_columns(PACKED, columns)
    last: tuple[bytes, bytes] | None = None
    limit = CELLS_PER_PAGE
    while True:
        # A row whose columns did not all fit is begun again.
        statement = template.replace("AFTER", "TRUE" if last is None else "row_key >= %s")
        values = [*([] if last is None else [last[0]]), *chosen, limit]
        with connection.cursor() as cursor:
            cursor.execute(names.sql(statement, shard), values)
            page = cursor.fetchall()
        before = last
        for (packed,) in page:
            name, ref_key, _body = packed[16:].split(b"\0", 2)
            key = packed[:16], name
            if last is None or key > last:
                last = key
                yield bucket_of(key[0]), (*key, int(ref_key)), md5(packed, usedforsecurity=False).digest()
        if len(page) < limit:
            return
        limit = limit * 2 if last == before else CELLS_PER_PAGE  # a row with more columns than a page has room for


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
