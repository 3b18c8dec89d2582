"""The workers of the demo: `tripstore triggers run` and `tripstore worker run` in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tripstore.demo.commands import COMMAND
from tripstore.errors import TripstoreError

WAIT_SECONDS = 300.0
POLL_SECONDS = 0.03


class Workers:
    """Starts workers; leaving the block ends those that still run."""

    def __init__(self, name: str, config: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._name = name
        self._config = config
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> int:
        """Start one, of `triggers run MODULE` or `worker run`; its pid."""
        command = [sys.executable, "-c", COMMAND, *arguments, "-c", str(self._config)]
        with open(self._log(len(self._processes)), "wb") as log:
            process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)
        return process.pid

    def kill(self, number: int) -> None:
        """Kill one with -9."""
        self._processes[number].kill()
        self._processes[number].wait()

    def finish(self) -> None:
        """Ask all that run to end, and wait until they gave back what they held."""
        for number, process in enumerate(self._processes):
            if process.poll() is None:
                process.terminate()
                if process.wait(WAIT_SECONDS) != 0:
                    raise self._failure(number)

    def wait_until(self, what: str, is_true: Callable[[], bool]) -> None:
        """Return when it is true; raise when it takes too long or a worker dies by itself."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_true():
            for number, process in enumerate(self._processes):
                if process.poll() not in (None, -9):
                    raise self._failure(number)
            if time.monotonic() > deadline:
                raise TripstoreError(f"After {WAIT_SECONDS:.0f} s it is still not so that {what}.")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is None:
                self.kill(number)

    def _failure(self, number: int) -> TripstoreError:
        words = self._log(number).read_text(errors="replace").strip().splitlines()
        code = self._processes[number].returncode
        return TripstoreError(f"Worker {self._name}-{number} ended with {code}: {words[-1] if words else 'no word'}.")

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}.log"
