"""The crew: writing processes and their journals, as the demo's own process sees them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tripstore.demo.journal import Acknowledged, read_journal
from tripstore.demo.writer import Assignment
from tripstore.errors import TripstoreError

WAIT_SECONDS = 300.0
POLL_SECONDS = 0.02


class Crew:
    """Starts writers, each with a seed of its own; leaving the block ends those that still run."""

    def __init__(self, name: str, config: Path, folder: Path) -> None:
        self._name = name
        self._config = config
        self._folder = folder
        self._stop = folder / f"{name}.stop"
        self._writers: list[subprocess.Popen[bytes]] = []

    def start(self, writers: int, trips: int | None = None) -> None:
        """Start writers that end after so many trips, or when they are told to stop."""
        for _ in range(writers):
            self.start_one(self.seed(len(self._writers)), trips)

    def start_one(self, seed: str, trips: int | None = None) -> None:
        number = len(self._writers)
        assignment = Assignment(str(self._config), str(self._journal(number)), seed, str(self._stop), trips)
        command = [sys.executable, "-m", "tripstore.demo.writer", msgspec.json.encode(assignment).decode()]
        with open(self._log(number), "wb") as log:
            self._writers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def seed(self, number: int) -> str:
        return f"{self._name}-{number}"

    def entries(self, number: int) -> list[Acknowledged]:
        """Return what one writer was promised so far."""
        return read_journal(self._journal(number))

    def all_entries(self) -> list[Acknowledged]:
        return [entry for number in range(len(self._writers)) for entry in self.entries(number)]

    def wait_for_entries(self, least: int) -> None:
        """Return when every writer has been promised so many cells."""
        deadline = time.monotonic() + WAIT_SECONDS
        while any(len(self.entries(number)) < least for number in range(len(self._writers))):
            self._refuse_the_dead()
            if time.monotonic() > deadline:
                raise TripstoreError(f"The writers did not get {least} cells stored within {WAIT_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)

    def kill(self, number: int) -> None:
        """Kill one writer with -9."""
        self._writers[number].kill()
        self._writers[number].wait()

    def finish(self) -> None:
        """Tell the writers to stop, and wait until each has delivered what it had begun."""
        self._stop.touch()
        self.wait()

    def resume(self) -> None:
        """Those that start from now on are not told to stop."""
        self._stop.unlink()

    def wait(self) -> None:
        """Wait until all have ended; one that failed raises with its last words. Those we killed are excused."""
        for number, writer in enumerate(self._writers):
            code = writer.wait(WAIT_SECONDS)
            if code not in (0, -9):
                raise self._failure(number, code)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, writer in enumerate(self._writers):
            if writer.poll() is None:
                self.kill(number)

    def _refuse_the_dead(self) -> None:
        for number, writer in enumerate(self._writers):
            if writer.poll() is not None:
                raise self._failure(number, writer.returncode)

    def _failure(self, number: int, code: int) -> TripstoreError:
        words = self._log(number).read_text(errors="replace").strip().splitlines()
        return TripstoreError(f"Writer {self.seed(number)} ended with {code}: {words[-1] if words else 'not a word'}.")

    def _journal(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}.jsonl"

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}.log"
