"""`Rests`: Postgres rests while it reads a chunk, so that it is at work for no more than a share of the time.

A session that reads for twenty milliseconds without a break has a core for as long, and who wakes up in the meantime
waits for a turn of it. So the rests are many and short, and Postgres takes them itself, between two rows: a copier that
reads slowly would hold nobody back, since all of a chunk has room in the sockets between. Which rows those are is drawn
by lot; how many depends on how quick Postgres is, and that a small chunk without a rest tells now and then.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import NamedTuple

from tripstore.handover.ports import Chunk, Selection

#: Of one rest; Postgres knows none below a millisecond.
REST_SECONDS = 0.002
#: What is read without a rest: so many rows, once in so many chunks.
SAMPLE_ROWS, CHUNKS_PER_SAMPLE = 200, 20
#: With fewer lines a chunk tells of its statements rather than of its lines.
SAMPLE_LINES_MIN = 100
#: The middle of so many samples is believed: one may have waited for somebody.
SAMPLES = 3
#: A chunk with rests is not to take longer: one snapshot is held as long, and statements have their time-out.
CHUNK_SECONDS_MAX = 1.0
#: What takes so many times as long as the samples said is no news of the lot's: it is sampled again.
SURPRISE = 2.0


class _Sample(NamedTuple):
    line_seconds: float  #: That Postgres is at work for one line.
    lines_per_row: float


class Rests:
    """Of one reader."""

    def __init__(self) -> None:
        self._selection: Selection | None = None
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._chunks_left = 0

    def plan(self, chunk: Chunk) -> Chunk:
        """The chunk as it is to be read: one without rests is short, and one with rests no longer than it may take."""
        if chunk.selection != self._selection:  # other lines
            self._selection = chunk.selection
            self._samples.clear()
        if chunk.source_share >= 1:
            return chunk
        if not self._samples or not self._chunks_left:
            # One that was to be so short anyway says how long chunks take: else they would stay as short for ever.
            is_cut = chunk.rows > SAMPLE_ROWS
            return chunk._replace(rows=min(chunk.rows, SAMPLE_ROWS), source_share=1.0, is_sample=is_cut)
        self._chunks_left -= 1
        row_seconds = self._line_seconds * statistics.median(each.lines_per_row for each in self._samples)
        rows_max = max(int(CHUNK_SECONDS_MAX * chunk.source_share / row_seconds), 1)
        return chunk._replace(rows=min(chunk.rows, rows_max))

    def condition(self, chunk: Chunk) -> str:
        """Is true of every row; after some of them it takes its time."""
        if chunk.source_share >= 1:
            return ""
        lines, seconds = self._lot(chunk.source_share)
        return f" AND (pg_catalog.random() >= {1 / lines:.9f} OR pg_catalog.pg_sleep({seconds:.6f}) IS NOT NULL)"

    def learn(self, chunk: Chunk, rows: int, lines: int, seconds: float) -> float:
        """So many lines came within so many seconds; for how many of these Postgres was at work."""
        share = chunk.source_share
        if share >= 1:
            if lines >= SAMPLE_LINES_MIN and rows:
                self._samples.append(_Sample(seconds / lines, lines / rows))
                self._chunks_left = CHUNKS_PER_SAMPLE
            return seconds
        per_rest, rest_seconds = self._lot(share)
        expected = lines * self._line_seconds
        found = seconds - lines / per_rest * rest_seconds
        if found > SURPRISE * expected:
            self._chunks_left = 0
        return min(max(found, expected), seconds)

    @property
    def _line_seconds(self) -> float:
        return max(statistics.median(each.line_seconds for each in self._samples), 1e-9)

    def _lot(self, share: float) -> tuple[float, float]:
        """Lines to a rest, on average, and how long it is."""
        lines = max(REST_SECONDS * share / (1 - share) / self._line_seconds, 1.0)
        return lines, max(lines * self._line_seconds * (1 - share) / share, REST_SECONDS)
