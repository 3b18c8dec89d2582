"""What stands beside a shard's log, as it is copied: offsets, parked cells, histories, purged ids, repair's lines."""

from __future__ import annotations

from collections.abc import Collection

from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Beside, MendedLines, Row, Rows
from schemaless_core.engine.mysql.copies import tables
from schemaless_core.engine.mysql.copies.rows import HOLD, CopyRows
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.errors import missing_shard

# Repair writes its lines under the shard's row: those up to the newest line of this moment are all committed. By one
# packet, since writers of the shard wait for it.
NEWEST = f"START TRANSACTION; {HOLD}; {tables.NEWEST_LINE}; COMMIT"


class CopiedBeside(CopyRows):
    """The verbs about it."""

    def beside(self, shard: int, mark: int, deadline: Deadline) -> Beside:
        def read(connection: DeadlineConnection) -> Beside:
            newest = self._newest(connection, shard)
            row = self._row(connection, shard)
            wanted = {name: table for name, table in tables.TABLES.items() if name != tables.KEYS}
            rows = {name: self._rows(connection, table.select, (shard,)) for name, table in wanted.items()}
            mended = self._rows(connection, tables.MENDED, (shard, mark, newest))
            return Beside(int(row[0]), row[1], rows, [line[1:] for line in mended], max(mark, newest))

        return self._sessions.run(read, deadline)

    def _newest(self, connection: DeadlineConnection, shard: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(self._of(NEWEST), (shard,))
            cursor.nextset()
            cursor.nextset()
            ((newest,),) = cursor.fetchall()
            cursor.nextset()
        return int(newest)

    def newest_line(self, deadline: Deadline) -> int:
        ((newest,),) = self._sessions.run(lambda connection: self._rows(connection, tables.NEWEST_LINE), deadline)
        return int(newest)

    def key_sums(self, shard: int, deadline: Deadline) -> dict[int, tuple[int, int]]:
        def add(connection: DeadlineConnection) -> dict[int, tuple[int, int]]:
            rows = self._rows(connection, tables.KEY_SUMS, (shard,))
            return {int(bucket): (int(count), int(total)) for bucket, count, total in rows}

        return self._sessions.run(add, deadline)

    def keys(self, shard: int, buckets: Collection[int], deadline: Deadline) -> Rows:
        listed = ", ".join(str(int(bucket)) for bucket in sorted(buckets))
        statement = tables.KEYS_IN.replace("BUCKETS", listed)
        return self._sessions.run(lambda connection: self._rows(connection, statement, (shard,)), deadline)

    def few_beside(self, shard: int, deadline: Deadline) -> Beside:
        def read(connection: DeadlineConnection) -> Beside:
            row = self._row(connection, shard)
            rows = {name: self._rows(connection, tables.TABLES[name].select, (shard,)) for name in tables.FEW}
            return Beside(int(row[0]), row[1], rows, [], 0)

        return self._sessions.run(read, deadline)

    def _row(self, connection: DeadlineConnection, shard: int) -> Row:
        found = self._rows(connection, tables.ROW, (shard,))
        if not found:
            raise missing_shard(shard)
        return found[0]

    def parked_after(self, shard: int, after: Row | None, limit: int, deadline: Deadline) -> Rows:
        group, added_id = (b"", 0) if after is None else (after[0], after[2])
        values = (shard, group, group, added_id, limit)
        return self._sessions.run(lambda connection: self._rows(connection, tables.PARKED_AFTER, values), deadline)

    def lines_after(self, shard: int, mark: int, limit: int, deadline: Deadline) -> MendedLines:
        def read(connection: DeadlineConnection) -> MendedLines:
            ((newest,),) = self._rows(connection, tables.NEWEST_LINE)
            reached = min(mark + limit, int(newest))
            found = self._rows(connection, tables.LINES, (shard, mark, reached))
            return MendedLines([line[1:] for line in found], reached, reached == newest)

        return self._sessions.run(read, deadline)

    def put_lines(self, shard: int, claim: int, lines: Rows, deadline: Deadline) -> bool:
        def put(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                may = self._may(connection, shard, seen, claim)
                if may:
                    self._fill(connection, tables.PUT_MENDED, tables.SAME_TOKEN, lines)
            return may

        return self._sessions.write(put, deadline)

    def put_beside(
        self, shard: int, claim: int, beside: Beside, epoch: int, deadline: Deadline, since: int = 0
    ) -> bool:
        def put(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                if seen is None or not self._may(connection, shard, seen, claim):
                    return False
                if not epoch:
                    self._do(connection, tables.NO_OFFSETS, (shard,))
                for name, table in tables.TABLES.items():
                    if table.delete:
                        self._do(connection, table.delete, (shard,))
                    self._fill(connection, table.insert, table.update, beside.tables.get(name, ()))
                self._fill(connection, tables.PUT_MENDED, tables.STRIPPED, beside.mended)
                self._do(connection, tables.ERASE, (shard, since))
                values = (beside.authority_epoch, beside.last_created_at, shard, shard)
                self._do(connection, tables.TAKE_OVER, values)
                if epoch:
                    self._do(connection, tables.MAY_ARRIVE, (shard, epoch, seen.head + 1))
            return True

        return self._sessions.write(put, deadline)

    def put_late(self, shard: int, offsets: Rows, deadline: Deadline) -> None:
        table = tables.TABLES["trigger_offset"]
        self._sessions.write(
            lambda connection: self._fill(connection, table.insert, tables.OFFSETS_STAY, offsets), deadline
        )

    def forget_beside(self, shard: int, epoch: int, deadline: Deadline) -> None:
        def forget(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if seen is not None and seen.state == "MOVED" and seen.epoch <= epoch:
                    for statement in tables.FORGET:
                        self._do(connection, statement, (shard,))

        self._sessions.write(forget, deadline)
