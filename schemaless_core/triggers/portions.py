"""`Portions`: how much of the log is fetched at once. Bodies may be large: what came too late is asked for in parts."""

from __future__ import annotations

#: Shards that one statement of the log takes.
SHARDS_MAX = 64
#: By how much portions shrink after an answer that was late, and grow after one that was not.
SHRINK, GROW = 4, 1.1


class Portions:
    """Shards and cells per fetch, between one and the most."""

    def __init__(self, cells_max: int) -> None:
        self._cells_max = cells_max
        self._share = 1.0

    @property
    def shards(self) -> int:
        return max(1, int(SHARDS_MAX * self._share))

    @property
    def cells(self) -> int:
        return max(1, int(self._cells_max * self._share))

    def note(self, *, is_late: bool) -> None:
        """Take note of an answer."""
        least = 1.0 / max(SHARDS_MAX, self._cells_max)
        self._share = max(least, self._share / SHRINK) if is_late else min(1.0, self._share * GROW)
