"""Reads by key, of rows and of versions. Each returns the shard's own state beside the cells.

The state is read in the same statement, or after the cells: epochs only grow, so a shard that is still the reader's
after the cells were read was so while they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from schemaless_core.cell.page_bytes import bound as page_bound
from schemaless_core.cell.standing import ShardHead, ShardState, ShardStatus
from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.base import Sighting
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.remembered import look_again
from schemaless_core.engine.mysql.rows import stored_cell, values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, answers, binary, bound
from schemaless_core.errors import missing_shard

C = TypeVar("C")
#: As many cells of an answer as there is room for, and whether there are more.
Taking: TypeAlias = Callable[[Names, Sequence[Sequence[Any]], float], tuple[list[C], bool]]


class Bounded(NamedTuple):
    """Cells of a page. No state: the connection was left in the midst of the answer, and another one has to ask."""

    state: ShardState | None
    cells: list[StoredCell]
    is_cut: bool


FIND = """\
SELECT s.epoch, s.authority_epoch, {status}, c.added_id, c.ref_key, c.body, c.created_at
 FROM {state} s LEFT JOIN {cell} c ON c.row_key = %s AND c.column_name = %s AND c.ref_key = %s
 WHERE s.shard = %s"""

FIND_LATEST = """\
SELECT s.epoch, s.authority_epoch, {status}, c.added_id, c.ref_key, c.body, c.created_at
 FROM {state} s LEFT JOIN {cell} c ON c.row_key = %s AND c.column_name = %s
  AND c.ref_key = (SELECT MAX(m.ref_key) FROM {cell} m WHERE m.row_key = %s AND m.column_name = %s)
 WHERE s.shard = %s"""

# STRAIGHT_JOIN: the list comes first, each of its rows is one lookup by the unique key.
FIND_MANY = """\
WITH w (row_key, column_name, ref_key) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM w JOIN {cell} c ON c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key"""

FIND_LATEST_MANY = """\
WITH w (row_key, column_name) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM w JOIN {cell} c ON c.row_key = w.row_key AND c.column_name = w.column_name
  AND c.ref_key = (SELECT MAX(m.ref_key) FROM {cell} m WHERE m.row_key = w.row_key AND m.column_name = w.column_name)"""

FIND_BEFORE_MANY = """\
WITH w (row_key, column_name, ref_key) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM w JOIN {cell} c ON c.row_key = w.row_key AND c.column_name = w.column_name
  AND c.ref_key = (SELECT MAX(m.ref_key) FROM {cell} m
   WHERE m.row_key = w.row_key AND m.column_name = w.column_name AND m.ref_key < w.ref_key)"""

FIND_HIGHEST_MANY = """\
WITH w (row_key, column_name, low, high) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM w JOIN {cell} c ON c.row_key = w.row_key AND c.column_name = w.column_name
  AND c.ref_key = (SELECT MAX(m.ref_key) FROM {cell} m
   WHERE m.row_key = w.row_key AND m.column_name = w.column_name AND m.ref_key BETWEEN w.low AND w.high)"""

FIND_TOMBSTONES_MANY = """\
WITH w (row_key, column_name) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM w JOIN {cell} c ON c.row_key = w.row_key AND c.column_name = w.column_name
  AND c.ref_key = (SELECT MAX(m.ref_key) FROM {cell} m
   WHERE m.row_key = w.row_key AND m.column_name = w.column_name AND m.body = _binary'null')"""

# The lowest of the newest is looked for once a column: asked beside each cell, a long column is read once per version.
FIND_NEWEST_MANY = """\
WITH w (row_key, column_name) AS (VALUES ROWS), newest AS (
 SELECT w.row_key, w.column_name, COALESCE((SELECT m.ref_key FROM {cell} m
   WHERE m.row_key = w.row_key AND m.column_name = w.column_name
   ORDER BY m.ref_key DESC LIMIT 1 OFFSET LAST), -9223372036854775808) AS lowest FROM w)
SELECT STRAIGHT_JOIN c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM newest JOIN {cell} c ON c.row_key = newest.row_key AND c.column_name = newest.column_name
  AND c.ref_key >= newest.lowest
 ORDER BY c.row_key, c.column_name, c.ref_key DESC"""

ROW = """\
SELECT c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell}
   WHERE row_key = %s GROUP BY row_key, column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key"""

ROWS = """\
SELECT c.added_id, c.row_key, c.column_name, c.ref_key, c.body, c.created_at
 FROM (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {cell}
   WHERE row_key IN (KEYS) GROUP BY row_key, column_name) m
 JOIN {cell} c ON c.row_key = m.row_key AND c.column_name = m.column_name AND c.ref_key = m.ref_key"""

# The index is named: MariaDB would begin at the newest version, however old the wanted ones are.
HISTORY = """\
SELECT added_id, row_key, column_name, ref_key, body, created_at FROM {cell} FORCE INDEX (cell_key)
 WHERE row_key = %s AND column_name = %s AND (%s IS NULL OR ref_key < %s) ORDER BY ref_key DESC LIMIT %s"""

HEADS = "SELECT shard, epoch, authority_epoch, {status}, next_added_id FROM {state} WHERE shard IN ({shards})"
ALL_HEADS = "SELECT shard, epoch, authority_epoch, {status}, next_added_id FROM {state}"
AHEAD_MICROSECONDS = "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MAX(last_created_at)) FROM {state}"
HEADS_SINCE = f"{ALL_HEADS} WHERE last_created_at > UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND"


def find(
    connection: DeadlineConnection, names: Names, shard: int, row_key: bytes, column_name: bytes, ref_key: int
) -> Sighting:
    found = _found(connection, names, FIND, shard, (row_key, column_name, ref_key, shard))
    return _sighting(names, shard, found, row_key, column_name)


def find_latest(
    connection: DeadlineConnection, names: Names, shard: int, row_key: bytes, column_name: bytes
) -> Sighting:
    found = _found(connection, names, FIND_LATEST, shard, (row_key, column_name, row_key, column_name, shard))
    return _sighting(names, shard, found, row_key, column_name)


def _found(
    connection: DeadlineConnection, names: Names, template: str, shard: int, values: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    if names.remember and not connection.is_unleased:
        quick = look_again(connection, names.remember) + names.sql(_quick(template), shard)
        if (found := _first(connection, quick, values)) is not None:
            return found
        connection.looked_at = -math.inf  # the next call looks: the lease may have been extended by then
    told = _first(connection, names.sql(template, shard), values)
    connection.is_unleased = told is not None and told[2] == ShardStatus.UNLEASED.value
    return told


def _first(connection: DeadlineConnection, packet: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The first row of the packet's last answer."""
    answer = answers(connection, bound(connection, packet, values))[-1]
    return answer.rows[0] if answer.rows else None


@lru_cache
def _quick(template: str) -> str:
    """Of a server with leases: finds nothing unless the session remembers one. To say why takes a server longer."""
    return f"{template.replace('{status}', 'state')}{{remembered}}"


def find_many(
    connection: DeadlineConnection,
    names: Names,
    keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]],
    *,
    below: int | None = None,
) -> dict[int, Sighting]:
    """The cells of these keys that are there; `below`: those with lower added ids only."""
    template = FIND_MANY if below is None else f"{FIND_MANY} WHERE c.added_id < {below:d}"
    statements = {}
    for shard, wanted in keys.items():
        rows = (b"%s, %s, %d" % (binary(key), binary(name), ref_key) for key, name, ref_key in wanted)
        statements[shard] = _listed(connection, names, template, shard, rows)
    return _sightings(connection, names, statements)


def find_latest_many(
    connection: DeadlineConnection, names: Names, columns: Mapping[int, Sequence[tuple[bytes, bytes]]]
) -> dict[int, Sighting]:
    statements = {}
    for shard, wanted in columns.items():
        rows = (b"%s, %s" % (binary(key), binary(name)) for key, name in wanted)
        statements[shard] = _listed(connection, names, FIND_LATEST_MANY, shard, rows)
    return _sightings(connection, names, statements)


def find_before_many(
    connection: DeadlineConnection, names: Names, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]]
) -> dict[int, Sighting]:
    statements = {}
    for shard, wanted in keys.items():
        listed = (b"%s, %s, %d" % (binary(key), binary(name), ref_key) for key, name, ref_key in wanted)
        statements[shard] = _listed(connection, names, FIND_BEFORE_MANY, shard, listed)
    return _sightings(connection, names, statements)


def find_highest_many(
    connection: DeadlineConnection, names: Names, spans: Mapping[int, Sequence[tuple[bytes, bytes, int, int]]]
) -> dict[int, Sighting]:
    statements = {}
    for shard, wanted in spans.items():
        listed = (b"%s, %s, %d, %d" % (binary(key), binary(name), low, high) for key, name, low, high in wanted)
        statements[shard] = _listed(connection, names, FIND_HIGHEST_MANY, shard, listed)
    return _sightings(connection, names, statements)


def find_tombstones_many(
    connection: DeadlineConnection, names: Names, columns: Mapping[int, Sequence[tuple[bytes, bytes]]]
) -> dict[int, Sighting]:
    statements = {}
    for shard, wanted in columns.items():
        listed = (b"%s, %s" % (binary(key), binary(name)) for key, name in wanted)
        statements[shard] = _listed(connection, names, FIND_TOMBSTONES_MANY, shard, listed)
    return _sightings(connection, names, statements)


def find_newest_many(
    connection: DeadlineConnection, names: Names, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], limit: int
) -> dict[int, Bounded]:
    template, statements = FIND_NEWEST_MANY.replace("LAST", str(limit - 1)), {}
    for shard, wanted in columns.items():
        listed = (b"%s, %s" % (binary(key), binary(name)) for key, name in wanted)
        statements[shard] = _listed(connection, names, template, shard, listed)
    return bounded_many(connection, names, statements)


def rows(connection: DeadlineConnection, names: Names, row_keys: Mapping[int, Sequence[bytes]]) -> dict[int, Sighting]:
    statements = {
        shard: names.sql(ROWS, shard).encode().replace(b"KEYS", b", ".join(map(binary, wanted)))
        for shard, wanted in row_keys.items()
    }
    return _sightings(connection, names, statements)


def row(
    connection: DeadlineConnection, names: Names, shard: int, row_key: bytes, columns: Sequence[bytes] | None
) -> Sighting:
    if columns is not None:
        return find_latest_many(connection, names, {shard: [(row_key, name) for name in columns]})[shard]
    return _sightings(connection, names, {shard: bound(connection, names.sql(ROW, shard), (row_key,))})[shard]


def history(
    connection: DeadlineConnection,
    names: Names,
    shard: int,
    row_key: bytes,
    column_name: bytes,
    before: int | None,
    limit: int,
) -> Bounded:
    values = (row_key, column_name, before, before, limit)
    return bounded(connection, names, shard, bound(connection, names.sql(HISTORY, shard), values))


def bounded(connection: DeadlineConnection, names: Names, shard: int, statement: bytes) -> Bounded:
    """Send a statement whose cells may be more than a page has room for, and the look at the shard behind it."""
    return Bounded(*page_and_state(connection, names, shard, statement, within))


def page_and_state(
    connection: DeadlineConnection, names: Names, shard: int, statement: bytes, take: Taking[C]
) -> tuple[ShardState | None, list[C], bool]:
    """The same with whatever is made of the rows, in the order of the fields of `Bounded`."""
    connection.row_bytes_left = page_bound()
    look = heads_statement(names, [shard]).encode()
    with connection.cursor() as cursor:
        cursor.execute(b"; ".join([statement, look]))  # type: ignore[call-overload]  # the stubs say str
        cells, is_cut = take(names, cursor.fetchall(), page_bound())
        seen = None
        if not connection.is_cut:
            cursor.nextset()
            seen = heads_from(cursor.fetchall())
    if seen is not None and shard not in seen:
        raise missing_shard(shard)
    return None if seen is None else seen[shard].state, cells, connection.is_cut or is_cut


def bounded_many(connection: DeadlineConnection, names: Names, statements: Mapping[int, bytes]) -> dict[int, Bounded]:
    """The same of many shards, whose cells together are a page: from the one on that is cut nothing more is read."""
    if not statements:
        return {}
    connection.row_bytes_left = page_bound()
    look, cells = heads_statement(names, statements.keys()).encode(), dict[int, list[StoredCell]]()
    room, cut = page_bound(), set[int]()
    with connection.cursor() as cursor:
        cursor.execute(b"; ".join([*statements.values(), look]))  # type: ignore[call-overload]  # the stubs say str
        for shard in statements:
            cells[shard], is_cut = within(names, cursor.fetchall(), room)
            room -= sum(len(cell.body) for cell in cells[shard])
            cut |= {shard} if is_cut else set()
            if connection.is_cut:
                break
            cursor.nextset()
        seen = None if connection.is_cut else heads_from(cursor.fetchall())
    last = next(reversed(cells))
    found = dict[int, Bounded]()
    for shard in statements:
        if seen is not None and shard not in seen:
            raise missing_shard(shard)
        is_cut = shard in cut or (seen is None and (shard == last or shard not in cells))
        found[shard] = Bounded(None if seen is None else seen[shard].state, cells.get(shard, []), is_cut)
    return found


def within(names: Names, rows: Sequence[Sequence[Any]], room: float) -> tuple[list[StoredCell], bool]:
    """As many cells as there is room for, and whether there are more. What is compressed takes more than it took."""
    cells = list[StoredCell]()
    for row in rows:
        if room <= 0:
            break
        cells.append(stored_cell(names, row))
        room -= len(cells[-1].body)
    return cells, len(cells) < len(rows)


def heads(connection: DeadlineConnection, names: Names, shards: Collection[int] | None) -> dict[int, ShardHead]:
    if shards is not None and not shards:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(heads_statement(names, shards))
        return heads_from(cursor.fetchall())


def ahead_seconds(connection: DeadlineConnection, names: Names) -> float:
    with connection.cursor() as cursor:
        cursor.execute(AHEAD_MICROSECONDS.format(state=names.shard_state))
        (microseconds,) = cursor.fetchone() or (None,)
        return max(microseconds or 0, 0) / 1_000_000


def heads_since(connection: DeadlineConnection, names: Names, seconds: float) -> dict[int, ShardHead]:
    with connection.cursor() as cursor:
        cursor.execute(HEADS_SINCE.format(state=names.shard_state, status=names.status), (int(seconds * 1_000_000),))
        return heads_from(cursor.fetchall())


def heads_statement(names: Names, shards: Collection[int] | None) -> str:
    if shards is None:
        return ALL_HEADS.format(state=names.shard_state, status=names.status)
    listed = ", ".join(str(int(shard)) for shard in shards)
    return HEADS.format(state=names.shard_state, status=names.status, shards=listed)


def heads_from(rows: Iterable[tuple[Any, ...]]) -> dict[int, ShardHead]:
    return {
        shard: ShardHead(ShardState(epoch, authority_epoch, state), next_added_id - 1)
        for shard, epoch, authority_epoch, state, next_added_id in rows
    }


def _sighting(names: Names, shard: int, found: tuple[Any, ...] | None, row_key: bytes, column_name: bytes) -> Sighting:
    if found is None:
        raise missing_shard(shard)
    state = ShardState(*found[:3])
    added_id, ref_key, body, created_at = found[3:]
    if added_id is None:
        return Sighting(state, [])
    return Sighting(state, [stored_cell(names, (added_id, row_key, column_name, ref_key, body, created_at))])


def _sightings(connection: DeadlineConnection, names: Names, statements: Mapping[int, bytes]) -> dict[int, Sighting]:
    """Send one statement per shard and the look at their states behind them, as one packet."""
    if not statements:
        return {}
    look = heads_statement(names, statements.keys()).encode()
    cells: dict[int, list[StoredCell]] = {}
    with connection.cursor() as cursor:
        cursor.execute(b"; ".join([*statements.values(), look]))  # type: ignore[call-overload]  # the stubs say str
        for shard in statements:
            cells[shard] = [stored_cell(names, found) for found in cursor.fetchall()]
            cursor.nextset()
        seen = heads_from(cursor.fetchall())
    for shard in statements:
        if shard not in seen:
            raise missing_shard(shard)
    return {shard: Sighting(seen[shard].state, found) for shard, found in cells.items()}


def _listed(connection: DeadlineConnection, names: Names, template: str, shard: int, rows: Iterable[bytes]) -> bytes:
    return names.sql(template, shard).encode().replace(b"VALUES ROWS", values_of(connection, rows))
