"""`Presence`: a submitter tells the control database that it is there; its tasks, wherever they are, look.

It is what ends them: an engine that was lost can tell them nothing, and a task may begin, or begin again, long after
its command has ended. Hosts' clocks are not compared: a task sees the control database's time of the last word change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Protocol, Self

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach

logger = logging.getLogger(__name__)

TELL_SECONDS = 2.0
LOOK_SECONDS = 1.0
#: A submitter without a word for so long is gone.
SILENT_SECONDS = 30.0


class Words(Protocol):
    """What this asks of `Jobs`."""

    def tell(self, job_id: str, worker: str, news: Mapping[str, Json]) -> None: ...

    def told_at(self, job_id: str, worker: str) -> datetime | None: ...

    def leave(self, job_id: str, worker: str) -> None: ...


class Presence:
    """Of one submitter, at one job or index. A context manager: leaving it says that its tasks are wanted no more."""

    def __init__(self, words: Words, subject: str, submitter: str) -> None:
        self._words = words
        self._subject = subject
        self.submitter = submitter
        #: What keeps the tasks from their work, for all that look at the progress.
        self.waits_for: str | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tell_until_over, name="presence", daemon=True)

    def __enter__(self) -> Self:
        self._tell()  # before any task: one that finds no word ends
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """The tasks are wanted no more. A word that cannot be taken back is silent in a while."""
        self._is_over.set()
        self._thread.join()
        with suppress(SchemalessError):
            self._words.leave(self._subject, self.submitter)

    def _tell_until_over(self) -> None:
        while not self._is_over.wait(TELL_SECONDS):
            with suppress(SchemalessError):  # the next one is soon enough
                self._tell()

    def _tell(self) -> None:
        self._words.tell(self._subject, self.submitter, {"rate": 0.0, "throttle": self.waits_for})


class Heeding:
    """A task's look at its submitter."""

    def __init__(
        self,
        words: Words,
        subject: str,
        submitter: str,
        *,
        silent_seconds: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words = words
        self._subject = subject
        self._submitter = submitter
        self._silent_seconds = silent_seconds
        self._clock = clock
        self._last: datetime | None = None
        self._since = clock()

    def is_wanted(self) -> bool:
        """Whether the submitter is there. While the control database does not answer, it is believed to be."""
        try:
            told = self._words.told_at(self._subject, self._submitter)
        except SchemalessError:
            self._since = self._clock()  # neither of the two could speak
            return True
        if told is None:
            return False
        if told != self._last:
            self._last, self._since = told, self._clock()
        return self._clock() - self._since < self._silent_seconds

    @contextmanager
    def ending(self, stop: Callable[[], object]) -> Iterator[None]:
        """Have the work stopped when it is not wanted any more, until the block ends."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(is_over, stop), name="heeding", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _watch(self, is_over: threading.Event, stop: Callable[[], object]) -> None:
        while not is_over.wait(LOOK_SECONDS):
            if not self.is_wanted():
                extra = {"event": "elsewhere.not_wanted", "job": self._subject, "submitter": self._submitter}
                logger.info("the command that wanted this has ended, so this ends", extra=extra)
                reach("elsewhere.not_wanted")
                stop()
                return
