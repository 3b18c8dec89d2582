"""`Fullness`: whether a buffer may take more. Counting it reads an index, so one thread counts, and all believe it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from schemaless_core.config import BufferConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.errors import Unavailable

#: How long a count is believed.
SIZE_SECONDS = 2.0


class Fullness:
    """Of one cluster's buffer."""

    def __init__(
        self, count: Callable[[Deadline], BufferSize], config: BufferConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._config = config
        self._clock = clock
        self._counting = threading.Lock()
        self._known: tuple[float, BufferSize] | None = None

    def __call__(self, deadline: Deadline) -> bool:
        """Whether it holds as much as it may, by a count of the last two seconds, or by the last one during the next.

        Only who asks before the first count waits for it.
        """
        known = self._known
        if known is None or self._clock() - known[0] > SIZE_SECONDS:
            known = self._counted(known, deadline)
        size = known[1]
        return size.cells >= self._config.max_cells or size.bytes >= self._config.max_bytes

    def _counted(self, known: tuple[float, BufferSize] | None, deadline: Deadline) -> tuple[float, BufferSize]:
        if not self._counting.acquire(timeout=0 if known else max(0.0, deadline.remaining_seconds())):
            if known is not None:
                return known
            raise Unavailable("A buffer is being counted, and takes its time.", hint="Repeat the put.")
        try:
            newer = self._known
            if newer is not None and newer is not known:
                return newer  # counted while this thread waited
            self._known = counted = self._clock(), self._count(deadline)
        finally:
            self._counting.release()
        return counted
