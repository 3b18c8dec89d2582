"""`BlockLimit`: so many blocks per second may be read for a job, by all of its workers together."""

from __future__ import annotations

from contextlib import suppress
from math import ceil

from schemaless_core.errors import ControlUnavailable
from tripstore.engines.backfill.throttle import Leave, Limit, Pace, Pause, Throttle

#: Before anything was read: by row keys, in random order, each row is in a block of its own.
BLOCKS_PER_ROW_FIRST = 1.0
#: Share of the newest chunk in what is believed, when it read fewer blocks per row. More are believed at once.
NEWS = 0.3
#: A chunk has as many rows as may be read in so long: that is how far ahead of the limit all may be.
TURN_SECONDS = 0.5
#: Rows that cost nothing, since all was in memory, may cost something next time.
BLOCKS_PER_ROW_MIN = 0.001


class BlockLimit(Throttle):
    """Workers take turns, as by a rate. How many blocks a chunk makes the source read is known afterwards alone.

    So a worker pays before a chunk for what such rows have cost lately. What it had read beyond that it pays for
    together with its next chunk; what it had not is given back.
    """

    def __init__(self, blocks_per_second: float, pace: Pace) -> None:
        self._rate = blocks_per_second
        self._pace = pace
        self._per_row = BLOCKS_PER_ROW_FIRST
        #: Of the chunk at hand.
        self._rows = 0
        self._taken = 0
        #: That were read, and not paid for yet.
        self._owed = 0

    @property
    def leave(self) -> Leave:
        return Leave(rows_max=max(1, int(self._rate * TURN_SECONDS / self._per_row)))

    def take(self, rows: int) -> Pause | None:
        blocks = ceil(rows * self._per_row)
        seconds = self._pace.take(blocks + self._owed, self._rate)
        if seconds:
            return Pause(seconds, f"limit of {self._rate:,.0f} blocks/s that Postgres reads", Limit.BLOCKS)
        self._rows, self._taken, self._owed = rows, blocks, 0
        return None

    def give_back(self) -> None:
        self._settle(0)

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        # By the rows that were asked for: of blocks that are nearly empty few are found, and as many blocks are read.
        found = max(blocks_read / max(self._rows, 1), BLOCKS_PER_ROW_MIN)
        news = 1.0 if found > self._per_row else NEWS
        self._per_row += news * (found - self._per_row)
        self._settle(blocks_read)

    def _settle(self, blocks_read: int) -> None:
        self._owed += max(0, blocks_read - self._taken)
        with suppress(ControlUnavailable):  # then some time of the limit is lost
            self._pace.give_back(self._taken - blocks_read, self._rate)
        self._taken = 0
