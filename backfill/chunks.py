"""`ChunkSize`: how many rows a chunk has, so that it takes about as long as it should, whatever the rows are like."""

from __future__ import annotations

#: Share of the newest chunk in what is believed of the speed.
NEWS = 0.3
#: So many times as long as it should take: what was believed is wrong, however often it was right.
LONG = 2
#: From one chunk to the next.
GROWTH_MAX = 4
ROWS_FIRST = 200
ROWS_MAX = 20_000
SECONDS_PER_CHUNK = 2.0
#: Of the time that a chunk is to take, when its source rests while it is read: what of a chunk is done at one go, the
#: look into an index for all of it, say, is the shorter the smaller the chunk is.
SHARE_RESTING = 0.25
#: A chunk costs something however small it is: below so many rows a source that rests asks for none.
ROWS_RESTING_MIN = 50


class ChunkSize:
    """Learns from each chunk. Belongs to one worker; a fixed size learns nothing."""

    def __init__(self, fixed: int | None = None, *, seconds: float = SECONDS_PER_CHUNK, most: int = ROWS_MAX) -> None:
        self._fixed = fixed
        self._seconds = seconds
        self._most = most
        self._rows = min(ROWS_FIRST, most) if fixed is None else fixed
        #: Rows per second; 0: not known.
        self._rate = 0.0

    @property
    def rows(self) -> int:
        """Of the next chunk, when its source does not rest."""
        return self._rows

    def rows_of(self, *, is_resting: bool, most: int | None = None) -> int:
        """Of the next chunk. `most`: no more are allowed at the moment, unless a fixed size was asked for."""
        if self._fixed is not None:
            return self._fixed
        rows = self._rows
        if is_resting:
            rows = max(round(rows * SHARE_RESTING), min(rows, ROWS_RESTING_MIN))
        return rows if most is None else min(rows, most)

    def copied(self, rows: int, seconds: float, *, is_resting: bool = False) -> None:
        """A chunk of so many rows took so long. One that held few says little of the speed, and is passed over."""
        if self._fixed is not None or seconds <= 0:
            return
        is_long = seconds > LONG * self._seconds * (SHARE_RESTING if is_resting else 1)
        if rows < min(self.rows_of(is_resting=is_resting), ROWS_FIRST):
            if is_long:  # many were looked at for these few
                self._rows = max(self._rows // 2, min(self._rows, ROWS_FIRST))
            return
        rate = rows / seconds
        news = NEWS if self._rate and not is_long else 1.0
        self._rate = news * rate + (1 - news) * self._rate
        wanted = round(self._rate * self._seconds)
        self._rows = max(1, min(wanted, self._rows * GROWTH_MAX, self._most))

    def failed(self) -> None:
        """A chunk did not get through: the next one is half of it."""
        if self._fixed is None:
            self._rows = max(1, self._rows // 2)
            self._rate /= 2
