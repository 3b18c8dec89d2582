"""`ConsoleHub`: all sections and charts of a console, and the pages that hear of what is new.

A section is looked at once, however many pages are open.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from tripstore.cli.console.changes import ConsoleChanges
from tripstore.cli.console.pace import ConsolePace
from tripstore.cli.console.reader import SectionReader, Shown
from tripstore.cli.console.sections import ConsoleSection, sections_of
from tripstore.cli.console.series import ChartDocument, ChartPoint, Charts
from tripstore.cli.console.stores import ConsoleStores

#: The section that lists commands which this console began.
CHANGES = "changes"
#: A page that hears nothing for longer knows that the console is gone.
BEAT_SECONDS = 10.0
#: A page that takes nothing is sent the whole again when it comes back.
NEWS_MAX = 100


class SectionNews(msgspec.Struct, frozen=True):
    """What of a section is new; the page fetches the text when the version is another one."""

    section: str
    #: Of this process: after another start the same number is another text.
    version: str
    at: datetime | None
    trouble: str | None
    #: Between two looks: what is much older is marked.
    seconds: float
    points: dict[str, ChartPoint]
    #: By the console's clock: a browser's may be another one.
    now: datetime


class Beginning(msgspec.Struct, frozen=True):
    """What a page hears first."""

    sections: list[SectionNews]
    charts: list[ChartDocument]


class ConsoleHub:
    """Lives in one event loop; its readers tell it from their threads."""

    def __init__(self, stores: ConsoleStores, changes: ConsoleChanges | None = None) -> None:
        self.stores = stores
        self._charts = Charts()
        self._run = secrets.token_hex(4)
        self._pages: set[asyncio.Queue[SectionNews | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        sections, pace = _sections(stores, changes), ConsolePace()
        self._readers = {section.name: SectionReader(section, stores, self._told, pace) for section in sections}

    @property
    def sections(self) -> list[ConsoleSection]:
        return [each.section for each in self._readers.values()]

    def reader(self, name: str) -> SectionReader | None:
        return self._readers.get(name)

    def begun(self) -> None:
        """A command was begun from here: show that at once."""
        self._readers[CHANGES].look_again()

    def ended(self) -> None:
        """A command has ended: look at what it may have changed."""
        for each in self._readers.values():
            each.look_again()

    def start(self) -> None:
        """Begin to look. In the loop that will serve."""
        self._loop = asyncio.get_running_loop()
        for each in self._readers.values():
            each.start()

    def close(self) -> None:
        """Every page hears that it ends."""
        for reader in self._readers.values():
            reader.end()
        for page in self._pages:
            put_news(page, None)

    async def listen(self) -> AsyncGenerator[Beginning | SectionNews | None]:
        """Everything, then what is new; None: nothing for a while. Ends with the console."""
        page: asyncio.Queue[SectionNews | None] = asyncio.Queue(NEWS_MAX)
        self._pages.add(page)
        self._watch()
        try:
            yield Beginning([self._news(each, {}) for each in self._readers.values()], self._charts.documents())
            while True:
                try:
                    news = await asyncio.wait_for(page.get(), BEAT_SECONDS)
                except TimeoutError:
                    yield None
                    continue
                if news is None:
                    return
                yield news
        finally:
            self._pages.discard(page)
            self._watch()

    def _watch(self) -> None:
        for each in self._readers.values():
            each.watched(bool(self._pages))

    def _told(self, reader: SectionReader) -> None:
        """From a thread of a reader."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it every page
            self._loop.call_soon_threadsafe(self._tell, reader)

    def _tell(self, reader: SectionReader) -> None:
        shown = reader.shown
        points: dict[str, ChartPoint] = {}
        if shown.document is not None and shown.at is not None and shown.trouble is None:
            points = self._charts.take(reader.section.name, shown.document, shown.at)
        for page in list(self._pages):
            put_news(page, self._news(reader, points))

    def version(self, shown: Shown) -> str:
        return f"{self._run}-{shown.version}"

    def _news(self, reader: SectionReader, points: dict[str, ChartPoint]) -> SectionNews:
        shown, name = reader.shown, reader.section.name
        return SectionNews(
            name, self.version(shown), shown.at, shown.trouble, reader.seconds, points, datetime.now(UTC)
        )


def _sections(stores: ConsoleStores, changes: ConsoleChanges | None) -> list[ConsoleSection]:
    """Those of the configuration; where changes are allowed, also what was done from here, below the jobs."""
    found = list(sections_of(stores))
    if changes is not None:
        after = [each.name for each in found].index("jobs") + 1
        found.insert(after, ConsoleSection(CHANGES, "Done from here", 1, lambda _stores: changes.view()))
    return found


def put_news(page: asyncio.Queue[SectionNews | None], news: SectionNews | None) -> None:
    """A page that takes nothing is ended: its browser asks anew."""
    if page.full():
        while not page.empty():
            page.get_nowait()
        news = None
    page.put_nowait(news)
