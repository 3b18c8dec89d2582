"""Servers for a developer's day: started by one command, used by others, stopped by a third.

This file knows the folder with the state and the config, and how to reach the process that holds the servers;
that process is `dev_owner`.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from schemaless_core.process.private import FOLDER_OWNER_ONLY, private
from tripstore.local.errors import LocalServerError
from tripstore.local.processes import birth

OWNER = "tripstore.local.dev_owner"
DOWN_SECONDS = 90.0
POLL_SECONDS = 0.02

DevEngine = Literal["mariadb", "mysql", "sqlite"]
Role = Literal["primary", "replica", "postgres"]


class DevOptions(msgspec.Struct, frozen=True):
    """What to start."""

    engine: DevEngine = "mariadb"
    clusters: int = 2
    replicas: int = 1
    postgres: bool = True
    shards: int = 64


class DevServer(msgspec.Struct, frozen=True):
    """One server as the state file describes it."""

    name: str
    role: Role
    cluster: str | None
    engine: str
    port: int
    pid: int
    url: str


class DevState(msgspec.Struct, frozen=True):
    """What is up: written by the owner process, read by every command."""

    owner_pid: int
    owner_birth: int
    options: DevOptions
    config: str
    data: str
    """The temporary folder of the servers; it goes when they go."""
    servers: list[DevServer]
    company: str | None = None
    """The URL of an empty database for a company's tables; None without Postgres."""

    @property
    def is_owner_alive(self) -> bool:
        """Return whether the very process that wrote this lives."""
        return birth(self.owner_pid) == self.owner_birth


class DevFailure(msgspec.Struct, frozen=True):
    """Why the owner could not start the servers."""

    message: str
    hint: str


FOLDER = Path(".tripstore-dev")
#: The database for a company's tables.
COMPANY = "company"


def nearest_folder() -> Path | None:
    """Where `tripstore dev up` was called: here, or in a folder around this one."""
    here = Path.cwd()
    return next((place / FOLDER for place in (here, *here.parents) if (place / FOLDER).is_dir()), None)


class DevFolder:
    """The folder of one set of servers: `tripstore.yaml`, `state.json`, `owner.log`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.config = self.folder / "tripstore.yaml"
        self.state_file = self.folder / "state.json"
        self.log = self.folder / "owner.log"

    def find(self) -> DevState | None:
        """Return the state of servers whose owner lives, else None."""
        try:
            state = msgspec.json.decode(self.state_file.read_bytes(), type=DevState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise LocalServerError(
                f"{self.state_file} is not ours: {error}.", "Choose another --folder, or remove the file."
            ) from error
        return state if state.is_owner_alive else None

    def up(self, options: DevOptions) -> tuple[DevState, bool]:
        """Start the servers and return their state, and True; or what is up already, and False."""
        self.folder.mkdir(mode=FOLDER_OWNER_ONLY, parents=True, exist_ok=True)
        with self._alone():
            state = self.find()
            return (state, False) if state is not None else (self._start_owner(options), True)

    def down(self) -> bool:
        """End the servers and wait until processes and files are gone; False when there were none."""
        if not self.folder.exists():
            return False
        with self._alone():
            state = self.find()
            if state is not None:
                os.kill(state.owner_pid, signal.SIGTERM)
                _wait_until_gone(state)
            self.forget()
            return state is not None

    def write(self, state: DevState, config: str) -> None:
        """Write config and state, for this user's eyes only: they hold passwords."""
        _write_private(self.config, config.encode())
        _write_private(self.state_file, msgspec.json.format(msgspec.json.encode(state)))

    def forget(self) -> None:
        """Remove state and config, whose addresses lead nowhere any more."""
        self.state_file.unlink(missing_ok=True)
        self.config.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.folder / "lock", "w", encoding="utf-8", opener=private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _start_owner(self, options: DevOptions) -> DevState:
        """Run the owner, which goes on in the background and closes its output once the servers answer."""
        command = [sys.executable, "-m", OWNER, str(self.folder), msgspec.json.encode(options).decode()]
        self.log.unlink(missing_ok=True)  # an earlier one may be everybody's to read
        with open(self.log, "wb", opener=private) as log:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        if not done.stdout:
            raise LocalServerError("The servers' owner process ended without a word.", f"Read {self.log}.")
        answer = msgspec.json.decode(done.stdout, type=dict[str, msgspec.Raw])
        if "message" in answer:
            failure = msgspec.json.decode(done.stdout, type=DevFailure)
            raise LocalServerError(failure.message, failure.hint)
        return msgspec.json.decode(done.stdout, type=DevState)


def is_up(server: DevServer) -> bool:
    """Return whether the server's process lives and its port is listened on."""
    if server.engine == "sqlite":
        return True
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=1.0):
            return birth(server.pid) is not None
    except OSError:
        return False


def _wait_until_gone(state: DevState) -> None:
    deadline = time.monotonic() + DOWN_SECONDS
    while state.is_owner_alive or Path(state.data).exists():
        if time.monotonic() > deadline:
            raise LocalServerError(
                f"The servers' owner (pid {state.owner_pid}) did not end within {DOWN_SECONDS:.0f} s.",
                f"End it with `kill -9 {state.owner_pid}`; its janitor clears the rest.",
            )
        time.sleep(POLL_SECONDS)


def _write_private(path: Path, content: bytes) -> None:
    staging = path.with_name(f".{path.name}.staging")
    staging.unlink(missing_ok=True)
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    staging.rename(path)
