"""Walks over a whole shard: rows in key order, and checksums computed where the cells are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import md5
from itertools import groupby
from typing import Any, TypeVar

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core.cell.children import FACTS
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash
from schemaless_core.cell.standing import ShardState
from schemaless_core.cell.stored import Version
from schemaless_core.engine.base import BucketSum, HashedCell
from schemaless_core.engine.bodies import MARK_NUMBER
from schemaless_core.engine.kinds import ColumnKind, kinds_of
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import Bounded, bounded, heads, page_and_state
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.errors import missing_shard

T = TypeVar("T")


#: The key of a cell, and what of it is hashed.
_Packed = tuple[tuple[bytes, bytes, int], bytes]

SCAN = """\
SELECT c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM (SELECT r.row_key, v.column_name, MAX(v.ref_key) AS ref_key
   FROM (SELECT DISTINCT row_key FROM {cell} WHERE AFTER COLUMNS ORDER BY row_key LIMIT %s) r
   JOIN {cell} v ON v.row_key = r.row_key WHERE TRUE COLUMNS GROUP BY r.row_key, v.column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 ORDER BY c.row_key, c.column_name"""

# How many cells and rows of a company's there are: by the index alone.
COUNTS = """\
SELECT COALESCE(SUM(versions), 0), COUNT(*)
 FROM (SELECT COUNT(*) AS versions FROM {cell} WHERE TRUE COLUMNS GROUP BY row_key, column_name FAMILY) v"""
_LATEST = """\
(SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell} WHERE TRUE COLUMNS
   GROUP BY row_key, column_name FAMILY) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key"""
_SUPERSEDED = """\
(SELECT row_key, column_name, MIN(ref_key) AS lowest, MAX(ref_key) AS ref_key FROM {cell} WHERE TRUE COLUMNS
   GROUP BY row_key, column_name FAMILY HAVING COUNT(*) > 1) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name
  AND c.ref_key >= m.lowest AND c.ref_key < m.ref_key"""
# The highest tombstone of each column of facts: all below it went with their parent.
_ENDS = """\
(SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell} WHERE body = _binary'null' COLUMNS
   GROUP BY row_key, column_name) m"""
_ENDED = f"""\
{_ENDS}
 JOIN {{cell}} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key < m.ref_key"""
_FACTS = f"""\
(SELECT row_key, column_name, ref_key, body FROM {{cell}} WHERE TRUE COLUMNS) c
 LEFT JOIN {_ENDS} ON m.row_key = c.row_key AND m.column_name = c.column_name AND m.ref_key > c.ref_key"""
# The last digit of the second four bytes of md5: it is they modulo 16.
_BUCKET = "SUBSTR(MD5(c.row_key), 16, 1)"
assert BUCKETS_PER_SHARD == 16
_BYTES = "CONCAT(c.row_key, c.column_name, _binary'\\0', c.ref_key, _binary'\\0', c.body)"
_HASH = f"CAST(CONV(LEFT(MD5({_BYTES}), 16), 16, 10) AS UNSIGNED)"
# Compressed bodies, of which a server cannot hash what they say.
_COMPRESSED = f"SUM(ASCII(c.body) = {MARK_NUMBER})"
# The sum of unsigned 64-bit hashes is exact: MySQL adds integers as decimals.
CHECKSUM = f"SELECT {_BUCKET} AS bucket, COUNT(*), SUM({_HASH}), {_COMPRESSED} FROM {_LATEST} GROUP BY bucket"
# The same of one moment, where few cells are not the latest: all that there are, less those few.
_CHECKSUM_LESS = f"""\
SELECT {_BUCKET} AS bucket, COUNT(*), SUM({_HASH}), {_COMPRESSED} FROM {{cell}} c WHERE TRUE COLUMNS GROUP BY bucket
 UNION ALL SELECT {_BUCKET} AS bucket, -COUNT(*), -SUM({_HASH}), 0 FROM FEW GROUP BY bucket"""
CHECKSUM_OF_FEW_VERSIONS = _CHECKSUM_LESS.replace("FEW", _SUPERSEDED)
CHECKSUM_OF_FACTS = _CHECKSUM_LESS.replace("FEW", _ENDED)
#: Up to so many versions of a row, on average, that is cheaper.
VERSIONS_FEW = 1.3

_DIGEST = f"SELECT c.row_key, c.column_name, c.ref_key, {_HASH}, IF(ASCII(c.body) = {MARK_NUMBER}, c.body, NULL)"
DIGESTS = f"{_DIGEST} FROM {_LATEST} WHERE {_BUCKET} IN (BUCKETS)"
DIGESTS_OF_FACTS = f"{_DIGEST} FROM {_FACTS} WHERE m.ref_key IS NULL AND {_BUCKET} IN (BUCKETS)"
# What is hashed, of as many rows as fit into a page, in one piece: the driver takes long for each value of a row.
PACKED = f"""\
SELECT {_BYTES} FROM
 (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {{cell}} WHERE AFTER COLUMNS
   GROUP BY row_key, column_name FAMILY ORDER BY row_key, column_name, ref_key LIMIT %s) m
 JOIN {{cell}} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key
 ORDER BY c.row_key, c.column_name, c.ref_key"""
PACKED_FACTS = f"""\
SELECT {_BYTES} FROM {{cell}} c WHERE AFTER COLUMNS ORDER BY row_key, column_name, ref_key LIMIT %s"""

# The index is named: of a page that is a good part of a shard, a server would read all of it and sort.
SCAN_VERSIONS = f"""\
SELECT {_BYTES} FROM {{cell}} c FORCE INDEX (cell_key)
 WHERE AFTER COLUMNS ORDER BY row_key, column_name, ref_key LIMIT %s"""

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
) -> Bounded:
    return bounded(connection, names, shard, _page(connection, names, SCAN, shard, after, limit, columns))


def scan_versions(
    connection: DeadlineConnection,
    names: Names,
    shard: int,
    after: bytes | None,
    limit: int,
    columns: Sequence[bytes] | None,
) -> tuple[ShardState | None, list[Version], bool]:
    """As `bounded`, of versions."""
    statement = _page(connection, names, SCAN_VERSIONS, shard, after, limit, columns)
    return page_and_state(connection, names, shard, statement, _versions)


def _versions(names: Names, rows: Sequence[Sequence[Any]], room: float) -> tuple[list[Version], bool]:
    """As many as there is room for, and whether there are more."""
    found, plain = list[Version](), names.bodies.plain
    for (packed,) in rows:
        if room <= 0:
            break
        name, number, body = packed[16:].split(b"\0", 2)
        body = plain(body)
        found.append(Version(packed[:16], name, int(number), body))
        room -= len(body)
    return found, len(found) < len(rows)


def _page(
    connection: DeadlineConnection,
    names: Names,
    template: str,
    shard: int,
    after: bytes | None,
    limit: int,
    columns: Sequence[bytes] | None,
) -> bytes:
    """The statement of a page."""
    (kind,) = kinds_of(columns, {})
    values = [*([] if after is None else [after]), *kind.names, limit, *kind.names * (template.count("COLUMNS") - 1)]
    statement = _of_kind(template, kind).replace("AFTER", "TRUE" if after is None else "row_key > %s")
    with connection.cursor() as cursor:
        return cursor.mogrify(names.sql(statement, shard), values).encode("utf-8", "surrogateescape")


def checksum(
    connection: DeadlineConnection, names: Names, shard: int, kinds: Sequence[ColumnKind]
) -> tuple[ShardState, list[BucketSum]]:
    sums = _there_or_here(
        lambda: _checksum_there(connection, names, shard, kinds),
        lambda: _checksum_here(connection, names, shard, kinds),
    )
    return _state(connection, names, shard), sums


def digests(
    connection: DeadlineConnection, names: Names, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind]
) -> tuple[ShardState, list[HashedCell]]:
    found = _there_or_here(
        lambda: _digests_there(connection, names, shard, buckets, kinds),
        lambda: [
            HashedCell(*key, int.from_bytes(hashed[:8], "big"))
            for number, key, hashed in _hashed_here(connection, names, shard, kinds)
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
    connection: DeadlineConnection, names: Names, shard: int, kinds: Sequence[ColumnKind]
) -> list[BucketSum]:
    """Each kind of columns is summed as of a moment of its own. A shard with compressed bodies is summed here."""
    totals: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    compressed = 0
    with connection.cursor() as cursor:
        for kind in kinds:
            template = _checksum_of(cursor, names, shard, kind)
            cursor.execute(names.sql(_of_kind(template, kind), shard), [*kind.names] * template.count("COLUMNS"))
            for digit, count, total, of_them in cursor.fetchall():
                bucket = totals[int(digit, 16)]
                bucket[0] += int(count)
                bucket[1] += int(total)
                compressed += int(of_them)
    if compressed:
        return _checksum_here(connection, names, shard, kinds)
    return [BucketSum(number, *totals[number]) for number in sorted(totals) if totals[number][0]]


def _checksum_of(cursor: Cursor, names: Names, shard: int, kind: ColumnKind) -> str:
    """The statement that is the cheapest for these columns."""
    if kind.bits == FACTS:
        return CHECKSUM_OF_FACTS
    cursor.execute(names.sql(_of_kind(COUNTS, kind), shard), kind.names)
    ((cells, found),) = cursor.fetchall()
    return CHECKSUM_OF_FEW_VERSIONS if cells <= found * VERSIONS_FEW else CHECKSUM


def _digests_there(
    connection: DeadlineConnection, names: Names, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind]
) -> list[HashedCell]:
    digits = ", ".join(f"'{number:x}'" for number in sorted(buckets)) or "NULL"
    found: list[HashedCell] = []
    with connection.cursor() as cursor:
        for kind in kinds:
            template = DIGESTS_OF_FACTS if kind.bits == FACTS else DIGESTS
            statement = _of_kind(template.replace("BUCKETS", digits), kind)
            cursor.execute(names.sql(statement, shard), [*kind.names] * template.count("COLUMNS"))
            found += [_digest(names, *each) for each in cursor.fetchall()]
    return found


def _digest(
    names: Names, row_key: bytes, column_name: bytes, ref_key: int, hashed: int, compressed: bytes | None
) -> HashedCell:
    if compressed is not None:
        hashed = cell_hash(row_key, column_name, ref_key, names.bodies.plain(compressed))
    return HashedCell(row_key, column_name, ref_key, hashed)


def _checksum_here(
    connection: DeadlineConnection, names: Names, shard: int, kinds: Sequence[ColumnKind]
) -> list[BucketSum]:
    """The same sums in this process, for a server without md5(), and for bodies that it cannot read."""
    cells, totals = [0] * BUCKETS_PER_SHARD, [0] * BUCKETS_PER_SHARD
    for number, _key, hashed in _hashed_here(connection, names, shard, kinds):
        cells[number] += 1
        totals[number] += int.from_bytes(hashed[:8], "big")
    return [BucketSum(n, cells[n], totals[n]) for n in range(BUCKETS_PER_SHARD) if cells[n]]


def _hashed_here(
    connection: DeadlineConnection, names: Names, shard: int, kinds: Sequence[ColumnKind]
) -> Iterator[tuple[int, tuple[bytes, bytes, int], bytes]]:
    """Bucket, key and md5 of each latest cell, page by page."""
    for kind in kinds:
        found = _packed(connection, names, shard, kind)
        for key, packed in _not_ended(found) if kind.bits == FACTS else found:
            yield bucket_of(key[0]), key, md5(packed, usedforsecurity=False).digest()


def _packed(connection: DeadlineConnection, names: Names, shard: int, kind: ColumnKind) -> Iterator[_Packed]:
    """What is hashed of one kind of columns, in the order of its keys; of facts those that have ended, too."""
    template = _of_kind(PACKED_FACTS if kind.bits == FACTS else PACKED, kind)
    last: tuple[bytes, bytes, int] | None = None
    limit = CELLS_PER_PAGE
    while True:
        # A row whose cells did not all fit is begun again.
        statement = template.replace("AFTER", "TRUE" if last is None else "row_key >= %s")
        values = [*([] if last is None else [last[0]]), *kind.names, limit]
        with connection.cursor() as cursor:
            cursor.execute(names.sql(statement, shard), values)
            page = cursor.fetchall()
        before = last
        for (packed,) in page:
            name, number, body = packed[16:].split(b"\0", 2)
            ref_key = int(number)
            place = packed[:16], name, kind.child(ref_key)
            if last is None or place > last:
                last = place
                yield (packed[:16], name, ref_key), packed[: len(packed) - len(body)] + names.bodies.plain(body)
        if len(page) < limit:
            return
        limit = limit * 2 if last == before else CELLS_PER_PAGE  # a row with more cells than a page has room for


def _not_ended(found: Iterable[_Packed]) -> Iterator[_Packed]:
    """Of each column of facts what its highest tombstone, if there is one, does not end."""
    for _column, facts in groupby(found, key=lambda each: each[0][:2]):
        living: list[_Packed] = []
        for each in facts:
            if each[1].endswith(b"\0null"):
                living.clear()
            living.append(each)
        yield from living


def _of_kind(template: str, kind: ColumnKind) -> str:
    return template.replace("COLUMNS", kind.condition("%s")).replace("FAMILY", kind.family)


def _state(connection: DeadlineConnection, names: Names, shard: int) -> ShardState:
    seen = heads(connection, names, [shard])
    if shard not in seen:
        raise missing_shard(shard)
    return seen[shard].state
