"""The real command in a process of its own, and a datastore in folders that has its shards."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.acceptance.forked import Forked
from tripstore.cli.run import run as run_here

SHARDS = 4
_PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout; a second one would be no JSON."""
        return msgspec.json.decode(self.stdout)

    @property
    def complaint(self) -> str:
        """What it said on stderr, which was no traceback."""
        assert "Traceback" not in self.stderr
        return self.stderr


@dataclass(frozen=True)
class Shell:
    """A folder to run commands in."""

    folder: Path

    def run(self, *arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> Ran:
        environment = self.environment | (environment or {})
        with Forked(arguments, cwd=self.folder, env=environment, **_PIPES) as process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=60)
            finally:
                process.kill()
        return Ran(process.returncode, stdout, stderr)

    def call(self, *arguments: str) -> Ran:
        """Run a command in this process, which is quicker: for preparations, and for many cases of one kind."""
        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = run_here(list(arguments))
        return Ran(code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command and leave it running; its stdout and stderr are pipes."""
        environment = self.environment | {"PYTHONUNBUFFERED": "1"} | (environment or {})
        return Forked(arguments, cwd=self.folder, env=environment, **_PIPES | {"stdin": subprocess.DEVNULL})

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "TRIPSTORE_CONFIG"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A datastore in folders with all its shards and no cell; made once, by the command itself."""
    folder = tmp_path_factory.mktemp("template")
    made = Shell(folder)
    assert made.run("init", "--shards", str(SHARDS)).code == 0
    assert made.run("schema", "apply").code == 0
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Shell:
    """A folder with a tripstore.yaml and a datastore of its own."""
    folder = tmp_path / "store"
    shutil.copytree(template, folder)
    return Shell(folder)
