"""`CommandRuns`: commands that the console has begun, each a process of its own, and what they said.

A command outlives the console that began it: a switch that is under way ends as it would have in a shell. What it
prints goes to a file without a name, so nothing that it writes fails for want of a reader.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import msgspec

from tripstore.demo.commands import COMMAND
from tripstore.http.errors import RequestRefused

logger = logging.getLogger(__name__)

#: Commands at work at the same time, plans among them.
AT_WORK_MAX = 8
#: Changes that are shown on after their end.
KEPT_MAX = 50
#: Of what one prints.
SAID_BYTES_MAX = 200_000
#: A plan looks at both stores, within their own deadlines.
PLAN_SECONDS = 120.0


class RunView(msgspec.Struct, frozen=True):
    """A command of this console; `code` is negative for a signal, null while it is at work."""

    id: str
    title: str
    line: str
    begun_at: datetime
    ended_at: datetime | None
    code: int | None
    #: What it said last.
    last: str


class RunsView(msgspec.Struct, frozen=True):
    """The newest first."""

    runs: list[RunView]


class CommandRun:
    """One command, from its start on."""

    def __init__(self, action: str, title: str, words: Sequence[str], config: Path, columns: int) -> None:
        self.id = secrets.token_urlsafe(9)
        self.action = action
        self.title = title
        self.line = shlex.join(["tripstore", *words])
        self.begun_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self.code: int | None = None
        self._out, self._err = CommandOutput(), CommandOutput()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, "-c", str(config), *words],
            stdin=subprocess.DEVNULL,
            stdout=self._out.file,
            stderr=self._err.file,
            env={name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
            | {"COLUMNS": str(columns)},
            start_new_session=True,  # Ctrl-C ends the console alone
        )

    @property
    def printed(self) -> str:
        """Of stdout, as far as it goes."""
        return self._out.text()

    @property
    def said(self) -> str:
        """Of stderr."""
        return self._err.text()

    def follow(self, seconds: float | None = None) -> None:
        """Return when it has ended; one that takes longer is killed, with what it began."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        for each in (self._out, self._err):
            each.end()
        self.ended_at = datetime.now(UTC)
        self.code = self._process.returncode

    def kill(self) -> None:
        """With what it began."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def view(self) -> RunView:
        printed = self.printed
        text = self.said + ("" if printed.startswith("{") else printed)  # a document is shown when it is opened
        lines = [line for line in text.splitlines() if line.strip()]
        return RunView(self.id, self.title, self.line, self.begun_at, self.ended_at, self.code, "".join(lines[-1:]))


class CommandOutput:
    """What a command writes to a stream: a file while it is at work, a text afterwards."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # until the command ends
        self._lock = threading.Lock()
        self._text: str | None = None

    def text(self) -> str:
        with self._lock:
            if self._text is not None:
                return self._text
            # From its beginning: the command's own place in the file stays.
            return os.pread(self.file.fileno(), SAID_BYTES_MAX, 0).decode("utf-8", "replace")

    def end(self) -> None:
        text = self.text()
        with self._lock:
            self._text = text
            self.file.close()


class CommandRuns:
    """Those of one console."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._kept: dict[str, CommandRun] = {}
        self._free = threading.BoundedSemaphore(AT_WORK_MAX)

    def plan(self, action: str, title: str, words: Sequence[str], columns: int) -> CommandRun:
        """Run a command that changes nothing, to its end."""
        self._take_place()
        try:
            run = CommandRun(action, title, words, self._config, columns)
            run.follow(PLAN_SECONDS)
        finally:
            self._free.release()
        return run

    def begin(
        self, action: str, title: str, words: Sequence[str], columns: int, ended: Callable[[], None]
    ) -> CommandRun:
        """Start one that changes something; `ended` is called in a thread when it has ended."""
        self._take_place()
        try:
            run = CommandRun(action, title, words, self._config, columns)
        except BaseException:
            self._free.release()
            raise
        with self._lock:
            self._forget_old()
            self._kept[run.id] = run
        logger.info("a change was begun", extra={"event": "console.change_begun", "command": run.line})
        threading.Thread(target=self._follow, args=(run, ended), name=f"console-{action}", daemon=True).start()
        return run

    def find(self, run_id: str) -> CommandRun | None:
        with self._lock:
            return self._kept.get(run_id)

    def view(self) -> RunsView:
        with self._lock:
            runs = list(self._kept.values())
        return RunsView([each.view() for each in reversed(runs)])

    def at_work(self) -> list[CommandRun]:
        """Those that go on without the console."""
        with self._lock:
            return [each for each in self._kept.values() if each.code is None]

    def _take_place(self) -> None:
        if not self._free.acquire(blocking=False):
            hint = "Wait for one of them to end."
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, f"{AT_WORK_MAX} commands are at work.", hint=hint)

    def _forget_old(self) -> None:
        ended = [each.id for each in self._kept.values() if each.code is not None]
        for run_id in ended[: max(len(self._kept) - KEPT_MAX + 1, 0)]:
            del self._kept[run_id]

    def _follow(self, run: CommandRun, ended: Callable[[], None]) -> None:
        run.follow()
        self._free.release()
        extra = {"event": "console.change_ended", "command": run.line, "code": run.code}
        logger.info("a change has ended", extra=extra)
        ended()
