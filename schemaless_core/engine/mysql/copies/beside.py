"""What stands beside a shard's log, as it is copied: offsets, parked cells, histories, purged ids, repair's lines."""

from __future__ import annotations

from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Beside, MendedLines, Row, Rows
from schemaless_core.engine.mysql.copies import tables
from schemaless_core.engine.mysql.copies.rows import CopyRows
from schemaless_core.engine.mysql.copies.tables import OLD_BODY
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.errors import missing_shard


class CopiedBeside(CopyRows):
    """The verbs about it."""

    def beside(self, shard: int, mark: int, deadline: Deadline) -> Beside:
        def read(connection: DeadlineConnection) -> Beside:
            row = self._row(connection, shard)
            rows = {name: self._rows(connection, table.select, (shard,)) for name, table in tables.TABLES.items()}
            mended = self._rows(connection, tables.MENDED, (shard, mark))
            lines = [self._plain_line(line[1:]) for line in mended]
            return Beside(int(row[0]), row[1], rows, lines, max((line[0] for line in mended), default=mark))

        return self._sessions.run(read, deadline)

    def _plain_line(self, line: Row) -> Row:
        """What a repair found was compressed, maybe by a dictionary that the other server has not."""
        old = line[OLD_BODY]
        return line if old is None else (*line[:OLD_BODY], self.names.bodies.plain(old), *line[OLD_BODY + 1 :])

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

    def put_beside(self, shard: int, claim: int, beside: Beside, epoch: int, deadline: Deadline) -> bool:
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
                self._fill(connection, tables.PUT_MENDED, tables.SAME_TOKEN, beside.mended)
                self._do(connection, tables.ERASE, (shard,))
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
