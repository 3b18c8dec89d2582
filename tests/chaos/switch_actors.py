"""Processes around a hand-over: services that use the facade, services that write the tables, whoever switches.

Each service keeps a journal of what it was told is stored. Sabotages are named, and undone by the end of the process.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from schemaless_core.failpoints import use_folder
from tests.chaos.actors import end, wait_until
from tests.integration.creation import FORK_SERVER
from tripstore.backends.postgres.cells import fence
from tripstore.handover.ports import Operation
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort
from tripstore.store import TripStore
from tripstore.wiring import connect

FORK_SERVER.set_forkserver_preload(["__main__", "tests.integration.creation", __name__])


def without_fences() -> None:
    """Whoever asks passes every gate, at whatever epoch."""

    def at_postgres(self: RealLegacyPort, operation: Operation[Any], epoch: int) -> Any:
        return operation(self._backend.as_mirror())

    def at_schemaless(self: SchemalessPort, operation: Operation[Any], epoch: int) -> Any:
        return operation(self._datastore.as_copier())

    RealLegacyPort.call = at_postgres  # type: ignore[method-assign]
    SchemalessPort.call = at_schemaless  # type: ignore[method-assign]


def without_epochs_of_reads() -> None:
    """What was read at Postgres counts, whatever its gate says afterwards."""
    fence.counts = lambda value, epoch: True


SABOTAGES: dict[str, Callable[[], None]] = {
    "no fences": without_fences,
    "reads always count": without_epochs_of_reads,
}


class ServiceRaised(Exception):
    """What a call of a service raised, by its name."""

    def __init__(self, name: str, trace: str) -> None:
        super().__init__(trace)
        self.name = name


class Service:
    """A service in a process of its own. It does one thing after the other, as it is told."""

    def __init__(self, document: Mapping[str, Any], failpoints: Path, sabotage: str = "") -> None:
        self._failpoints = failpoints
        self._pipe, theirs = FORK_SERVER.Pipe()
        arguments = (theirs, dict(document), str(failpoints), sabotage)
        self._process: BaseProcess = FORK_SERVER.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Have it done, and return what the service was answered."""
        self.begin(operation, *arguments, **options)
        return self.result()

    def begin(self, operation: str, *arguments: Any, **options: Any) -> None:
        self._pipe.send((operation, arguments, options))

    def stop_at(self, point: str) -> None:
        """What it does next stops it there."""
        (self._failpoints / f"{point}.hit").unlink(missing_ok=True)
        (self._failpoints / point).write_text("stop")

    def wait_until_stopped(self, point: str) -> None:
        wait_until(f"it stopped at {point}", (self._failpoints / f"{point}.hit").exists, 20)
        wait_until("it is stopped", lambda: is_stopped(self._process.pid), 20)

    def go_on(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def result(self, seconds: float = 60) -> Any:
        assert self._pipe.poll(seconds), "the service does not answer"
        kind, value = self._pipe.recv()
        if kind == "raised":
            raise ServiceRaised(*value)
        return value

    def close(self) -> None:
        end(self._process)
        self._pipe.close()


def is_stopped(pid: int | None) -> bool:
    return _state(pid) == "T"


def _state(pid: int | None) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return ""


def _serve(pipe: Connection, document: Mapping[str, Any], failpoints: str, sabotage: str) -> None:
    use_folder(Path(failpoints))
    if sabotage:
        SABOTAGES[sabotage]()
    with connect(document) as store, suppress(EOFError):
        while True:
            operation, arguments, options = pipe.recv()
            pipe.send(_answer(store, operation, arguments, options))


def _answer(store: TripStore, operation: str, arguments: Any, options: Any) -> tuple[str, Any]:
    try:
        return "answered", getattr(store, operation)(*arguments, **options)
    except Exception as error:  # noqa: BLE001  # the test's own process hears of it
        return "raised", (type(error).__name__, "".join(traceback.format_exception(error)))
