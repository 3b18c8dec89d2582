"""What every server here can do, whatever its engine: start, stop, die, freeze, run out of disk.

An engine says only how its data folder is prepared, which command runs it, and how to ask whether it answers.
"""

import pwd
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from schemaless_core.process.private import private
from tripstore.local.disk import Disk
from tripstore.local.errors import LocalServerError
from tripstore.local.ports import release
from tripstore.local.processes import Mark
from tripstore.local.proxy import Proxy

START_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02

NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True)
class ServerPlace:
    """Where a server lives: its name, folder, port and disk; environment and mark of its processes."""

    name: str
    folder: Path
    port: int
    disk: Disk
    environment: Mapping[str, str]
    mark: Mark

    @property
    def data(self) -> Path:
        """Return the data folder, which lies on the disk beside the ballast."""
        return self.disk.folder / "data"


class Server(ABC):
    """One database server on this machine. Prepared when built, and down until `start`."""

    engine: ClassVar[str]
    scheme: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    run_as: pwd.struct_passwd | None = None
    """The user to run as; None means as ourselves."""

    def __init__(self, place: ServerPlace) -> None:
        self.place = place
        self.name = place.name
        self.folder = place.folder
        self.port = place.port
        self.password = self._prepare()
        self._process: subprocess.Popen[bytes] | None = None
        self._proxies: list[Proxy] = []

    @property
    def url(self) -> str:
        """Return the address with user and password, without a database."""
        return self.url_at(self.port)

    @property
    def pid(self) -> int | None:
        """Return the pid of the server's first process, or None while it is down."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Return whether the process lives; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pids(self) -> list[int]:
        """Return every process of this server: one for MariaDB and MySQL, many for Postgres."""
        return self.place.mark.pids()

    def start(self) -> None:
        """Start and return when it answers. Running already: nothing; one that was about to end is started anew."""
        was_running = self.is_running
        self.launch()
        try:
            self.wait_until_ready()
        except LocalServerError:
            if not was_running or self.is_running:
                raise
            self.launch()
            self.wait_until_ready()

    def launch(self) -> None:
        """Start the process without waiting, so that several servers can start together."""
        if self.is_running:
            return
        with open(self._log, "ab", opener=private) as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=dict(self.place.environment),
                start_new_session=True,  # Ctrl-C is for the owner, who then closes in order
                user=self.run_as and self.run_as.pw_uid,
                group=self.run_as and self.run_as.pw_gid,
                extra_groups=self.run_as and [],
            )

    def wait_until_ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Return when the server answers; one that ended or keeps silent raises with the tail of its log."""
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            if not self.is_running:
                raise self._failure("ended while starting")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {timeout_seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        release(self.port)

    def stop(self) -> None:
        """Shut down cleanly and wait. Down already: nothing."""
        if self._process is None or not self.is_running:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not stop within {STOP_SECONDS:.0f} s") from None

    def kill(self) -> None:
        """End every process of this server by SIGKILL, as a power cut would, and reap it. Data stay."""
        self.place.mark.kill()
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze every process: connections are accepted by the kernel and not answered."""
        self.place.mark.freeze()

    def resume(self) -> None:
        """Let a paused server go on."""
        self.place.mark.signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """Leave no byte on the server's own disk; refused without `disk_megabytes`.

        Tables are on it, binary logs are not. MySQL refuses inserts at once, MariaDB after some seconds; MariaDB
        aborts when even a rollback needs room (large bodies). `free_disk` and `start` bring it back.
        """
        self.place.disk.fill()

    def free_disk(self) -> None:
        """Give the space back."""
        self.place.disk.free()

    def proxy(self) -> Proxy:
        """Return a new TCP proxy in front of this server, which lives in this process until `close`."""
        proxy = Proxy(self.port, self.url_at)
        self._proxies.append(proxy)
        return proxy

    def close(self) -> None:
        """Kill the server and close its proxies."""
        for proxy in self._proxies:
            proxy.close()
        self.kill()

    @abstractmethod
    def url_at(self, port: int) -> str:
        """Return the address of this server as reached by another port."""

    @abstractmethod
    def _prepare(self) -> str:
        """Make data folder and settings; return the password."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether a client can log in and ask."""

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _failure(self, what: str) -> LocalServerError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(lines[-15:])
        return LocalServerError(f"{self.engine} server {self.name!r} {what}. Its log ends:\n{tail}\n")
