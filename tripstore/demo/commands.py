"""`Commands`: the real `tripstore` in processes of its own, as a person runs it, with what its document says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tripstore.errors import TripstoreError

#: After which it hangs: a machine that is busy with other things takes minutes for what takes seconds else.
WAIT_SECONDS = 900.0
#: The command, wherever the environment has put its script.
COMMAND = "from tripstore.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended, and its JSON document."""

    code: int
    document: Any


class Commands:
    """Runs commands in the folder of a playground."""

    def __init__(self, config: Path, seconds: float = WAIT_SECONDS) -> None:
        self._config = config
        self._seconds = seconds

    def run(self, line: str, *, codes: Sequence[int] = (0,)) -> Ran:
        """Run a line as a person would type it, with --json; another exit code than these is an error."""
        command = self._command(line)
        try:
            done = subprocess.run(
                command,
                cwd=self._config.parent,
                capture_output=True,
                text=True,
                timeout=self._seconds,
                env=self._environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            hint = "Look at what else this machine does, and repeat the demo."
            raise TripstoreError(f"`{line}` had not ended after {self._seconds:,.0f} s.", hint=hint) from None
        if done.returncode not in codes:
            raise TripstoreError(f"`{line}` ended with exit code {done.returncode}. {complaint_of(done.stderr)}")
        return Ran(done.returncode, msgspec.json.decode(done.stdout or "null"))

    def start(self, line: str) -> subprocess.Popen[bytes]:
        """Start one and leave it running; its output is dropped."""
        return subprocess.Popen(
            self._command(line),
            cwd=self._config.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )

    def _command(self, line: str) -> list[str]:
        _program, *arguments = shlex.split(line)
        return [sys.executable, "-c", COMMAND, *arguments, "--json"]

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TRIPSTORE_CONFIG": str(self._config)}


def complaint_of(stderr: str) -> str:
    """What a command complained of, with its hint; what came before is its progress."""
    _progress, found, complaint = stderr.rpartition("Error: ")
    return " ".join((complaint if found else stderr).split()) or "It printed nothing."
