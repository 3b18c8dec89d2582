"""What an awaited call meets beside the errors of the store."""

from __future__ import annotations

from schemaless_core.errors import Unavailable


class ThreadsBusy(Unavailable):
    """All threads of a store were at work for too long. Nothing was sent."""

    def __init__(self, threads: int, seconds: float) -> None:
        super().__init__(
            f"All {threads} threads of the store were busy for {seconds:g} seconds.",
            hint="Nothing was sent. Begin fewer calls at once (a semaphore), or raise pool.size and pool.overflow.",
        )
        self.threads = threads
        self.seconds = seconds
