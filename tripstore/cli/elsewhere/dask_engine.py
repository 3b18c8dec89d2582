"""`DaskEngine`: tasks of a Dask scheduler. It repeats those of workers that died, and those whose answer died with one.

A task goes to it as a function by value that imports ours where it runs: its scheduler needs no tripstore. Its own
encryption and time limits are those of Dask's configuration on this host.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from schemaless_core.version import VERSION
from tripstore.cli.elsewhere.address import EngineAddress
from tripstore.cli.elsewhere.engine import HostStanding, TaskOrder, TaskOutcome
from tripstore.cli.elsewhere.errors import EngineUnavailable, HostsUnfit

if TYPE_CHECKING:
    from distributed import Future

logger = logging.getLogger(__name__)

#: Each of the three steps of Dask's connecting.
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
#: How long a worker may take to say what it is; one at other work does not say so in time.
LOOK_SECONDS = 15.0
#: Dask tries to reach a scheduler again by itself; after so long it is lost.
LOST_SECONDS = 10.0
#: A look at workers goes before work that waits.
FIRST = 1_000

Remote = Callable[..., dict[str, Any]]


class DaskEngine:
    """One connection to a scheduler."""

    def __init__(self, address: EngineAddress, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            from distributed import Client  # the extra may not be installed; without --on, nothing waits for it
            from distributed.versions import VersionMismatchWarning
        except ImportError as error:
            hint = "Install it: pip install 'tripstore[dask]'."
            raise HostsUnfit(f"`--on {address}` needs {error.name}, which is not installed.", hint=hint) from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a command says itself what came of it
        self.name = str(address)
        self._clock = clock
        self._gone_since: float | None = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VersionMismatchWarning)  # what matters of it is an error below
                self._client = Client(address.of_dask, timeout=CONNECT_SECONDS, set_as_default=False, name="tripstore")
        except Exception as error:  # whatever answers there, in whatever way it fails to be a scheduler of Dask
            raise EngineUnavailable(
                f"No Dask scheduler answers at {address} ({type(error).__name__}: {_line(error)}).",
                hint="Look at host and port, at firewalls, and whether it takes TLS alone: tls+dask://.",
            ) from error
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def hosts(self) -> Mapping[str, HostStanding | None]:
        from distributed import wait

        asked = {
            address: self._client.submit(
                _looking(), workers=[address], allow_other_workers=False, pure=False, priority=FIRST
            )
            for address in self._workers()
        }
        with self._client.as_current(), suppress(TimeoutError):  # who has not answered by then is told of as silent
            wait(list(asked.values()), timeout=LOOK_SECONDS)
        return {address: _standing(future) if future.done() else None for address, future in asked.items()}

    def count(self) -> int:
        return len(self._workers())

    def submit(self, order: TaskOrder) -> DaskTask:
        try:
            return DaskTask(self._client.submit(_running(), msgspec.to_builtins(order), pure=False))
        except Exception as error:  # its client is closed, or closing
            raise EngineUnavailable(f"{self.name} takes no task ({type(error).__name__}).") from error

    @property
    def is_lost(self) -> bool:
        if self._client.status == "running":
            self._gone_since = None
            return False
        if self._gone_since is None:
            self._gone_since = self._clock()
        return self._client.status == "closed" or self._clock() - self._gone_since >= LOST_SECONDS

    def close(self) -> None:
        try:
            self._client.close(timeout=CLOSE_SECONDS)
        except Exception:  # it is gone, and its client complains
            logger.debug("the client of Dask did not close", exc_info=True)

    def _workers(self) -> list[str]:
        if self._client.status != "running":  # asked now, it would wait for the scheduler to come back
            raise EngineUnavailable(f"{self.name} does not answer.")
        try:
            return sorted(self._client.nthreads())
        except Exception as error:  # as above
            raise EngineUnavailable(f"{self.name} does not answer ({type(error).__name__}).") from error

    def _check_versions(self) -> None:
        """Functions by value are of one Python, and Dask's own words of one Dask."""
        found = self._client.get_versions()
        ours = _versions(found["client"])
        others = {"its scheduler": found["scheduler"], **found["workers"]}
        for name, each in others.items():
            if each is not None and _versions(each) != ours:
                raise HostsUnfit(
                    f"{name} of {self.name} has {_told(_versions(each))}, and this host has {_told(ours)}.",
                    hint="Install one version of both on all hosts; --detach leaves the job to `tripstore worker run`.",
                )


class DaskTask:
    """A future of Dask."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def look(self) -> TaskOutcome | None:
        status = self._future.status
        if status == "pending":
            return None
        if status == "finished":
            try:
                return msgspec.convert(self._future.result(timeout=LOST_SECONDS), TaskOutcome)
            except Exception as error:  # noqa: BLE001  # the worker that had the answer has died just now
                return TaskOutcome(reason=type(error).__name__, is_lost=True)
        if status == "error":
            return _of_error(self._future.exception(timeout=LOST_SECONDS))
        return TaskOutcome(reason=status, is_lost=True)  # cancelled, lost: its scheduler has forgotten it

    def forget(self) -> None:
        try:
            self._future.cancel()
        except Exception:  # the scheduler is gone, and its tasks with it
            logger.debug("a task of Dask was not cancelled", exc_info=True)


def _of_error(error: BaseException | None) -> TaskOutcome:
    """Ours answer whatever happens: it is Dask that could not run it."""
    from distributed.scheduler import KilledWorker

    if error is None or isinstance(error, KilledWorker):
        return TaskOutcome(reason="the workers that had it died", is_lost=True)
    return TaskOutcome(reason=_unfit(error), hint=_INSTALL)


def _standing(future: Future) -> HostStanding | None:
    if future.status != "finished":
        error = future.exception() if future.status == "error" else None
        return None if error is None else HostStanding(reason=_unfit(error), hint=_INSTALL)
    with suppress(TimeoutError):  # it died with its answer, and only it may answer
        return msgspec.convert(future.result(timeout=LOST_SECONDS), HostStanding)
    return None


_INSTALL = f"Install tripstore {VERSION} with the extra `dask` where its workers run, and start them again."


def _unfit(error: BaseException) -> str:
    return f"it cannot run tasks of tripstore {VERSION} ({type(error).__name__}: {_line(error)})"


def _running() -> Remote:
    def run(document: dict[str, Any]) -> dict[str, Any]:
        from tripstore.cli.elsewhere.task import run_task

        return run_task(document)

    return run


def _looking() -> Remote:
    def look() -> dict[str, Any]:
        from tripstore.cli.elsewhere.task import look_here

        return look_here()

    return look


def _versions(of_host: Mapping[str, Any]) -> tuple[str, str]:
    packages = of_host["packages"]
    return ".".join(str(packages["python"]).split(".")[:2]), str(packages["distributed"])


def _told(versions: tuple[str, str]) -> str:
    python, distributed = versions
    return f"Python {python} and distributed {distributed}"


def _line(error: BaseException) -> str:
    """The first line of what it says."""
    return next(iter(str(error).splitlines()), "")[:200]
