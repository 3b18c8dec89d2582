"""What stands beside many logs: whether it has changed, and what it is, by as many statements as for one shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Beside, BesideSum, NumberedLines, Row, Rows
from schemaless_core.engine.mysql.copies import tables
from schemaless_core.engine.mysql.copies.rows import CopyRows
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection


def _sum(part: str, table: str, hashed: str, where: str = "", first: str = "0") -> str:
    return f"SELECT '{part}', shard, COUNT(*), BIT_XOR({hashed}), MIN({first}) FROM {table}{where} GROUP BY shard"


def _of(*columns: str) -> str:
    """64 bits of what these columns have. Not every MySQL has MD5."""
    digest = f"SHA2(CONCAT_WS(_binary'\\0', {', '.join(columns)}), 256)"
    return f"CAST(CONV(LEFT({digest}, 16), 16, 10) AS UNSIGNED)"


# What a copy is given alone: no fences, no groups of indexes, no claim. Times of purged keys are those of each server.
_NO_INDEX = " WHERE group_name NOT LIKE 'index:%'"
SUMS = " UNION ALL ".join(
    [
        _sum("state", "{state}", "authority_epoch"),
        _sum("offset", "{offset}", _of("group_name", "epoch", "added_id"), _NO_INDEX),
        _sum(
            "parked",
            "{parked}",
            _of(
                "group_name",
                "added_id",
                "row_key",
                "column_name",
                "ref_key",
                "attempts",
                "is_waiting",
                "error",
                "parked_at",
                "next_attempt_at",
            ),
            _NO_INDEX,
        ),
        _sum("history", "{history}", _of("epoch", "first_added_id", "opened_at", "why"), " WHERE epoch > 0"),
        _sum("authority", "{authority}", _of("authority_epoch", "state", "first_added_id", "at")),
        _sum("purged", "{purged_key}", _of("row_key", "column_name", "ref_key", "is_erased")),
        _sum("lines", "{mended}", "CAST(CONV(LEFT(HEX(token), 16), 16, 10) AS UNSIGNED)", first="id"),
    ]
)
FEW_PARTS = ("state", "offset", "parked", "history", "authority")

ROWS_OF = "SELECT shard, authority_epoch, last_created_at FROM {state} WHERE shard IN (SHARDS)"
_PARKED = tables.TABLES["trigger_parked"].select.replace("shard = %s", "shard IN (SHARDS)")
PARKED_OF = f"""\
{_PARKED} AND (group_name > %s OR group_name = %s AND (shard > %s OR shard = %s AND added_id > %s))
 ORDER BY group_name, shard, added_id LIMIT %s"""
LINES_OF = tables.LINES.replace("shard = %s", "shard IN (SHARDS)")
KNOWN_LINES = "SELECT token FROM {mended} WHERE token IN %s"

DELETE_CELLS = "DELETE FROM {cell} WHERE added_id IN %s AND added_id <= %s"
PASS = """\
INSERT INTO {purged} (shard, added_id, at) VALUES ROWS ON DUPLICATE KEY UPDATE added_id = {purged}.added_id"""
IDS_PER_STATEMENT = 1_000
#: Where the shard stands in the rows of a table.
_SHARD = {"trigger_offset": 1}


class CopiedSums(CopyRows):
    """The verbs about many shards."""

    def sums_beside(self, deadline: Deadline) -> dict[int, BesideSum]:
        rows = self._sessions.run(lambda connection: self._rows(connection, SUMS), deadline)
        found: defaultdict[int, dict[str, tuple[int, int, int]]] = defaultdict(dict)
        for part, shard, count, total, first in rows:
            found[int(shard)][_text(part)] = (int(count), int(total), int(first))
        return {shard: _beside_sum(parts) for shard, parts in found.items() if "state" in parts}

    def few_of(self, shards: Collection[int], purged: Collection[int], deadline: Deadline) -> dict[int, Beside]:
        wanted = {name: purged if name == "purged_key" else shards for name in tables.FEW}

        def read(connection: DeadlineConnection) -> dict[int, Beside]:
            states = self._rows(connection, _listed(ROWS_OF, shards))
            found: dict[int, dict[str, Rows]] = {int(row[0]): {} for row in states}
            for name, some in wanted.items():
                statement = tables.TABLES[name].select.replace("shard = %s", "shard IN (SHARDS)")
                rows = self._rows(connection, _listed(statement, some)) if some else []
                for shard, its in _by_shard(rows, _SHARD.get(name, 0)).items():
                    found[shard][name] = its
            empty: dict[str, Rows] = dict.fromkeys(tables.FEW, ())
            return {int(n): Beside(int(epoch), at, {**empty, **found[int(n)]}, [], 0) for n, epoch, at in states}

        return self._sessions.run(read, deadline)

    def parked_of(self, shards: Collection[int], after: Row | None, limit: int, deadline: Deadline) -> Rows:
        group, shard, added_id = (b"", 0, 0) if after is None else after[:3]
        values = (group, group, shard, shard, added_id, limit)
        return self._sessions.run(
            lambda connection: self._rows(connection, _listed(PARKED_OF, shards), values), deadline
        )

    def lines_of(self, shards: Collection[int], mark: int, limit: int, deadline: Deadline) -> NumberedLines:
        def read(connection: DeadlineConnection) -> NumberedLines:
            ((newest,),) = self._rows(connection, tables.NEWEST_LINE)
            reached = min(mark + limit, int(newest))
            found = self._rows(connection, _listed(LINES_OF, shards), (mark, reached))
            return NumberedLines(found, reached, reached >= newest)

        return self._sessions.run(read, deadline)

    def known_lines(self, tokens: Collection[bytes], deadline: Deadline) -> set[bytes]:
        listed = list(tokens)

        def read(connection: DeadlineConnection) -> set[bytes]:
            return {
                bytes(row[0])
                for first in range(0, len(listed), IDS_PER_STATEMENT)
                for row in self._rows(connection, KNOWN_LINES, (listed[first : first + IDS_PER_STATEMENT],))
            }

        return self._sessions.run(read, deadline)

    def pass_over(self, shard: int, claim: int, added_ids: Collection[int], deadline: Deadline) -> bool:
        def change(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                if seen is None or not self._may(connection, shard, seen, claim):
                    return False
                ids = sorted(each for each in added_ids if each <= seen.head)
                for first in range(0, len(ids), IDS_PER_STATEMENT):
                    some = ids[first : first + IDS_PER_STATEMENT]
                    self._do(connection, self._of(DELETE_CELLS, shard), (some, seen.head))
                    rows = ", ".join(f"({int(shard)}, {int(each)}, UTC_TIMESTAMP(6))" for each in some)
                    self._do(connection, PASS.replace("ROWS", rows))
            return True

        return self._sessions.write(change, deadline)


def _beside_sum(parts: dict[str, tuple[int, int, int]]) -> BesideSum:
    none = (0, 0, 0)
    few = tuple(number for part in FEW_PARTS for number in parts.get(part, none)[:2])
    lines = parts.get("lines", none)
    return BesideSum(few, parts.get("purged", none)[:2], lines[:2], lines[2])


def _listed(template: str, shards: Collection[int]) -> str:
    return template.replace("SHARDS", ", ".join(str(int(shard)) for shard in sorted(shards)))


def _by_shard(rows: Rows, place: int) -> dict[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[int(row[place])].append(row)
    return found


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
