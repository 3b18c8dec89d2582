"""`SectionReader`: looks at one section again and again, and keeps what it saw last for every page that is open.

Each has a thread of its own: a server that does not answer holds up its own section, and no page waits for a look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

import msgspec
import psycopg2

from schemaless_core.told import Told
from tripstore.cli.console.pace import ConsolePace
from tripstore.cli.console.sections import ConsoleSection
from tripstore.cli.console.stores import ConsoleStores

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a section shows: the last answer and its time, and why there is no newer one."""

    document: msgspec.Struct | None = None
    at: datetime | None = None
    trouble: str | None = None
    #: Grows with each change of document or trouble.
    version: int = 0

    def seen(self, document: msgspec.Struct, at: datetime) -> Shown:
        """After an answer; `at` alone makes no new version."""
        is_new = document != self.document or self.trouble is not None
        return Shown(document, at, None, self.version + is_new)

    def failed(self, trouble: str) -> Shown:
        """After none: what was shown is shown on, with its time."""
        return replace(self, trouble=trouble, version=self.version + (trouble != self.trouble))


class SectionReader:
    """Looks while a page is open, and now and then where its section says so."""

    def __init__(
        self,
        section: ConsoleSection,
        stores: ConsoleStores,
        tell: Callable[[SectionReader], None],
        pace: ConsolePace,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.section = section
        self.shown = Shown()
        self._stores = stores
        self._tell = tell
        self._pace = pace
        self._now = now
        self._clock = clock
        self._looked_at: float | None = None
        self._wake = threading.Event()
        self._is_watched = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"console-{section.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def watched(self, is_watched: bool) -> None:
        """Hear whether a page is open; the first one is looked for at once, unless the last look is new enough."""
        begins = is_watched and not self._is_watched
        self._is_watched = is_watched
        if begins:
            self._wake.set()

    def look_again(self) -> None:
        """Look at once, if a page is open."""
        self._looked_at = None
        self._wake.set()

    def end(self) -> None:
        """Begin no more looks. One that waits for a dead server ends with its own deadline."""
        self._has_ended = True
        self._wake.set()

    def look(self) -> None:
        """Look once."""
        try:
            document = self.section.look(self._stores)
        except Told as error:
            self.shown = self.shown.failed(str(error))
        except psycopg2.Error as error:
            self.shown = self.shown.failed(next(iter(str(error).strip().splitlines()), type(error).__name__))
        except Exception as error:  # the edge of a thread: one section must not end for the life of the console
            extra = {"event": "console.look_failed", "section": self.section.name}
            logger.exception("a section of the console could not be looked at", extra=extra)
            self.shown = self.shown.failed(f"This look failed in a way that was not foreseen ({type(error).__name__}).")
        else:
            self.shown = self.shown.seen(document, self._now())

    def _run(self) -> None:
        while not self._has_ended:
            self._wake.clear()
            seconds = self._seconds
            if seconds is not None and self._age >= seconds:
                self._looked_at = self._clock()
                self.look()
                self._tell(self)
            self._wake.wait(None if seconds is None else max(seconds - self._age, 0.0))

    @property
    def seconds(self) -> float:
        """Between two looks while a page is open."""
        return self.section.seconds * self._pace.stretch

    @property
    def _seconds(self) -> float | None:
        if self._is_watched:
            return self.seconds
        return None if self.section.idle_seconds is None else self.section.idle_seconds * self._pace.stretch

    @property
    def _age(self) -> float:
        """Since the last look began."""
        return inf if self._looked_at is None else self._clock() - self._looked_at
