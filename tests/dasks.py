"""A Dask scheduler and workers as processes: on the loopback address, without dashboards, in little memory."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.chaos.actors import wait_until
from tripstore.cli.elsewhere.address import EngineAddress

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
LOOPBACK = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
#: A worker is quick, takes one task at a time, and lives as long as it is not killed.
WORKER = ("--nthreads", "1", "--no-nanny", "--memory-limit", "600MB", "--death-timeout", "60")
#: A process that cannot import ours.
WITHOUT_TRIPSTORE = "import sys\nsys.modules['tripstore'] = None\n"
#: What its threads are at stands in its log when a test has waited for long.
STACKS = "import faulthandler\nfaulthandler.dump_traceback_later(60, repeat=True)\n"
#: Dask would look at its memory, and at the disk, several times a second.
SETTINGS = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "PYTHONUNBUFFERED": "1",
}


@dataclass
class DaskHosts:
    """A scheduler, and workers that come and go."""

    folder: Path
    scheduler: subprocess.Popen[str]
    #: As Dask writes it.
    contact: str
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _count: int = 0

    @property
    def url(self) -> str:
        return self.contact.replace("tcp://", "dask://").replace("tls://", "tls+dask://")

    @property
    def address(self) -> EngineAddress:
        host, _, port = self.contact.removeprefix("tcp://").partition(":")
        return EngineAddress("dask", host, int(port))

    @property
    def log(self) -> str:
        return "".join(each.read_text() for each in sorted(self.folder.glob("*.log")))

    def add(
        self,
        config: Path | None,
        *,
        failpoints: Path | None = None,
        preload: str = "",
        contact: str = "",
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = WORKER,
    ) -> subprocess.Popen[str]:
        """Another worker, with this configuration; `preload` is run in it before anything else, once or twice."""
        number, self._count = self._count, self._count + 1
        own = self.folder / f"worker-{number}"
        own.mkdir()
        more = dict(environment or {})
        if config is not None:
            more["TRIPSTORE_CONFIG"] = str(config)
        if failpoints is not None:
            more[ENVIRONMENT_VARIABLE] = str(failpoints)
        (own / "before.py").write_text(STACKS + preload)
        preloaded = ["--preload", str(own / "before.py")]
        command = ["worker", contact or self.contact, *LOOPBACK, *options, *preloaded, "--local-directory", str(own)]
        worker = _start(command, own, more, self.folder / f"worker-{number}.log")
        self.workers.append(worker)
        return worker

    def kill_worker(self, number: int) -> None:
        """kill -9 of its process; the scheduler has seen it when this returns."""
        before = self._count_workers()
        self.workers[number].kill()
        self.workers[number].wait()
        wait_until("the scheduler has seen it", lambda: self._count_workers() < before, seconds=START_SECONDS)

    def kill_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()

    def end(self) -> None:
        for worker in self.workers:
            _end(worker)

    def wait_for(self, workers: int) -> None:
        """Until so many are with the scheduler, which says so in its log: a client of Dask would need a loop here."""
        wait_until(f"{workers} workers have come", lambda: self._count_workers() >= workers, seconds=START_SECONDS)

    def _count_workers(self) -> int:
        said = (self.folder / "scheduler.log").read_text()
        come, gone = (set(re.findall(rf"{word} worker addr: (\S+)", said)) for word in ("Register", "Remove"))
        return len(come - gone)


@contextmanager
def dask_hosts(
    folder: Path, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[DaskHosts]:
    """None of its processes outlives the block. The scheduler has no tripstore."""
    folder.mkdir()
    contact, before = folder / "scheduler.json", folder / "before.py"
    before.write_text(WITHOUT_TRIPSTORE)
    said = ["--scheduler-file", str(contact), "--preload", str(before)]
    command = ["scheduler", "--port", "0", *LOOPBACK, *said, *options]
    with ExitStack() as ending:
        scheduler = _start(command, folder, environment or {}, folder / "scheduler.log")
        ending.callback(_end, scheduler)
        wait_until("the scheduler listens", lambda: _is_whole(contact), seconds=START_SECONDS)
        hosts = DaskHosts(folder, scheduler, json.loads(contact.read_text())["address"])
        ending.callback(hosts.end)
        yield hosts


def _start(command: Sequence[str], folder: Path, more: Mapping[str, str], log: Path) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "TRIPSTORE_CONFIG"}
    path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    with log.open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            cwd=folder,
            env={**kept, **SETTINGS, "DASK_TEMPORARY_DIRECTORY": str(folder), "PYTHONPATH": path, **more},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def _is_whole(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text())["address"])
    except (OSError, ValueError):
        return False


class Recorder:
    """A port that leads to another one, and remembers each byte that passes, in both directions."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._heard: list[bytes] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="recorder", daemon=True).start()

    @property
    def heard(self) -> bytes:
        with self._lock:
            return b"".join(self._heard)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._target)
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with source, suppress(OSError):
            while chunk := source.recv(65_536):
                with self._lock:
                    self._heard.append(chunk)
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
