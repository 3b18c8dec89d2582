"""`Rests`: Postgres rests while it reads a chunk, so that it is at work for no more than a share of the time.

A session that reads for twenty milliseconds without a break has a core for as long, and who wakes up in the meantime
waits for a turn of it. So the rests are many and short, and Postgres takes them itself, between two rows: a copier that
reads slowly would hold nobody back, since all of a chunk has room in the sockets between. Which rows those are is drawn
by lot; how many depends on how quick Postgres is, and that a small chunk without a rest tells now and then.
"""

from __future__ import annotations

from tripstore.handover.ports import Chunk

#: Of one rest; Postgres knows none below a millisecond.
REST_SECONDS = 0.002
#: What is read without a rest: so many rows, once in so many chunks.
SAMPLE_ROWS, CHUNKS_PER_SAMPLE = 200, 20


class Rests:
    """Of one reader."""

    def __init__(self) -> None:
        #: That Postgres is at work for one line; None: not known.
        self._line_seconds: float | None = None
        self._chunks_left = 0

    def plan(self, chunk: Chunk) -> Chunk:
        """The chunk as it is to be read: one without rests is short."""
        if chunk.source_share >= 1:
            return chunk
        if self._line_seconds is None or not self._chunks_left:
            return chunk._replace(rows=min(chunk.rows, SAMPLE_ROWS), source_share=1.0)
        self._chunks_left -= 1
        return chunk

    def condition(self, chunk: Chunk) -> str:
        """Is true of every row; after some of them it takes its time."""
        share = chunk.source_share
        if share >= 1 or not self._line_seconds:
            return ""
        lines = max(REST_SECONDS * share / (1 - share) / self._line_seconds, 1.0)
        seconds = lines * self._line_seconds * (1 - share) / share
        return f" AND (pg_catalog.random() >= {1 / lines:.9f} OR pg_catalog.pg_sleep({seconds:.6f}) IS NOT NULL)"

    def learn(self, chunk: Chunk, lines: int, seconds: float) -> float:
        """So many lines came within so many seconds; for how many of these Postgres was at work."""
        if chunk.source_share < 1 and self._line_seconds is not None:
            return min(lines * self._line_seconds, seconds)
        if lines:
            self._line_seconds = seconds / lines
            self._chunks_left = CHUNKS_PER_SAMPLE
        return seconds
