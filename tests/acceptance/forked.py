"""`Forked`: our command in a process of its own, forked from one that has imported it: that takes most of a second.

In all else it is as if it had been executed: its pid, folder, environment, streams, signals and exit code are its own.
It ends when all is done that Python does before it takes its modules apart: that would take as long as the command.
How the command itself starts, and ends, is the matter of `test_cli_terminal`, `test_cli_interrupts`, `test_wheel` and
others that execute it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from schemaless_core.failpoints import ENVIRONMENT_VARIABLE, use_folder

TRIPSTORE = str(Path(sys.executable).with_name("tripstore"))
#: What a command line and an environment fit into.
REQUEST_BYTES = 1 << 17
STREAMS = 3
#: What commands import when they are at work.
AT_WORK = ("tripstore.wiring", "tripstore.store", "alembic.command", "alembic.script", "schemaless_core.datastore")


class Forked(subprocess.Popen[str]):
    """A command that runs. The forking process hears how it ended, and says so on a pipe."""

    _ended: int

    def __init__(self, arguments: Sequence[str], **streams: Any) -> None:
        super().__init__([TRIPSTORE, *arguments], text=True, **streams)

    def _execute_child(self, *given: Any) -> None:
        arguments, folder, environment, fds = given[0], given[5], given[6], given[10:16]
        self._ended, theirs = os.pipe()
        try:
            self.pid = _forking(os.getpid()).fork(arguments, str(folder), environment, [*fds[0::3], fds[5], theirs])
            self._child_created = True
        finally:
            os.close(theirs)
            self._close_pipe_fds(*fds)  # type: ignore[attr-defined]  # of Popen itself: the child has its own now

    def _internal_poll(self, *_given: Any, **_named: Any) -> int | None:
        if self.returncode is None and wait([self._ended], 0):
            self._hear()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not wait([self._ended], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._hear()
        return self.returncode

    def _hear(self) -> None:
        said = os.read(self._ended, 16)
        os.close(self._ended)
        # Nothing is said by a process that was killed together with the one that forked it.
        self.returncode = int(said or -signal.SIGKILL)


class Forking:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._ours.close()
        self._process.wait()

    def fork(self, arguments: Sequence[str], folder: str, environment: dict[str, str], fds: Sequence[int]) -> int:
        """Return the pid of a new process that runs the command with these streams."""
        request = json.dumps([list(arguments), folder, environment]).encode()
        socket.send_fds(self._ours, [request], list(fds))
        return int(self._ours.recv(16))


@cache
def _forking(_pid: int) -> Forking:
    """One for each process of a run; it ends with it, as its socket closes."""
    return Forking()


def _serve(requests: socket.socket) -> None:
    """Fork for each request; return in the children alone."""
    awake, wakes = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    told: dict[int, int] = {}
    while True:
        ready = wait([requests.fileno(), awake])
        if awake in ready:
            os.read(awake, 4096)
            _tell_ends(told)
        if requests.fileno() in ready:
            request, fds, _flags, _address = socket.recv_fds(requests, REQUEST_BYTES, STREAMS + 1)
            if not request:
                sys.exit(0)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for fd in [requests.detach(), awake, wakes, *told.values()]:
                    os.close(fd)
                arguments, folder, environment = json.loads(request)
                return _become(arguments, folder, environment, fds)
            told[pid] = fds[STREAMS]
            for fd in fds[:STREAMS]:
                os.close(fd)
            requests.send(str(pid).encode())


def _tell_ends(told: dict[int, int]) -> None:
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        fd = told.pop(pid)
        os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(fd)


def _become(arguments: list[str], folder: str, environment: dict[str, str], fds: list[int]) -> None:
    for number, fd in enumerate(fds[:STREAMS]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv, sys.path[0] = arguments, str(Path(TRIPSTORE).parent)
    # Children that are spawned import the main module of their parent.
    main = sys.modules["__main__"]
    main.__spec__, main.__file__ = None, TRIPSTORE
    unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin, sys.stdout, sys.stderr = (
        TextIOWrapper(
            open(number, mode),  # noqa: SIM115  # for as long as the process
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=number == 2 or os.isatty(number),
            write_through=unbuffered,
        )
        for number, (mode, stream) in enumerate([("rb", sys.stdin), ("wb", sys.stdout), ("wb", sys.stderr)])
    )
    use_folder(Path(environment[ENVIRONMENT_VARIABLE]) if ENVIRONMENT_VARIABLE in environment else None)


def _run(fd: int) -> None:
    from tripstore.cli import main
    from tripstore.cli.root import PLACES

    for module in [*AT_WORK, *(place.module for place in PLACES.values())]:
        import_module(module)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _serve(socket.socket(fileno=fd))
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        _end(end.code)
        raise


def _end(code: int) -> None:
    """End as Python does, in its order; return when a stream cannot take what is left: that is Python's to say."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads; no public name does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return
    os._exit(code)


if __name__ == "__main__":
    _run(int(sys.argv[1]))
