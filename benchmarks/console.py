"""`tripstore console` beside a large migration: when its page is there, what it takes, what callers notice of it."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from uuid import UUID

import yaml

from benchmarks.cells import Config
from benchmarks.load import Clients, Work, clients
from benchmarks.migration import Migration, migrated
from benchmarks.timing import Comparison, paired
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Finding
from tripstore.cli.console.pace import WINDOW_SECONDS
from tripstore.demo.commands import COMMAND
from tripstore.local.binlog import BinlogServer
from tripstore.local.browser import get_chromium
from tripstore.local.postgres import PostgresServer
from tripstore.phase import Phase

SHARDS, JOBS, MISMATCHES, TRIPS = 4096, 200, 10_000, 2_000
PAINT_SECONDS, CPU_SHARE, P99_MAX = 1.0, 0.02, 1.1
PAINTS, WATCHED_SECONDS = 7, 60.0
#: Of services, far below what they could.
PER_SECOND, PUT_SHARE = 100.0, 0.2
BLOCK_SECONDS, ROUNDS = 20.0, 10
#: The pace is judged after each window, and the first one has its start in it.
SETTLED_SECONDS = 3 * WINDOW_SECONDS
#: Every section has looked at its servers by then.
LOOKED_SECONDS = 300.0
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length"
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """With so many shards, jobs and mismatches as `scale` says."""
    shards, jobs, mismatches = (max(round(full * scale), least) for full, least in _SIZES)
    with migrated(postgres, mirror, "watched", TRIPS, shards) as migration:
        _note(migration, jobs, mismatches)
        migration.phase(Phase.SHADOW, 0.0)
        with _started(migration.config) as console, console.page():
            console.wait_until_looked()
            assert f"{mismatches:,}" in console.get("/sections/mismatches"), "all of them are listed"
            yield _first_paint(console, 2 if scale < 1 else PAINTS)
            yield from _processor(console, WATCHED_SECONDS * max(scale, 0.1))
        with _started(migration.config) as console:
            yield from _idle(console, WATCHED_SECONDS * max(scale, 0.1))
            with clients(migration) as callers, migration.mirrored(), console.page():
                callers.see(Phase.SHADOW)
                console.wait_until_looked()
                yield from _beside(console, callers, BLOCK_SECONDS * max(scale, 0.1), max(round(ROUNDS * scale), 2))


_SIZES = ((SHARDS, 64), (JOBS, 20), (MISMATCHES, 500))


class RunningConsole:
    """The command in a process of its own, and a page that listens to it as a browser's does, without a browser."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = process
        self._host, self._port = url.removeprefix("http://").rstrip("/").split(":")
        self._looked: set[str] = set()
        self._sections: set[str] = set()

    def get(self, path: str) -> str:
        connection = self._connected()
        connection.request("GET", path)
        with connection.getresponse() as answer:
            return answer.read().decode()

    @contextmanager
    def page(self) -> Iterator[None]:
        """Hears the events, and fetches the text of each section that is new."""
        connection = self._connected()
        connection.request("GET", "/events")
        stream = connection.getresponse()
        is_closed = threading.Event()
        listener = threading.Thread(target=self._listen, args=(stream, is_closed), daemon=True)
        listener.start()
        yield
        is_closed.set()
        listener.join()  # it hears a beat
        connection.close()

    def wait_until_looked(self) -> None:
        """Until every section has an answer."""
        give_up_at = time.monotonic() + LOOKED_SECONDS
        while not self._sections or self._sections - self._looked:
            assert time.monotonic() < give_up_at, self._sections - self._looked
            time.sleep(0.1)  # the looks have their own pace

    @property
    def processor_seconds(self) -> float:
        """What the process has computed."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _listen(self, stream: HTTPResponse, is_closed: threading.Event) -> None:
        event = ""
        for line in iter(stream.readline, b""):
            if is_closed.is_set():
                return
            name, _, said = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = said
            elif name == "data" and event in ("all", "section"):
                news = json.loads(said)
                for each in news["sections"] if event == "all" else [news]:
                    self._hear(each, event)

    def _hear(self, news: dict[str, object], event: str) -> None:
        name = str(news["section"])
        self._sections.add(name)
        if news["at"] is not None:
            self._looked.add(name)
        if event == "section":
            self.get(f"/sections/{name}")

    def _connected(self) -> HTTPConnection:
        return HTTPConnection(self._host, int(self._port))


@contextmanager
def _started(config: Config) -> Iterator[RunningConsole]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tripstore.yaml"
        file.write_text(yaml.safe_dump(config))
        arguments = [sys.executable, "-c", COMMAND, "-c", str(file), "console", "--port", "0", "--json"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield RunningConsole(process, json.loads(process.stdout.readline())["url"])
            finally:
                process.send_signal(signal.SIGCONT)
                process.terminate()


def _note(migration: Migration, jobs: int, mismatches: int) -> None:
    """Jobs that have ended, the last of them a diff that found so much."""
    control = Jobs(migration.store.facade.store.control)
    for number in range(jobs):
        job = control.create("diff", {"unit": "rows"}, [0])
        part = control.claim(job.id, "bench", 60.0)
        assert part is not None
        found = [_difference(n) for n in range(mismatches)] if number == jobs - 1 else []
        counts = {"rows": mismatches, "open": len(found)}
        control.save(part, "bench", checkpoint=None, counts=counts, findings=found, is_done=True, lease_seconds=60.0)


def _difference(number: int) -> Finding:
    return Finding("missing", UUID(int=number), "BASE", 1, {"path": ""})


def _first_paint(console: RunningConsole, times: int) -> Comparison:
    """Chromium's own clock, from the click to the first text on the screen."""
    from playwright.sync_api import sync_playwright

    paints = list[float]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=get_chromium(), args=["--no-sandbox"])  # the page is ours
        for _ in range(times):
            with browser.new_context() as context, context.new_page() as page:
                page.goto(console.url)
                page.wait_for_function(_PAINTED)
                paints.append(page.evaluate(_PAINT))
        browser.close()
    limit = [1000 * PAINT_SECONDS] * times
    return paired(f"first paint / {PAINT_SECONDS:g} s", paints, limit, unit="ms", bound=("<=", 1.0))


def _processor(console: RunningConsole, seconds: float) -> Iterator[Comparison]:
    """One page is open, and nothing happens but looks."""
    time.sleep(SETTLED_SECONDS)  # it finds its pace
    yield _taken(console, seconds, "CPU with one page / 2 % of a core")


def _idle(console: RunningConsole, seconds: float) -> Iterator[Comparison]:
    """No page is open."""
    time.sleep(SETTLED_SECONDS)  # what it loads when it starts is no idling
    yield _taken(console, seconds, "CPU without a page / 2 % of a core")


def _taken(console: RunningConsole, seconds: float, name: str) -> Comparison:
    before = console.processor_seconds
    time.sleep(seconds)  # the time over which it is counted
    taken = 1000 * (console.processor_seconds - before)
    return paired(name, [taken], [1000 * CPU_SHARE * seconds], unit="ms", bound=("<=", 1.0))


def _beside(console: RunningConsole, callers: Clients, seconds: float, rounds: int) -> Iterator[Comparison]:
    """The same load, in turn while the console works and while it is stopped."""
    work = Work(seconds, PER_SECOND, PUT_SHARE)
    figures: dict[tuple[str, bool], list[float]] = {}
    for number in range(rounds):
        for is_working in (True, False) if number % 2 else (False, True):
            (console.go_on if is_working else console.stop)()
            done = callers.run(work)
            for call, durations in (("put", done.puts), ("read", done.reads)):
                figures.setdefault((call, is_working), []).append(_p99(durations))
    console.go_on()
    for call in ("put", "read"):
        name = f"p99 of {call}s beside a console with a page / without"
        yield paired(name, figures[call, True], figures[call, False], bound=("<=", P99_MAX))


def _p99(durations: list[float]) -> float:
    return statistics.quantiles(durations, n=100)[98] * 1e6
