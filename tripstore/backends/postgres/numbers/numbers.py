"""`Numbers`: draws numbers from the company's sequences, and moves these ahead of numbers that did not come from them.

A sequence takes no part in transactions, so nothing here waits for one, and a number that was drawn and not used
is a gap, as after any rollback. It never goes back: nothing here calls `setval` where another session may draw.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidServer
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.numbers.sequences import NumberSequence, read_sequences
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import LockTimeout, ValueRefused
from tripstore.backends.postgres.wire.wire import LegacyConnection

logger = logging.getLogger(__name__)

#: The company may give a column a sequence, or take it away, while processes run.
READ_SECONDS = 30.0
#: A gap up to this is drawn; a wider one is jumped over under a lock that keeps others from drawing.
DRAWN_MAX = 10_000
#: How often numbers are drawn that all turn out to be taken.
TRIES = 20

# Without a record of ours the commit would not wait for those by which other sessions drew: after a crash of the
# server numbers could be given once more that stand in Schemaless by then.
_DURABLE = "SELECT pg_catalog.pg_logical_emit_message(true, 'tripstore', '')"
_LAST = "pg_catalog.pg_sequence_last_value(%(name)s::pg_catalog.regclass)"
# Of what is left until the end no process takes much at once: what a process does not use is lost.
_DRAW = f"""\
WITH wanted AS (
    SELECT CASE WHEN %(cycles)s THEN %(count)s
        ELSE least(%(count)s, greatest(1, (%(end)s::numeric - coalesce({_LAST}, %(start)s)) / %(increment)s / 100))::int
    END AS count
), drawn AS MATERIALIZED (
    SELECT pg_catalog.nextval(%(name)s::pg_catalog.regclass) AS number
    FROM wanted CROSS JOIN LATERAL pg_catalog.generate_series(1, wanted.count)
)
SELECT drawn.number FROM drawn {{free}} ORDER BY 1"""
_FREE = "WHERE NOT EXISTS (SELECT FROM {table} AS r WHERE r.{column} = drawn.number)"
_WHERE = f"SELECT {_LAST}"
# A sequence with a cache: what this session holds of it lies behind, and to draw that would move nothing.
_PASS = """\
DISCARD SEQUENCES;
SELECT max(pg_catalog.nextval(%(name)s::pg_catalog.regclass)) FROM pg_catalog.generate_series(1, %(count)s)"""
# To alter a sequence keeps others from drawing up to the commit; what it is altered to is what it was.
_JUMP = """\
BEGIN; SET LOCAL lock_timeout = '300ms';
ALTER SEQUENCE {name} INCREMENT BY {increment};
SELECT pg_catalog.setval({text}::pg_catalog.regclass, {furthest}({number}, s.last_value), true) FROM {name} AS s"""
# Nothing that is granted on a sequence lets another role alter it, nor may it go to one without its table.
_OWNER = """\
SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(s.relowner)), pg_catalog.quote_ident(current_user),
    pg_catalog.pg_has_role(s.relowner, 'USAGE')
FROM pg_catalog.pg_class AS s WHERE s.oid = %(name)s::pg_catalog.regclass"""
_FURTHEST = "SELECT {furthest}(r.{column}) FROM {table} AS r"


class Numbers:
    """Of one database and layout. Threads share it, forks inherit it: it holds no number back."""

    def __init__(self, database: LegacyDatabase, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._layout = layout
        self._clock = clock
        self._sequences: dict[str, NumberSequence] = {}
        self._read_at: float | None = None
        #: How far each sequence was seen to have come, since when, and after how many connections.
        self._seen: dict[str, int] = {}
        self._seen_since = clock()
        self._seen_after = 0

    def deadline(self, seconds: float | None = None) -> Deadline:
        """That of a call which may take so long; None: as long as the configuration says."""
        return Deadline(self._database.settings.deadlines.put_seconds if seconds is None else seconds)

    def sequences(self, deadline: Deadline) -> Mapping[str, NumberSequence]:
        """The sequences by column, as they are or were a moment ago."""
        if self._read_at is None or self._clock() - self._read_at > READ_SECONDS:
            self._sequences = self._database.run(
                lambda connection: read_sequences(connection.rows, self._layout), deadline
            )
            self._read_at = self._clock()
        return self._sequences

    def find(self, column_name: str, deadline: Deadline) -> NumberSequence | None:
        """The sequence that the numbers of a column come from; None: they are counted per parent, or it has none."""
        column = self._layout.columns.get(column_name)
        return None if column is None or not column.is_child else self.sequences(deadline).get(column_name)

    def draw(self, sequence: NumberSequence, count: int, deadline: Deadline, *, is_durable: bool) -> list[int]:
        """Draw up to so many numbers that no row of the table has, at least one; in order.

        `is_durable`: no crash of the server takes that back. A transaction that commits a row with it needs it not.
        """
        free = _FREE.format(table=sequence.table, column=sequence.column) if sequence.is_alone else ""
        sql = _DRAW.format(free=free)
        values = {
            "name": sequence.name,
            "count": count,
            "cycles": sequence.cycles,
            "end": sequence.maximum if sequence.increment > 0 else sequence.minimum,
            "start": sequence.start,
            "increment": sequence.increment,
        }
        if is_durable:
            sql = f"{_DURABLE}; {sql}"
        for _attempt in range(TRIES):
            try:
                found: list[int] = [row[0] for row in self._rows(sql, values, deadline)]
            except ValueRefused as refused:
                raise LegacyRefused(
                    f"Sequence {sequence.name} gives no more numbers ({refused.reason}).",
                    hint="Make it and the column larger: ALTER SEQUENCE … MAXVALUE, ALTER TABLE … TYPE bigint.",
                ) from refused
            if found:
                self._see(sequence, found[-1] if sequence.increment > 0 else found[0])
                return found
        raise LegacyRefused(
            f"Every number that sequence {sequence.name} gives is a row's of {sequence.table} already.",
            hint=f"SELECT setval('{sequence.name}', max({sequence.column})) FROM {sequence.table} moves it ahead.",
        )

    def pass_cells(self, cells: Iterable[Cell], deadline: Deadline) -> None:
        """Before rows with these cells are written: move the sequences ahead of numbers that did not come from them.

        So a row that is committed is never ahead of its sequence, whichever process dies when: the sequence is before
        it in the same log. Where our role lacks the privilege, or a transaction that has drawn holds the lock, rows are
        written all the same, and the way back makes up for it.
        """
        for sequence, number in self._furthest(cells, deadline).items():
            try:
                self.pass_number(sequence, number, deadline)
            except (InvalidServer, LockTimeout) as behind:
                # Not noted as if it were moved: the next number between here and there would not be tried.
                extra = {"event": "legacy.sequence_behind", "sequence": sequence.name, "number": number}
                logger.warning("a sequence could not be moved ahead: %s", behind.message, extra=extra)

    def pass_number(self, sequence: NumberSequence, number: int, deadline: Deadline) -> bool:
        """Move a sequence so far that it never gives this number; whether it could have.

        A number beyond its end it does not give anyhow.
        """
        if not self._is_ahead(sequence, number):
            return False
        reached = self._reached(sequence, deadline)
        was_behind = sequence.gap(reached, number) > 0
        while (gap := sequence.gap(reached, number)) > 0:
            if deadline.is_over:
                raise LegacyUnavailable(f"Sequence {sequence.name} stays behind {number}.", hint="Repeat it.")
            if gap <= DRAWN_MAX:
                self._rows(_PASS, {"name": sequence.name, "count": gap}, deadline)
            else:
                self._database.run(lambda connection: self._jump(connection, sequence, number), deadline)
            reached = self._reached(sequence, deadline)
        self._see(sequence, reached)
        return was_behind

    def pass_tables(self, deadline: Deadline) -> list[str]:
        """Move all sequences ahead of the numbers that stand in the tables; return those that were behind.

        What others made of them, a restored dump or an earlier version of this library. Tables in which a number
        cannot be found but by reading all of it are left out: nothing there but the parent tells rows apart.
        """
        moved = []
        for sequence in self.sequences(deadline).values():
            if not sequence.is_alone:
                continue
            furthest = "max" if sequence.increment > 0 else "min"
            sql = _FURTHEST.format(furthest=furthest, table=sequence.table, column=sequence.column)
            number = self._rows(sql, None, deadline)[0][0]
            self._known().pop(sequence.name, None)
            if number is not None and self.pass_number(sequence, number, deadline):
                moved.append(sequence.name)
        return moved

    def _furthest(self, cells: Iterable[Cell], deadline: Deadline) -> dict[NumberSequence, int]:
        """Of each sequence, the number of these cells that is furthest ahead of where it was seen."""
        furthest: dict[NumberSequence, int] = {}
        for cell in cells:
            column = self._layout.columns.get(cell.column_name)
            if column is None or not column.is_child or not column.is_first(cell.ref_key) or cell.body is None:
                continue
            sequence = self.find(cell.column_name, deadline)
            number = column.split(cell.ref_key)[0]
            if sequence is not None and self._is_ahead(sequence, number):
                pick = max if sequence.increment > 0 else min
                furthest[sequence] = pick(number, furthest.get(sequence, number))
        return furthest

    def _reached(self, sequence: NumberSequence, deadline: Deadline) -> int:
        """What the sequence gave last, to any session; what a session holds in its cache counts as given."""
        found: int | None = self._rows(_WHERE, {"name": sequence.name}, deadline)[0][0]
        return sequence.start - sequence.increment if found is None else found

    def _is_ahead(self, sequence: NumberSequence, number: int) -> bool:
        """Whether the sequence may give this number yet, as far as is known."""
        if not sequence.minimum <= number <= sequence.maximum:
            return False
        seen = self._known().get(sequence.name)
        return seen is None or (number > seen if sequence.increment > 0 else number < seen)

    def _see(self, sequence: NumberSequence, number: int) -> None:
        known = self._known()
        seen = known.get(sequence.name, number)
        known[sequence.name] = max(seen, number) if sequence.increment > 0 else min(seen, number)

    def _known(self) -> dict[str, int]:
        """How far sequences had come a moment ago. One goes back by `setval`, by a restored dump, and by a failover,
        which no connection outlives."""
        now, connected_count = self._clock(), self._database.connected_count
        if now - self._seen_since > READ_SECONDS or connected_count != self._seen_after:
            self._seen, self._seen_since, self._seen_after = {}, now, connected_count
        return self._seen

    def _jump(self, connection: LegacyConnection, sequence: NumberSequence, number: int) -> None:
        furthest = "greatest" if sequence.increment > 0 else "least"
        text = "'" + sequence.name.replace("'", "''") + "'"
        jump = _JUMP.format(
            name=sequence.name, increment=sequence.increment, text=text, furthest=furthest, number=number
        )
        try:
            connection.rows(jump)
        except InvalidServer as refused:
            connection.rows("ROLLBACK")
            ((owner, role, is_owner),) = connection.rows(_OWNER, {"name": sequence.name})
            if is_owner:
                raise
            raise InvalidServer(refused.node, refused.reason, hint=f"GRANT {owner} TO {role};") from refused
        connection.rows("COMMIT")

    def _rows(self, sql: str, values: Mapping[str, object] | None, deadline: Deadline) -> list[tuple[Any, ...]]:
        return self._database.run(lambda connection: connection.rows(sql, values), deadline)
