"""What COPY sends, in batches, as columns of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.cells.sums.turns import Turns, read_by_turns

#: Rows that are looked at together.
ROWS_PER_BATCH = 2_000

#: By column, still escaped.
Texts = Sequence[Sequence[str]]


class BatchedLines:
    """What COPY writes to, a row at a time."""

    def __init__(self, take: Callable[[list[bytes]], None]) -> None:
        self._take = take
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) == ROWS_PER_BATCH:
            self.finish()

    def finish(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._take(lines)


def copied(
    connection: Connection, select: str, take: Callable[[list[bytes]], None], turns: Turns | None = None
) -> None:
    """Hand on what a SELECT answers, in batches; by turns, where there are some."""
    if turns is not None:
        read_by_turns(connection, select, take, turns)
        return
    lines = BatchedLines(take)
    with connection.cursor() as cursor:
        cursor.copy_expert(f"COPY ({select}) TO STDOUT", lines)
    lines.finish()


def columns_of(lines: Sequence[bytes]) -> Texts:
    """The texts of each column: tabs and ends of lines stand nowhere but between them."""
    texts = b"".join(lines).decode().replace("\n", "\t").split("\t")
    columns = lines[0].count(b"\t") + 1
    return [texts[n : len(texts) - 1 : columns] for n in range(columns)]


def row_keys(texts: Sequence[str]) -> list[bytes]:
    """UUIDs as 16 bytes each."""
    data = bytes.fromhex("".join(texts).replace("-", ""))
    return [data[first : first + 16] for first in range(0, len(data), 16)]
